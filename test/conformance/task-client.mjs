// Usage: node task-client.mjs URL
// The SDK's client of MCP 2025-11-25 works with the tasks of whatever stands at URL:
// it calls tools as tasks, answers what they ask, lists and cancels. Prints one
// JSON line: what it saw, call by call.

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { CallToolResultSchema, ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';

const client = new Client({ name: 'task-client', version: '1.0.0' }, { capabilities: { elicitation: { form: {} } } });
const asked = [];
client.setRequestHandler(ElicitRequestSchema, async ({ params }) => {
  asked.push(params.message);
  return { action: 'accept', content: { confirm: true } };
});
await client.connect(new StreamableHTTPClientTransport(new URL(process.argv[2])));
const tasks = client.experimental.tasks;
const { tools } = await client.listTools();

const saw = {};
for (const [name, args] of [
  ['greet', { name: 'Ada' }],
  ['slow_compute', { seconds: 1, label: 'x' }],
  ['confirm_delete', { filename: 'f' }],
  ['failing_job', {}],
]) {
  saw[name] = [];
  for await (const m of tasks.callToolStream({ name, arguments: args }, CallToolResultSchema, { task: { ttl: 60000 } })) {
    const last = saw[name].at(-1);
    const said = m.task ? m.task.status : m.result ? m.result.content[0].text : m.error.message;
    if (last !== said) saw[name].push(said);
  }
}
for await (const m of tasks.callToolStream({ name: 'slow_compute', arguments: { seconds: 500, label: 'y' } }, CallToolResultSchema, { task: { ttl: 60000 } })) {
  if (m.type === 'taskCreated') {
    saw.canceled = [(await tasks.cancelTask(m.task.taskId)).status, (await tasks.getTask(m.task.taskId)).status];
    break;
  }
}
const listed = (await tasks.listTasks()).tasks.map((task) => task.status).sort();
await client.close();
process.stdout.write(JSON.stringify({ support: tools.map((tool) => tool.execution?.taskSupport), saw, asked, listed }) + '\n');
