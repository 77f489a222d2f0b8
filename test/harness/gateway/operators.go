package gatewaytest

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Staff is a gateway whose operators have one role each.
func Staff() config.Config {
	operators := map[string]config.Operator{}
	for _, role := range []string{"viewer", "operator", "approver", "auditor"} {
		operators["the "+role] = config.Operator{ID: "spiffe://" + TrustDomain + "/staff/" + role, Roles: []string{role}}
	}
	return config.Config{Admin: config.Admin{Operators: operators}}
}

// As is a client with the certificate of one of them, or of a stranger.
func (b *Fixture) As(t *testing.T, path string) *http.Client {
	t.Helper()
	svid, err := b.Dev.Authority.Issue(path, identity.SVIDRequest{})
	Must(t, err)
	return b.Caller(t, svid)
}

// Monitor gets a page of listen.metrics; an empty host is the address.
func (b *Fixture) Monitor(t *testing.T, path, host string) (status int, text string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.At.Metrics+path, http.NoBody)
	Must(t, err)
	request.Host, request.Close = host, true
	response, err := http.DefaultClient.Do(request)
	Must(t, err)
	body, err := io.ReadAll(response.Body)
	Must(t, err)
	Must(t, response.Body.Close())
	return response.StatusCode, string(body)
}

// Answered reads an answer of a status as a JSON document. Another status, or no such document, ends the test.
func Answered[T any](t *testing.T, got Reply, status int) (out T) {
	t.Helper()
	if got.Status != status || json.Unmarshal(got.Body, &out) != nil {
		t.Fatalf("got %d %s, expected %d and %T", got.Status, got.Body, status, out)
	}
	return out
}

// RollbackAt is the path where ATD has rollback requests sent.
const RollbackAt = "/.well-known/atd/rollback"

// Undoable is an agent over HTTP that sets a checkpoint at every call, and goes
// back to it where ATD says. Its endpoint can be switched off.
type Undoable struct {
	Fake
	Who      *ecttest.Party
	mu       sync.Mutex
	Last     ect.Claims // the latest checkpoint
	Off      bool
	Requests [][]string                                        // the tokens of each rollback request
	Other    func(w http.ResponseWriter, request, good string) // in place of a good result
}

// Tell does something while nobody else uses what the agent remembers: its fields may be read and set there.
func (u *Undoable) Tell(do func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	do()
}

// Undoable lists one under a name.
func (b *Fixture) Undoable(t *testing.T, name string, binding canonical.Binding) *Undoable {
	t.Helper()
	svid := b.SVID(t, "/"+name)
	u := &Undoable{Who: b.Party(t, svid)}
	u.Conduct = func(w http.ResponseWriter, r *http.Request, good []byte) {
		sent, _, err := ect.ParseUnverified(r.Header.Get(ect.HeaderName))
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		checkpoint := Signing(t, u.Who, ect.Claims{Act: "atd:checkpoint", Audience: []string{b.Self()}, Workflow: sent.Workflow, Parents: []ect.ID{sent.ID}})
		w.Header().Set(ect.HeaderName, checkpoint)
		u.Tell(func() { u.Last, _, err = ect.ParseUnverified(checkpoint) })
		Well(w, r, good)
	}
	speak := u.SpeakMCP
	if binding == "a2a-v1" {
		speak = u.SpeakA2A
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u.mu.Lock()
		off := u.Off
		u.mu.Unlock()
		switch {
		case r.URL.Path == RollbackAt && r.Method == http.MethodPost:
			u.Undo(t, w, r)
		case off:
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			speak(w, r)
		}
	}))
	server.TLS = Serving(svid)
	server.StartTLS()
	t.Cleanup(server.Close)
	b.List(t, name, binding, server.URL+"/agent", Host{ID: svid.ID})
	return u
}

// Undo answers a rollback request with a signed result, or as Other does, and notes its tokens. It answers with 400
// what is no rollback request.
func (u *Undoable) Undo(t *testing.T, w http.ResponseWriter, r *http.Request) {
	t.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	tokens := r.Header.Values(ect.HeaderName)
	u.Requests = append(u.Requests, tokens)
	request, _, err := ect.ParseUnverified(tokens[0])
	if err != nil || request.Act != ect.ActRollbackRequest {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	result := Signing(t, u.Who, ect.Claims{
		Act: ect.ActRollbackResult, Audience: []string{string(request.Issuer)}, Workflow: request.Workflow, Parents: []ect.ID{request.ID},
		OutputHash: ect.Hash([]byte("as it was")), Ext: Restored(request),
	})
	if u.Other != nil {
		u.Other(w, tokens[0], result)
		return
	}
	w.Header().Set(ect.HeaderName, result)
}

// Rollback is a request of somebody's to go back to a checkpoint.
func (b *Fixture) Rollback(t *testing.T, who *ecttest.Party, wid string, par ...ect.ID) HTTPRequest {
	t.Helper()
	return HTTPRequest{At: RollbackAt, Body: `{"exec_act":"atd:rollback_request"}`, Tokens: []string{Signing(t, who, ect.Claims{
		Act: ect.ActRollbackRequest, Audience: []string{b.Self()}, Workflow: wid, Parents: par,
		Ext: ect.Ext{"atd.reason": json.RawMessage(`"it went wrong"`), "atd.cascade": json.RawMessage("false")},
	})}}
}
