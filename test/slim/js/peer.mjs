// A real SLIM node or application, told what to do by lines of JSON on standard
// input and answering each with a line of JSON on standard output. Nothing of it
// is ours but this loop.
import * as slim from "@agntcy/slim-bindings-linux-x64-gnu";
import { createInterface } from "node:readline";

const text = new TextEncoder();
const bytes = (s) => text.encode(s).buffer;
const octets = (s) => new Uint8Array(Buffer.from(s, "base64")).buffer;
const seen = []; // what A2A servers were asked
const string = (b) => Buffer.from(b).toString("utf8");
const plainMap = (m) => Object.fromEntries(m ?? []);
const mapOf = (o) => new Map(Object.entries(o ?? {}));

// service is made when it is needed: a configuration has to come before it.
let made;
function service() {
  if (!made) {
    slim.initializeWithDefaults();
    made = slim.getGlobalService();
  }
  return made;
}
const apps = new Map();
const sessions = new Map();

function sessionConfig(job) {
  return {
    sessionType: job.group ? slim.SessionType.Group : slim.SessionType.PointToPoint,
    maxRetries: job.retries ?? 5,
    interval: job.interval ?? 1000,
    metadata: mapOf(job.metadata),
    mlsSettings: job.mls ? slim.MlsSettings?.create?.({ headerIntegrityValidationPercent: 0 }) ?? { headerIntegrityValidationPercent: 0 } : undefined,
  };
}

function rpcError(code, message) {
  return new slim.RpcError.Rpc({ code, message, details: undefined });
}

// handlers is what every SLIMRPC server of this file serves.
function serve(app, name, services, a2a) {
  const server = new slim.Server(app, name);
  const svc = "test.Echo";
  server.registerUnaryUnary(svc, "Echo", { handle: async (request) => request });
  server.registerUnaryUnary(svc, "Empty", { handle: async () => bytes("") });
  server.registerUnaryUnary(svc, "Metadata", {
    handle: async (_request, context) => bytes(JSON.stringify({ metadata: plainMap(context.metadata()), left: context.remainingTime() })),
  });
  server.registerUnaryUnary(svc, "Fail", {
    handle: async () => {
      throw rpcError(slim.RpcCode.NotFound, "no such thing");
    },
  });
  server.registerUnaryUnary(svc, "Slow", {
    handle: async () => {
      await new Promise((done) => setTimeout(done, 20000));
      return bytes("late");
    },
  });
  server.registerUnaryStream(svc, "Count", {
    handle: async (request, _context, sink) => {
      for (let i = 0; i < Number(string(request)); i++) await sink.sendAsync(bytes(`item ${i}`));
      await sink.closeAsync();
    },
  });
  for (const known of services ?? []) {
    server.registerUnaryUnary(known, "GetTask", { handle: async (request) => bytes(known + " " + string(request)) });
  }
  for (const [method, answer] of Object.entries(a2a?.methods ?? {})) {
    const keep = (request, context) => seen.push({ method, body: Buffer.from(request).toString("base64"), metadata: plainMap(context.metadata()) });
    if (answer.stream) {
      server.registerUnaryStream(answer.service ?? a2a.service, method, {
        handle: async (request, context, sink) => {
          keep(request, context);
          for (const item of answer.stream) await sink.sendAsync(octets(item));
          if (answer.code) await sink.sendErrorAsync(rpcError(answer.code, answer.message));
          else await sink.closeAsync();
        },
      });
      continue;
    }
    server.registerUnaryUnary(answer.service ?? a2a.service, method, {
      handle: async (request, context) => {
        keep(request, context);
        if (answer.code) throw rpcError(answer.code, answer.message);
        return octets(answer.body);
      },
    });
  }
  server.serveAsync().catch((e) => process.stderr.write(String(e) + "\n"));
}

// identity is how an application shows who it is, and knows the others.
function identity(jwt, spire) {
  if (spire) {
    const config = { socketPath: spire.socket, targetSpiffeId: undefined, jwtAudiences: spire.audience, trustDomains: [] };
    return [new slim.IdentityProviderConfig.Spire({ config }), new slim.IdentityVerifierConfig.Spire({ config })];
  }
  const key = (format, value) => ({ algorithm: slim.JwtAlgorithm.Es256, format, key: new slim.JwtKeyData.Data({ value }) });
  const common = { audience: jwt.audience, issuer: jwt.issuer, duration: 3600000 };
  return [
    new slim.IdentityProviderConfig.Jwt({ config: { ...common, subject: jwt.subject, key: new slim.JwtKeyType.Encoding({ key: key(slim.JwtKeyFormat.Pem, jwt.key) }) } }),
    new slim.IdentityVerifierConfig.Jwt({ config: { ...common, subject: undefined, key: new slim.JwtKeyType.Decoding({ key: key(slim.JwtKeyFormat.Pem, jwt.trusted) }) } }),
  ];
}

const jobs = {
  async node({ endpoint, cert, key, config: file }) {
    if (file) { // a service configuration, as SLIM's own program reads it
      slim.initializeFromConfig(file);
      return {};
    }
    const config =
      cert === undefined
        ? slim.newInsecureServerConfig(endpoint)
        : slim.newSecureServerConfig(endpoint, new slim.TlsSource.Pem({ cert, key }));
    await service().runServerAsync(config);
    return {};
  },
  async app({ endpoint, ca, name, secret, jwt, spire, rpc, services, a2a }) {
    const config = ca === undefined ? slim.newInsecureClientConfig(endpoint) : slim.newSecureClientConfig(endpoint);
    if (ca !== undefined) config.tls.caSource = new slim.CaSource.Pem({ data: ca });
    const conn = await service().connectAsync(config);
    const n = slim.Name.fromString(name);
    const app = secret ? service().createAppWithSecret(n, secret) : service().createApp(n, ...identity(jwt, spire));
    await app.subscribeAsync(app.name(), conn);
    apps.set(name, { app, conn });
    if (rpc || a2a) serve(app, n, services, a2a);
    return { name: app.name().toString(), version: slim.getVersion() };
  },
  async open({ app, to, ...rest }) {
    const { app: a, conn } = apps.get(app);
    const dest = slim.Name.fromString(to);
    await a.setRouteAsync(dest, conn);
    const s = await a.createSessionAndWaitAsync(sessionConfig(rest), dest);
    const id = `s${sessions.size}`;
    sessions.set(id, s);
    return { session: id };
  },
  async listen({ app, timeout }) {
    const s = await apps.get(app).app.listenForSessionAsync(timeout ?? 10000);
    const id = `s${sessions.size}`;
    sessions.set(id, s);
    return { session: id, metadata: plainMap(s.metadata()), initiator: s.isInitiator() };
  },
  async invite({ app, session, who }) {
    const { app: a, conn } = apps.get(app);
    const n = slim.Name.fromString(who);
    await a.setRouteAsync(n, conn);
    await sessions.get(session).inviteAndWaitAsync(n);
    return {};
  },
  async remove({ session, who }) {
    await sessions.get(session).removeAndWaitAsync(slim.Name.fromString(who));
    return {};
  },
  async publish({ session, body, size, type, metadata }) {
    const blob = size ? new Uint8Array(size).fill(97).buffer : bytes(body);
    await sessions.get(session).publishAndWaitAsync(blob, type, mapOf(metadata));
    return {};
  },
  async receive({ session, timeout }) {
    const m = await sessions.get(session).getMessageAsync(timeout ?? 10000);
    return { body: string(m.payload), type: m.context.payloadType, metadata: plainMap(m.context.metadata), from: m.context.sourceName.toString() };
  },
  async close({ app, session }) {
    await apps.get(app).app.deleteSessionAndWaitAsync(sessions.get(session));
    return {};
  },
  async call({ app, to, service: svc, method, body, timeout, metadata }) {
    const { app: a, conn } = apps.get(app);
    const dest = slim.Name.fromString(to);
    await a.setRouteAsync(dest, conn);
    const channel = slim.Channel.newWithConnection(a, dest, conn);
    const reply = await channel.callUnaryAsync(svc, method, bytes(body), timeout, mapOf(metadata));
    return { body: string(reply) };
  },
  async seen() {
    return { calls: seen };
  },
  async quit() {
    setTimeout(() => process.exit(0), 10);
    return {};
  },
};

function describe(e) {
  const inner = e?.inner ?? {};
  return { name: e?.constructor?.name, tag: e?.tag, code: inner.code, message: String(inner.message ?? e?.message ?? e) };
}

for await (const line of createInterface({ input: process.stdin })) {
  const { id, job, ...rest } = JSON.parse(line);
  jobs[job](rest).then(
    (result) => process.stdout.write(JSON.stringify({ id, result }) + "\n"),
    (e) => process.stdout.write(JSON.stringify({ id, error: describe(e) }) + "\n"),
  );
}
process.exit(0);
