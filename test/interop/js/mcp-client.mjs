// Usage: node mcp-client.mjs '{"endpoint": URL, "mode": "auto"|"legacy", "calls": [{"name", "arguments"}, …]}'
// Prints one JSON line:
// {"version", "tools", "results": [{isError, text, structured} | {error}], "exchanges"}.

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { attempt, recordingFetch } from './recording-fetch.mjs';

const job = JSON.parse(process.argv[2]);
const wire = recordingFetch();

const client = new Client(
  { name: 'interop-client', version: '1.0.0' },
  { versionNegotiation: { mode: job.mode } },
);
await client.connect(new StreamableHTTPClientTransport(new URL(job.endpoint), { fetch: wire.fetch }));
const version = client.getNegotiatedProtocolVersion();
const { tools } = await client.listTools();

const results = [];
for (const call of job.calls) {
  results.push(await attempt(async () => summary(await client.callTool(call))));
}
const exchanges = await wire.exchanges();
await client.close();
process.stdout.write(JSON.stringify({ version, tools, results, exchanges }) + '\n');

function summary(result) {
  return {
    isError: result.isError ?? false,
    text: result.content.filter((c) => c.type === 'text').map((c) => c.text).join('\n'),
    structured: result.structuredContent ?? null,
  };
}
