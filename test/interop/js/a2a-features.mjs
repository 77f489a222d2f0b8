// Usage: node a2a-features.mjs '{"transport": NAME, "cert": FILE, "key": FILE, "agents": {NAME: {"base": URL, "mcp": BOOLEAN, "job": NAME, "hook": URL}, …},
//   "vault": URL, "plain": URL}'
// Does with each agent all that A2A has beside sending messages, and fetches the
// cards of two more. Prints one JSON line: {"agents": {NAME: {FEATURE: what was
// seen}}, "cards": {FEATURE: what was seen}}, in the words of features_a2a_test.go.

import { ClientFactory, ClientFactoryOptions, DefaultAgentCardResolver, JsonRpcTransportFactory, RestTransportFactory } from '@a2a-js/sdk/client';
import { request, stateOf, values } from './a2a-message.mjs';
import { certifiedFetch } from './certified-fetch.mjs';

const job = JSON.parse(process.argv[2]);
const fetchImpl = certifiedFetch(job.cert, job.key);
let publicCard; // that was fetched last

const factory = new ClientFactory(
  ClientFactoryOptions.createFrom(ClientFactoryOptions.default, {
    transports: [new JsonRpcTransportFactory({ fetchImpl }), new RestTransportFactory({ fetchImpl })],
    cardResolver: new DefaultAgentCardResolver({ fetchImpl: keepCard }),
    preferredTransports: [job.transport],
  }),
);

const out = { agents: {}, cards: await cards() };
for (const [name, at] of Object.entries(job.agents)) {
  out.agents[name] = await features(await factory.createFromUrl(at.base), at);
}
process.stdout.write(JSON.stringify(out) + '\n');
process.exit(); // connections that are kept alive would hold it up

async function keepCard(input, init) {
  const response = await fetchImpl(input, init);
  publicCard = await response.clone().json();
  return response;
}

async function cards() {
  const vault = await factory.createFromUrl(job.vault);
  const members = Object.keys(publicCard).sort().join(' ');
  const extended = await vault.getAgentCard(); // fetches it, since the public card says that there is one
  const plain = await factory.createFromUrl(job.plain);
  return {
    'extended card': extended.skills.map((skill) => skill.id).join(' '),
    'agent without skills': `${(await plain.getAgentCard()).skills.length} ${shown(await plain.sendMessage(request([{ text: 'many: x' }])))}`,
    'members of the card': members,
  };
}

function shown(task) {
  return `${stateOf(task)} ${values(task.artifacts.flatMap((a) => a.parts), 'text').join('')}`;
}

async function refused(call) {
  try {
    return JSON.stringify(await call());
  } catch (error) {
    return error.reason ?? error.cause?.reason ?? `${error}`; // in a stream it is the cause
  }
}

async function features(client, { mcp, job: name, hook }) {
  const want = (word, of = name) => [mcp ? { data: { skill: word, input: { job: of } } } : { text: `${word}: ${of}` }];
  const send = (parts, more) => client.sendMessage(request(parts, more));
  const answer = (task, p) => send([p], { taskId: task.id });
  const seen = {};

  if (mcp) {
    for (const [what, content] of Object.entries({
      accepted: { action: 'accept', content: { people: 'four' } },
      declined: { action: 'decline' },
      canceled: { action: 'cancel' },
    })) {
      seen[what] = shown(await answer(await send(want('ask')), { data: content }));
    }
    const asked = await send(want('ask'));
    seen['answer that does not fit'] = await refused(() => answer(asked, { data: { action: 'accept', content: { people: 4 } } }));
    const still = await client.getTask({ tenant: '', id: asked.id, historyLength: undefined });
    seen['asked again'] = `${shown(still)}, then ${shown(await answer(asked, { text: 'four' }))}`;
    seen['unknown tool'] = await refused(() => send([{ data: { skill: 'none', input: {} } }]));
  }

  const config = (id, taskId) => ({ tenant: '', id, taskId, url: `${hook}/${id}`, token: 'token-17', authentication: undefined });
  const configuration = { acceptedOutputModes: [], historyLength: undefined, returnImmediately: false, taskPushNotificationConfig: config('p1', '') };
  const told = await send(want('ask'), { configuration });
  const listed = async () => (await client.listTaskPushNotificationConfig({ tenant: '', taskId: told.id, pageSize: 0, pageToken: '' })).configs.map((c) => c.id).sort().join(' ');
  const webhooks = [await listed()];
  await client.createTaskPushNotificationConfig(config('p2', told.id));
  webhooks.push(await listed(), (await client.getTaskPushNotificationConfig({ tenant: '', taskId: told.id, id: 'p2' })).url === `${hook}/p2`);
  await client.deleteTaskPushNotificationConfig({ tenant: '', taskId: told.id, id: 'p2' });
  webhooks.push(await listed());
  seen.webhooks = webhooks.join(', ');
  seen['after the webhooks'] = shown(await answer(told, { text: 'four' }));

  const running = Promise.withResolvers();
  const first = each(client.sendMessageStream(request(want('slow'))), ({ value }) => {
    if (value.status && stateOf(value) === 'TASK_STATE_WORKING') running.resolve(value.taskId ?? value.id);
  });
  const id = await running.promise;
  const second = await each(client.resubscribeTask({ tenant: '', id }), async (_, nth) => {
    if (nth === 0) await send(want('free'));
  });
  const began = await first;
  seen.subscribed = kinds(second);
  seen['first of the stream'] = began[0].$case;
  seen['same events'] = `${JSON.stringify(began.slice(1 - second.length)) === JSON.stringify(second.slice(1))}`;
  seen['subscribed too late'] = await refused(() => each(client.resubscribeTask({ tenant: '', id })));

  const pieces = await each(client.sendMessageStream(request(want('stream'))));
  seen['in pieces'] = kinds(pieces);
  const whole = await client.getTask({ tenant: '', id: pieces[0].value.id, historyLength: undefined });
  seen.whole = `${whole.artifacts.length} ${shown(whole)}`;

  const filter = { tenant: '', contextId: '', status: 0, pageToken: '', pageSize: undefined, historyLength: undefined, statusTimestampAfter: undefined, includeArtifacts: undefined };
  seen.listed = `${(await client.listTasks(filter)).tasks.some((task) => task.id === id)}`;
  const unreadable = [{ status: -1 }, { statusTimestampAfter: 'yesterday' }, { historyLength: -5 }];
  for (const wrong of unreadable) {
    seen[`filter ${Object.keys(wrong)[0]}`] = await refused(() => client.listTasks({ ...filter, ...wrong }));
  }
  return seen;
}

async function each(stream, on = () => {}) {
  const events = [];
  for await (const { payload } of stream) {
    events.push(payload);
    await on(payload, events.length - 1);
  }
  return events;
}

function kinds(events) {
  return events.map((e) => e.$case).join(' ');
}
