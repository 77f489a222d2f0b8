package ainp_test

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	wire "github.com/aepb/aepb-gateway/gateway/transport/ainp"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
	"github.com/aepb/aepb-gateway/gateway/transport/transporttest"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/translators"
	form "github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	alice     = ect.Identity("spiffe://td/alice")
	requestID = "770e8400-e29b-41d4-a716-446655440002"
)

// now is the time of every test.
func now() time.Time { return time.UnixMilli(1_728_259_400_000) }

// party is somebody with a key, the same for the same name.
func party(name string) wire.Identity {
	seed := make([]byte, ed25519.SeedSize)
	copy(seed, name)
	key := ed25519.NewKeyFromSeed(seed)
	return wire.Identity{DID: wire.KeyDID(key.Public().(ed25519.PublicKey)), Key: key}
}

func sign(t testing.TB, who wire.Identity, body []byte, profile form.SigProfile) []byte {
	t.Helper()
	e, text := opened(t, body)
	return e.WithSignature(base64.StdEncoding.EncodeToString(ed25519.Sign(who.Key, text.SigningInput(profile))))
}

// opened is an envelope and its text.
func opened(t testing.TB, body []byte) (form.Envelope, form.Text) {
	t.Helper()
	e, err := form.Open(body)
	if err != nil {
		t.Fatal(err)
	}
	text, err := e.Text()
	if err != nil {
		t.Fatal(err)
	}
	return e, text
}

// note is an unsigned intent for the gateway.
func note(from wire.Identity) string {
	return `{"version":"0.1.0","msg_type":"INTENT","id":"` + requestID + `","timestamp":1728259400000,"ttl":30000,"trace_id":"t-1","from_did":"` + from.DID +
		`","to_did":"` + party("gateway").DID + `","payload":{"@type":"FreeformNote","semantics":{"body":"hi"}}}`
}

// fakeHandler answers what a test says.
type fakeHandler struct {
	mu       sync.Mutex
	calls    []transport.Call
	exchange func(transport.Call) (transport.Answer, error)
	limit    func(transport.CallInfo) error
	refusal  error // of Admit
}

func (r *fakeHandler) Exchange(_ context.Context, call transport.Call) (transport.Answer, error) {
	r.mu.Lock()
	r.calls = append(r.calls, call)
	r.mu.Unlock()
	if !call.Pass.Valid() {
		return transport.Answer{}, limit.ErrNoPass
	}
	return r.exchange(call)
}

func (r *fakeHandler) Describe(_ context.Context, q transport.CallInfo) (*canonical.Description, error) {
	if !q.Pass.Valid() {
		return nil, limit.ErrNoPass
	}
	return &canonical.Description{
		Name: "chef", Capabilities: []canonical.Capability{{ID: "cook", Description: "cooks"}},
		Extensions: canonical.Extensions{"a2a-v1": json.RawMessage(`{"secret":1}`)},
	}, nil
}

func (r *fakeHandler) Limit(ctx context.Context, q transport.CallInfo) (limit.Pass, error) {
	if r.limit == nil {
		return transporttest.Pass(transport.Refusal(ctx))
	}
	return transporttest.Pass(r.limit(q))
}

func (r *fakeHandler) Admit(_ context.Context, q transport.CallInfo) error {
	if !q.Pass.Valid() {
		return limit.ErrNoPass
	}
	return r.refusal
}

func (r *fakeHandler) seen() []transport.Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]transport.Call(nil), r.calls...)
}

// echo answers a note with its own words.
func echo(call transport.Call) (transport.Answer, error) {
	tr := form.New(translators.Config{})
	m, err := tr.Decode(call.Wire)
	if err != nil {
		return transport.Answer{}, err
	}
	w, _, err := tr.Encode(&canonical.Message{
		Op: canonical.OpInvoke, Phase: canonical.PhaseResponse, Correlation: m.Correlation,
		Body: &canonical.Result{Output: &canonical.Output{Parts: m.Body.(*canonical.Invoke).Turn.Parts}},
	}, translators.Target{Stamp: translators.Addressing{From: party("gateway").DID, At: now()}})
	return transporttest.Answer(w, "our.own.token"), err
}

func newEndpoint(t testing.TB, change func(*wire.ServerDeps)) *wire.Server {
	t.Helper()
	deps := wire.ServerDeps{
		Form: form.New(translators.Config{}), Self: party("gateway"), Keys: wire.NewKeys(nil, now),
		Replays: wire.NewMemory(100, now), Now: now,
		Identity: func(did string) (ect.Identity, bool) { return alice, did == party("alice").DID },
		Receiver: func(agent string) string { return "did:web:" + agent + ".example" },
	}
	if change != nil {
		change(&deps)
	}
	d, err := wire.NewServer(deps)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func post(h http.Handler, body []byte, caller identity.Caller) *httptest.ResponseRecorder {
	request := httptest.NewRequest(http.MethodPost, "/agents/chef/ainp", strings.NewReader(string(body)))
	request.Header.Set("Content-Type", form.Media)
	request.SetPathValue("agent", "chef")
	recorder := httptest.NewRecorder()
	h.ServeHTTP(recorder, request.WithContext(transport.WithCaller(request.Context(), caller, "192.0.2.1")))
	return recorder
}

func nobody() identity.Caller {
	return identity.Caller{Peer: ect.Peer{ID: "spiffe://td/anonymous"}, Anonymous: true}
}

// TestServer_AcceptsAndRefuses: what is taken, and what each refusal is in HTTP and in AINP.
func TestServer_AcceptsAndRefuses(t *testing.T) {
	t.Parallel()
	a, stranger := party("alice"), party("stranger")
	edit := func(before, after string) string { return strings.Replace(note(a), before, after, 1) }
	to := func(recipient string) string { return edit(`"`+party("gateway").DID+`"`, recipient) }
	for name, tc := range map[string]struct {
		body    string
		by      wire.Identity
		profile form.SigProfile
		caller  identity.Caller
		raw     bool // send as it is
		status  int
		code    string
	}{
		"draft signature":           {body: note(a), by: a, profile: form.SigDraft, status: 200},
		"raw signature":             {body: note(a), by: a, profile: form.SigRaw, status: 200},
		"with evidence":             {body: edit(`"semantics"`, `"aepb":{"ect":["a.b.c"]},"semantics"`), by: a, status: 200},
		"same certificate":          {body: note(a), by: a, caller: identity.Caller{Peer: ect.Peer{ID: alice}}, status: 200},
		"a stranger's own":          {body: note(stranger), by: stranger, status: 200},
		"another certificate":       {body: note(a), by: a, caller: identity.Caller{Peer: ect.Peer{ID: "spiffe://td/bob"}}, status: 400, code: "INVALID_SIGNATURE"},
		"unsigned":                  {body: note(a), raw: true, status: 401, code: "INVALID_SIGNATURE"},
		"signed by another":         {body: note(a), by: stranger, status: 401, code: "INVALID_SIGNATURE"},
		"signature of another size": {body: edit(`{"version"`, `{"sig":"AAAA","version"`), raw: true, status: 401, code: "INVALID_SIGNATURE"},
		"signature no base64":       {body: edit(`{"version"`, `{"sig":"%","version"`), raw: true, status: 401, code: "INVALID_SIGNATURE"},
		"changed after signing":     {body: strings.Replace(string(sign(t, a, []byte(note(a)), form.SigDraft)), `"hi"`, `"ho"`, 1), raw: true, status: 401, code: "INVALID_SIGNATURE"},
		"sender in another case":    {body: strings.Replace(string(sign(t, stranger, []byte(note(stranger)), form.SigDraft)), `{"version"`, `{"FROM_DID":"`+a.DID+`","version"`, 1), raw: true, status: 400, code: "VALIDATION_ERROR"},
		"unknown method of DID":     {body: edit(a.DID, "did:example:1"), by: a, status: 401, code: "INVALID_SIGNATURE"},
		"did:web without a client":  {body: edit(a.DID, "did:web:a.example"), by: a, status: 401, code: "INVALID_SIGNATURE"},
		"broken did:key":            {body: edit(a.DID, "did:key:z6Mk"), by: a, status: 401, code: "INVALID_SIGNATURE"},
		"expired":                   {body: edit("1728259400000", "1728259309999"), by: a, status: 400, code: "VALIDATION_ERROR"},
		"just not expired":          {body: edit("1728259400000", "1728259310000"), by: a, status: 200},
		"from the future":           {body: edit("1728259400000", "1728259460001"), by: a, status: 400, code: "VALIDATION_ERROR"},
		"ahead within the skew":     {body: edit("1728259400000", "1728259460000"), by: a, status: 200},
		"ttl beyond an hour":        {body: edit("30000", "3600001"), by: a, status: 400, code: "VALIDATION_ERROR"},
		"ttl beyond everything":     {body: edit("30000", "999999999999999"), by: a, status: 400, code: "VALIDATION_ERROR"},
		"no JSON":                   {body: `{`, raw: true, status: 400, code: "VALIDATION_ERROR"},
		"another version":           {body: edit("0.1.0", "0.2.0"), by: a, status: 404, code: "UNSUPPORTED_SCHEMA"},
		"a task without a name":     {body: edit("FreeformNote", "TaskCancel"), by: a, status: 400, code: "VALIDATION_ERROR"},
		"for the agent":             {body: to(`"did:web:chef.example"`), by: a, status: 200},
		"no recipient":              {body: to("null"), by: a, status: 403, code: "UNAUTHORIZED"},
		"no recipient, certified":   {body: to("null"), by: a, caller: identity.Caller{Peer: ect.Peer{ID: alice}}, status: 200},
		"no recipient, unknown DID": {body: strings.Replace(to("null"), a.DID, stranger.DID, 1), by: stranger, status: 200},
		"for another recipient":     {body: to(`"` + stranger.DID + `"`), by: a, status: 403, code: "UNAUTHORIZED"},
		"for its own sender":        {body: to(`"` + a.DID + `"`), by: a, status: 403, code: "UNAUTHORIZED"},
		"for a number":              {body: to("12345"), by: a, status: 400, code: "VALIDATION_ERROR"},
		"for several":               {body: to(`["` + party("gateway").DID + `"]`), by: a, status: 400, code: "VALIDATION_ERROR"},
		"evidence of numbers":       {body: edit(`"semantics"`, `"aepb":{"ect":[1]},"semantics"`), by: a, status: 400, code: "VALIDATION_ERROR"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &fakeHandler{exchange: echo}
			body := []byte(tc.body)
			if !tc.raw {
				body = sign(t, tc.by, body, tc.profile)
			}
			if tc.caller.ID == "" {
				tc.caller = nobody()
			}
			got := post(newEndpoint(t, nil).Handler(r), body, tc.caller)
			if got.Code != tc.status || !strings.Contains(got.Body.String(), `"`+tc.code) {
				t.Fatalf("got %d %s, want %d %s", got.Code, got.Body, tc.status, tc.code)
			}
			if tc.status != 200 && len(r.seen()) != 0 {
				t.Error("it went into the pipeline")
			}
			answer, _ := opened(t, got.Body.Bytes())
			head, err := answer.Head()
			if err != nil || head.From != party("gateway").DID {
				t.Errorf("the answer is from %q, %v", head.From, err)
			}
			holds(t, got.Body.Bytes(), tc.profile)
		})
	}
}

// holds checks that an answer is signed by the gateway, in the profile that it
// was asked in.
func holds(t *testing.T, body []byte, profile form.SigProfile) {
	t.Helper()
	answer, text := opened(t, body)
	head, err := answer.Head()
	if err != nil {
		t.Fatal(err)
	}
	sig, err := base64.StdEncoding.DecodeString(head.Sig)
	if err != nil {
		t.Fatal(err)
	}
	if !ed25519.Verify(party("gateway").Key.Public().(ed25519.PublicKey), text.SigningInput(profile), sig) {
		t.Error("the answer's signature does not hold")
	}
}

// TestServer_CallerByDID: a DID that the operator knows is a workload; another proves
// nothing about its caller.
func TestServer_CallerByDID(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]identity.Caller{"alice": {Peer: ect.Peer{ID: alice}}, "stranger": nobody()} {
		r := &fakeHandler{exchange: echo}
		who := party(name)
		body := sign(t, who, []byte(strings.Replace(note(who), `"semantics"`, `"aepb":{"ect":["a.b.c"]},"semantics"`, 1)), form.SigDraft)
		got := post(newEndpoint(t, nil).Handler(r), body, nobody())
		if got.Code != 200 {
			t.Fatalf("%s: %d %s", name, got.Code, got.Body)
		}
		call := r.seen()[0]
		if call.Caller.ID != want.ID || call.Caller.Anonymous != want.Anonymous || call.Agent != "chef" || call.Address != "192.0.2.1" {
			t.Errorf("%s: got %+v", name, call)
		}
		if diff := cmp.Diff([]string{"a.b.c"}, call.Evidence); diff != "" {
			t.Errorf("%s: evidence (-want +got):\n%s", name, diff)
		}
		answer, _ := opened(t, got.Body.Bytes())
		back, err := answer.Evidence()
		if diff := cmp.Diff([]string{"our.own.token"}, back); diff != "" || err != nil {
			t.Errorf("%s: evidence back, %v (-want +got):\n%s", name, err, diff)
		}
	}
}

// TestServer_RefusesReplay: a message is taken once, and room that is not there is no reason
// to forget.
func TestServer_RefusesReplay(t *testing.T) {
	t.Parallel()
	a := party("alice")
	h := newEndpoint(t, func(d *wire.ServerDeps) { d.Replays = wire.NewMemory(1, now) }).Handler(&fakeHandler{exchange: echo})
	body := sign(t, a, []byte(note(a)), form.SigDraft)
	if got := post(h, body, nobody()); got.Code != 200 {
		t.Fatalf("first: %d %s", got.Code, got.Body)
	}
	if got := post(h, body, nobody()); got.Code == 200 || !strings.Contains(got.Body.String(), "DUPLICATE_INTENT") {
		t.Errorf("second: %d %s", got.Code, got.Body)
	}
	other := sign(t, a, []byte(strings.Replace(note(a), requestID, "880e8400-e29b-41d4-a716-446655440003", 1)), form.SigDraft)
	if got := post(h, other, nobody()); got.Code != http.StatusServiceUnavailable {
		t.Errorf("without room: %d %s", got.Code, got.Body)
	}
}

func TestMemory_ForgetsInTime(t *testing.T) {
	t.Parallel()
	at := now()
	m := wire.NewMemory(1, func() time.Time { return at })
	first := func(key string) bool {
		ok, err := m.First(t.Context(), key, time.Time{}, at.Add(time.Minute))
		return ok && err == nil
	}
	if !first("a") || first("a") || first("b") {
		t.Error("it forgets too early")
	}
	at = at.Add(time.Minute)
	if !first("b") || first("b") {
		t.Error("it does not forget")
	}
}

func TestServer_RefusesBeforeBody(t *testing.T) {
	t.Parallel()
	h := newEndpoint(t, nil).Handler(&fakeHandler{exchange: echo})
	for name, tc := range map[string]struct {
		method, media, coding string
		size, want            int
	}{
		"GET":        {http.MethodGet, form.Media, "", 0, 405},
		"text":       {http.MethodPost, "text/plain", "", 2, 415},
		"no type":    {http.MethodPost, "", "", 2, 415},
		"compressed": {http.MethodPost, form.Media, "gzip", 2, 415},
		"too large":  {http.MethodPost, form.Media, "", 2 << 20, 413},
	} {
		request := httptest.NewRequest(tc.method, "/", strings.NewReader(strings.Repeat(" ", tc.size)))
		request.Header.Set("Content-Type", tc.media)
		if tc.coding != "" {
			request.Header.Set("Content-Encoding", tc.coding)
		}
		got := httptest.NewRecorder()
		h.ServeHTTP(got, request)
		if got.Code != tc.want {
			t.Errorf("%s: got %d, want %d", name, got.Code, tc.want)
		}
	}
}

// direct is a client without a guard.
type direct struct{ err error }

func (d direct) DoAs(r *http.Request, _ ect.Identity) (*http.Response, error) {
	if d.err != nil {
		return nil, d.err
	}
	r.Close = true
	return http.DefaultTransport.RoundTrip(r)
}

func newDialer(t testing.TB, client transport.Client, peer wire.Peer) *wire.Dialer {
	t.Helper()
	d, err := wire.NewDialer(wire.DialerDeps{
		Client: client, Form: form.New(translators.Config{}), Self: party("alice"), Keys: wire.NewKeys(nil, now), Now: now,
		Peer: func(string) wire.Peer { return peer },
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// seal makes a recorded message, as the pipeline does.
func seal(t testing.TB) transport.Sealed {
	t.Helper()
	return sealOf(t, &canonical.Invoke{Turn: canonical.Content{Role: canonical.RoleCaller, Parts: []canonical.Part{{Kind: canonical.KindText, Text: "hi"}}}})
}

func sealOf(t testing.TB, body canonical.Body) transport.Sealed {
	t.Helper()
	w, _, err := form.New(translators.Config{}).Encode(&canonical.Message{
		Op: canonical.OpInvoke, Phase: canonical.PhaseRequest, Correlation: canonical.Correlation{WireID: json.RawMessage(`"` + requestID + `"`)},
		Body: body,
	}, translators.Target{Stamp: translators.Addressing{From: party("alice").DID, To: party("gateway").DID, At: now()}})
	if err != nil {
		t.Fatal(err)
	}
	recorder, err := ect.NewRecorder(ect.RecorderDeps{Store: ecttest.NewStore(), Retention: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	token, err := ecttest.NewParty(t, "spiffe://td/gw").Signer(t, time.Now).Sign(ect.Claims{
		Act: ect.ActTranslate, Audience: []string{"x"}, Workflow: "6f1f8f3c-9a37-4b6e-9c55-0a4a0b7b7f10", OutputHash: ect.Hash(w.Body),
	})
	if err != nil {
		t.Fatal(err)
	}
	receipt, err := recorder.Record(t.Context(), token, ect.Filing{})
	if err != nil {
		t.Fatal(err)
	}
	attested, err := transport.Attest(receipt, w)
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := attested.Seal("an.cest.or")
	if err != nil {
		t.Fatal(err)
	}
	return sealed
}

// TestDialer_WithServer: the dialer against the door.
func TestDialer_WithServer(t *testing.T) {
	t.Parallel()
	for _, profile := range []form.SigProfile{form.SigDraft, form.SigRaw} {
		r := &fakeHandler{exchange: echo}
		server := httptest.NewServer(newEndpoint(t, nil).Handler(r))
		d := newDialer(t, direct{}, wire.Peer{DID: party("gateway").DID, Profile: profile})
		ep := transport.Endpoint{Agent: "chef", URL: server.URL, Timeout: 5 * time.Second}
		reply, err := d.Dial(t.Context(), ep, seal(t))
		if err != nil {
			t.Fatal(err)
		}
		m, err := form.New(translators.Config{}).Decode(reply.Wire)
		if err != nil || m.Body.(*canonical.Result).Output.Parts[0].Text != "hi" {
			t.Errorf("%s: got %s, %v", profile, reply.Wire.Body, err)
		}
		if diff := cmp.Diff([]string{"our.own.token"}, reply.Evidence); diff != "" {
			t.Errorf("%s: evidence back (-want +got):\n%s", profile, diff)
		}
		if sent := r.seen()[0].Evidence; len(sent) != 2 || sent[1] != "an.cest.or" {
			t.Errorf("%s: evidence sent: %q", profile, sent)
		}
		answer, _, err := d.Describe(t.Context(), ep)
		if err != nil || answer.Name != "chef" || len(answer.Capabilities) != 1 || answer.Capabilities[0].ID != "cook" {
			t.Errorf("%s: got %+v, %v", profile, answer, err)
		}
		server.Close()
	}
}

// TestDialer_DigitsOfNumbersArrive: the canonical form that is signed says numbers as doubles; the
// message keeps their digits, and its signature holds.
func TestDialer_DigitsOfNumbersArrive(t *testing.T) {
	t.Parallel()
	for _, args := range []string{`{"n":1}`, `{"n":9007199254740993}`, `{"n":0.50}`, `{"n":-0}`, `{"n":1e400}`} {
		r := &fakeHandler{exchange: echo}
		server := httptest.NewServer(newEndpoint(t, nil).Handler(r))
		d := newDialer(t, direct{}, wire.Peer{DID: party("gateway").DID, Profile: form.SigDraft})
		_, err := d.Dial(t.Context(), transport.Endpoint{Agent: "chef", URL: server.URL, Timeout: 5 * time.Second},
			sealOf(t, &canonical.Invoke{Call: &canonical.Call{Name: "count", Args: json.RawMessage(args)}}))
		if seen := r.seen(); len(seen) != 1 {
			t.Errorf("%s: nothing arrived: %v", args, err)
		} else if m, err := form.New(translators.Config{}).Decode(seen[0].Wire); err != nil || string(m.Body.(*canonical.Invoke).Call.Args) != args {
			t.Errorf("%s: %s arrived, %v", args, seen[0].Wire.Body, err)
		}
		server.Close()
	}
}

// TestDial_Failures: what each way of not answering is.
func TestDial_Failures(t *testing.T) {
	t.Parallel()
	g := party("gateway")
	result := func(from wire.Identity, intent string) string {
		return `{"version":"0.1.0","msg_type":"RESULT","id":"880e8400-e29b-41d4-a716-446655440003","timestamp":1728259400000,"ttl":30000,"trace_id":"` + requestID +
			`","from_did":"` + from.DID + `","payload":{` + intent + `"status":"success","result":"x"}}`
	}
	signed := func(who wire.Identity, body string) string { return string(sign(t, who, []byte(body), form.SigDraft)) }
	intent := `"intent_id":"` + requestID + `",`
	bad, gone := as[*transport.BadReplyError], as[*transport.UnreachableError]
	late, denied := as[*transport.TimeoutError], as[*egress.DeniedError]
	fine := func(err error) bool { return err == nil }
	for name, tc := range map[string]struct {
		answer string
		client direct
		peer   wire.Peer
		slow   bool
		half   bool // it ends half an answer properly when its client is gone
		is     func(error) bool
	}{
		"fine":                    {answer: signed(g, result(g, intent)), is: fine},
		"by trace alone":          {answer: signed(g, result(g, "")), is: fine},
		"unsigned, and allowed":   {answer: result(g, intent), peer: wire.Peer{Unsigned: true}, is: fine},
		"unsigned":                {answer: result(g, intent), is: bad},
		"only routed":             {answer: `{"status":"routed","agent_count":1}`, is: bad},
		"only routed, unsigned":   {answer: `{"status":"routed","agent_count":1}`, peer: wire.Peer{Unsigned: true}, is: bad},
		"a list, unsigned":        {answer: `[]`, peer: wire.Peer{Unsigned: true}, is: bad},
		"no JSON":                 {answer: `<html>`, is: bad},
		"empty":                   {answer: ``, is: bad},
		"to another intent":       {answer: signed(g, result(g, `"intent_id":"other",`)), is: bad},
		"of another trace":        {answer: signed(g, strings.Replace(result(g, ""), `"trace_id":"`+requestID, `"trace_id":"other`, 1)), is: bad},
		"by somebody else":        {answer: signed(party("eve"), result(party("eve"), intent)), peer: wire.Peer{DID: g.DID}, is: bad},
		"in somebody's name":      {answer: signed(party("eve"), result(g, intent)), is: bad},
		"to us":                   {answer: signed(g, strings.Replace(result(g, intent), `"payload"`, `"to_did":"`+party("alice").DID+`","payload"`, 1)), is: fine},
		"to somebody else":        {answer: signed(g, strings.Replace(result(g, intent), `"payload"`, `"to_did":"`+party("eve").DID+`","payload"`, 1)), is: bad},
		"too old":                 {answer: signed(g, strings.Replace(result(g, intent), "1728259400000", "1728250000000", 1)), is: bad},
		"evidence of numbers":     {answer: signed(g, strings.Replace(result(g, intent), `"status"`, `"aepb":{"ect":[1]},"status"`, 1)), is: bad},
		"evidence that is none":   {answer: signed(g, strings.Replace(result(g, intent), `"status"`, `"aepb":{"ect":["a b"]},"status"`, 1)), is: bad},
		"longer than an envelope": {answer: signed(g, result(g, intent)) + strings.Repeat(" ", 2<<20), is: bad},
		"longer than an answer":   {answer: strings.Repeat(" ", 2<<20), is: bad},
		"not reached":             {client: direct{errors.New("refused")}, is: gone},
		"refused by egress":       {client: direct{&egress.DeniedError{Host: "x", Reason: egress.ReasonNotListed}}, is: denied},
		"later than its timeout":  {slow: true, is: late},
		"half of it in time":      {answer: `{"version"`, half: true, is: late},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			end := make(chan struct{})
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if tc.slow {
					<-end
				}
				_, _ = io.WriteString(w, tc.answer)
				if tc.half {
					_ = http.NewResponseController(w).Flush()
					<-r.Context().Done()
				}
			}))
			defer server.Close()
			defer close(end)
			ep := transport.Endpoint{Agent: "chef", URL: server.URL, Timeout: 5 * time.Second}
			if tc.slow || tc.half {
				ep.Timeout = 50 * time.Millisecond
			}
			if _, err := newDialer(t, tc.client, tc.peer).Dial(t.Context(), ep, seal(t)); !tc.is(err) {
				t.Errorf("got %T %v", err, err)
			}
		})
	}
}

// as reports whether an error is of a type.
func as[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}

// web is a client that has one document.
type web struct {
	mu       sync.Mutex
	requests []string
	document string
	status   int
}

func (c *web) DoAs(r *http.Request, _ ect.Identity) (*http.Response, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests = append(c.requests, r.URL.String())
	return &http.Response{StatusCode: c.status, Body: io.NopCloser(strings.NewReader(c.document))}, nil
}

// TestResolve_DIDMethods: where a key is found, and that a document is asked for once.
func TestResolve_DIDMethods(t *testing.T) {
	t.Parallel()
	key := party("alice").Key.Public().(ed25519.PublicKey)
	multibase := strings.TrimPrefix(party("alice").DID, "did:key:")
	jwk := `{"kty":"OKP","crv":"Ed25519","x":"` + base64.RawURLEncoding.EncodeToString(key) + `"}`
	document := func(did, method string) string {
		return `{"id":"` + did + `","verificationMethod":[{"id":"#1","publicKeyJwk":{"kty":"EC"}},{"id":"#2",` + method + `}]}`
	}
	for name, tc := range map[string]struct {
		did, document, url string
		status             int
		fails              bool
	}{
		"multibase":           {did: "did:web:a.example", document: document("did:web:a.example", `"publicKeyMultibase":"`+multibase+`"`), url: "https://a.example/.well-known/did.json"},
		"jwk":                 {did: "did:web:a.example", document: document("did:web:a.example", `"publicKeyJwk":`+jwk), url: "https://a.example/.well-known/did.json"},
		"port and path":       {did: "did:web:a.example%3A8443:team:bot", document: document("did:web:a.example%3A8443:team:bot", `"publicKeyJwk":`+jwk), url: "https://a.example:8443/team/bot/did.json"},
		"another's document":  {did: "did:web:a.example", document: document("did:web:b.example", `"publicKeyJwk":`+jwk), url: "https://a.example/.well-known/did.json", fails: true},
		"no key":              {did: "did:web:a.example", document: `{"id":"did:web:a.example"}`, url: "https://a.example/.well-known/did.json", fails: true},
		"not found any more":  {did: "did:web:a.example", document: document("did:web:a.example", `"publicKeyJwk":`+jwk), status: 410, url: "https://a.example/.well-known/did.json", fails: true},
		"good, but too long":  {did: "did:web:a.example", document: document("did:web:a.example", `"publicKeyJwk":`+jwk) + strings.Repeat(" ", 1<<16), url: "https://a.example/.well-known/did.json", fails: true},
		"jwk, another curve":  {did: "did:web:a.example", document: document("did:web:a.example", `"publicKeyJwk":`+strings.Replace(jwk, "Ed25519", "X25519", 1)), url: "https://a.example/.well-known/did.json", fails: true},
		"jwk, another type":   {did: "did:web:a.example", document: document("did:web:a.example", `"publicKeyJwk":`+strings.Replace(jwk, "OKP", "EC", 1)), url: "https://a.example/.well-known/did.json", fails: true},
		"a path that stays":   {did: "did:web:a.example:.:x", fails: true},
		"an open escape":      {did: "did:web:a.example:%2", fails: true},
		"not found":           {did: "did:web:a.example", status: 404, url: "https://a.example/.well-known/did.json", fails: true},
		"too long":            {did: "did:web:a.example", document: strings.Repeat(" ", 1<<17), url: "https://a.example/.well-known/did.json", fails: true},
		"a path that climbs":  {did: "did:web:a.example:..:x", fails: true},
		"a slash in the name": {did: "did:web:a.example%2Fx", fails: true},
		"a user in the name":  {did: "did:web:me%40a.example", fails: true},
		"no name":             {did: "did:web:", fails: true},
		"too long a DID":      {did: "did:web:" + strings.Repeat("a", 600), fails: true},
		"another method":      {did: "did:ion:x", fails: true},
		"key, not base58":     {did: "did:key:z0OIl", fails: true},
		"key, another base":   {did: "did:key:uABC", fails: true},
		"key, another codec":  {did: "did:key:z6LSbysY2xFMRpGMhb7tFTLMpeuPRaqaWM1yECx2AtzE3KCc", fails: true},
		"key, too long":       {did: "did:key:z" + strings.Repeat("6", 100), fails: true},
		"key, with a zero":    {did: "did:key:z1" + multibase[1:], fails: true},
		"key, of nothing":     {did: "did:key:z", fails: true},
		"key":                 {did: party("alice").DID},
	} {
		c := &web{document: tc.document, status: tc.status}
		if c.status == 0 {
			c.status = 200
		}
		keys := wire.NewKeys(c, now)
		for range 2 {
			got, err := keys.Resolve(t.Context(), tc.did)
			if (err != nil) != tc.fails || !tc.fails && (len(got) != 1 || !got[0].Equal(key)) {
				t.Errorf("%s: got %x, %v", name, got, err)
			}
		}
		var want []string
		if tc.url != "" {
			want = []string{tc.url} // failures are remembered for a while too
		}
		if diff := cmp.Diff(want, c.requests); diff != "" {
			t.Errorf("%s: asked (-want +got):\n%s", name, diff)
		}
	}
}

// TestResolve_KnownKey: the reference repository's own pair of DID and key.
func TestResolve_KnownKey(t *testing.T) {
	t.Parallel()
	const did = "did:key:z6MkoSJvBnjUzXHyqUTmRQsNRVNoqAmZ6V5kQC7EiwsFiKWs"
	keys, err := wire.NewKeys(nil, nil).Resolve(t.Context(), did)
	if err != nil || len(keys) != 1 || wire.KeyDID(keys[0]) != did {
		t.Errorf("got %x, %v", keys, err)
	}
}

func TestNew_MissingDeps(t *testing.T) {
	t.Parallel()
	if _, err := wire.NewServer(wire.ServerDeps{}); err == nil {
		t.Error("a door of nothing")
	}
	if _, err := wire.NewDialer(wire.DialerDeps{}); err == nil {
		t.Error("a dialer of nothing")
	}
	if _, err := newDialer(t, direct{}, wire.Peer{}).Dial(t.Context(), transport.Endpoint{}, transport.Sealed{}); !errors.Is(err, transport.ErrUnsealed) {
		t.Errorf("unsealed: got %v", err)
	}
}

// FuzzResolve_KeyOrError: whatever a DID and its document are, a key is a key.
func FuzzResolve_KeyOrError(f *testing.F) {
	f.Add("did:web:a.example%3A8443:team", `{"id":"did:web:a.example%3A8443:team","verificationMethod":[{"publicKeyMultibase":"z6Mk"},{"publicKeyJwk":{"kty":"OKP","crv":"Ed25519","x":"AA"}}]}`)
	f.Add(party("alice").DID, "")
	f.Fuzz(func(t *testing.T, did, document string) {
		c := &web{document: document, status: 200}
		keys, err := wire.NewKeys(c, now).Resolve(t.Context(), did)
		if err == nil && len(keys) == 0 {
			t.Error("neither a key nor an error")
		}
		for _, key := range keys {
			if len(key) != ed25519.PublicKeySize {
				t.Errorf("a key of %d bytes", len(key))
			}
			if strings.HasPrefix(did, "did:key:") && wire.KeyDID(key) != did {
				t.Errorf("%s is not %s", wire.KeyDID(key), did)
			}
		}
		for _, requested := range c.requests {
			if !strings.HasPrefix(requested, "https://") || strings.ContainsAny(requested, "?#@") {
				t.Errorf("asked for %s", requested)
			}
		}
	})
}

// TestServer_LimitThenPermissionThenForm: the limit comes before the body, permission before the form,
// and a connection that proved nothing is refused unless the message does.
func TestServer_LimitThenPermissionThenForm(t *testing.T) {
	t.Parallel()
	a, stranger := party("alice"), party("stranger")
	limited := func(transport.CallInfo) error {
		return &canonical.Error{Code: canonical.CodeRateLimited, Message: "slow down"}
	}
	forbidden := &canonical.Error{Code: canonical.CodeForbidden, Message: "no"}
	notice := strings.Replace(note(a), "FreeformNote", "NOTIFICATION", 1)
	for name, tc := range map[string]struct {
		handler *fakeHandler
		body    []byte
		status  int
		code    string
	}{
		"limited":                {&fakeHandler{limit: limited}, []byte("{"), 429, "RATE_LIMIT_EXCEEDED"},
		"unreadable, forbidden":  {&fakeHandler{refusal: forbidden}, []byte("{"), 403, "UNAUTHORIZED"},
		"notice":                 {&fakeHandler{}, sign(t, a, []byte(notice), form.SigDraft), 202, ""},
		"notice, forbidden":      {&fakeHandler{refusal: forbidden}, sign(t, a, []byte(notice), form.SigDraft), 403, "UNAUTHORIZED"},
		"a DID in place of mTLS": {&fakeHandler{exchange: echo}, sign(t, a, []byte(note(a)), form.SigDraft), 200, ""},
	} {
		got := post(newEndpoint(t, nil).Handler(tc.handler), tc.body, nobody())
		if got.Code != tc.status || !strings.Contains(got.Body.String(), tc.code) {
			t.Errorf("%s: got %d %s", name, got.Code, got.Body)
		}
	}
	for name, tc := range map[string]struct {
		who    wire.Identity
		status int
	}{"known": {a, 200}, "unknown": {stranger, 401}} {
		r := &fakeHandler{exchange: echo}
		request := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(string(sign(t, tc.who, []byte(note(tc.who)), form.SigDraft))))
		request.Header.Set("Content-Type", form.Media)
		ctx := transport.WithoutCaller(request.Context(), &problem.UnauthenticatedError{}, "192.0.2.1")
		got := httptest.NewRecorder()
		newEndpoint(t, nil).Handler(r).ServeHTTP(got, request.WithContext(ctx))
		if got.Code != tc.status || tc.status == 200 && r.seen()[0].Caller.ID != alice {
			t.Errorf("%s: got %d %s", name, got.Code, got.Body)
		}
	}
}
