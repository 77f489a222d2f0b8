package gateway_test

import (
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// inSessions is a server that logs, asks on its session, and has an outcome.
func inSessions() map[string][]scene {
	events := []string{
		logLine,
		`{"jsonrpc":"2.0","id":"q1",` + wantsName[1:],
		"", result(`{"content":[{"type":"text","text":"hello Ada"}]}`),
	}
	return map[string][]scene{calling: {{events: events, end: io.EOF}}, "": {{reply: "taken"}}, "notifications/cancelled": {{}}}
}

// TestRevision_OfTheCaller: a client of an older revision has a server of several in its
// own: it hears the log, is asked, and its answer goes to the session (MCP 2025-11-25,
// Lifecycle, Version Negotiation; Elicitation).
func TestRevision_OfTheCaller(t *testing.T) {
	t.Parallel()
	for _, names := range [][]string{nil, {mcp.Modern}} {
		version := mcp.LegacyJune
		if names != nil { // it does not name those that begin a session, like the Python SDK
			version = mcp.Legacy
		}
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			play(t, inSessions(), func(s *stage) {
				s.asker.eras, s.asker.names = mcp.Revisions(), names
				close(s.asker.resume)
				events := s.ask(s.t, s, s.olderIn(version, calling, `"name":"ask","arguments":{}`)).Events()
				if got := heardNext(s.t, events); !strings.Contains(got, `"halfway"`) {
					s.t.Errorf("in place of the log it hears %s", got)
				}
				bodies := s.interview(version, events, acceptsAda)
				if got := strings.Join(bodies, ""); !strings.Contains(got, "hello Ada") {
					s.t.Errorf("the answer leads to %s", got)
				}
				if s.asker.spoken[0] != version || !strings.Contains(strings.Join(s.asker.bodies, ""), acceptsAda) {
					s.t.Errorf("in %s the server was asked %s", s.asker.spoken, s.asker.bodies)
				}
			})
		})
	}
}

// TestRevision_OfOtherCallers: a caller of another protocol who can be asked has a server
// in the newest revision with sessions, unless it keeps none, or keeps tasks, which ask.
// One who cannot be asked has it in the newest, and so has a revision that is pinned.
func TestRevision_OfOtherCallers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		edit func(*player)
		pin  string
		want string
	}{
		"of both":          {func(*player) {}, "", mcp.Legacy},
		"without sessions": {func(p *player) { p.sessionless = true }, "", mcp.Modern},
		"with tasks":       {func(p *player) { p.tasks = true }, "", mcp.Modern},
		"of the newest":    {func(p *player) { p.version, p.eras = mcp.Modern, nil }, "", mcp.Modern},
		"of one it hides":  {func(p *player) { p.names = p.eras[:1] }, "", mcp.Legacy},
		"of older ones":    {func(p *player) { p.eras = []string{mcp.Modern, mcp.LegacyMarch, mcp.LegacyJune} }, "", mcp.LegacyJune},
		"pinned":           {func(*player) {}, mcp.Modern, mcp.Modern},
		"pinned to March":  {func(*player) {}, mcp.LegacyMarch, mcp.LegacyMarch},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(t, map[string][]scene{calling: {{reply: result(complete)}}}, func(s *stage) {
				s.asker.eras = mcp.Revisions()
				c.edit(s.asker)
				if err := s.Directory.Put(directory.Agent{
					Name: "asker", Rules: policy.Rules{Open: true},
					Endpoints: []directory.Endpoint{{Binding: mcp.Binding, Version: c.pin, URL: "https://asker.example/mcp"}},
				}); err != nil {
					s.t.Fatal(err)
				}
				if s.ask(s.t, s, s.asks(invoking, called)); s.asker.spoken[0] != c.want {
					s.t.Errorf("the server is spoken to in %s, want %s", s.asker.spoken, c.want)
				}
			})
		})
	}
	play(t, inSessions(), func(s *stage) {
		s.asker.eras = mcp.Revisions()
		id := s.requested(s.t, s.ask(s.t, s, s.asks(invoking, called)))
		go func() { // the server goes on once it has the answer
			synctest.Wait()
			close(s.asker.resume)
		}()
		done := s.ask(s.t, s, s.asks(invoking, `{"message":{"messageId":"m2","taskId":"`+id+`","role":"ROLE_USER","parts":[{"data":{"name":"Ada"}}]}}`))
		if !strings.Contains(string(done.Wire().Body), "hello Ada") {
			s.t.Errorf("the answer of an A2A client leads to %s", done.Wire().Body)
		}
	})
	if got := (servers{}).Revision(&canonical.Description{Versions: mcp.Revisions()}, "", nil); got != "" {
		t.Errorf("a caller who cannot be asked has the server in %s", got)
	}
}
