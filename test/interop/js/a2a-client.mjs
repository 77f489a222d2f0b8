// Usage: node a2a-client.mjs '{"base": URL, "messages": [[part, …], …], "stream": BOOLEAN, "talk": BOOLEAN, "tasks": [ID, …]}'
// With talk each message is in the task that the one before led to. A part is {"text": …} or {"data": …}. Prints one JSON line:
// {"card", "results": [{kind, id, state, text, data} | {error}], "exchanges"}. Of a
// stream kind is that of every event, state the last one, and text all of it.

import { ClientFactory, ClientFactoryOptions, DefaultAgentCardResolver, JsonRpcTransportFactory } from '@a2a-js/sdk/client';
import { request, stateOf, values } from './a2a-message.mjs';
import { attempt, recordingFetch } from './recording-fetch.mjs';

const job = JSON.parse(process.argv[2]);
const wire = recordingFetch();

const factory = new ClientFactory(
  ClientFactoryOptions.createFrom(ClientFactoryOptions.default, {
    transports: [new JsonRpcTransportFactory({ fetchImpl: wire.fetch })],
    cardResolver: new DefaultAgentCardResolver({ fetchImpl: wire.fetch }),
    preferredTransports: ['JSONRPC'],
  }),
);
const client = await factory.createFromUrl(job.base);
const card = await client.getAgentCard();

const results = [];
for (const parts of job.messages) {
  const message = request(parts, { taskId: job.talk ? (results.at(-1)?.id ?? '') : '' });
  results.push(await attempt(async () => (job.stream ? heard(message) : summary(await client.sendMessage(message)))));
}
for (const id of job.tasks ?? []) {
  results.push(await attempt(async () => summary(await client.getTask({ tenant: '', id, historyLength: undefined }))));
}
const out = {
  card: { name: card.name, skills: card.skills.map((skill) => skill.id) },
  results,
  exchanges: await wire.exchanges(),
};
process.stdout.write(JSON.stringify(out) + '\n');

function summary(result) {
  const task = 'status' in result;
  const parts = task
    ? [...result.artifacts.flatMap((artifact) => artifact.parts), ...(result.status.message?.parts ?? [])]
    : result.parts;
  return {
    kind: task ? 'task' : 'message',
    id: task ? result.id : '',
    state: task ? stateOf(result) : '',
    text: values(parts, 'text').join('\n'),
    data: values(parts, 'data'),
  };
}

async function heard(message) {
  const kinds = [];
  const texts = [];
  let id = '';
  let state = '';
  for await (const { payload } of client.sendMessageStream(message)) {
    const { $case: kind, value } = payload;
    kinds.push(kind);
    const parts = kind === 'artifactUpdate' ? value.artifact.parts : kind === 'statusUpdate' ? value.status.message?.parts : undefined;
    if (parts) texts.push(...values(parts, 'text'));
    if (kind === 'task' || kind === 'message') texts.push(summary(value).text);
    if (kind === 'task') id = value.id;
    if (kind === 'task' || kind === 'statusUpdate') state = stateOf(value);
  }
  return { kind: kinds.join(' '), id, state, text: texts.join('\n'), data: [] };
}
