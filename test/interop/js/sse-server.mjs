// Usage: node sse-server.mjs '{"cert": FILE, "key": FILE, "version": REVISION or ""}'
// The SDK's server of HTTP with SSE, which agrees to its newest revision at most, or to the one
// that is named. Prints its URL, and ends with its standard input.

import { readFileSync } from 'node:fs';
import { createServer } from 'node:https';
import { setTimeout } from 'node:timers/promises';
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import { SSEServerTransport } from '@modelcontextprotocol/sdk/server/sse.js';
import { CallToolRequestSchema, ListToolsRequestSchema } from '@modelcontextprotocol/sdk/types.js';

const job = JSON.parse(process.argv[2]);
const transports = new Map();
let stopped = Promise.withResolvers();
const ran = new Map();

const tools = {
  add: async ({ a, b }) => String(a + b),
  steps: async (_, { sendNotification, _meta }) => {
    for (const [i, message] of ['one', 'two'].entries()) {
      await sendNotification({ method: 'notifications/progress', params: { progressToken: _meta?.progressToken, progress: i + 1, message } });
    }
    return 'done';
  },
  hold: async (_, { sendNotification, _meta, signal }) => {
    signal.addEventListener('abort', () => stopped.resolve('true'));
    await sendNotification({ method: 'notifications/progress', params: { progressToken: _meta?.progressToken, progress: 1, message: 'begun' } });
    await stopped.promise;
    return 'stopped';
  },
  stopped: async () => {
    const was = await Promise.race([stopped.promise, setTimeout(10_000, 'false')]);
    stopped = Promise.withResolvers();
    return was;
  },
  nap: async ({ ms, key }) => {
    ran.set(key, (ran.get(key) ?? 0) + 1);
    await setTimeout(ms);
    return `slept ${ms}`;
  },
  naps: async ({ key }) => String(ran.get(key) ?? 0),
  roots: async (_, { sendRequest }, server) => (await server.listRoots()).roots[0].uri,
};

function newServer() {
  const server = new Server({ name: 'sse-server', version: '1.0.0' }, { capabilities: { tools: {} } });
  server.setRequestHandler(ListToolsRequestSchema, async () => ({
    tools: Object.keys(tools).map((name) => ({ name, description: name, inputSchema: { type: 'object' } })),
  }));
  server.setRequestHandler(CallToolRequestSchema, async ({ params }, extra) => {
    if (!Object.hasOwn(tools, params.name)) return { isError: true, content: [{ type: 'text', text: 'no such tool' }] };
    return { content: [{ type: 'text', text: await tools[params.name](params.arguments ?? {}, extra, server) }] };
  });
  return server;
}

const listener = createServer({ cert: readFileSync(job.cert), key: readFileSync(job.key) }, async (request, response) => {
  const url = new URL(request.url, 'https://localhost');
  if (request.method === 'GET' && url.pathname === '/sse') {
    const transport = new SSEServerTransport('/messages', response);
    transports.set(transport.sessionId, transport);
    response.on('close', () => transports.delete(transport.sessionId));
    await newServer().connect(transport);
    const receive = transport.onmessage;
    transport.onmessage = (message, extra) => {
      if (message.method === 'initialize' && job.version) message.params.protocolVersion = job.version;
      receive(message, extra);
    };
    return;
  }
  const transport = transports.get(url.searchParams.get('sessionId'));
  if (request.method === 'POST' && url.pathname === '/messages' && transport) {
    await transport.handlePostMessage(request, response);
    return;
  }
  response.writeHead(404).end();
});
listener.listen(0, '127.0.0.1', () => process.stdout.write(`https://127.0.0.1:${listener.address().port}/sse\n`));
process.stdin.resume();
process.stdin.on('end', () => process.exit(0));
