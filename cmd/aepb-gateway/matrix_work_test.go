package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// postbox is where changes of work are posted to.
type postbox struct {
	url string

	mu    sync.Mutex
	taken map[string]string // by path
}

func newPostbox(t *testing.T, b *bed) *postbox {
	t.Helper()
	p := &postbox{taken: map[string]string{}}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		p.mu.Lock()
		p.taken[r.URL.Path] += string(body)
		p.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	}))
	server.TLS = serving(b.svid(t, "/postbox"))
	server.StartTLS()
	t.Cleanup(server.Close)
	p.url = server.URL
	return p
}

func (p *postbox) has(path, text string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Contains(p.taken[path], text)
}

// soon looks again until something is so, or there is no time left.
func soon(ctx context.Context, so func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for !so() {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(10 * time.Millisecond):
		}
	}
	return true
}

// pushes: whoever asked for work names a webhook, which is told of its end.
func (c *caller) pushes(ctx context.Context) string {
	name, h := c.works(ctx, doWork)
	defer c.agents.finish(name)
	if h.task() == nil {
		return h.without()
	}
	push := func(verb canonical.Verb, config canonical.PushConfig) *hearing {
		config.TaskID = h.task().ID
		return c.ask(ctx, c.request(canonical.OpPush, &canonical.PushRequest{Verb: verb, Config: config}), false, nil)
	}
	made := push(canonical.VerbCreate, canonical.PushConfig{ID: "p1", URL: c.posts.url + "/" + name, Token: "known"})
	if _, ok := made.last().(*canonical.PushConfig); !ok {
		return made.otherwise()
	}
	if got, ok := push(canonical.VerbGet, canonical.PushConfig{ID: "p1"}).last().(*canonical.PushConfig); !ok || !strings.HasSuffix(got.URL, name) {
		return "not to be had"
	}
	if list, ok := push(canonical.VerbList, canonical.PushConfig{}).last().(*canonical.PushList); !ok || len(list.Configs) != 1 {
		return "not listed"
	}
	c.agents.finish(name)
	if !soon(ctx, func() bool {
		return c.posts.has("/"+name, "worked") || c.posts.has("/"+name, "ompleted") || c.posts.has("/"+name, "COMPLETED")
	}) {
		return "not told"
	}
	if gone := push(canonical.VerbDelete, canonical.PushConfig{ID: "p1"}); gone.refused() != "" {
		return gone.otherwise()
	}
	return "told"
}

// aborts: whoever asked does not want it any more, and says so.
func (c *caller) aborts(ctx context.Context) string {
	name := c.wid
	m := c.request(canonical.OpInvoke, c.invoke(doWork+" "+name))
	if c.words() == mcp.Binding {
		m.Correlation.Progress = json.RawMessage(`"p"`)
	}
	done := make(chan *hearing, 1)
	asking, hangUp := context.WithCancel(ctx)
	defer hangUp()
	go func() { done <- c.ask(asking, m, false, nil) }()
	defer func() {
		c.agents.finish(name)
		<-done
	}()
	if !soon(ctx, func() bool { return c.agents.job(name) != nil }) {
		return "not begun"
	}
	stop := *c // which says its own
	if c.side.version == mcp.Modern {
		hangUp() // which is how that is said there
	} else if h := stop.ask(ctx, stop.request(canonical.OpAbort, &canonical.Abort{Request: m.Correlation.WireID}), false, nil); h.refused() != "" {
		return h.otherwise()
	}
	if !soon(ctx, func() bool { return c.agents.job(name).now() == canonical.StateCanceled }) {
		return "goes on"
	}
	return "stopped"
}
