// Usage: node mcp-client.mjs '{"endpoint": URL, "mode": "auto"|"legacy", "calls": [{"name", "arguments"}, …], "prompts": [NAME, …], "answers": {METHOD: result, …}}'
// The user gives the answers to what servers ask (none: nobody can be asked).
// Prints one JSON line:
// {"version", "tools", "results": [{isError, text, structured} | {error}], "asked": [{method, params}, …], "exchanges"}.

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { attempt, recordingFetch } from './recording-fetch.mjs';

const job = JSON.parse(process.argv[2]);
const wire = recordingFetch();

const client = new Client(
  { name: 'interop-client', version: '1.0.0' },
  { versionNegotiation: { mode: job.mode }, capabilities: job.answers ? { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} } : {} },
);
const asked = [];
for (const [method, answer] of Object.entries(job.answers ?? {})) {
  client.setRequestHandler(method, async ({ params }) => {
    asked.push({ method, params: params ?? null });
    return answer;
  });
}
await client.connect(new StreamableHTTPClientTransport(new URL(job.endpoint), { fetch: wire.fetch }));
const version = client.getNegotiatedProtocolVersion();
const { tools } = await client.listTools();

const results = [];
for (const call of job.calls) {
  results.push(await attempt(async () => summary(await client.callTool(call))));
}
for (const name of job.prompts ?? []) {
  results.push(await attempt(async () => ({ isError: false, text: textOf((await client.getPrompt({ name })).messages.map((m) => m.content)), structured: null })));
}
const exchanges = await wire.exchanges();
await client.close();
process.stdout.write(JSON.stringify({ version, tools, results, asked, exchanges }) + '\n');

function textOf(content) {
  return content.filter((c) => c.type === 'text').map((c) => c.text).join('\n');
}

function summary(result) {
  return {
    isError: result.isError ?? false,
    text: textOf(result.content),
    structured: result.structuredContent ?? null,
  };
}
