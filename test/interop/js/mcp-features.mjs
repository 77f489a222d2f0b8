// Usage: node mcp-features.mjs '{"mode": "auto"|"legacy", "agents": {NAME: {"endpoint": URL, "mcp": BOOLEAN, "job": NAME}, …}, "news": {NAME: {"endpoint": URL, "uri": URI}, …}, "plain": URL}'
// Does with each agent all that MCP has beside calling tools, listens to the
// servers of news, and calls an agent without skills. Prints one JSON line:
// {"agents": {NAME: {FEATURE: what was seen}}, "news": {NAME: {…}}, "plain": what was
// seen}, in the words of features_mcp_test.go.

import { setTimeout } from 'node:timers/promises';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

const job = JSON.parse(process.argv[2]);
const asks = { elicitation: { form: {} } };

const out = { agents: {}, news: {}, plain: '' };
for (const [name, at] of Object.entries(job.agents)) out.agents[name] = await features(at);
for (const [name, at] of Object.entries(job.news)) out.news[name] = await news(at);
const plain = await connect(job.plain, {});
out.plain = `${await toolsOf(plain)} ${text(await plain.callTool({ name: 'message', arguments: { message: 'many: x' } }))}`;
await plain.close();
process.stdout.write(JSON.stringify(out) + '\n');

async function connect(endpoint, capabilities, options = {}) {
  const client = new Client({ name: 'features', version: '1.0.0' }, { versionNegotiation: { mode: job.mode }, capabilities, ...options });
  await client.connect(new StreamableHTTPClientTransport(new URL(endpoint)));
  return client;
}

function text(result) {
  return (result.isError ? 'refused ' : '') + result.content.filter((c) => c.type === 'text').map((c) => c.text).join('');
}

async function toolsOf(client) {
  return (await client.listTools()).tools.map((tool) => tool.name).sort().join(' ');
}

async function refused(call) {
  try {
    return text(await call());
  } catch (error) {
    return `refused ${error.code}`;
  }
}

async function features({ endpoint, mcp, job: name }) {
  const seen = {};
  const want = (word) => (mcp ? { name: word, arguments: { job: name } } : { name: 'work', arguments: { message: `${word}: ${name}` } });
  const bare = await connect(endpoint, {});
  seen['tools of who cannot be asked'] = await toolsOf(bare);
  await bare.close();

  const client = await connect(endpoint, asks);
  seen['tools of who can be asked'] = await toolsOf(client);
  let answer;
  let times = 0;
  client.setRequestHandler('elicitation/create', async ({ params }) => answer(params.requestedSchema.required[0]));
  for (const [what, how] of Object.entries({
    accepted: (field) => ({ action: 'accept', content: { [field]: 'four' } }),
    declined: () => ({ action: 'decline' }),
    canceled: () => ({ action: 'cancel' }),
    'answer that does not fit': () => ((times += 1), { action: 'accept' }),
    'asked again': (field) => ({ action: 'accept', content: { [field]: 'four' } }),
  })) {
    answer = how;
    seen[what] = (await refused(() => client.callTool(want('ask')))).replace(/^refused.*/, 'refused');
  }
  seen['times asked'] = String(times);

  const steps = [];
  const streamed = await client.callTool(want('stream'), { onprogress: ({ message }) => steps.push(message) });
  seen.progress = steps.join(' ');
  seen.whole = mcp ? text(streamed) : streamed.structuredContent.text;

  const stop = new AbortController();
  const said = Promise.withResolvers();
  const held = refused(() => client.callTool(want('hold'), { signal: stop.signal, onprogress: said.resolve }));
  await (mcp ? client.callTool(want('begun')) : said.promise);
  stop.abort();
  await held;
  seen['canceled call'] = text(await client.callTool(want('stopped')));

  seen['unknown tool'] = await refused(() => client.callTool({ name: 'none', arguments: {} }));
  if (!mcp) seen['arguments that do not fit'] = (await refused(() => client.callTool({ name: 'work', arguments: { message: 7 } }))).replace(/ .*/, '');
  await client.close();
  return seen;
}

async function news({ endpoint, uri }) {
  const heard = new Set();
  const listChanged = { tools: { autoRefresh: false, debounceMs: 0, onChanged: () => heard.add('tools') } };
  const client = await connect(endpoint, {}, { listChanged });
  const modern = client.getProtocolEra() === 'modern';
  client.setNotificationHandler('notifications/resources/updated', ({ params }) => void heard.add(params.uri));
  client.setNotificationHandler('notifications/message', ({ params }) => void heard.add(params.logger));
  if (modern) await client.listen({ resourceSubscriptions: [uri] });
  else await client.subscribeResource({ uri });
  if (!modern) await client.setLoggingLevel('info');
  const gossip = { name: 'gossip', arguments: {}, ...(modern && { _meta: { 'io.modelcontextprotocol/logLevel': 'info' } }) };
  const wanted = ['gossip warning', uri, 'tools'];
  for (let i = 0; i < 100 && !wanted.every((what) => heard.has(what)); i++) {
    await client.callTool({ name: 'poke', arguments: {} }); // again and again: it is not said from when on the server is heard
    await client.callTool(gossip);
    await setTimeout(50);
  }
  await client.close();
  return { heard: [...heard].sort().join(', ') };
}
