// A fetch that shows a client certificate, which Node's own cannot. The SDKs take
// any fetch.

import { Agent, request } from 'node:https';
import { readFileSync } from 'node:fs';
import { Readable } from 'node:stream';

export function certifiedFetch(certFile, keyFile) {
  const agent = new Agent({ keepAlive: true, cert: readFileSync(certFile), key: readFileSync(keyFile) });
  return (input, init = {}) =>
    new Promise((resolve, reject) => {
      const options = { agent, method: init.method ?? 'GET', headers: Object.fromEntries(new Headers(init.headers)), signal: init.signal };
      const sent = request(new URL(input), options, (response) => {
        const empty = response.statusCode === 204 || response.statusCode === 304;
        resolve(new Response(empty ? null : Readable.toWeb(response), { status: response.statusCode, headers: response.headers }));
      });
      sent.on('error', reject);
      sent.end(init.body);
    });
}
