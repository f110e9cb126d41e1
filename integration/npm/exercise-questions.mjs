// What a server asks its client: roots, sampling and elicitation.
import assert from 'node:assert/strict';
import { refused, textOf } from './checks.mjs';

export default function questions(suite, session) {
  roots(suite, session);
  sampling(suite, session);
  elicitation(suite, session);
}

function roots(suite, { client, call, wire, answers }) {
  const asked = (m) => m.method === 'roots/list';
  suite.check('roots: the server asks for them and knows them', async () => {
    await wire.next(0, 'roots/list', asked);
    assert.match(textOf(await call('get-roots-list')), /root-one[\s\S]*root-two/);
  });
  suite.check('roots: it asks again when they have changed', async () => {
    const mark = wire.mark;
    answers.roots = [{ uri: 'file:///exercise/three', name: 'root-three' }];
    await client.sendRootsListChanged();
    await wire.next(mark, 'roots/list', asked);
    const told = textOf(await call('get-roots-list'));
    assert.match(told, /root-three/);
    assert.doesNotMatch(told, /root-one/);
  });
}

// Runs body with another answer in place.
async function answering(answers, kind, answer, body) {
  const before = answers[kind];
  answers[kind] = answer;
  try { return await body(); } finally { answers[kind] = before; }
}

function sampling(suite, { call, wire, answers }) {
  suite.check('sampling: the question arrives whole, the answer goes back', async () => {
    const mark = wire.mark;
    const told = textOf(await call('trigger-sampling-request', { prompt: 'a question of ours', maxTokens: 23 }));
    assert.match(told, /a sampled answer/);
    const asked = wire.since(mark, (m) => m.method === 'sampling/createMessage');
    assert.equal(asked.length, 1);
    assert.equal(asked[0].params.maxTokens, 23);
    assert.match(asked[0].params.messages[0].content.text, /a question of ours/);
  });
  suite.check('sampling: the client\'s refusal reaches the server', () => answering(answers, 'sampling', () => { throw Object.assign(new Error('not today'), { code: -1 }); }, async () => {
    const r = await call('trigger-sampling-request', { prompt: 'x' }).catch((e) => ({ isError: true, content: [{ type: 'text', text: e.message }] }));
    assert.equal(r.isError, true);
    assert.match(textOf(r), /not today/);
  }));
  suite.check('sampling: several at once, each its own answer, last asked first answered', () => {
    const held = [];
    const answer = (params) => new Promise((resolve) => {
      held.push(() => resolve({ model: 'm', role: 'assistant', content: { type: 'text', text: `answer to ${params.messages[0].content.text}` } }));
      if (held.length === 8) held.reverse().forEach((release) => release());
    });
    return answering(answers, 'sampling', answer, async () => {
      const told = await Promise.all(Array.from({ length: 8 }, (_, i) => call('trigger-sampling-request', { prompt: `<question ${i}>` })));
      told.forEach((r, i) => assert.match(textOf(r), new RegExp(`answer to .*<question ${i}>`)));
    });
  });
}

function elicitation(suite, { call, wire, answers }) {
  for (const [action, content, shows] of [['accept', { name: 'Grace Exercise', integer: 42 }, /Grace Exercise/], ['decline', undefined, /declined/], ['cancel', undefined, /cancelled/]]) {
    suite.check(`elicitation: ${action}`, () => answering(answers, 'elicitation', () => ({ action, content }), async () => {
      const mark = wire.mark;
      assert.match(textOf(await call('trigger-elicitation-request')), shows);
      const [asked] = wire.since(mark, (m) => m.method === 'elicitation/create');
      assert.equal(asked.params.requestedSchema.properties.integer.maximum, 100);
    }));
  }
  suite.check('elicitation by URL: as a question', () => answering(answers, 'elicitation', () => ({ action: 'accept' }), async () => {
    const mark = wire.mark;
    assert.match(textOf(await call('trigger-url-elicitation', { url: 'https://example.com/agree', elicitationId: 'agree-1' })), /completed/);
    const [asked] = wire.since(mark, (m) => m.method === 'elicitation/create');
    assert.deepEqual([asked.params.mode, asked.params.url, asked.params.elicitationId], ['url', 'https://example.com/agree', 'agree-1']);
  }));
  suite.check('elicitation by URL: as an error with data, then the call again', () => answering(answers, 'elicitation', () => ({ action: 'accept' }), async () => {
    const args = { url: 'https://example.com/again', elicitationId: 'again-1', errorPath: true };
    const e = await refused(call('trigger-url-elicitation', args), -32042);
    assert.equal(e.data.elicitations.length, 1);
    assert.match(textOf(await call('trigger-url-elicitation', args)), /completed/);
  }));
}
