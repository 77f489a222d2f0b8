package ainp_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	wire "github.com/aepb/aepb-gateway/gateway/transport/ainp"
	"github.com/aepb/aepb-gateway/translators"
	form "github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// talkative is a fakeHandler on which an agent says more of itself than callers may know.
type talkative struct{ fakeHandler }

func (*talkative) Describe(context.Context, transport.CallInfo) (*canonical.Description, error) {
	inner := canonical.Extensions{form.Binding: json.RawMessage(`{"secret":1}`)}
	return &canonical.Description{Name: "chef", Extensions: inner, Capabilities: []canonical.Capability{{ID: "cook", Description: "cooks", Extensions: inner}}}, nil
}

// TestServer_DiscoverHidesPrivateDetails in private is not for our callers, and what the
// directory knows is not changed by telling it.
func TestServer_DiscoverHidesPrivateDetails(t *testing.T) {
	t.Parallel()
	r := &talkative{}
	a := party("alice")
	for n, body := range []string{
		strings.Replace(note(a), `"payload":{"@type":"FreeformNote","semantics":{"body":"hi"}}`, `"payload":{"query":{"description":"cook"}}`, 1),
		strings.Replace(note(a), `"payload":{"@type":"FreeformNote","semantics":{"body":"hi"}}`, `"payload":{"aepb":{"op":"describe"}}`, 1),
	} {
		body = strings.Replace(body, `"INTENT"`, `"DISCOVER"`, 1)
		got := post(newEndpoint(t, nil).Handler(r), sign(t, a, []byte(body), form.SigDraft), nobody())
		if got.Code != http.StatusOK || strings.Contains(got.Body.String(), "secret") || !strings.Contains(got.Body.String(), "cook") {
			t.Errorf("%d: %d %s", n, got.Code, got.Body)
		}
	}
}

// TestServer_EvidenceInHeader: a header stands in for evidence that is not
// inside, and our own goes back in both places, to nobody's cache.
func TestServer_EvidenceInHeader(t *testing.T) {
	t.Parallel()
	a := party("alice")
	for name, tc := range map[string]struct {
		body, header, want string
		status             int
	}{
		"beside":   {note(a), "a.b.c", "a.b.c", 200},
		"inside":   {strings.Replace(note(a), `"semantics"`, `"aepb":{"ect":["d.e.f"]},"semantics"`, 1), "a.b.c", "d.e.f", 200},
		"nonsense": {note(a), "a b", "", 400},
	} {
		r := &fakeHandler{exchange: echo}
		request := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(string(sign(t, a, []byte(tc.body), form.SigDraft))))
		request.Header.Set("Content-Type", form.Media)
		request.Header.Set(ect.HeaderName, tc.header)
		got := httptest.NewRecorder()
		newEndpoint(t, nil).Handler(r).ServeHTTP(got, request.WithContext(transport.WithCaller(request.Context(), nobody(), "192.0.2.1")))
		if got.Code != tc.status || tc.status == 200 && !slices.Equal(r.seen()[0].Evidence, []string{tc.want}) {
			t.Errorf("%s: %d %s, with %v", name, got.Code, got.Body, r.seen())
		}
		if tc.status != 200 {
			continue
		}
		for field, want := range map[string]string{
			ect.HeaderName: "our.own.token", "Content-Type": form.Media, "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff",
		} {
			if text := got.Header().Get(field); text != want {
				t.Errorf("%s: %s is %q", name, field, text)
			}
		}
	}
}

// TestServer_CloseEndsConnections ends the connections that are open, with a word.
func TestServer_CloseEndsConnections(t *testing.T) {
	t.Parallel()
	endpoint := newEndpoint(t, nil)
	server := httptest.NewServer(endpoint.Handler(&fakeHandler{exchange: echo}))
	defer server.Close()
	conn := dialEndpoint(t, "ws"+strings.TrimPrefix(server.URL, "http"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	endpoint.Close()
	if _, _, err := conn.Read(ctx); websocket.CloseStatus(err) != websocket.StatusGoingAway {
		t.Errorf("it ends with %v", err)
	}
}

// TestNew_EachRequiredDep: what a door or a dialer cannot do without, one by one.
func TestNew_EachRequiredDep(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*wire.ServerDeps){
		"form":    func(d *wire.ServerDeps) { d.Form = nil },
		"name":    func(d *wire.ServerDeps) { d.Self.DID = "" },
		"key":     func(d *wire.ServerDeps) { d.Self.Key = d.Self.Key[1:] },
		"keys":    func(d *wire.ServerDeps) { d.Keys = nil },
		"replays": func(d *wire.ServerDeps) { d.Replays = nil },
	} {
		deps := wire.ServerDeps{Form: form.New(translators.Config{}), Self: party("gateway"), Keys: wire.NewKeys(nil, now), Replays: wire.NewMemory(1, now)}
		if spoil(&deps); !refuses(wire.NewServer(deps)) {
			t.Errorf("a door without %s", name)
		}
	}
	for name, spoil := range map[string]func(*wire.DialerDeps){
		"client": func(d *wire.DialerDeps) { d.Client = nil },
		"form":   func(d *wire.DialerDeps) { d.Form = nil },
		"key":    func(d *wire.DialerDeps) { d.Self.Key = nil },
		"keys":   func(d *wire.DialerDeps) { d.Keys = nil },
	} {
		deps := wire.DialerDeps{Client: direct{}, Form: form.New(translators.Config{}), Self: party("alice"), Keys: wire.NewKeys(nil, now)}
		if spoil(&deps); !refuses(wire.NewDialer(deps)) {
			t.Errorf("a dialer without %s", name)
		}
	}
}

func refuses[T any](_ T, err error) bool { return err != nil }
