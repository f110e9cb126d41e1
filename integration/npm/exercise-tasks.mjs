// Tasks of revision 2025-11-25, worked on by either side.
import assert from 'node:assert/strict';
import { refused, textOf } from './checks.mjs';

const QUERY = 'simulate-research-query';

export default function tasks(suite, session) {
  ofServer(suite, session);
  ofClient(suite, session);
}

function ofServer(suite, { client, answers }) {
  const tasks = client.experimental.tasks;
  const start = (args) => tasks.callToolStream({ name: QUERY, arguments: args });
  const finish = async (stream) => {
    const seen = { statuses: new Set() };
    for await (const m of stream) {
      if (m.type === 'error') throw m.error;
      if (m.type === 'taskCreated') seen.task = m.task;
      if (m.type === 'taskStatus') seen.statuses.add(m.task.status);
      if (m.type === 'result') seen.result = m.result;
    }
    return seen;
  };
  suite.check('task: made, watched, its result fetched, listed', async () => {
    const { task, statuses, result } = await finish(start({ topic: 'multiplexing' }));
    assert(statuses.has('working'));
    assert.match(textOf(result), /multiplexing/);
    assert.equal((await tasks.getTask(task.taskId)).status, 'completed');
    assert((await tasks.listTasks()).tasks.some((t) => t.taskId === task.taskId));
  });
  suite.check('task: a question to the client in the middle', async () => {
    answers.elicitation = ({ requestedSchema }) => ({ action: 'accept', content: { interpretation: requestedSchema.properties.interpretation.oneOf[1].const } });
    const { result } = await finish(start({ topic: 'python', ambiguous: true }));
    assert.match(textOf(result), /python \(snake\)/);
  });
  suite.check('task: cancelled', async () => {
    const { value } = await start({ topic: 'to be cancelled' }).next();
    assert.equal(value.type, 'taskCreated');
    assert.equal((await tasks.cancelTask(value.task.taskId)).status, 'cancelled');
    assert.equal((await tasks.getTask(value.task.taskId)).status, 'cancelled');
  });
  suite.check('task: an unknown one is refused', () => refused(tasks.getTask('unknown-task'), -32602));
}

function ofClient(suite, { call, answers }) {
  suite.check('task of the client: sampling', async () => {
    assert.match(textOf(await call('trigger-sampling-request-async', { prompt: 'later' })), /\[COMPLETED\][\s\S]*a sampled answer/);
  });
  suite.check('task of the client: elicitation', async () => {
    answers.elicitation = () => ({ action: 'accept', content: { name: 'Later Exercise' } });
    assert.match(textOf(await call('trigger-elicitation-request-async')), /\[COMPLETED\][\s\S]*Later Exercise/);
  });
}
