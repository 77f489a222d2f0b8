// A fetch that keeps what went over the wire for the calls that do work, so that
// the Go side can check evidence that the SDKs never look at. Discovery and
// session keeping pass unrecorded: their streams may stay open for ever.

const worth = new Set(['SendMessage', 'tools/call']);

export function recordingFetch() {
  const pending = [];
  const record = async (input, init) => {
    const response = await fetch(input, init);
    const request = typeof init?.body === 'string' ? init.body : '';
    if (!worth.has(methodOf(request))) return response;
    const copy = response.clone();
    pending.push(
      copy.text().then((body) => ({
        request,
        status: copy.status,
        type: copy.headers.get('content-type') ?? '',
        evidence: copy.headers.get('execution-context') ?? '',
        response: body,
      })),
    );
    return response;
  };
  return { fetch: record, exchanges: () => Promise.all(pending) };
}

function methodOf(body) {
  try {
    return JSON.parse(body).method;
  } catch {
    return undefined;
  }
}

// One attempt of a client call: its outcome or the error the SDK raised.
export async function attempt(call) {
  try {
    return await call();
  } catch (error) {
    return { error: { name: error.name, code: error.code ?? null, message: error.message } };
  }
}
