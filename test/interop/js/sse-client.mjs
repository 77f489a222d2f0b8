// Usage: node sse-client.mjs '{"endpoint": URL, "version": REVISION or "", "call": {"name", "arguments"}, "progress": …, "hold": …, "stopped": …, "roots": … or null}'
// The SDK's client of HTTP with SSE, which offers its newest revision, or the one that is named.
// Each job is a tool and its arguments. Prints one JSON line:
// {"version", "tools", "text", "progress", "canceled", "roots", "unknown"}.

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { ListRootsRequestSchema } from '@modelcontextprotocol/sdk/types.js';

const job = JSON.parse(process.argv[2]);
const client = new Client({ name: 'sse-client', version: '1.0.0' }, { capabilities: { roots: {} } });
client.setRequestHandler(ListRootsRequestSchema, async () => ({ roots: [{ uri: 'file:///home/ada', name: 'ada' }] }));
const transport = new SSEClientTransport(new URL(job.endpoint));
let version;
const send = transport.send.bind(transport);
transport.send = (message) => {
  if (message.method === 'initialize' && job.version) message.params.protocolVersion = job.version;
  return send(message);
};
transport.setProtocolVersion = (agreed) => {
  version = agreed;
};
await client.connect(transport);

const out = { version };
out.tools = (await client.listTools()).tools.map((tool) => tool.name).sort();
out.text = text(await client.callTool(job.call));

const steps = [];
await client.callTool(job.progress, undefined, { onprogress: ({ message }) => steps.push(message) });
out.progress = steps;

const stop = new AbortController();
const begun = Promise.withResolvers();
const call = client.callTool(job.hold, undefined, { signal: stop.signal, onprogress: begun.resolve }).catch((error) => error.message);
await begun.promise;
stop.abort();
await call;
out.canceled = text(await client.callTool(job.stopped));

if (job.roots) out.roots = text(await client.callTool(job.roots));
out.unknown = await client.callTool({ name: 'none', arguments: {} }).then(text, (error) => String(error.code));
await client.close();
process.stdout.write(JSON.stringify(out) + '\n');

function text(result) {
  return result.content.filter((c) => c.type === 'text').map((c) => c.text).join('');
}
