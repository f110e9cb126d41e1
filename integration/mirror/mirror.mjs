// The same as main.go, as programs in JavaScript read.
import { createInterface } from 'node:readline';

const reply = (id, result) => process.stdout.write(JSON.stringify({ jsonrpc: '2.0', id, result }) + '\n');
createInterface({ input: process.stdin }).on('line', (line) => {
  let m;
  try { m = JSON.parse(line); } catch { return; }
  if (m.method === 'initialize') {
    reply(m.id, { protocolVersion: m.params.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 'mirror', version: '1' } });
  } else if (m.method === 'tools/call') {
    const seen = JSON.stringify({ name: m.params?.name ?? null, path: m.params?.arguments?.path ?? null });
    reply(m.id, { content: [{ type: 'text', text: seen }] });
  } else if (m.id !== undefined) {
    reply(m.id, {});
  }
});
