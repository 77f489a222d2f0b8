package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	tslim "github.com/aepb/aepb-gateway/gateway/transport/slim"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/name"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/plain"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
	"github.com/aepb/aepb-gateway/translators/slim"
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
		if why := b.unproven(r, body); why != "" {
			t.Errorf("posted to %s: %s", r.URL.Path, why)
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

// unproven is what is wrong with the evidence of a message that was posted; "": nothing.
func (b *bed) unproven(r *http.Request, body []byte) string { return b.unprovenOf(r, body, true) }

// unprovenOf is unproven; heard: the message says what an agent said.
func (b *bed) unprovenOf(r *http.Request, body []byte, heard bool) string {
	tokens := r.Header.Values(ect.HeaderName)
	if len(tokens) != 1 {
		return fmt.Sprintf("with %d ECTs", len(tokens))
	}
	v, err := b.judge.Verify(context.WithoutCancel(r.Context()), tokens[0], ect.Check{Purpose: ect.Parent})
	if err != nil {
		return err.Error()
	}
	if c := v.Claims(); c.Issuer != b.dev.Gateway.ID || c.OutputHash != ect.Hash(body) || (c.InputHash != "") != heard || heard && len(c.Parents) != 1 {
		return fmt.Sprintf("with an ECT of something else: %+v", c)
	}
	return ""
}

func (p *postbox) has(path, text string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Contains(p.taken[path], text)
}

// soon looks again until something is so, or there is no time left.
func soon(ctx context.Context, so func() bool) bool { return soonIn(ctx, whatLasts, so) }

// soonIn is soon, in a time of its own.
func soonIn(ctx context.Context, limit time.Duration, so func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
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
	made := push(canonical.VerbCreate, *c.hook(name))
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
	if !c.told(ctx, name) {
		return "not told"
	}
	if gone := push(canonical.VerbDelete, canonical.PushConfig{ID: "p1"}); gone.refused() != "" {
		return gone.otherwise()
	}
	return "told"
}

// hook is a webhook of its own.
func (c *caller) hook(name string) *canonical.PushConfig {
	return &canonical.PushConfig{ID: "p1", URL: c.posts.url + "/" + name, Token: "known"}
}

// told: somebody was told there of the end of work.
func (c *caller) told(ctx context.Context, name string) bool {
	return soon(ctx, func() bool {
		return c.posts.has("/"+name, "worked") || c.posts.has("/"+name, "ompleted") || c.posts.has("/"+name, "COMPLETED")
	})
}

// aborts: whoever asked does not want it any more, and says so.
func (c *caller) aborts(ctx context.Context) string {
	work := c.wid
	m := c.request(canonical.OpInvoke, c.invoke(doToil+" "+work))
	if c.words() == mcp.Binding {
		m.Correlation.Progress = json.RawMessage(`"p"`)
	}
	ask := func(ctx context.Context, m *canonical.Message) *hearing { return c.ask(ctx, m, false, nil) }
	if member := c.members[c.side.version]; member != nil {
		s, err := c.converses(ctx, member)
		if err != nil {
			return err.Error()
		}
		defer s.Close()
		ask = s.ask
	}
	done := make(chan *hearing, 1)
	asking, hangUp := context.WithCancel(ctx)
	defer hangUp()
	go func() { done <- ask(asking, m) }()
	defer func() {
		c.agents.finish(work)
		<-done
	}()
	if !soon(ctx, func() bool { return c.agents.job(work) != nil }) {
		return "not begun"
	}
	if strings.HasSuffix(c.side.version, mcp.Modern) {
		hangUp() // which is how that is said there
	} else if h := ask(ctx, c.request(canonical.OpAbort, &canonical.Abort{Request: m.Correlation.WireID})); h.refused() != "" {
		return h.otherwise()
	}
	hearing := ctx
	if to := natureOf(c.to, c.list[c.to.binding].form); to.bare || withinAINP(natureOf(c.side, c.form), to) { // which will hear of nothing
		var enough context.CancelFunc
		hearing, enough = context.WithTimeout(ctx, 500*time.Millisecond)
		defer enough()
	}
	if !soon(hearing, func() bool { return c.agents.job(work).now() == canonical.StateCanceled }) {
		return "goes on"
	}
	return "stopped"
}

// slimSession is one session of MCP on SLIM: what is asked for in it is stopped
// in it. The gateway's own callers have a session for each message.
type slimSession struct {
	*plain.Conversation

	c *caller
}

func (c *caller) converses(ctx context.Context, member *tslim.Peer) (*slimSession, error) {
	at, err := name.Parse("org/gw/" + c.agent)
	if err != nil {
		return nil, err
	}
	session, err := member.Converse(ctx, at)
	if err != nil {
		return nil, err
	}
	s := &slimSession{session, c}
	revision, _ := slim.Revision(c.side.version)
	s.ask(ctx, c.request(canonical.OpDescribe, &canonical.DescribeRequest{Versions: []string{revision}}))
	begun, err := session.Call(ctx, []byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`), nil)
	if err != nil {
		session.Close()
		return nil, err
	}
	begun.Close()
	return s, nil
}

// ask says a message, and hears what answers it, if anything does.
func (s *slimSession) ask(ctx context.Context, m *canonical.Message) *hearing {
	out := &hearing{}
	wire, _, err := s.c.said(m, false)
	var sealed transport.Sealed
	if err == nil {
		sealed, err = s.c.sealed(ctx, wire)
	}
	var evidence []string
	if err == nil {
		wire, evidence, err = sealed.Open()
	}
	if err != nil {
		out.failure = err
		return out
	}
	answers, err := s.Call(ctx, wire.Body, map[string]string{"execution-context": strings.Join(evidence, ",")})
	if err != nil {
		out.failure = err
		return out
	}
	defer answers.Close()
	f, err := answers.Next(ctx)
	if errors.Is(err, io.EOF) {
		return out
	}
	if out.failure = err; err == nil {
		out.failure = s.c.hear(translators.Wire{Body: f.Body}, m.Op, false, out)
	}
	return out
}
