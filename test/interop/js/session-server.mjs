// Usage: node session-server.mjs '{"cert": FILE, "key": FILE, "port": NUMBER, "file": FILE, "status": 400 or 404}'
// A server with sessions like the SDK's examples of Streamable HTTP, which answer a session that they
// do not know with status 400 (older ones) or 404. Its tool append adds a word to the file. Prints its
// URL, and ends with its standard input.

import { randomUUID } from 'node:crypto';
import { appendFileSync, readFileSync } from 'node:fs';
import { createServer } from 'node:https';
import { json } from 'node:stream/consumers';
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { CallToolRequestSchema, isInitializeRequest, ListToolsRequestSchema } from '@modelcontextprotocol/sdk/types.js';

const job = JSON.parse(process.argv[2]);
const transports = {};

function newServer() {
  const server = new Server({ name: 'session-server', version: '1.0.0' }, { capabilities: { tools: {} } });
  server.setRequestHandler(ListToolsRequestSchema, async () => ({
    tools: [{ name: 'append', description: 'Appends a word', inputSchema: { type: 'object', properties: { word: { type: 'string' } } } }],
  }));
  server.setRequestHandler(CallToolRequestSchema, async ({ params }) => {
    appendFileSync(job.file, params.arguments.word + '\n');
    return { content: [{ type: 'text', text: params.arguments.word }] };
  });
  return server;
}

async function transportOf(id, body) {
  if (id && transports[id]) return transports[id];
  if (id || !isInitializeRequest(body)) return undefined;
  const transport = new StreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    onsessioninitialized: (begun) => {
      transports[begun] = transport;
    },
  });
  transport.onclose = () => delete transports[transport.sessionId];
  await newServer().connect(transport);
  return transport;
}

const listener = createServer({ cert: readFileSync(job.cert), key: readFileSync(job.key) }, async (request, response) => {
  const body = request.method === 'POST' ? await json(request) : undefined;
  const transport = await transportOf(request.headers['mcp-session-id'], body);
  if (transport) {
    await transport.handleRequest(request, response, body);
  } else if (request.method === 'POST') {
    const error = job.status === 404 ? { code: -32001, message: 'Session not found' } : { code: -32000, message: 'Bad Request: No valid session ID provided' };
    response.writeHead(job.status, { 'Content-Type': 'application/json' });
    response.end(JSON.stringify({ jsonrpc: '2.0', error, id: null }));
  } else {
    response.writeHead(400).end('Invalid or missing session ID');
  }
});
listener.listen(job.port, '127.0.0.1', () => process.stdout.write(`https://127.0.0.1:${listener.address().port}/mcp\n`));
process.stdin.resume();
process.stdin.on('end', () => process.exit(0));
