package main

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// echoed is a reply to a text of so many bytes, its tokens, and what it names
// where there is no room for one.
func (b *bed) echoed(t *testing.T, octets int) (reply []byte, tokens []string, named string) {
	t.Helper()
	reply = b.askUACP(t, "concierge", frameOf(t, uacp.FormEnveloped, telling(strings.Repeat("x", octets))))
	tokens, err := uacpEvidence(reply)
	must(t, err)
	if _, rest, ok := strings.Cut(string(reply), `"parent_jti":"`); ok {
		named, _, _ = strings.Cut(rest, `"`)
	}
	return reply, tokens, named
}

// TestEvidenceThatFitsNoFrame: a reply that fills its frame goes out with as much
// of its evidence as there is room for, the token about itself first; where there
// is none, it names that token, which its caller fetches.
func TestEvidenceThatFitsNoFrame(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	without := 0 // replies with no token
	echoed := func(octets int) (reply []byte, tokens []string, named string) {
		reply, tokens, named = b.echoed(t, octets)
		if len(tokens) == 0 {
			without++
		}
		return reply, tokens, named
	}
	small, both, named := echoed(1)
	if len(both) != 2 || named != "" {
		t.Fatalf("a small reply: %d tokens, names %q", len(both), named)
	}
	bare := len(small) - len(both[0]) - len(both[1])
	next, more, _ := echoed(1001)
	each := (len(next) - len(more[0]) - len(more[1]) - bare) / 1000 // bytes of a reply for one of the text
	size := len(both[0]) + len(both[1])
	leaves := func(room int) int { return (uacp.MaxFrame - room - bare) / each }

	// What a reply takes beside the text varies a little.
	holding := func(want, octets int) (reply []byte, tokens []string, named string) {
		for range 40 {
			reply, tokens, named = echoed(octets)
			switch n := len(tokens); {
			case len(reply) < uacp.MaxFrame/2: // it did not fit at all, and says so
				octets -= 1000
			case n == want:
				return reply, tokens, named
			case n > want:
				octets += 100
			default:
				octets -= 100
			}
		}
		return reply, tokens, named
	}

	reply, tokens, named := holding(1, leaves(size*3/4))
	if len(tokens) != 1 {
		t.Fatalf("a reply with room for one token has %d", len(tokens))
	}
	if v := b.testifies(t, tokens[0], reply); string(v.ID()) != named {
		t.Errorf("the token that fits is %s, and the reply names %s", v.ID(), named)
	}

	reply, tokens, named = holding(0, leaves(size/4))
	if len(tokens) != 0 || named == "" {
		t.Fatalf("a reply without room has %d tokens and names %q", len(tokens), named)
	}
	got := b.send(t, letter{method: http.MethodGet, at: "/ects/" + named})
	if got.status != http.StatusOK {
		t.Fatalf("the token that it names: got %d %s", got.status, short(got.body))
	}
	b.testifies(t, string(got.body), reply)
	got = b.send(t, letter{method: http.MethodGet, at: b.at.Admin + "/metrics"})
	const series = "aepb_ects_by_reference_total{"
	want := fmt.Sprintf(`%sprotocol="uacp-v1",reason="full"} %d`, series, without)
	var counted []string // and nothing else is
	for line := range strings.Lines(string(got.body)) {
		if strings.HasPrefix(line, series) {
			counted = append(counted, strings.TrimSpace(line))
		}
	}
	if !slices.Equal(counted, []string{want}) {
		t.Errorf("counted %q, want %s", counted, want)
	}
}

// testifies verifies a token about a reply.
func (b *bed) testifies(t *testing.T, compact string, reply []byte) ect.Verified {
	t.Helper()
	v, err := b.judge.Verify(t.Context(), compact, ect.Check{Purpose: ect.Parent})
	must(t, err)
	input, err := uacp.HashInput(reply)
	must(t, err)
	if v.Claims().OutputHash != ect.Hash(input) {
		t.Error("the token is about another message")
	}
	return v
}

// TestAnswersThatFitNoFrame: µACP has no message of more than 64 KiB. What does not
// fit is refused with its own status and counted under its own name, and the caller
// gets it at another door of the agent.
func TestAnswersThatFitNoFrame(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	long := strings.Repeat("y", 70<<10)
	b.serve(t, "orator", "mcp-v1", &fake{conduct: saying(func(good []byte) []byte {
		return []byte(strings.Replace(string(good), `"text":"done"`, `"text":"`+long+`"`, 1))
	})}, host{})
	for _, carriage := range []string{uacp.FormEnveloped, uacp.FormBare} {
		for agent, ask := range map[string]*canonical.Invoke{
			"orator":    {Call: &canonical.Call{Name: "echo", Args: []byte(`{}`)}},
			"concierge": telling(long[:40<<10]), // which says more than it is told
		} {
			reply := b.askUACP(t, agent, frameOf(t, carriage, ask))
			f, err := uacp.ParseFrame(reply)
			must(t, err)
			_, rest, named := strings.Cut(string(f.Payload), "kept as task ")
			if agent == "concierge" && carriage == uacp.FormBare && f.Code == 0 {
				continue // bare, it says what it is told once
			}
			if f.Code != 0x4A || !named {
				t.Errorf("%s, %s: got %#x %s", agent, carriage, f.Code, short(f.Payload))
				continue
			}
			id, _, _ := strings.Cut(rest, ",")
			got := b.send(t, letter{at: "/agents/" + agent + "/a2a", body: `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"` + id + `"}}`, header: map[string]string{"A2A-Version": "1.0"}})
			if !strings.Contains(string(got.body), long[:40<<10]) {
				t.Errorf("%s, %s: %s at the other door: got %d %s", agent, carriage, id, got.status, short(got.body))
			}
			again, err := uacp.ParseFrame(b.askUACP(t, agent, wish(t, canonical.OpTaskGet, id, &canonical.TaskQuery{ID: id})))
			if must(t, err); again.Code != 0x4A || !strings.Contains(string(again.Payload), id) {
				t.Errorf("%s, %s: asked for in µACP: got %#x %s", agent, carriage, again.Code, short(again.Payload))
			}
			stranger := b.send(t, letter{via: b.as(t, "/stranger"), at: "/agents/" + agent + "/a2a", body: `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"` + id + `"}}`, header: map[string]string{"A2A-Version": "1.0"}})
			if !strings.Contains(string(stranger.body), "-32001") {
				t.Errorf("a stranger got %d %s", stranger.status, short(stranger.body))
			}
		}
	}
	// Observed, what comes in pieces is told in pieces; what does not ends the observation.
	for agent, code := range map[string]uint8{"concierge": 0x03, "orator": 0x4A} {
		ask := telling(long[:30<<10])
		if agent == "orator" {
			ask = &canonical.Invoke{Call: &canonical.Call{Name: "echo", Args: []byte(`{}`)}}
		}
		conn := b.dialUACP(t, agent, b.dev.Client)
		must(t, writeFrameTo(conn, observing(t, uacp.FormEnveloped, ask)))
		if _, _, _, last := watch(t, conn); last.Code != code {
			t.Errorf("%s, observed: got %#x %s", agent, last.Code, short(last.Payload))
		}
	}
	got := b.send(t, letter{method: http.MethodGet, at: b.at.Admin + "/metrics"})
	if count := `{from="uacp-v1",result="too_large",to="mcp-v1"} 5`; !strings.Contains(string(got.body), count) {
		t.Errorf("not counted: %s", count)
	}
	b.works(t)
}
