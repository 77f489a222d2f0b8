// Usage: node oauth-client.mjs '{"sdk": "client"|"sdk", "endpoint": URL, "as": {"clientId", "clientSecret", "scope"}, "call": {"name", "arguments"}}'
// A client of MCP that has nothing but the URL of an endpoint lists tools and makes a call. With a secret it asks for tokens
// for itself; else it has a user, who signs in at once, and registers if it has no id. Prints one JSON line: {"tools", "text", "granted": [SCOPES, …], "trail": ["STATUS PATH", …]}.

import * as newer from '@modelcontextprotocol/client';
import { UnauthorizedError } from '@modelcontextprotocol/sdk/client/auth.js';
import { ClientCredentialsProvider } from '@modelcontextprotocol/sdk/client/auth-extensions.js';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';

const job = JSON.parse(process.argv[2]);
const old = { Client, ClientCredentialsProvider, StreamableHTTPClientTransport, UnauthorizedError, finish: (params) => params.get('code') };
const sdk = job.sdk === 'sdk' ? old : { ...newer, finish: (params) => params };

const trail = [];
const granted = [];
const done = 'http://127.0.0.1:9/done'; // where nobody is: the browser stops before it
let returned;

class UserProvider {
  redirectUrl = done;
  clientMetadata = { client_name: 'desktop', redirect_uris: [done], grant_types: ['authorization_code'], response_types: ['code'], token_endpoint_auth_method: 'none' };
  client = job.as.clientId ? { client_id: job.as.clientId } : undefined;
  clientInformation() { return this.client; }
  saveClientInformation(client) { this.client = client; }
  tokens() { return this.current; }
  saveTokens(tokens) { this.current = tokens; }
  saveCodeVerifier(verifier) { this.verifier = verifier; }
  codeVerifier() { return this.verifier; }
  async redirectToAuthorization(url) { returned = await browse(url); }
}

// browse follows redirects with cookies, as a browser does, until the client's own URL.
async function browse(url) {
  const cookies = new Map();
  let at = new URL(url);
  for (let pages = 0; pages < 10; pages++) {
    if (at.href.startsWith(done)) return at.searchParams;
    const page = await fetch(at, { redirect: 'manual', headers: { cookie: [...cookies].map((c) => c.join('=')).join('; ') } });
    for (const cookie of page.headers.getSetCookie()) {
      const [name, value] = cookie.split(';')[0].split(/=(.*)/s);
      cookies.set(name, value);
    }
    if (!page.headers.has('location')) throw new Error(`${page.status} of ${at}: ${await page.text()}`);
    at = new URL(page.headers.get('location'), at);
  }
  throw new Error(`no end of redirects at ${at}`);
}

const provider = job.as.clientSecret ? new sdk.ClientCredentialsProvider(job.as) : new UserProvider();
const save = provider.saveTokens.bind(provider);
provider.saveTokens = (tokens) => {
  granted.push(tokens.scope ?? '');
  return save(tokens);
};

let transport;
const client = new sdk.Client({ name: 'desktop', version: '1.0.0' }, job.sdk === 'sdk' ? {} : { versionNegotiation: { mode: 'auto' } });
await authorized(() => {
  transport = new sdk.StreamableHTTPClientTransport(new URL(job.endpoint), {
    authProvider: provider,
    fetch: async (input, init) => {
      const response = await fetch(input, init);
      trail.push(`${response.status} ${new URL(input.url ?? input).pathname}`);
      return response;
    },
  });
  return client.connect(transport);
});
const { tools } = await authorized(() => client.listTools());
const result = await authorized(() => client.callTool(job.call));
await client.close();
process.stdout.write(JSON.stringify({ tools: tools.map((t) => t.name), text: result.content.map((c) => c.text).join('\n'), granted, trail }) + '\n');

// authorized does something again after its user has signed in, if that is what it takes.
async function authorized(step) {
  try {
    return await step();
  } catch (error) {
    if (!(error instanceof sdk.UnauthorizedError) || !returned) throw error;
    await transport.finishAuth(sdk.finish(returned));
    returned = undefined;
    return step();
  }
}
