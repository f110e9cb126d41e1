#!/usr/bin/env node
// One session of the TypeScript SDK's client with the reference server
// "everything", which COMMAND is or leads to: everything that the protocol
// offers up to revision 2025-11-25, checked from the client's side.
//
//   node exercise.mjs COMMAND [ARGS...]
//
// The last line is `N passed, N failed`. Exit status: 0 when nothing failed,
// 1 when something did, 2 when there was no session at all.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { InMemoryTaskStore } from '@modelcontextprotocol/sdk/experimental/tasks';
import { CreateMessageRequestSchema, ElicitRequestSchema, ListRootsRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { Suite, Wire } from './checks.mjs';
import basics from './exercise-basics.mjs';
import lists from './exercise-lists.mjs';
import questions from './exercise-questions.mjs';
import tasks from './exercise-tasks.mjs';

const [command, ...args] = process.argv.slice(2);
if (!command) {
  console.error('usage: exercise.mjs COMMAND [ARGS...]');
  process.exit(2);
}

const taskStore = new InMemoryTaskStore();
const client = new Client({ name: 'exercise', version: '1.0.0' }, {
  capabilities: {
    roots: { listChanged: true },
    sampling: {},
    elicitation: { form: {}, url: {} },
    tasks: { list: {}, cancel: {}, requests: { sampling: { createMessage: {} }, elicitation: { create: {} } } },
  },
  taskStore,
});

// What the client answers when the server asks; checks put their own in place.
const answers = {
  roots: [{ uri: 'file:///exercise/one', name: 'root-one' }, { uri: 'file:///exercise/two', name: 'root-two' }],
  sampling: () => ({ model: 'exercise-model', role: 'assistant', stopReason: 'endTurn', content: { type: 'text', text: 'a sampled answer' } }),
  elicitation: () => ({ action: 'cancel' }),
};
// A server may want its question worked on as a task of the client.
const maybeTask = async (request, extra, result) => {
  if (!request.params.task || !extra.taskStore) return result;
  const task = await extra.taskStore.createTask({ ttl: extra.taskRequestedTtl, pollInterval: 50 });
  setImmediate(() => extra.taskStore.storeTaskResult(task.taskId, 'completed', result));
  return { task };
};
client.setRequestHandler(ListRootsRequestSchema, async () => ({ roots: answers.roots }));
client.setRequestHandler(CreateMessageRequestSchema, async (r, extra) => maybeTask(r, extra, await answers.sampling(r.params)));
client.setRequestHandler(ElicitRequestSchema, async (r, extra) => maybeTask(r, extra, await answers.elicitation(r.params)));

const unplaced = [];
client.onerror = (e) => { if (!/progress notification for an unknown token/.test(e.message)) unplaced.push(e.message); };

const transport = new StdioClientTransport({ command, args, env: process.env, stderr: 'inherit' });
let version;
transport.setProtocolVersion = (v) => { version = v; };

const wire = new Wire();
wire.attach(transport);
const suite = new Suite(30_000);
if (!await suite.step('connect', () => client.connect(transport))) process.exit(2);
const session = {
  client, wire, answers, unplaced,
  get version() { return version; },
  call: (name, args = {}, options = {}) => client.callTool({ name, arguments: args }, undefined, options),
};
for (const part of [basics, lists, questions, tasks]) part(suite, session);
suite.check('everything that came had its place', async () => {
  if (unplaced.length) throw new Error(unplaced.join('; '));
});
suite.check('close', async () => {
  const ended = new Promise((resolve) => { const close = transport.onclose; transport.onclose = () => { close?.(); resolve(); }; });
  await client.close();
  taskStore.cleanup();
  await ended;
});
process.exit(await suite.run() ? 0 : 1);
