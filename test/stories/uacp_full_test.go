package stories

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// echoed is a reply to a text of so many bytes, its tokens, and what it names
// where there is no room for one.
func echoed(t *testing.T, b *gatewaytest.Fixture, bytes int) (reply []byte, tokens []string, named string) {
	t.Helper()
	reply = b.AskUACP(t, "concierge", gatewaytest.FrameOf(t, uacp.FormEnveloped, gatewaytest.TextInvoke(strings.Repeat("x", bytes))))
	tokens, err := gatewaytest.UACPEvidence(reply)
	gatewaytest.Must(t, err)
	if _, rest, ok := strings.Cut(string(reply), `"parent_jti":"`); ok {
		named, _, _ = strings.Cut(rest, `"`)
	}
	return reply, tokens, named
}

// TestUACPFrame_EvidenceThatDoesNotFit: a reply that fills its frame goes out with as much
// of its evidence as there is room for, the token about itself first; where there
// is none, it names that token, which its caller fetches.
func TestUACPFrame_EvidenceThatDoesNotFit(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	without := 0 // replies with no token
	echoed := func(bytes int) (reply []byte, tokens []string, named string) {
		reply, tokens, named = echoed(t, b, bytes)
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
	leaves := func(space int) int { return (uacp.MaxFrame - space - bare) / each }

	// What a reply takes beside the text varies a little.
	waiting := func(want, bytes int) (reply []byte, tokens []string, named string) {
		for range 40 {
			reply, tokens, named = echoed(bytes)
			switch n := len(tokens); {
			case len(reply) < uacp.MaxFrame/2: // it did not fit at all, and says so
				bytes -= 1000
			case n == want:
				return reply, tokens, named
			case n > want:
				bytes += 100
			default:
				bytes -= 100
			}
		}
		return reply, tokens, named
	}

	reply, tokens, named := waiting(1, leaves(size*3/4))
	if len(tokens) != 1 {
		t.Fatalf("a reply with room for one token has %d", len(tokens))
	}
	if v := testifies(t, b, tokens[0], reply); string(v.ID()) != named {
		t.Errorf("the token that fits is %s, and the reply names %s", v.ID(), named)
	}

	reply, tokens, named = waiting(0, leaves(size/4))
	if len(tokens) != 0 || named == "" {
		t.Fatalf("a reply without room has %d tokens and names %q", len(tokens), named)
	}
	got := b.Send(t, gatewaytest.HTTPRequest{Method: http.MethodGet, At: "/ects/" + named})
	if got.Status != http.StatusOK {
		t.Fatalf("the token that it names: got %d %s", got.Status, gatewaytest.Short(got.Body))
	}
	testifies(t, b, string(got.Body), reply)
	got = b.Send(t, gatewaytest.HTTPRequest{Method: http.MethodGet, At: b.At.Admin + "/metrics"})
	const series = "aepb_ects_by_reference_total{"
	want := fmt.Sprintf(`%sprotocol="uacp-v1",reason="full"} %d`, series, without)
	var counted []string // and nothing else is
	for line := range strings.Lines(string(got.Body)) {
		if strings.HasPrefix(line, series) {
			counted = append(counted, strings.TrimSpace(line))
		}
	}
	if !slices.Equal(counted, []string{want}) {
		t.Errorf("counted %q, want %s", counted, want)
	}
}

// testifies verifies a token about a reply.
func testifies(t *testing.T, b *gatewaytest.Fixture, compact string, reply []byte) ect.Verified {
	t.Helper()
	v, err := b.Judge.Verify(t.Context(), compact, ect.Check{Purpose: ect.Parent})
	gatewaytest.Must(t, err)
	input, err := uacp.HashInput(reply)
	gatewaytest.Must(t, err)
	if v.Claims().OutputHash != ect.Hash(input) {
		t.Error("the token is about another message")
	}
	return v
}

// TestUACPFrame_AnswersThatDoNotFit: µACP has no message of more than 64 KiB. What does not
// fit is refused with its own status and counted under its own name, and the caller
// gets it at another door of the agent.
func TestUACPFrame_AnswersThatDoNotFit(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	long := strings.Repeat("y", 70<<10)
	b.Serve(t, "orator", "mcp-v1", &gatewaytest.Fake{Conduct: gatewaytest.Saying(func(good []byte) []byte {
		return []byte(strings.Replace(string(good), `"text":"done"`, `"text":"`+long+`"`, 1))
	})}, gatewaytest.Host{})
	for _, carriage := range []string{uacp.FormEnveloped, uacp.FormBare} {
		for agent, ask := range map[string]*canonical.Invoke{
			"orator":    {Call: &canonical.Call{Name: "echo", Args: []byte(`{}`)}},
			"concierge": gatewaytest.TextInvoke(long[:40<<10]), // which says more than it is told
		} {
			reply := b.AskUACP(t, agent, gatewaytest.FrameOf(t, carriage, ask))
			f, err := uacp.ParseFrame(reply)
			gatewaytest.Must(t, err)
			_, rest, named := strings.Cut(string(f.Payload), "kept as task ")
			if agent == "concierge" && carriage == uacp.FormBare && f.Code == 0 {
				continue // bare, it says what it is told once
			}
			if f.Code != 0x4A || !named {
				t.Errorf("%s, %s: got %#x %s", agent, carriage, f.Code, gatewaytest.Short(f.Payload))
				continue
			}
			id, _, _ := strings.Cut(rest, ",")
			got := b.Send(t, gatewaytest.HTTPRequest{At: "/agents/" + agent + "/a2a", Body: `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"` + id + `"}}`, Header: map[string]string{"A2A-Version": "1.0"}})
			if !strings.Contains(string(got.Body), long[:40<<10]) {
				t.Errorf("%s, %s: %s at the other door: got %d %s", agent, carriage, id, got.Status, gatewaytest.Short(got.Body))
			}
			again, err := uacp.ParseFrame(b.AskUACP(t, agent, gatewaytest.UACPRequest(t, canonical.OpTaskGet, id, &canonical.TaskQuery{ID: id})))
			if gatewaytest.Must(t, err); again.Code != 0x4A || !strings.Contains(string(again.Payload), id) {
				t.Errorf("%s, %s: asked for in µACP: got %#x %s", agent, carriage, again.Code, gatewaytest.Short(again.Payload))
			}
			stranger := b.Send(t, gatewaytest.HTTPRequest{Via: b.As(t, "/stranger"), At: "/agents/" + agent + "/a2a", Body: `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"` + id + `"}}`, Header: map[string]string{"A2A-Version": "1.0"}})
			if !strings.Contains(string(stranger.Body), "-32001") {
				t.Errorf("a stranger got %d %s", stranger.Status, gatewaytest.Short(stranger.Body))
			}
		}
	}
	// Observed, what comes in pieces is told in pieces; what does not ends the observation.
	for agent, code := range map[string]uint8{"concierge": 0x03, "orator": 0x4A} {
		ask := gatewaytest.TextInvoke(long[:30<<10])
		if agent == "orator" {
			ask = &canonical.Invoke{Call: &canonical.Call{Name: "echo", Args: []byte(`{}`)}}
		}
		conn := b.DialUACP(t, agent, b.Dev.Client)
		gatewaytest.Must(t, gatewaytest.WriteFrameTo(conn, gatewaytest.Observing(t, uacp.FormEnveloped, ask)))
		if _, _, _, last := gatewaytest.Watch(t, conn); last.Code != code {
			t.Errorf("%s, observed: got %#x %s", agent, last.Code, gatewaytest.Short(last.Payload))
		}
	}
	got := b.Send(t, gatewaytest.HTTPRequest{Method: http.MethodGet, At: b.At.Admin + "/metrics"})
	if count := `{from="uacp-v1",result="too_large",to="mcp-v1"} 5`; !strings.Contains(string(got.Body), count) {
		t.Errorf("not counted: %s", count)
	}
	b.Works(t)
}
