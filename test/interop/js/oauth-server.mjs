// Usage: node oauth-server.mjs '{"path": PATH or "", "scopes": [SCOPE, …], "clients": [{METADATA}, …]}'
// An authorization server of the package oidc-provider: access tokens of RFC 9068 for the one resource that is asked for,
// to the given clients, and to those that register. Its user, ann, signs in at once and agrees to everything. All of it is
// below a path of its host. It prints the URL of the issuer; then it reads one line, JSON with "cert" and "key" in PEM, prints
// "serving", and ends with its standard input.

import { generateKeyPairSync } from 'node:crypto';
import { createServer } from 'node:https';
import { createInterface } from 'node:readline';
import Provider, { errors } from 'oidc-provider';

const job = JSON.parse(process.argv[2]);
const server = createServer();
await new Promise((ready) => server.listen(0, '127.0.0.1', ready));
const issuer = `https://127.0.0.1:${server.address().port}${job.path}`;

const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
const provider = new Provider(issuer, {
  jwks: { keys: [{ ...privateKey.export({ format: 'jwk' }), use: 'sig', alg: 'RS256' }] },
  scopes: ['openid', ...job.scopes],
  clients: job.clients,
  features: {
    devInteractions: { enabled: false },
    registration: { enabled: true },
    clientCredentials: { enabled: true },
    resourceIndicators: {
      enabled: true,
      useGrantedResource: () => true,
      getResourceServerInfo(_ctx, resource) {
        if (!resource.startsWith('https://')) throw new errors.InvalidTarget();
        return { audience: resource, scope: job.scopes.join(' '), accessTokenFormat: 'jwt', accessTokenTTL: 300 };
      },
    },
  },
  interactions: { url: (_ctx, interaction) => `${job.path}/sign-in/${interaction.uid}` },
  findAccount: (_ctx, sub) => ({ accountId: sub, claims: () => ({ sub }) }),
  async loadExistingGrant(ctx) {
    const grant = new ctx.oidc.provider.Grant({ clientId: ctx.oidc.client.clientId, accountId: ctx.oidc.session.accountId });
    const { scope, resource } = ctx.oidc.params;
    grant.addOIDCScope(scope);
    grant.addResourceScope(resource, scope);
    await grant.save();
    return grant;
  },
});
provider.use(async (ctx, next) => {
  if (!ctx.path.startsWith('/sign-in/')) return next();
  await provider.interactionFinished(ctx.req, ctx.res, { login: { accountId: 'ann' }, consent: {} });
  ctx.respond = false;
});
for (const event of ['server_error', 'authorization.error', 'grant.error', 'registration_create.error']) {
  provider.on(event, (_ctx, error) => console.error(event, error));
}
const answer = provider.callback();
server.on('request', (request, response) => {
  if (!request.url.startsWith(`${job.path}/`)) return response.writeHead(404).end();
  request.originalUrl = request.url; // so that the provider knows below what it is
  request.url = request.url.slice(job.path.length);
  return answer(request, response);
});

console.log(issuer);
const lines = createInterface({ input: process.stdin });
lines.once('line', (line) => {
  server.setSecureContext(JSON.parse(line));
  console.log('serving');
});
lines.once('close', () => process.exit(0));
