// Lists, resources, prompts, completion and log levels.
import assert from 'node:assert/strict';
import { EmptyResultSchema } from '@modelcontextprotocol/sdk/types.js';
import { notified, refused } from './checks.mjs';

// The tools at the end are offered only to a client with the capability for them.
const TOOLS = [
  'echo', 'get-annotated-message', 'get-env', 'get-resource-links', 'get-resource-reference', 'get-structured-content', 'get-sum',
  'get-tiny-image', 'gzip-file-as-resource', 'simulate-research-query', 'toggle-simulated-logging', 'toggle-subscriber-updates',
  'trigger-long-running-operation',
  'get-roots-list', 'trigger-elicitation-request', 'trigger-elicitation-request-async', 'trigger-sampling-request',
  'trigger-sampling-request-async', 'trigger-url-elicitation',
];

export default function lists(suite, session) {
  toolList(suite, session);
  resources(suite, session);
  prompts(suite, session);
  levels(suite, session);
}

function toolList(suite, { client, wire }) {
  suite.check('tools/list: what the client\'s capabilities unlock is there too', async () => {
    const names = (await client.listTools()).tools.map((t) => t.name).sort();
    assert.deepEqual(names, [...TOOLS].sort());
  });
  suite.check('tools/list: schemas, titles, hints and task support', async () => {
    const tools = new Map((await client.listTools()).tools.map((t) => [t.name, t]));
    const echo = tools.get('echo');
    assert.equal(echo.title, 'Echo Tool');
    assert.equal(echo.annotations.readOnlyHint, true);
    assert.deepEqual(echo.inputSchema.required, ['message']);
    assert.equal(tools.get('get-structured-content').outputSchema.properties.humidity.type, 'number');
    assert.equal(tools.get('simulate-research-query').execution.taskSupport, 'required');
  });
  suite.check('tools/list_changed comes when the server has learnt of the client', () => wire.next(0, 'tools/list_changed', notified('notifications/tools/list_changed')));
}

function resources(suite, { client, call, wire }) {
  suite.check('resources/list and templates/list', async () => {
    const { resources: list } = await client.listResources();
    assert(list.filter((r) => r.uri.startsWith('demo://resource/static/document/')).length >= 7);
    const { resourceTemplates } = await client.listResourceTemplates();
    for (const kind of ['text', 'blob']) assert(resourceTemplates.some((t) => t.uriTemplate === `demo://resource/dynamic/${kind}/{resourceId}`));
  });
  suite.check('resources/read: static, text, blob', async () => {
    const read = async (path) => (await client.readResource({ uri: `demo://resource/${path}` })).contents[0];
    assert.match((await read('static/document/features.md')).text, /Everything Server/);
    assert.match((await read('dynamic/text/8')).text, /^Resource 8:/);
    assert.match(Buffer.from((await read('dynamic/blob/9')).blob, 'base64').toString(), /^Resource 9:/);
  });
  suite.check('resources/read: an unknown one is refused', () => refused(client.readResource({ uri: 'demo://resource/unknown' }), -32002, -32602));
  suite.check('resources/subscribe: updates come for what is subscribed, and for nothing else', async () => {
    const uri = (n) => ({ uri: `demo://resource/dynamic/text/${n}` });
    const updated = notified('notifications/resources/updated');
    // The server tells of its subscriptions in their order, at once when it is
    // switched on: a wrong update would stand before the right one.
    const told = async (wanted) => {
      const mark = wire.mark;
      await call('toggle-subscriber-updates');
      try {
        await wire.next(mark, `an update of ${wanted.uri}`, (m) => updated(m) && m.params.uri === wanted.uri);
      } finally {
        await call('toggle-subscriber-updates');
      }
      return wire.since(mark, updated).map((m) => m.params.uri);
    };
    await client.subscribeResource(uri(31));
    await client.subscribeResource(uri(32));
    await client.unsubscribeResource(uri(31));
    assert.deepEqual(await told(uri(32)), [uri(32).uri]);
    await client.unsubscribeResource(uri(32));
    await client.subscribeResource(uri(33));
    assert.deepEqual(await told(uri(33)), [uri(33).uri]);
    await client.unsubscribeResource(uri(33));
  });
}

function prompts(suite, { client }) {
  suite.check('prompts/list', async () => {
    const names = (await client.listPrompts()).prompts.map((p) => p.name).sort();
    assert.deepEqual(names, ['args-prompt', 'completable-prompt', 'resource-prompt', 'simple-prompt']);
  });
  suite.check('prompts/get: plain, with arguments, with a resource', async () => {
    const messages = async (name, args) => (await client.getPrompt({ name, arguments: args })).messages;
    assert.equal((await messages('simple-prompt'))[0].role, 'user');
    assert.match((await messages('args-prompt', { city: 'Lyon', state: 'Rhône' }))[0].content.text, /Lyon.*Rhône/);
    assert.match((await messages('resource-prompt', { resourceType: 'Text', resourceId: '6' }))[1].content.resource.text, /^Resource 6:/);
  });
  suite.check('prompts/get: a missing argument and an unknown prompt are refused', async () => {
    await refused(client.getPrompt({ name: 'args-prompt', arguments: {} }), -32602);
    await refused(client.getPrompt({ name: 'unknown-prompt' }), -32602);
  });
  suite.check('completion: of an argument, in a context, of a template', async () => {
    const values = async (ref, name, value, context) => (await client.complete({ ref, argument: { name, value }, context })).completion.values;
    const prompt = { type: 'ref/prompt', name: 'completable-prompt' };
    assert.deepEqual(await values(prompt, 'department', 'S'), ['Sales', 'Support']);
    assert.deepEqual(await values(prompt, 'name', '', { arguments: { department: 'Sales' } }), ['David', 'Eve', 'Frank']);
    assert.deepEqual(await values({ type: 'ref/resource', uri: 'demo://resource/dynamic/text/{resourceId}' }, 'resourceId', '7'), ['7']);
  });
}

function levels(suite, { client, call, wire }) {
  const logged = notified('notifications/message');
  suite.check('logging: only what is at the level or above it', async () => {
    // The server logs each subscription at level info, before it answers.
    const logs = async (level, n) => {
      const resource = { uri: `demo://resource/dynamic/text/${n}` };
      await client.setLoggingLevel(level);
      const mark = wire.mark;
      await client.subscribeResource(resource);
      await client.unsubscribeResource(resource);
      return wire.since(mark, (m) => logged(m) && String(m.params.data).includes(resource.uri)).length;
    };
    assert.equal(await logs('info', 41), 2);
    assert.equal(await logs('error', 42), 0);
    assert.equal(await logs('debug', 43), 2);
  });
  suite.check('logging: messages of the server\'s own accord', async () => {
    await client.setLoggingLevel('debug');
    const mark = wire.mark;
    await call('toggle-simulated-logging');
    try {
      await wire.next(mark, 'a log message', (m) => logged(m) && /level.message/i.test(String(m.params.data)));
    } finally {
      await call('toggle-simulated-logging');
    }
  });
  suite.check('logging: an unknown level is refused', () => refused(client.request({ method: 'logging/setLevel', params: { level: 'shouting' } }, EmptyResultSchema), -32602, -32603));
}
