// Handshake, tools, progress and cancellation.
import assert from 'node:assert/strict';
import { gunzipSync } from 'node:zlib';
import { EmptyResultSchema } from '@modelcontextprotocol/sdk/types.js';
import { notified, refused, textOf, turnedDown } from './checks.mjs';

export default function basics(suite, session) {
  handshake(suite, session);
  content(suite, session);
  sizes(suite, session);
  progress(suite, session);
  cancellation(suite, session);
}

function handshake(suite, session) {
  const { client } = session;
  suite.check('initialize: the server\'s own information, capabilities and instructions', async () => {
    assert.equal(session.version, '2025-11-25');
    assert.equal(client.getServerVersion().name, 'mcp-servers/everything');
    const capabilities = client.getServerCapabilities();
    for (const name of ['completions', 'logging', 'prompts', 'resources', 'tasks', 'tools']) assert(name in capabilities, `no ${name}`);
    assert.equal(capabilities.resources.subscribe, true);
    assert.equal(capabilities.tools.listChanged, true);
    assert(client.getInstructions().length > 100);
  });
  suite.check('ping', () => client.ping());
  suite.check('ping: many at once', () => Promise.all(Array.from({ length: 200 }, () => client.ping())));
  suite.check('an unknown method is refused by the server', () => refused(client.request({ method: 'exercise/unknown', params: {} }, EmptyResultSchema), -32601));
}

function content(suite, { client, call, wire }) {
  suite.check('tool: a plain text answer', async () => assert.equal(textOf(await call('echo', { message: 'plain' })), 'Echo: plain'));
  suite.check('tool: characters that codecs trip over', async () => {
    const message = 'line\nfeed\r\n\u2028\u2029\u0000\u007f "quoted" back\\slash <b>&amp;</b> \u{1F980}\u{10FFFF}\uFEFF e\u0301 \ud83d';
    assert.equal(textOf(await call('echo', { message })), `Echo: ${message}`);
  });
  suite.check('tool: arguments against the schema are turned down', () => turnedDown(call('echo', { msg: 'misspelt' })));
  suite.check('tool: an unknown one is turned down', () => turnedDown(call('no-such-tool')));
  suite.check('tool: many calls at once, each with its own answer', async () => {
    const sums = await Promise.all(Array.from({ length: 64 }, (_, i) => call('get-sum', { a: i, b: 5000 })));
    sums.forEach((sum, i) => assert.match(textOf(sum), new RegExp(`\\b${5000 + i}\\b`)));
  });
  suite.check('tool: an image', async () => {
    const image = (await call('get-tiny-image')).content.find((c) => c.type === 'image');
    assert.equal(image.mimeType, 'image/png');
    assert.equal(Buffer.from(image.data, 'base64').toString('latin1', 1, 4), 'PNG');
  });
  suite.check('tool: annotations on content', async () => {
    const [text, image] = (await call('get-annotated-message', { messageType: 'success', includeImage: true })).content;
    assert.deepEqual(text.annotations, { priority: 0.7, audience: ['user'] });
    assert.equal(image.annotations.priority, 0.5);
  });
  suite.check('tool: links to resources', async () => {
    const links = (await call('get-resource-links', { count: 6 })).content.filter((c) => c.type === 'resource_link');
    assert.equal(links.length, 6);
    for (const link of links) assert.match(link.uri, /^demo:\/\/resource\/dynamic\/(text|blob)\/\d$/);
  });
  suite.check('tool: embedded resources, text and blob', async () => {
    const embedded = async (resourceType, resourceId) => (await call('get-resource-reference', { resourceType, resourceId })).content.find((c) => c.type === 'resource').resource;
    assert.match((await embedded('Text', 3)).text, /^Resource 3:/);
    assert.match(Buffer.from((await embedded('Blob', 4)).blob, 'base64').toString(), /^Resource 4:/);
  });
  suite.check('tool: structured content that fits its schema', async () => {
    await client.listTools(); // from here on the SDK checks answers against the schemas
    const weather = await call('get-structured-content', { location: 'New York' });
    assert.equal(typeof weather.structuredContent.temperature, 'number');
    assert.deepEqual(JSON.parse(textOf(weather)), weather.structuredContent);
  });
  suite.check('tool: a resource made by a call is announced and can be read', async () => {
    const mark = wire.mark;
    const made = await call('gzip-file-as-resource', { name: 'made.gz', data: 'data:text/plain,made%20by%20a%20call' });
    const { uri } = made.content.find((c) => c.type === 'resource_link');
    await wire.next(mark, 'resources/list_changed', notified('notifications/resources/list_changed'));
    assert((await client.listResources()).resources.some((r) => r.uri === uri));
    const [{ blob }] = (await client.readResource({ uri })).contents;
    assert.equal(gunzipSync(Buffer.from(blob, 'base64')).toString(), 'made by a call');
  });
}

function sizes(suite, { call }) {
  for (const [name, message] of [['1 MiB of ASCII', 'x'.repeat(1 << 20)], ['8 MiB of two-byte characters', 'é'.repeat(4 << 20)]]) {
    suite.check(`size: ${name} there and back`, async () => assert(textOf(await call('echo', { message })) === `Echo: ${message}`, 'changed on the way'));
  }
}

const LONG = 'trigger-long-running-operation';

function progress(suite, { call, wire }) {
  suite.check('progress: every step, in order, before the answer', async () => {
    const mark = wire.mark;
    await call(LONG, { duration: 0.5, steps: 5 }, { onprogress: () => {} });
    const seen = wire.since(mark, (m) => m.method === 'notifications/progress' || m.result?.content)
      .map((m) => (m.method ? `${m.params.progress}/${m.params.total}` : 'answer'));
    assert.deepEqual(seen, ['1/5', '2/5', '3/5', '4/5', '5/5', 'answer']);
    assert.equal(new Set(wire.since(mark, notified('notifications/progress')).map((m) => m.params.progressToken)).size, 1);
  });
  suite.check('progress: two calls at once keep apart', async () => {
    const mark = wire.mark;
    await Promise.all([3, 4].map((steps) => call(LONG, { duration: 0.4, steps }, { onprogress: () => {} })));
    const totals = new Map();
    for (const m of wire.since(mark, notified('notifications/progress'))) {
      const { progressToken, total } = m.params;
      totals.set(progressToken, [...(totals.get(progressToken) ?? []), total]);
    }
    assert.deepEqual([...totals.values()].map(String).sort(), ['3,3,3', '4,4,4,4']);
  });
  suite.check('progress: a quick call passes a long one', async () => {
    const order = [];
    await Promise.all([
      call(LONG, { duration: 1, steps: 1 }).then(() => order.push('long')),
      call('echo', { message: 'quick' }).then(() => order.push('quick')),
    ]);
    assert.deepEqual(order, ['quick', 'long']);
  });
}

function cancellation(suite, { client, call, wire, unplaced }) {
  suite.check('cancel: the call ends at once, its answer never comes, the session lives', async () => {
    const errors = unplaced.length;
    const mark = wire.mark;
    const stop = new AbortController();
    const cancelled = assert.rejects(call(LONG, { duration: 1, steps: 10 }, { signal: stop.signal, onprogress: () => stop.abort('enough') }));
    await wire.next(mark, 'progress', notified('notifications/progress'));
    await cancelled;
    // A call that ends after the cancelled one would have; a late answer to that would have come by then.
    await call(LONG, { duration: 1.2, steps: 1 });
    assert.equal(wire.since(mark, (m) => m.result?.content).length, 1);
    assert.deepEqual(unplaced.slice(errors), []);
    await client.ping();
  });
}
