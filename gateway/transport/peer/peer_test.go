package peer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
	"github.com/aepb/aepb-gateway/gateway/transport/reply"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// wireTo is a client that trusts one test server and follows nothing.
type wireTo struct {
	through  http.RoundTripper
	expected ect.Identity
}

func (c *wireTo) DoAs(r *http.Request, expected ect.Identity) (*http.Response, error) {
	c.expected = expected
	return c.through.RoundTrip(r)
}

func serve(t *testing.T, h http.HandlerFunc) (*Dialer, transport.Endpoint, *wireTo) {
	t.Helper()
	server := httptest.NewTLSServer(h)
	t.Cleanup(server.Close)
	client := &wireTo{through: server.Client().Transport}
	d, err := New(Deps{Client: client, BodyLimit: 4096})
	if err != nil {
		t.Fatal(err)
	}
	return d, transport.Endpoint{
		Agent: "bob", ID: "spiffe://example.com/gateway-2", Timeout: time.Minute,
		URL: server.URL + "/aepb/translate?dest=bob&from=a2a-v1&to=slim-v1",
	}, client
}

func seal(t *testing.T, body string, ancestors ...string) (transport.Sealed, string) {
	t.Helper()
	wire := translators.Wire{Binding: "a2a-v1", Version: "1.0", Body: []byte(body), Header: http.Header{
		"Traceparent": {"00-1-2-01"}, "Cookie": {"no"}, "Authorization": {"no"}, "Mcp-Session-Id": {"no"}, "Execution-Context": {"no"},
		"A2a-Version": {"1.0"}, "Mcp-Method": {"tools/call"},
	}}
	token, err := ecttest.NewParty(t, "spiffe://example.com/gateway").Signer(t, time.Now).Sign(ect.Claims{
		Act: ect.ActTranslate, Audience: []string{"spiffe://example.com/gateway-2"}, OutputHash: ect.Hash([]byte(body)),
	})
	if err != nil {
		t.Fatal(err)
	}
	recorder, err := ect.NewRecorder(ect.RecorderDeps{Store: ecttest.NewStore()})
	if err != nil {
		t.Fatal(err)
	}
	receipt, err := recorder.Record(t.Context(), token, ect.Filing{})
	if err != nil {
		t.Fatal(err)
	}
	attested, err := transport.Attest(receipt, wire)
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := attested.Seal(ancestors...)
	if err != nil {
		t.Fatal(err)
	}
	return sealed, token.Compact()
}

const (
	question = `{"jsonrpc":"2.0","id":"q1","method":"SendMessage","params":{}}`
	answer   = `{"jsonrpc":"2.0","id":"\u00711","result":{}}`
)

// TestDial_MessageAndEvidenceBothWays: the message, its evidence and what belongs to it arrive, and nothing
// else; the answer comes back with its evidence.
func TestDial_MessageAndEvidenceBothWays(t *testing.T) {
	t.Parallel()
	var got *http.Request
	var body []byte
	d, e, client := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.Clone(context.WithoutCancel(r.Context()))
		body, _ = io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Add("Execution-Context", "a.b.c")
		w.Header().Add("Execution-Context", "d.e.f")
		w.Header().Set("A2A-Extensions", "x")
		_, _ = io.WriteString(w, answer)
	})
	sealed, token := seal(t, question, "ance.st.or")
	reply, err := d.Dial(t.Context(), e, sealed)
	if err != nil {
		t.Fatal(err)
	}
	if string(body) != question || got.Method != http.MethodPost || got.URL.Path != "/aepb/translate" ||
		got.URL.RawQuery != "dest=bob&from=a2a-v1&to=slim-v1" || client.expected != e.ID {
		t.Errorf("%s %s as %s: %s", got.Method, got.URL, client.expected, body)
	}
	if tokens := got.Header.Values("Execution-Context"); len(tokens) != 2 || tokens[0] != token || tokens[1] != "ance.st.or" {
		t.Errorf("evidence %v", tokens)
	}
	for name, want := range map[string]string{
		"Traceparent": "00-1-2-01", "A2a-Version": "1.0", "Mcp-Method": "tools/call", "Cookie": "", "Authorization": "", "Mcp-Session-Id": "",
	} {
		if got.Header.Get(name) != want {
			t.Errorf("%s: %q", name, got.Header.Get(name))
		}
	}
	if string(reply.Wire.Body) != answer || len(reply.Evidence) != 2 || reply.Wire.Header.Get("A2A-Extensions") != "x" || reply.Wire.Header.Get("Execution-Context") != "" {
		t.Errorf("%+v", reply)
	}
}

func TestDial_RefusesUnsealed(t *testing.T) {
	t.Parallel()
	d, e, _ := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("it was sent") })
	if _, err := d.Dial(t.Context(), e, transport.Sealed{}); !errors.Is(err, transport.ErrUnsealed) {
		t.Error(err)
	}
	if _, err := New(Deps{}); err == nil {
		t.Error("a dialer without a client")
	}
}

// TestDial_AnswersOfAGateway: everything that a gateway may say, and that it should not.
func TestDial_AnswersOfAGateway(t *testing.T) {
	t.Parallel()
	const problem = `{"type":"x","title":"t","status":403,"code":"policy_violation","detail":"refused by constraint loop"}`
	for name, tc := range map[string]struct {
		status int
		media  string
		body   string
		fields []string
		code   string // of a refusal
		bad    string // of a bad reply
	}{
		"an answer":           {status: 200, media: "application/json; charset=utf-8", body: answer},
		"an agent's error":    {status: 200, media: "application/json", body: `{"jsonrpc":"2.0","id":"q1","error":{"code":-1,"message":"m"}}`},
		"an error without id": {status: 200, media: "application/json", body: `{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"m"}}`},
		"a refusal":           {status: 403, media: "application/problem+json", body: problem, fields: []string{"Execution-Context", "a.b.c", "Retry-After", "7"}, code: "policy_violation"},
		"no document":         {status: 503, media: "text/html", body: "<p>busy</p>", bad: "without a problem document"},
		"problem by media":    {status: 403, media: "application/json", body: problem, bad: "without a problem document"},
		"no code":             {status: 403, media: "application/problem+json", body: `{"title":"t","Code":"policy_violation"}`, bad: "without a problem document"},
		"code of wrong type":  {status: 403, media: "application/problem+json", body: `{"code":["x"]}`, bad: "without a problem document"},
		"endless problem":     {status: 403, media: "application/problem+json", body: `{"code":"x","detail":"` + strings.Repeat("d", 4000) + `"}`, code: "x"},
		"a redirect":          {status: 302, media: "application/json", body: answer, fields: []string{"Location", "https://evil.example"}, bad: "redirect"},
		"compressed":          {status: 200, media: "application/json", body: answer, fields: []string{"Content-Encoding", "br"}, bad: "compressed"},
		"other media":         {status: 200, media: "text/plain", body: answer, bad: "not application/json"},
		"not JSON":            {status: 200, media: "application/json", body: "[1", bad: "no JSON-RPC reply"},
		"other id":            {status: 200, media: "application/json", body: `{"jsonrpc":"2.0","id":"q2","result":{}}`, bad: "another request"},
		"id as number":        {status: 200, media: "application/json", body: `{"jsonrpc":"2.0","id":1,"result":{}}`, bad: "another request"},
		"a request":           {status: 200, media: "application/json", body: question, bad: "no reply"},
		"too large":           {status: 200, media: "application/json", body: strings.Repeat(" ", 5000), bad: "longer than 4096"},
		"evidence":            {status: 200, media: "application/json", body: answer, fields: []string{"Execution-Context", strings.Repeat("x", 9000)}, bad: "execution context"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, e, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", tc.media)
				for i := 0; i < len(tc.fields); i += 2 {
					w.Header().Set(tc.fields[i], tc.fields[i+1])
				}
				w.WriteHeader(tc.status)
				_, _ = io.WriteString(w, tc.body)
			})
			sealed, _ := seal(t, question)
			_, err := d.Dial(t.Context(), e, sealed)
			var refused *transport.RefusedError
			var bad *transport.BadReplyError
			switch {
			case tc.code != "":
				if !errors.As(err, &refused) || refused.Code != tc.code || refused.Status != tc.status || refused.Agent != "bob" {
					t.Errorf("%v: %+v", err, refused)
				}
				if tc.code == "policy_violation" && (len(refused.Evidence) != 1 || refused.RetryAfter != 7*time.Second || !strings.Contains(err.Error(), "loop")) {
					t.Errorf("%+v", refused)
				}
			case tc.bad != "":
				if !errors.As(err, &bad) || !strings.Contains(bad.Reason, tc.bad) {
					t.Errorf("%v, want %q", err, tc.bad)
				}
			case err != nil:
				t.Error(err)
			}
		})
	}
}

// TestDial_StreamWithEvidenceAndProblem: events as they come, the evidence that closes them, and a problem
// in the midst of them.
func TestDial_StreamWithEvidenceAndProblem(t *testing.T) {
	t.Parallel()
	const notice = `{"jsonrpc":"2.0","method":"notifications/progress","params":{}}`
	for name, tc := range map[string]struct {
		events []string
		code   string
		bad    bool
	}{
		"whole":         {events: []string{notice, answer}},
		"ends refused":  {events: []string{answer, `{"type":"x","code":"timeout","detail":"too slow","status":504}`}, code: "timeout"},
		"another's":     {events: []string{`{"jsonrpc":"2.0","id":"q2","result":{}}`}, bad: true},
		"not JSON":      {events: []string{"}"}, bad: true},
		"too large":     {events: []string{strings.Repeat("x", 5000)}, bad: true},
		"no code in it": {events: []string{`{"title":"x"}`}, bad: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, e, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				w.Header().Set("Trailer", "Execution-Context")
				for _, event := range tc.events {
					_, _ = fmt.Fprintf(w, "data: %s\n\n", event)
				}
				w.Header().Set("Execution-Context", "a.b.c")
			})
			sealed, _ := seal(t, question)
			reply, err := d.Dial(t.Context(), e, sealed)
			if err != nil || reply.Events == nil {
				t.Fatalf("%+v, %v", reply, err)
			}
			defer func() { _ = reply.Events.Close() }()
			var bodies int
			var closing []string
			for err == nil {
				var event transport.Event
				if event, err = reply.Events.Next(t.Context()); err == nil {
					closing = append(closing, event.Evidence...)
					if len(event.Wire.Body) > 0 {
						bodies++
					}
				}
			}
			var refused *transport.RefusedError
			var bad *transport.BadReplyError
			switch {
			case tc.code != "" && (!errors.As(err, &refused) || refused.Code != tc.code),
				tc.bad && !errors.As(err, &bad),
				tc.code == "" && !tc.bad && (!errors.Is(err, io.EOF) || bodies != 2 || len(closing) != 1):
				t.Errorf("%d messages, %v, %v", bodies, closing, err)
			}
			if _, again := reply.Events.Next(t.Context()); again == nil {
				t.Error("it goes on after its end")
			}
		})
	}
}

type refuser struct{ err error }

func (c refuser) DoAs(*http.Request, ect.Identity) (*http.Response, error) { return nil, c.err }

func TestDial_Failures(t *testing.T) {
	t.Parallel()
	var unreachable *transport.UnreachableError
	var denied *egress.DeniedError
	var late *transport.TimeoutError
	sealed, _ := seal(t, question)
	for name, tc := range map[string]struct {
		err  error
		into any
	}{
		"refused":  {errors.New("connection refused"), &unreachable},
		"egress":   {&egress.DeniedError{Host: "gw", Reason: egress.ReasonPrivate}, &denied},
		"deadline": {context.DeadlineExceeded, &late},
	} {
		d, err := New(Deps{Client: refuser{tc.err}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Dial(t.Context(), transport.Endpoint{URL: "https://gw.example/aepb/translate"}, sealed); !errors.As(err, tc.into) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	d, e, _ := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})
	if _, err := d.Dial(ctx, e, sealed); !errors.As(err, &late) {
		t.Errorf("a gateway that never answers: %v", err)
	}
}

type cards struct{ request transport.Endpoint }

func (c *cards) Describe(_ context.Context, e transport.Endpoint) (*canonical.Description, transport.Endpoint, error) {
	c.request = e
	return &canonical.Description{Name: "bob"}, e, nil
}

// TestDescribe_AtTheAgentsEndpoint: an agent is asked about at its endpoint, and reached at the translate
// endpoint all the same.
func TestDescribe_AtTheAgentsEndpoint(t *testing.T) {
	t.Parallel()
	request := &cards{}
	d, err := New(Deps{Client: refuser{}, Cards: request})
	if err != nil {
		t.Fatal(err)
	}
	e := transport.Endpoint{Agent: "bob", ID: "spiffe://example.com/gateway-2", Binding: "slim-v1", URL: "https://gw.example:8443/aepb/translate"}
	got, at, err := d.Describe(t.Context(), e)
	if err != nil || got.Name != "bob" || at.URL != e.URL || at.Binding != "slim-v1" {
		t.Errorf("%v at %+v, %v", got, at, err)
	}
	if request.request.URL != "https://gw.example:8443/agents/bob/a2a" || request.request.ID != e.ID || request.request.Binding != "a2a-v1" {
		t.Errorf("asked %+v", request.request)
	}
	if d, err = New(Deps{Client: refuser{}}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.Describe(t.Context(), e); err == nil {
		t.Error("nobody was asked, and there is a description")
	}
}

// FuzzAnswer_MessageOrRefusalOrError: whatever a gateway answers is a message that answers the request,
// a refusal, or an error; and what it says of itself stays within bounds.
func FuzzAnswer_MessageOrRefusalOrError(f *testing.F) {
	for _, body := range []string{answer, `{"code":"x","detail":"y"}`, `{"jsonrpc":"2.0","id":null,"error":{}}`, "", "null", "[]", `{"id":"q1","jsonrpc":"2.0","method":"x"}`} {
		f.Add(200, "application/json", []byte(body))
		f.Add(403, "application/problem+json", []byte(body))
	}
	f.Fuzz(func(t *testing.T, status int, media string, body []byte) {
		response := &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {media}, "Retry-After": {string(body)}}}
		e := transport.Endpoint{Agent: "bob"}
		wire, err := read(e, translators.Wire{Body: []byte(question)}, response, body, nil, misfit)
		var refused *transport.RefusedError
		var bad *transport.BadReplyError
		switch {
		case err == nil && (status != http.StatusOK || !json.Valid(wire.Body)):
			t.Errorf("status %d is an answer: %q", status, body)
		case err == nil:
		case errors.As(err, &refused):
			if refused.Code == "" || status == http.StatusOK || refused.RetryAfter > time.Hour || refused.RetryAfter < 0 {
				t.Errorf("%+v", refused)
			}
		case !errors.As(err, &bad):
			t.Errorf("%T", err)
		}
		if wire, err := event(reply.Peer{Endpoint: e}, translators.Wire{Body: []byte(question)}, http.Header{}, body); (err == nil) == (len(wire.Body) == 0) {
			t.Errorf("event %q, %v", wire.Body, err)
		}
	})
}

// endsHalf answers with half a message, and ends it properly when the deadline is there.
type endsHalf struct {
	ctx  context.Context //nolint:containedctx // the request's
	half io.Reader
}

func (b *endsHalf) Read(p []byte) (int, error) {
	n, err := b.half.Read(p)
	if err != nil {
		<-b.ctx.Done()
	}
	return n, err
}

func (*endsHalf) Close() error { return nil }

type halfway struct{}

func (halfway) DoAs(r *http.Request, _ ect.Identity) (*http.Response, error) {
	body := &endsHalf{r.Context(), strings.NewReader(`{"jsonrpc"`)}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {mediaJSON}}, Body: body}, nil
}

// Half an answer at the deadline is a timeout, not a bad answer, also from a gateway
// that sees the deadline and ends its answer properly.
func TestDial_HalfAnswerAtTheDeadline(t *testing.T) {
	t.Parallel()
	d, err := New(Deps{Client: halfway{}})
	if err != nil {
		t.Fatal(err)
	}
	sealed, _ := seal(t, question)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err = d.Dial(ctx, transport.Endpoint{Agent: "bob", URL: "https://bob.example"}, sealed)
	if _, late := errors.AsType[*transport.TimeoutError](err); !late {
		t.Errorf("got %v, want a timeout", err)
	}
}
