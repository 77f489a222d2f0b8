package interop

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
)

// webhookToken is what the clients want to see with every notification.
const webhookToken = "token-17"

// webhook is a server that takes push notifications.
type webhook struct {
	url string

	mu    sync.Mutex
	taken map[string][]notice // by path
}

// notice is one request that a webhook took.
type notice struct {
	token, evidence, body string
}

func (g *gw) webhook(t *testing.T, name string) *webhook {
	t.Helper()
	h := &webhook{taken: map[string][]notice{}}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.taken[r.URL.Path] = append(h.taken[r.URL.Path], notice{
			r.Header.Get("A2A-Notification-Token"), strings.Join(r.Header.Values("Execution-Context"), ", "), string(body),
		})
	}))
	server.TLS = g.peerTLS(t, name)
	server.StartTLS()
	t.Cleanup(server.Close)
	h.url = server.URL
	return h
}

func (h *webhook) notices(path string) []notice {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.taken[path])
}

// states are those that the notices at a path say, each once in a row, but that work
// goes on, which not every agent says.
func (h *webhook) states(t *testing.T, path string) []a2a.TaskState {
	t.Helper()
	var states []a2a.TaskState
	for _, p := range h.notices(path) {
		var answer struct {
			Task, StatusUpdate struct{ Status a2a.TaskStatus }
		}
		if err := json.Unmarshal([]byte(p.body), &answer); err != nil {
			t.Fatal(err)
		}
		state := answer.Task.Status.State + answer.StatusUpdate.Status.State
		if state != "" && state != a2a.TaskStateSubmitted && state != a2a.TaskStateWorking {
			states = append(states, state)
		}
	}
	return slices.Compact(states)
}

// toldInOrder demands that a task which asked and then ended was told so at a path:
// in this order, each notice with the token and an ECT of the gateway for this body.
func (h *webhook) toldInOrder(t *testing.T, a auditor, path string) {
	t.Helper()
	want := []a2a.TaskState{a2a.TaskStateInputRequired, a2a.TaskStateCompleted}
	until(t, func() bool { return slices.Contains(h.states(t, path), a2a.TaskStateCompleted) })
	if got := h.states(t, path); !slices.Equal(got, want) {
		t.Errorf("%s was told %s", path, got)
	}
	for _, p := range h.notices(path) {
		tokens, err := a.list(p.evidence)
		if err != nil || len(tokens) != 1 || tokens[0].OutputHash != digest(p.body) || p.token != webhookToken {
			t.Errorf("%s: %d ECTs (%v) and the token %q with %s", path, len(tokens), err, p.token, p.body)
		}
	}
}
