package a2a

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
	"github.com/aepb/aepb-gateway/translators"
	form "github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// wireTo is a client that trusts one test server and follows nothing.
type wireTo struct {
	through  http.RoundTripper
	expected ect.Identity
}

func (c *wireTo) DoAs(r *http.Request, expected ect.Identity) (*http.Response, error) {
	c.expected = expected
	return c.through.RoundTrip(r)
}

func newDialer(t *testing.T, client transport.Client) *Dialer {
	t.Helper()
	d, err := NewDialer(DialerDeps{Client: client, Form: form.New(translators.Config{BodyLimit: 4096})})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// serve starts a TLS server and gives a dialer for it.
func serve(t *testing.T, h http.HandlerFunc) (*Dialer, transport.Endpoint, *wireTo) {
	t.Helper()
	server := httptest.NewTLSServer(h)
	t.Cleanup(server.Close)
	client := &wireTo{through: server.Client().Transport}
	return newDialer(t, client), transport.Endpoint{Agent: "bob", ID: "spiffe://example.com/bob", URL: server.URL, Timeout: time.Minute}, client
}

func sealWire(t *testing.T, wire translators.Wire) transport.Sealed {
	t.Helper()
	sealed, _ := sealAny(t, wire)
	return sealed
}

func seal(t *testing.T, body string, ancestors ...string) (transport.Sealed, string) {
	t.Helper()
	wire := translators.Wire{Binding: form.Binding, Version: form.Version, Media: form.Media, Body: []byte(body), Header: http.Header{"Traceparent": {"00-1-2-01"}, "Cookie": {"no"}}}
	return sealAny(t, wire, ancestors...)
}

func sealAny(t *testing.T, wire translators.Wire, ancestors ...string) (transport.Sealed, string) {
	t.Helper()
	party := ecttest.NewParty(t, "spiffe://example.com/gateway")
	token, err := party.Signer(t, time.Now).Sign(ect.Claims{
		Act: ect.ActTranslate, Audience: []string{"spiffe://example.com/bob"}, Workflow: string(ect.NewID()), OutputHash: ect.Hash(wire.HashInput()),
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

const answer = `{"jsonrpc":"2.0","id":"\u00711","result":{"task":{"id":"t","status":{"state":"TASK_STATE_COMPLETED"}}}}`

func TestDial_RequestAndReply(t *testing.T) {
	t.Parallel()
	sealed, token := seal(t, hello, "p.q.r")
	var got *http.Request
	var body []byte
	d, e, client := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json;charset=UTF-8")
		w.Header().Add(ect.HeaderName, "x.y.z")
		w.Header().Set("A2A-Extensions", "urn:x")
		w.Header().Set("Set-Cookie", "a=b")
		_, _ = io.WriteString(w, answer)
	})
	reply, err := d.Dial(t.Context(), e, sealed)
	if err != nil {
		t.Fatal(err)
	}
	want := transport.Reply{Evidence: []string{"x.y.z"}, Wire: translators.Wire{
		Binding: form.Binding, Version: "1.0", Media: form.Media, Header: http.Header{"A2a-Extensions": {"urn:x"}},
		Body: []byte(answer), Re: canonical.OpInvoke, Status: 200,
	}}
	if diff := cmp.Diff(want, reply); diff != "" {
		t.Errorf("the reply: %s", diff)
	}
	if string(body) != hello || got.Method != http.MethodPost || client.expected != e.ID {
		t.Errorf("sent %s %s, expecting %s", got.Method, body, client.expected)
	}
	for name, value := range map[string]string{"Content-Type": "application/json", "Accept": "application/json", "A2A-Version": "1.0", "Traceparent": "00-1-2-01", "Cookie": ""} {
		if got.Header.Get(name) != value {
			t.Errorf("%s: %q", name, got.Header.Get(name))
		}
	}
	if lines := got.Header.Values(ect.HeaderName); !cmp.Equal(lines, []string{token, "p.q.r"}) {
		t.Errorf("evidence in %d lines", len(lines))
	}
}

func TestDial_RefusesUnsealed(t *testing.T) {
	t.Parallel()
	d, e, _ := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("something was sent") })
	if _, err := d.Dial(t.Context(), e, transport.Sealed{}); !errors.Is(err, transport.ErrUnsealed) {
		t.Errorf("got %v", err)
	}
}

func TestDial_ValidAndInvalidReplies(t *testing.T) {
	t.Parallel()
	sealed, _ := seal(t, hello)
	failure := `{"jsonrpc":"2.0","id":"q1","error":{"code":-32001,"message":"no"}}`
	cases := map[string]struct {
		status  int
		media   string
		body    string
		header  map[string]string
		trouble string // in the error; empty: it is a reply
	}{
		"an error reply":             {200, form.Media, failure, nil, ""},
		"an error reply with status": {500, form.Media, failure, nil, ""},
		"an error without the id":    {400, form.Media, strings.Replace(failure, `"q1"`, "null", 1), nil, ""},
		"a result without the id":    {200, form.Media, strings.Replace(answer, `"\u00711"`, "null", 1), nil, "another request"},
		"another id":                 {200, form.Media, strings.Replace(answer, `"\u00711"`, `"q2"`, 1), nil, "another request"},
		"an error with another id":   {200, form.Media, strings.Replace(failure, `"q1"`, `1`, 1), nil, "another request"},
		"empty":                      {200, form.Media, " ", nil, "empty"},
		"no content":                 {204, form.Media, "", nil, "empty"},
		"another type":               {200, "text/html", answer, nil, "not application/json"},
		"no type":                    {200, "", answer, nil, "not application/json"},
		"not found":                  {404, "text/html", "<html>", nil, "HTTP status 404"},
		"failed":                     {503, form.Media, `{"error":"busy"}`, nil, "HTTP status 503"},
		"no JSON":                    {200, form.Media, `{"jsonrpc":`, nil, "no JSON-RPC"},
		"a batch":                    {200, form.Media, `[]`, nil, "no JSON-RPC"},
		"too long":                   {200, form.Media, answer + strings.Repeat(" ", 5000), nil, "longer than 4096"},
		"a redirect":                 {307, form.Media, answer, map[string]string{"Location": "https://other.example/"}, "redirect"},
		"compressed":                 {200, form.Media, answer, map[string]string{"Content-Encoding": "br"}, "compressed"},
		"broken evidence":            {200, form.Media, answer, map[string]string{ect.HeaderName: "x.y"}, "execution context"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, e, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["Content-Type"] = nil
				if c.media != "" {
					w.Header().Set("Content-Type", c.media)
				}
				for name, value := range c.header {
					w.Header().Set(name, value)
				}
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			})
			reply, err := d.Dial(t.Context(), e, sealed)
			var bad *transport.BadReplyError
			switch {
			case c.trouble == "" && (err != nil || reply.Wire.Status != c.status):
				t.Errorf("%v, status %d", err, reply.Wire.Status)
			case c.trouble != "" && (!errors.As(err, &bad) || bad.Agent != "bob" || !strings.Contains(bad.Reason, c.trouble)):
				t.Errorf("got %v, want %s", err, c.trouble)
			}
		})
	}
}

// refuser fails every request in one way.
type refuser struct{ err error }

func (c refuser) DoAs(*http.Request, ect.Identity) (*http.Response, error) { return nil, c.err }

type slow struct{ error }

func (slow) Timeout() bool   { return true }
func (slow) Temporary() bool { return true }

func TestDial_Failures(t *testing.T) {
	t.Parallel()
	sealed, _ := seal(t, hello)
	e := transport.Endpoint{Agent: "bob", URL: "https://bob.example", Timeout: time.Second}
	dial := func(ctx context.Context, err error) error {
		_, err = newDialer(t, refuser{err}).Dial(ctx, e, sealed)
		return err
	}
	var denied *egress.DeniedError
	if err := dial(t.Context(), fmt.Errorf("wrapped: %w", &egress.DeniedError{})); !errors.As(err, &denied) {
		t.Errorf("denied: %v", err)
	}
	var unreachable *transport.UnreachableError
	if err := dial(t.Context(), io.ErrUnexpectedEOF); !errors.As(err, &unreachable) || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("broken: %v", err)
	}
	var late *transport.TimeoutError
	if err := dial(t.Context(), slow{io.EOF}); !errors.As(err, &late) || late.After != time.Second {
		t.Errorf("slow: %v", err)
	}
	over, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	if err := dial(over, io.EOF); !errors.As(err, &late) {
		t.Errorf("deadline: %v", err)
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if err := dial(gone, io.EOF); !errors.Is(err, context.Canceled) || errors.As(err, &unreachable) {
		t.Errorf("caller gone: %v", err)
	}
}

// TestDial_EndlessAnswerEndsAtTheDeadline: an agent that begins an answer and
// never ends it costs no more than the deadline.
func TestDial_EndlessAnswerEndsAtTheDeadline(t *testing.T) {
	t.Parallel()
	sealed, _ := seal(t, hello)
	d, e, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // a server sees that its client is gone only after the body
		w.Header().Set("Content-Type", form.Media)
		_, _ = io.WriteString(w, `{"jsonrpc"`)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var late *transport.TimeoutError
	if _, err := d.Dial(ctx, e, sealed); !errors.As(err, &late) {
		t.Errorf("got %v", err)
	}
}

func card(interfaces string) string {
	return `{"name":"Bob","description":"d","version":"1","supportedInterfaces":[` + interfaces + `],"capabilities":{},"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],"skills":[{"id":"s","name":"S","description":"d","tags":["t"]}]}`
}

func iface(url, binding, version string) string {
	return `{"url":"` + url + `","protocolBinding":"` + binding + `","protocolVersion":"` + version + `"}`
}

func TestDescribe_FindsCardAndInterface(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		configured string // path below the server
		at         string // where the card is
		interfaces string // HERE is the server
		want       string // path, or the error
		how        string // version and form; empty: 1.0
	}{
		"base URL":                     {"", CardPath, iface("HERE/rpc", "JSONRPC", "1.0"), "/rpc", ""},
		"base URL with a slash":        {"/", CardPath, iface("HERE/rpc", "JSONRPC", "1.0"), "/rpc", ""},
		"below the JSON-RPC URL":       {"/agents/bob/a2a", "/agents/bob/a2a" + CardPath, iface("HERE/agents/bob/a2a", "JSONRPC", "1.0"), "/agents/bob/a2a", ""},
		"JSON-RPC URL, card at origin": {"/rpc", CardPath, iface("HERE/rpc", "JSONRPC", "1.0"), "/rpc", ""},
		"card URL":                     {"/x/agent-card.json", "/x/agent-card.json", iface("HERE/rpc", "JSONRPC", "1.0"), "/rpc", ""},
		"the first that is spoken":     {"", CardPath, iface("HERE/grpc", "GRPC", "1.0") + "," + iface("HERE/old", "JSONRPC", "0.3") + "," + iface("HERE/rpc", "JSONRPC", "1.1"), "/rpc", ""},
		"another host":                 {"/rpc", CardPath, iface("https://evil.example/rpc", "JSONRPC", "1.0"), "/rpc", ""},
		"another port":                 {"/rpc", CardPath, iface("https://127.0.0.1:1/rpc", "JSONRPC", "1.0"), "/rpc", ""},
		"another scheme":               {"/rpc", CardPath, iface("HTTP/rpc", "JSONRPC", "1.0"), "/rpc", ""},
		"credentials in the URL":       {"/rpc", CardPath, iface("USER/rpc", "JSONRPC", "1.0"), "/rpc", ""},
		"card URL and another host":    {"/agent-card.json", "/agent-card.json", iface("https://evil.example/rpc", "JSONRPC", "1.0"), "/rpc", ""},
		"nothing that is spoken":       {"", CardPath, iface("HERE/grpc", "SOAP", "1.0"), "no interface of A2A", ""},
		"version 10":                   {"", CardPath, iface("HERE/rpc", "JSONRPC", "10.0"), "no interface of A2A", ""},
		"no card":                      {"", "/elsewhere", "", "is it an A2A agent? An MCP server is listed with the binding mcp-v1", ""},
		"HTTP only":                    {"", CardPath, iface("HERE/rest", "HTTP+JSON", "1.0"), "/rest", "1.0 HTTP+JSON"},
		"1.0 over HTTP before 0.3":     {"", CardPath, iface("HERE/old", "JSONRPC", "0.3.0") + "," + iface("HERE/rest", "HTTP+JSON", "1.0"), "/rest", "1.0 HTTP+JSON"},
		"0.3 only":                     {"", CardPath, iface("HERE/resting", "HTTP+JSON", "0.3") + "," + iface("HERE/old", "JSONRPC", "0.3.0"), "/old", "0.3 "},
		"0.3 HTTP only":                {"", CardPath, iface("HERE/old", "HTTP+JSON", "0.3"), "/old", "0.3 HTTP+JSON"},
		"0.3 asked for":                {"/0.3", CardPath, iface("HERE/rpc", "JSONRPC", "1.0") + "," + iface("HERE/0.3", "JSONRPC", "0.3"), "/0.3", "0.3 "},
		"0.3 asked for, not there":     {"/0.3", CardPath, iface("HERE/0.3", "JSONRPC", "1.0"), "no interface of A2A", ""},
		"the best one is elsewhere":    {"/rpc", CardPath, iface("https://evil.example/rpc", "JSONRPC", "1.0") + "," + iface("HERE/old", "JSONRPC", "0.3"), "/old", "0.3 "},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			here := ""
			d, e, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != c.at || r.Method != http.MethodGet || (r.Header.Get(form.HeaderVersion) != "1.0" && c.configured != "/0.3") {
					http.NotFound(w, r)
					return
				}
				w.Header().Set("Content-Type", form.Media)
				host := strings.TrimPrefix(here, "https://")
				_, _ = io.WriteString(w, card(strings.NewReplacer("HERE", here, "HTTP/", "http://"+host+"/", "USER/", "https://u:p@"+host+"/").Replace(c.interfaces)))
			})
			here = e.URL
			if e.URL += c.configured; c.configured == "/0.3" {
				e.Version = "0.3"
			}
			if c.how == "" {
				c.how = "1.0 "
			}
			got, reached, err := d.Describe(t.Context(), e)
			if err != nil {
				var bad *transport.BadReplyError
				if !errors.As(err, &bad) || !strings.Contains(bad.Reason, c.want) {
					t.Fatalf("got %v, want %s", err, c.want)
				}
				return
			}
			if got.Name != "Bob" || reached.Version+" "+reached.Form != c.how || reached.URL != here+c.want {
				t.Errorf("%s reached at %s in %s %s, want %s in %s", got.Name, reached.URL, reached.Version, reached.Form, c.want, c.how)
			}
		})
	}
}

func TestDescribe_Failures(t *testing.T) {
	t.Parallel()
	requests := 0
	d, e, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		requests++
		w.Header().Set("Content-Type", form.Media)
		_, _ = io.WriteString(w, []string{`{"name":`, `{"name":"n","url":"https://x","protocolVersion":"0.2.0","skills":[]}`}[(requests-1)%2])
	})
	e.URL += "/rpc"
	var bad *transport.BadReplyError
	if _, _, err := d.Describe(t.Context(), e); !errors.As(err, &bad) || requests != 4 {
		t.Errorf("broken cards: %v after %d", err, requests)
	}
	calls := 0
	count := counter{&calls}
	var unreachable *transport.UnreachableError
	if _, _, err := newDialer(t, count).Describe(t.Context(), e); !errors.As(err, &unreachable) || calls != 1 {
		t.Errorf("unreachable: %v after %d", err, calls)
	}
	if _, _, err := d.Describe(t.Context(), transport.Endpoint{URL: "::"}); !errors.As(err, &unreachable) {
		t.Errorf("no URL: %v", err)
	}
}

// TestDescribe_CardOf03: cards that know nothing of 1.0.
func TestDescribe_CardOf03(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ says, at, form string }{
		"nothing of transports": {`"url":"HERE/rpc"`, "/rpc", ""},
		"HTTP":                  {`"url":"HERE/rest","preferredTransport":"HTTP+JSON"`, "/rest", form.FormHTTP},
		"HTTP besides":          {`"url":"HERE/grpc","preferredTransport":"GRPC","additionalInterfaces":[{"transport":"HTTP+JSON","url":"HERE/rest"}]`, "/rest", form.FormHTTP},
		"both":                  {`"url":"HERE/x","preferredTransport":"HTTP+JSON","additionalInterfaces":[{"transport":"JSONRPC","url":"HERE/x"}]`, "/x", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			here := ""
			d, e, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", form.Media)
				_, _ = io.WriteString(w, `{"protocolVersion":"0.3.0","name":"Bob","description":"d","version":"1",`+strings.ReplaceAll(c.says, "HERE", here)+`,"capabilities":{},`+
					`"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],"skills":[{"id":"s","name":"S","description":"d","tags":["t"]}]}`)
			})
			here = e.URL
			got, reached, err := d.Describe(t.Context(), e)
			if err != nil || reached.Version != form.Version03 || reached.Form != c.form || reached.URL != here+c.at || len(got.Capabilities) != 1 {
				t.Errorf("%+v at %+v: %v", got, reached, err)
			}
		})
	}
}

const (
	helloHTTP   = `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]}}`
	answerHTTP  = `{"task":{"id":"t","status":{"state":"TASK_STATE_COMPLETED"}}}`
	hello03HTTP = `{"message":{"messageId":"m","role":"ROLE_USER","content":[{"text":"hi"}]}}`
	noHTTP      = `{"error":{"code":404,"status":"NOT_FOUND","message":"no"}}`
)

// TestDial_OtherForms: the place below, the headers, and what is a reply there.
func TestDial_OtherForms(t *testing.T) {
	t.Parallel()
	old := translators.Wire{Binding: form.Binding, Version: form.Version03, Body: []byte(`{"jsonrpc":"2.0","id":"q1","method":"message/send","params":{}}`)}
	rest := translators.Wire{Binding: form.Binding, Version: form.Version, Form: form.FormHTTP, Body: []byte(helloHTTP)}
	rest03 := translators.Wire{Binding: form.Binding, Version: form.Version03, Form: form.FormHTTP, Body: []byte(hello03HTTP)}
	for name, c := range map[string]struct {
		wire               translators.Wire
		path, version      string
		status             int
		media, reply, want string
	}{
		"0.3":                 {old, "/a", "", 200, form.Media, `{"jsonrpc":"2.0","id":"q1","result":{"kind":"task"}}`, ""},
		"0.3 HTTP":            {rest03, "/a/v1/message:send", "", 200, form.Media, answerHTTP, ""},
		"0.3 HTTP error":      {rest03, "/a/v1/message:send", "", 404, form.Media, noHTTP, ""},
		"HTTP":                {rest, "/a/message:send", "1.0", 200, form.MediaHTTP, answerHTTP, ""},
		"HTTP error":          {rest, "/a/message:send", "1.0", 404, form.Media, noHTTP, ""},
		"HTTP problem":        {rest, "/a/message:send", "1.0", 400, "application/problem+json", noHTTP, ""},
		"HTTP false error":    {rest, "/a/message:send", "1.0", 200, form.Media, noHTTP, "no reply that goes with it"},
		"HTTP false answer":   {rest, "/a/message:send", "1.0", 500, form.Media, answerHTTP, "no reply that goes with it"},
		"HTTP page":           {rest, "/a/message:send", "1.0", 502, "text/html", "<html>", "not application/json"},
		"HTTP without answer": {rest, "/a/message:send", "1.0", 200, form.Media, "[]", "no reply that goes with it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, e, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != c.path || r.Header.Get(form.HeaderVersion) != c.version || r.Header.Get("Content-Type") != form.Media {
					t.Errorf("asked at %s in %q as %s", r.URL.Path, r.Header.Get(form.HeaderVersion), r.Header.Get("Content-Type"))
				}
				w.Header().Set("Content-Type", c.media)
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.reply)
			})
			e.URL, e.Version, e.Form = e.URL+"/a", c.wire.Version, c.wire.Form
			reply, err := d.Dial(t.Context(), e, sealWire(t, c.wire))
			var bad *transport.BadReplyError
			switch {
			case c.want != "" && (!errors.As(err, &bad) || !strings.Contains(bad.Reason, c.want)):
				t.Errorf("got %v, want %s", err, c.want)
			case c.want == "" && (err != nil || reply.Wire.Version != c.wire.Version || reply.Wire.Form != c.wire.Form || reply.Wire.Status != c.status):
				t.Errorf("got %+v: %v", reply.Wire, err)
			}
		})
	}
}

// counter fails every request and counts them.
type counter struct{ calls *int }

func (c counter) DoAs(*http.Request, ect.Identity) (*http.Response, error) {
	*c.calls++
	return nil, io.EOF
}
