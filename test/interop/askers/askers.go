// Package askers runs, for tests, two gateways with agents that ask before they answer, and judges the workflows that
// unmodified clients leave there.
package askers

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/test/harness/questions"
	"github.com/aepb/aepb-gateway/test/harness/redisserver"
	"github.com/aepb/aepb-gateway/test/harness/wait"
	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// Agent is an agent that asks.
type Agent struct {
	Name string

	Asks, Answer json.RawMessage // parts of messages of A2A: {"text": …} or {"data": …}

	// The same in MCP; no tool: a caller of MCP is not asked.
	Tool, Revision     string          // Revision is that of a server of MCP
	Arguments, Content json.RawMessage // Content is that of the answer
}

// The revisions of MCP that the servers speak.
const (
	modern = "2026-07-28"
	legacy = "2025-11-25"
)

// Agents are the agents of both gateways.
func Agents() []Agent {
	form := Agent{
		Asks: json.RawMessage(`{"data":{"skill":"book","input":{}}}`), Answer: json.RawMessage(`{"data":{"people":"four"}}`),
		Tool: "book", Arguments: json.RawMessage(`{}`), Content: json.RawMessage(`{"people":"four"}`),
	}
	modernForm, legacyForm := form, form
	modernForm.Name, modernForm.Revision = "asker-modern", modern
	legacyForm.Name, legacyForm.Revision = "asker-legacy", legacy
	return []Agent{
		{
			Name: "concierge", Asks: json.RawMessage(`{"text":"ask: for how many?"}`), Answer: json.RawMessage(`{"text":"four"}`),
			Tool: peers.ConciergeSkill, Arguments: json.RawMessage(`{"message":"ask: for how many?"}`), Content: json.RawMessage(`{"reply":"four"}`),
		},
		{ // its gateway asks, for the arguments of its tool
			Name: "forecast", Asks: json.RawMessage(`{"text":"How will the weather be?"}`), Answer: json.RawMessage(`{"data":{"city":"Oslo","day":"today"}}`),
		},
		modernForm, legacyForm,
	}
}

// Way is how a gateway reaches an agent.
type Way struct {
	Name   string
	prefix string // of the agent's name
	next   string // the path of the agent's endpoint at the second gateway; "": the agent is at the first one
}

// Ways are all of them. A client calls the first gateway.
func Ways() []Way {
	return []Way{{"one gateway", "", ""}, {"two through A2A", "a2a-", "/a2a"}, {"two through MCP", "mcp-", "/mcp"}}
}

// Agent is the name under which the first gateway lists an agent that it reaches so.
func (w Way) Agent(a Agent) string { return w.prefix + a.Name }

// Asks reports whether this way asks a caller of a revision of MCP, and has the answer in the question's workflow. Between two
// of one revision the server keeps its question itself: the gateway relays two calls that share no task, and records two
// workflows.
func (w Way) Asks(a Agent, revision string) bool {
	return a.Tool != "" && w.next != "/mcp" && (w.next != "" || a.Revision != revision)
}

// patience is how long the record of a stream's end may take.
const patience = 2 * time.Second

// Gateways are two gateways, of which clients call the first one. Its agents need no credentials.
type Gateways struct {
	*devgateway.Process
	began    time.Time
	verifier *ect.Verifier
	judged   map[string]bool // workflows
}

// Start starts both gateways and their agents. They end with the test.
func Start(t *testing.T) *Gateways {
	t.Helper()
	dir := t.TempDir()
	binary, err := devgateway.Build(t.Context(), dir)
	must(t, err)
	g := &Gateways{began: time.Now(), judged: map[string]bool{}}
	g.Process, err = devgateway.Start(t.Context(), devgateway.Deps{Binary: binary, Dir: filepath.Join(dir, ".aepb")})
	must(t, err)
	stopLater(t, g.Process)
	bundle, err := identity.LoadAnchors(g.CAFile())
	must(t, err)
	keys, err := identity.NewKeyRing(identity.KeyRingDeps{Bundle: bundle})
	must(t, err)
	g.verifier, err = ect.NewVerifier(ect.VerifierDeps{Keys: keys})
	must(t, err)
	listed := g.agents(t)
	second := g.second(t, binary, listed)
	for name, at := range listed {
		must(t, g.AddAgent(t.Context(), name, at[0], at[1]))
		for _, way := range Ways()[1:] {
			binding := strings.Trim(way.next, "/") + "-v1"
			must(t, g.AddAgentBehind(t.Context(), g.neighbor(), way.prefix+name, binding, second.Public+"/agents/"+name+way.next))
		}
	}
	return g
}

// agents starts the agents, and returns the binding and URL of each.
func (g *Gateways) agents(t *testing.T) map[string][2]string {
	t.Helper()
	conf, err := g.PeerTLS("askers")
	must(t, err)
	concierge, err := peers.NewA2AAgent(t.Context(), peers.Deps{TLS: conf})
	must(t, err)
	stopLater(t, concierge)
	forecast, err := peers.NewMCPServer(t.Context(), peers.MCPDeps{Deps: peers.Deps{TLS: conf}, Stateless: true, Tools: []string{"weather"}})
	must(t, err)
	stopLater(t, forecast)
	listed := map[string][2]string{"concierge": {"a2a-v1", concierge.URL()}, "forecast": {"mcp-v1", forecast.URL()}}
	for _, a := range Agents() {
		if a.Revision == "" {
			continue
		}
		handler, end := questions.Server(a.Revision == modern)
		server := httptest.NewUnstartedServer(handler)
		server.TLS = conf.Clone()
		server.StartTLS()
		t.Cleanup(func() {
			server.CloseClientConnections() // a call that still asks ends with its connection
			end()
			server.Close()
		})
		listed[a.Name] = [2]string{"mcp-v1", server.URL + "/mcp"}
	}
	return listed
}

// secondName is that of the second gateway.
const secondName = "gateway-2"

func (g *Gateways) neighbor() string { return "spiffe://" + g.TrustDomain() + "/peer/" + secondName }

// second starts the second gateway, which trusts the first one.
func (g *Gateways) second(t *testing.T, binary string, listed map[string][2]string) *devgateway.Process {
	t.Helper()
	dir := t.TempDir()
	must(t, g.Neighbor(dir, secondName))
	port, err := redisserver.FreePort()
	must(t, err)
	var text strings.Builder
	text.WriteString(strings.NewReplacer("DIR", dir, "PORT", port, "DOMAIN", g.TrustDomain()).Replace(`
public_url: https://127.0.0.1:PORT
listen: {public: "127.0.0.1:PORT", admin: "127.0.0.1:0"}
identity: {trust_domain: DOMAIN, certificate: DIR/gateway.pem, key: DIR/gateway-key.pem, bundle: DIR/ca.pem}
shutdown_delay: 0s
admin: {operators: {ann: {id: "spiffe://DOMAIN/client", roles: [operator]}}}
agents:
`))
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		fmt.Fprintf(&text, "  %s: {callers: [%q], endpoints: [{binding: %s, url: %q}]}\n", name, g.GatewayID(), listed[name][0], listed[name][1])
	}
	file := filepath.Join(dir, "gateway.yaml")
	must(t, os.WriteFile(file, []byte(text.String()), 0o600))
	second, err := devgateway.Serve(t.Context(), devgateway.ServeDeps{Binary: binary, Config: file, Trust: g.Trust})
	must(t, err)
	stopLater(t, second)
	return second
}

// Endpoint is the URL of an agent, as a client that goes a way calls it.
func (g *Gateways) Endpoint(w Way, a Agent) string { return g.Public + "/agents/" + w.Agent(a) }

// HasWorkflows demands that what a client of a protocol did since the last call, by one way, is so many workflows, each with
// one beginning and nothing that an auditor would find wrong; and in A2A that each has a request with the reply before it as
// parent. The records of a stream's end may follow its last event.
func (g *Gateways) HasWorkflows(t *testing.T, w Way, protocol string, count int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var workflows map[string]questions.Workflow
	var wrong []string
	err := wait.Until(ctx, "workflows without faults", func() bool {
		workflows, wrong = g.read(t, w, protocol)
		return len(workflows) == count && len(wrong) == 0
	})
	if err != nil {
		t.Errorf("%d workflows, expected %d; %q", len(workflows), count, wrong)
	}
	for wid, workflow := range workflows {
		g.judged[wid] = true
		if err != nil {
			t.Logf("%s\n%s", wid, workflow)
		}
	}
}

// read reads the workflows that are not judged yet, and says what is wrong with them.
func (g *Gateways) read(t *testing.T, w Way, protocol string) (workflows map[string]questions.Workflow, wrong []string) {
	t.Helper()
	wids, err := g.Workflows(t.Context(), g.began)
	must(t, err)
	workflows = map[string]questions.Workflow{}
	for _, wid := range wids {
		if g.judged[wid] {
			continue
		}
		tokens, err := g.Workflow(t.Context(), wid)
		must(t, err)
		workflow, found := questions.Read(t.Context(), g.verifier, tokens)
		if listens(workflow) {
			continue
		}
		if protocol == "A2A" && !workflow.Answers(ect.Identity(g.GatewayID())) {
			found = append(found, "no request has the reply with the question as parent")
		}
		workflows[wid], wrong = workflow, append(wrong, found...)
	}
	return workflows, slices.DeleteFunc(wrong, func(text string) bool {
		return w.next == "/mcp" && strings.Contains(text, "opens a stream that no record closes") // it may be at the second gateway alone
	})
}

// listens reports whether a workflow is the stream on which a client of MCP 2025-11-25 waits for notifications, beside its
// calls. It asks nothing, and nothing closes it if there were no notifications.
func listens(w questions.Workflow) bool {
	if len(w) != 2 || len(w[0].Claims.Parents) > 0 {
		return false
	}
	opens, _ := w[1].Claims.Ext.String(ect.ExtStream)
	return opens == "open"
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// stopLater stops a program at the end of the test, and shows what a gateway printed if the test failed.
func stopLater(t *testing.T, program interface{ Stop(context.Context) error }) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), wait.Limit)
		defer cancel()
		if err := program.Stop(ctx); err != nil {
			t.Error(err)
		}
		if gateway, ok := program.(*devgateway.Process); ok && t.Failed() {
			t.Logf("gateway:\n%s", gateway.Output())
		}
	})
}
