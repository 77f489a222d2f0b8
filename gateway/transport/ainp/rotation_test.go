package ainp_test

import (
	"crypto/ed25519"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	wire "github.com/aepb/aepb-gateway/gateway/transport/ainp"
	form "github.com/aepb/aepb-gateway/translators/ainp"
)

const webDID = "did:web:a.example"

// registrar serves one DID document that may change, and its age.
type registrar struct {
	mu       sync.Mutex
	owner    string
	header   http.Header
	status   int
	requests int
}

func (r *registrar) DoAs(*http.Request, ect.Identity) (*http.Response, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests++
	status := r.status
	if status == 0 {
		status = http.StatusOK
	}
	multibase := strings.TrimPrefix(party(r.owner).DID, "did:key:")
	document := `{"id":"` + webDID + `","verificationMethod":[{"publicKeyMultibase":"` + multibase + `"}]}`
	return &http.Response{StatusCode: status, Header: r.header, Body: io.NopCloser(strings.NewReader(document))}, nil
}

// TestDIDDocument_CachedWithinBounds (RFC 9111), an hour at most and ten
// seconds at least: else each message would be a request to that server.
func TestDIDDocument_CachedWithinBounds(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		header http.Header
		stored time.Duration // and no longer
	}{
		"nothing said":      {nil, 5 * time.Minute},
		"a time":            {http.Header{"Cache-Control": {"public, max-age=30"}}, 30 * time.Second},
		"a time, part gone": {http.Header{"Cache-Control": {"max-age=30"}, "Age": {"20"}}, 10 * time.Second},
		"old already":       {http.Header{"Cache-Control": {"max-age=30"}, "Age": {"31"}}, 10 * time.Second},
		"a year":            {http.Header{"Cache-Control": {"max-age=31536000"}}, time.Hour},
		"no time":           {http.Header{"Cache-Control": {"max-age=soon"}}, 10 * time.Second},
		"not at all":        {http.Header{"Cache-Control": {"no-store"}}, 10 * time.Second},
		"not unasked":       {http.Header{"Cache-Control": {"No-Cache, max-age=30"}}, 10 * time.Second},
	} {
		r := &registrar{owner: "alice", header: tc.header}
		clock := now()
		keys := wire.NewKeys(r, func() time.Time { return clock })
		for i, at := range []time.Duration{0, tc.stored - time.Second, tc.stored} {
			if at < 0 {
				continue
			}
			clock = now().Add(at)
			if _, err := keys.Resolve(t.Context(), webDID); err != nil {
				t.Fatal(err)
			}
			if want := map[int]int{0: 1, 1: 1, 2: 2}[i]; r.requests != want {
				t.Errorf("%s: after %v it was asked for %d times, want %d", name, at, r.requests, want)
			}
		}
	}
}

// TestDIDDocument_KeyRotation: a caller that has a new key is known by it although its old
// document is still fresh, and one that merely signs badly costs one look.
func TestDIDDocument_KeyRotation(t *testing.T) {
	t.Parallel()
	r := &registrar{owner: "old"}
	clock := now()
	keys := wire.NewKeys(r, func() time.Time { return clock })
	endpoint := newEndpoint(t, func(d *wire.ServerDeps) {
		d.Keys, d.Now, d.Named = keys, func() time.Time { return clock }, func(did string) bool { return did == webDID }
	}).Handler(&fakeHandler{exchange: echo})
	from := func(key string, n string) int {
		who := wire.Identity{DID: webDID, Key: party(key).Key}
		body := strings.Replace(note(who), requestID, requestID[:35]+n, 1)
		return post(endpoint, sign(t, who, []byte(body), form.SigDraft), nobody()).Code
	}
	steps := []struct {
		owner, key, n    string
		after            time.Duration
		status, requests int
	}{
		{"old", "old", "1", 0, 200, 1},
		{"new", "new", "2", time.Second, 401, 1}, // looked at a second ago
		{"new", "old", "3", 2 * time.Second, 200, 1},
		{"new", "new", "4", 11 * time.Second, 200, 2},
		{"new", "old", "5", 12 * time.Second, 401, 2},
		{"new", "eve", "6", 22 * time.Second, 401, 3},
		{"new", "eve", "7", 23 * time.Second, 401, 3},
		{"new", "new", "8", 24 * time.Second, 200, 3},
	}
	for _, s := range steps {
		r.owner, clock = s.owner, now().Add(s.after)
		if status := from(s.key, s.n); status != s.status || r.requests != s.requests {
			t.Errorf("%s's key after %v: got %d with %d fetches, want %d with %d", s.key, s.after, status, r.requests, s.status, s.requests)
		}
	}
	r.status, clock = http.StatusNotFound, now().Add(40*time.Second)
	if status := from("eve", "9"); status != 401 || r.requests != 4 {
		t.Errorf("a document that is gone: %d, %d fetches", status, r.requests)
	}
	if status := from("eve", "a"); status != 401 || r.requests != 4 {
		t.Errorf("whoever signs badly has it looked for again at once: %d, %d fetches", status, r.requests)
	}
	if got, err := keys.Resolve(t.Context(), webDID); err != nil || !got[0].Equal(party("new").Key.Public().(ed25519.PublicKey)) {
		t.Errorf("while it is fresh: %v", err)
	}
}

// everyone serves a document for whatever did:web it is asked for.
type everyone struct{ requests int }

func (e *everyone) DoAs(r *http.Request, _ ect.Identity) (*http.Response, error) {
	e.requests++
	document := `{"id":"did:web:` + r.URL.Host + `","verificationMethod":[{"publicKeyMultibase":"` + strings.TrimPrefix(party("alice").DID, "did:key:") + `"}]}`
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(document))}, nil
}

// TestDIDDocument_CacheIsBounded: strangers' names fill no memory.
func TestDIDDocument_CacheIsBounded(t *testing.T) {
	t.Parallel()
	const most = 1024
	e := &everyone{}
	keys := wire.NewKeys(e, now)
	resolve := func(n int) {
		t.Helper()
		if _, err := keys.Resolve(t.Context(), "did:web:a"+strconv.Itoa(n)+".example"); err != nil {
			t.Fatal(err)
		}
	}
	for n := range most {
		resolve(n)
	}
	if resolve(0); e.requests != most {
		t.Errorf("%d fetches for %d documents", e.requests, most)
	}
	resolve(most)
	if resolve(0); e.requests != most+2 {
		t.Errorf("%d fetches once there is one too many", e.requests)
	}
}
