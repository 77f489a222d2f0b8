package slim_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/golang-jwt/jwt/v5"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
)

// typed is the message that calls a tool.
func typed(skill, input string) *a2a.Message {
	part := a2a.NewDataPart(map[string]any{"skill": skill, "input": json.RawMessage(input)})
	part.MediaType = "application/json"
	return a2a.NewMessage(a2a.MessageRoleUser, part)
}

// TestChain_TwoGatewaysAndANode: an A2A client, a gateway, a real SLIM node, another
// gateway and an MCP server, all of them processes of their own. The whole
// chain of evidence is there and verified; too many hops and a way that comes
// back are refused.
func TestChain_TwoGatewaysAndANode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, toolbox := w.toolbox(t)
	w.gateway(t, "second", w.on("second", id("first"))+`
agents:
  toolbox: `+toolbox+`
  back: `+w.far("org/first/toolbox", id("first"), ""))
	w.gateway(t, "strict", w.on("strict", id("first"))+`
policy: {max_translation_hops: 1}
agents: {toolbox: `+toolbox+`}`)
	first := w.gateway(t, "first", w.on("first", id("second"))+`
agents:
  far: `+w.far("org/second/toolbox", id("second"), "")+`
  strict: `+w.far("org/strict/toolbox", id("strict"), "")+`
  round: `+w.far("org/second/back", id("second"), "")+`
  toolbox: `+toolbox)

	t.Run("through", func(t *testing.T) {
		client, record := w.recorded(t)
		got, err := peers.A2ACall(t.Context(), client, first.public+"/agents/far", typed("echo", `{"message":"good evening"}`))
		if err != nil {
			t.Fatal(err)
		}
		if got.State() != a2a.TaskStateCompleted || got.Text() != "good evening" || !strings.Contains(jsonOf(t, got.Card), `"echo"`) {
			t.Errorf("state %s, text %q, card %s", got.State(), got.Text(), jsonOf(t, got.Card))
		}
		tree := first.ctl(t, "dag", "-v", workflow(t, record.evidence()))
		for _, direction := range []string{
			"aepb:translate a2a-v1 → slim-v1 by " + id("first") + ", verified",
			"aepb:translate slim-v1 → mcp-v1 by " + id("second") + ", verified",
			"aepb:translate mcp-v1 → slim-v1 by " + id("second") + ", verified",
			"aepb:translate slim-v1 → a2a-v1 by " + id("first") + ", verified",
		} {
			if strings.Count(tree, direction) == 0 {
				t.Errorf("%q is not there:\n%s", direction, tree)
			}
		}
		// The second gateway answers with a stream: one token opens it, and one that closes it may come in time.
		if lines := strings.Count(tree, " by "); lines != 4 && lines != 5 {
			t.Errorf("%d nodes:\n%s", lines, tree)
		}
	})
	for name, why := range map[string]string{"strict": "aepb.max_translation_hops", "round": "loop"} {
		t.Run(name, func(t *testing.T) {
			client, _ := w.recorded(t)
			_, err := peers.A2ACall(t.Context(), client, first.public+"/agents/"+name, typed("echo", `{"message":"x"}`))
			if err == nil || !strings.Contains(err.Error(), "Policy does not allow this: refused by constraint "+why) {
				t.Errorf("%v, want %s", err, why)
			}
		})
	}
}

// TestChain_ThreeGatewaysByURL: gateways that know each other by URL alone, each a
// process: the chain is whole and verified where it began. A gateway that allows one translation
// refuses the second, and both say so.
func TestChain_ThreeGatewaysByURL(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, toolbox := w.toolbox(t)
	third := w.gateway(t, "third", "agents: {toolbox: "+toolbox+"}")
	next := func(g *gate) string {
		return fmt.Sprintf(`
peers: {%q: {gateway: "%s/aepb/translate"}}
agents: {toolbox: {endpoints: [{binding: mcp-v1, through: %q}], callers: ["spiffe://%s/*"]}}`, id(g.name), g.public, id(g.name), domain)
	}
	second := w.gateway(t, "second", next(third))
	first := w.gateway(t, "first", next(second))
	strict := w.gateway(t, "strict", "policy: {max_translation_hops: 1}"+next(third))
	refused := w.gateway(t, "refused", next(strict))

	client, record := w.recorded(t)
	got, err := peers.A2ACall(t.Context(), client, first.public+"/agents/toolbox", typed("echo", `{"message":"good evening"}`))
	if err != nil {
		t.Fatal(err)
	}
	if got.State() != a2a.TaskStateCompleted || got.Text() != "good evening" || !strings.Contains(jsonOf(t, got.Card), `"echo"`) {
		t.Errorf("state %s, text %q, card %s", got.State(), got.Text(), jsonOf(t, got.Card))
	}
	tree := first.ctl(t, "dag", "-v", workflow(t, record.evidence()))
	for _, direction := range []string{
		"a2a-v1 → mcp-v1 by " + id("third") + ", verified", "mcp-v1 → a2a-v1 by " + id("third") + ", verified",
		"aepb:translate a2a-v1 → a2a-v1 by " + id("second") + ", verified", "aepb:translate a2a-v1 → a2a-v1 by " + id("first") + ", verified",
	} {
		if want := map[bool]int{true: 1, false: 2}[strings.Contains(direction, "third")]; strings.Count(tree, direction) != want {
			t.Errorf("%q is not there %d times:\n%s", direction, want, tree)
		}
	}
	if lines := strings.Count(tree, " by "); lines != 7 || !strings.Contains(tree, "aepb:negotiate") {
		t.Errorf("%d nodes:\n%s", lines, tree)
	}

	client, record = w.recorded(t)
	_, err = peers.A2ACall(t.Context(), client, refused.public+"/agents/toolbox", typed("echo", `{"message":"x"}`))
	if err == nil || !strings.Contains(err.Error(), "no translation path: the next gateway toward toolbox refused") {
		t.Errorf("%v, want a refusal by the hop limit", err)
	}
	tree = refused.ctl(t, "dag", "-v", workflow(t, record.evidence()))
	refused.await(t, "the next gateway toward toolbox refused: refused by constraint aepb.max_translation_hops")
	for _, gateway := range []string{"refused", "strict"} {
		if strings.Count(tree, "by "+id(gateway)+", verified") == 0 || strings.Count(tree, "translate_error") != 2 {
			t.Errorf("no evidence of the refusal by %s:\n%s", gateway, tree)
		}
	}
}

// recorded is the client, and what it got.
func (w *world) recorded(t *testing.T) (*http.Client, *keeper) {
	t.Helper()
	client := w.client(t)
	record := &keeper{next: client.Transport}
	client.Transport = record
	return client, record
}

// keeper keeps the evidence of the last response.
type keeper struct {
	next http.RoundTripper
	mu   sync.Mutex
	last []string
}

// RoundTrip is http.RoundTripper's.
func (k *keeper) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := k.next.RoundTrip(r)
	if err == nil {
		k.mu.Lock()
		k.last = response.Header.Values("Execution-Context")
		k.mu.Unlock()
	}
	return response, err
}

func (k *keeper) evidence() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.last
}

// workflow is what the evidence belongs to.
func workflow(t *testing.T, tokens []string) string {
	t.Helper()
	if len(tokens) == 0 {
		t.Fatal("no evidence")
	}
	claims := jwt.MapClaims{}
	if _, _, err := jwt.NewParser().ParseUnverified(tokens[0], claims); err != nil {
		t.Fatal(err)
	}
	wid, _ := claims["wid"].(string)
	return wid
}
