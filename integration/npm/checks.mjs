// What an exercise needs around its checks: the run, and a record of the wire.
import assert from 'node:assert/strict';

// Runs named checks one after the other, each within its limit. Prints a line
// for each, `ok NAME` or `FAIL NAME`, a tab and why, and at the end `N passed, N failed`.
export class Suite {
  #checks = [];
  #limit;
  passed = 0;
  failed = 0;

  constructor(limitMs) { this.#limit = limitMs; }

  check(name, body) { this.#checks.push({ name, body }); }

  async run() {
    for (const { name, body } of this.#checks) await this.step(name, body);
    console.log(`${this.passed} passed, ${this.failed} failed`);
    return this.failed === 0;
  }

  async step(name, body) {
    try {
      await within(this.#limit, body());
      this.passed++;
      console.log(`ok ${name}`);
      return true;
    } catch (e) {
      this.failed++;
      const why = String(e?.message ?? e).split('\n').filter((l) => l.trim()).slice(0, 4).join(' | ');
      console.log(`FAIL ${name}\t${why.slice(0, 300)}`);
      return false;
    }
  }
}

// Every message that came in, in its order. The SDK's own handlers cannot serve
// for this: they run notifications a turn later than answers, and drop a
// progress notification that was read together with its answer.
export class Wire {
  messages = [];
  #waiting = new Set();

  // To be called before the client connects: it puts its own handler in then.
  attach(transport) {
    let deliver;
    Object.defineProperty(transport, 'onmessage', {
      get: () => deliver,
      set: (handler) => {
        deliver = (message, extra) => {
          this.messages.push(message);
          for (const look of this.#waiting) look();
          handler?.(message, extra);
        };
      },
    });
  }

  get mark() { return this.messages.length; }

  since(mark, wanted) { return this.messages.slice(mark).filter(wanted); }

  // The first message from mark on that is wanted, waiting for it if need be.
  async next(mark, what, wanted, ms = 10_000) {
    let at = mark;
    const scan = () => {
      for (; at < this.messages.length; at++) if (wanted(this.messages[at])) return this.messages[at];
    };
    const found = scan();
    if (found) return found;
    return within(ms, new Promise((resolve) => {
      const look = () => { const m = scan(); if (m) { this.#waiting.delete(look); resolve(m); } };
      this.#waiting.add(look);
    }), `waiting for ${what}`);
  }
}

export const notified = (method) => (m) => m.method === method && m.id === undefined;

function within(ms, work, doing = 'this check') {
  let timer;
  const late = new Promise((_, reject) => { timer = setTimeout(() => reject(new Error(`${doing} took longer than ${ms} ms`)), ms); });
  return Promise.race([work, late]).finally(() => clearTimeout(timer));
}

// Expects a JSON-RPC error with one of the codes, and gives it back.
export async function refused(work, ...codes) {
  const e = await work.then((r) => assert.fail(`answered ${JSON.stringify(r).slice(0, 100)}, not an error`), (err) => err);
  if (e instanceof assert.AssertionError) throw e;
  assert(codes.includes(e.code), `error ${e.code} (${e.message}), expected ${codes.join(' or ')}`);
  return e;
}

// Expects a call to be turned down, in either of the forms that servers use.
export async function turnedDown(work) {
  const r = await work.catch((e) => { assert.equal(e.code, -32602); return { isError: true }; });
  assert.equal(r.isError, true);
}

export const textOf = (result) => result.content.filter((c) => c.type === 'text').map((c) => c.text).join('\n');
