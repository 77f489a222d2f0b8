// Usage: node slow-client.mjs '[{"endpoint": URL, "mode": "auto"|"legacy"|"sse"}, …]'
// Calls the tool nap of each server for 0.3 and for 5 seconds, all beside each other and with progress
// wanted: "sse" is the SDK of 1.x over HTTP with SSE, the others are that of 2.x. Prints one JSON line
// with, for each server, [[text, how often the tool ran], …] and what the client calls an error:
// {"naps", "errors"}.

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { Client as OldClient } from '@modelcontextprotocol/sdk/client/index.js';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';

const text = (result) => (result.isError ? 'error: ' : '') + result.content[0].text;

async function connected({ endpoint, mode }, errors) {
  const who = { name: 'slow-client', version: '1.0.0' };
  const old = mode === 'sse';
  const client = old ? new OldClient(who) : new Client(who, { versionNegotiation: { mode } });
  client.onerror = (error) => errors.push(error.message);
  await client.connect(old ? new SSEClientTransport(new URL(endpoint)) : new StreamableHTTPClientTransport(new URL(endpoint)));
  const options = { onprogress: ({ message }) => errors.push('progress: ' + message) };
  const call = (name, args) => (old ? client.callTool({ name, arguments: args }, undefined, options) : client.callTool({ name, arguments: args }, options));
  return { client, call };
}

async function play(job, number) {
  const errors = [];
  const { client, call } = await connected(job, errors);
  const naps = await Promise.all(
    [300, 5000].map(async (ms) => {
      const key = `js ${number} ${ms}`;
      return [text(await call('nap', { ms, key })), text(await call('naps', { key }))];
    }),
  );
  const seen = { naps, errors: [...errors] };
  await client.close();
  return seen;
}

process.stdout.write(JSON.stringify(await Promise.all(JSON.parse(process.argv[2]).map(play))) + '\n');
