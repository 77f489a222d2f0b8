package stories

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/approvals"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/client"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/evidence"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/program"
	workflowcommands "github.com/aepb/aepb-gateway/cmd/aepbctl/workflow"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/rpc"
	"github.com/aepb/aepb-gateway/lifecycle/compensation"
	"github.com/aepb/aepb-gateway/lifecycle/workflow"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/hitl"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

var update = flag.Bool("update", false, "write the drawings of the whole story anew")

// The tools of the agency, an MCP server that knows nothing of rollbacks, and of the dock, a SLIM agent that rolls back itself.
const (
	toolOffers  = "list_offers"
	toolBook    = "book_cabin"
	toolCancel  = "cancel_cabin"
	toolPay     = "pay"
	toolReserve = "reserve"
)

// journey is the plan of the story, which its page in docs has: a mail that cannot be undone, two steps built upon it that can, a
// payment that fails, and a branch of its own.
func journey(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/whole-story.md")
	gatewaytest.Must(t, err)
	_, text, _ := strings.Cut(string(page), "```json\n")
	text, _, found := strings.Cut(text, "```")
	if !found {
		t.Fatal("docs/whole-story.md has no plan")
	}
	return text
}

// wholeStory is a gateway with the three agents, and what they got, in order.
type wholeStory struct {
	*gatewaytest.Fixture
	post *peers.A2AAgent
	wid  string

	mu     sync.Mutex
	got    []string // agent, tool and arguments
	serial int
	cabins map[string]string // guests by cabin
}

// newStory starts the gateway, whose policy document says that a failure undoes what led to it, and lists the agents.
func newStory(t *testing.T) *wholeStory {
	t.Helper()
	document := filepath.Join(t.TempDir(), "policy.json")
	gatewaytest.Must(t, os.WriteFile(document, []byte(`{"constraints":{"atd.cascade":true}}`), 0o600))
	p := gatewaytest.Plan{Config: gatewaytest.Staff(), NoToken: true}
	p.Config.Policy = config.Policy{Document: document}
	net := gatewaytest.NewSLIMNet(t, &p)
	s := &wholeStory{Fixture: gatewaytest.NewFixture(t, p), cabins: map[string]string{}}
	s.agency(t)
	s.dock(t, net)
	svid := s.SVID(t, "/post")
	var err error
	s.post, err = peers.NewA2AAgent(t.Context(), peers.Deps{TLS: gatewaytest.Serving(svid)})
	gatewaytest.Must(t, err)
	t.Cleanup(func() { gatewaytest.StopWithin(t, s.post.Stop) })
	s.ListAs(t, "post", svid.ID, directory.Endpoint{Binding: "a2a-v1", URL: s.post.URL()})
	return s
}

func (s *wholeStory) note(agent, tool, arguments string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, agent+" "+tool+" "+arguments)
}

// agency starts the MCP server, with the rule that says how its bookings are undone.
func (s *wholeStory) agency(t *testing.T) {
	t.Helper()
	svid := s.SVID(t, "/agency")
	add := func(server *mcp.Server) {
		for _, tool := range []string{toolOffers, toolBook, toolCancel, toolPay} {
			server.AddTool(&mcp.Tool{Name: tool, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				s.note("agency", tool, string(r.Params.Arguments))
				return s.works(tool, r.Params.Arguments)
			})
		}
	}
	server, err := peers.NewMCPServer(t.Context(), peers.MCPDeps{Deps: peers.Deps{TLS: gatewaytest.Serving(svid)}, Stateless: true, Also: add})
	gatewaytest.Must(t, err)
	t.Cleanup(func() { gatewaytest.StopWithin(t, server.Stop) })
	rule, err := compensation.ParseRule([]byte(`{"tool":"cancel_cabin","arguments":{"cabin":{"result":"/cabin"}}}`))
	gatewaytest.Must(t, err)
	gatewaytest.Must(t, s.Directory().Put(directory.Agent{
		Name: "agency", ID: svid.ID, Rules: policy.Rules{Open: true}, Endpoints: []directory.Endpoint{{Binding: "mcp-v1", URL: server.URL()}},
		Undo: directory.Undo{ReadOnly: []string{toolOffers}, Compensate: map[string]compensation.Rule{toolBook: rule}},
	}))
}

var errNoCabin = errors.New("there is no such cabin")

// works is what a tool of the agency does.
func (s *wholeStory) works(tool string, arguments json.RawMessage) (*mcp.CallToolResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var in struct{ Guest, Cabin string }
	if err := json.Unmarshal(arguments, &in); err != nil {
		return nil, err
	}
	out := map[string]string{}
	switch tool {
	case toolOffers:
		out["offer"] = "a cabin"
	case toolBook:
		s.serial++
		out["cabin"] = "cabin-" + strconv.Itoa(s.serial)
		s.cabins[out["cabin"]] = in.Guest
	case toolCancel:
		if _, there := s.cabins[in.Cabin]; !there {
			return nil, errNoCabin
		}
		delete(s.cabins, in.Cabin)
		out["canceled"] = in.Cabin
	default:
		return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: "the card was declined"}}}, nil
	}
	text, err := json.Marshal(out)
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(text)}}, StructuredContent: json.RawMessage(text)}, err
}

// dock starts the SLIM agent, which rolls back itself.
func (s *wholeStory) dock(t *testing.T, net *gatewaytest.SlimNet) {
	t.Helper()
	boat := canonical.Capability{ID: toolReserve, Title: "Reserve", Description: "Reserves a boat.", Profile: canonical.ProfileTyped, InputSchema: json.RawMessage(`{"type":"object"}`)}
	member := &gatewaytest.SlimFake{
		Seen: func(rpc.Call) { s.note("dock", toolReserve, "") },
		Does: func(m *canonical.Message) canonical.Body {
			switch m.Body.(type) {
			case *canonical.DescribeRequest:
				return &canonical.Description{Name: "dock", Version: "1", Capabilities: []canonical.Capability{boat}}
			case *canonical.Page:
				return &canonical.CapabilityList{Capabilities: []canonical.Capability{boat}}
			default:
				return &canonical.Result{Output: &canonical.Output{Structured: json.RawMessage(`{"boat":"boat-1"}`)}}
			}
		},
	}
	s.SlimAgent(t, net, "dock", "", member)
	agent, _ := s.Directory().Find("dock")
	agent.Undo = directory.Undo{Own: true}
	gatewaytest.Must(t, s.Directory().Put(agent))
	signer := s.Party(t, s.SVID(t, "/dock"))
	member.Rollback = func(token string) string {
		s.note("dock", "rollback", "")
		request, _, err := ect.ParseUnverified(token)
		if err != nil {
			return ""
		}
		return gatewaytest.Signing(t, signer, ect.Claims{
			Act: ect.ActRollbackResult, Audience: []string{s.Self()}, Workflow: request.Workflow, Parents: []ect.ID{request.ID}, Ext: gatewaytest.Restored(request),
		})
	}
}

// aepbctl runs a command of aepbctl as one of the staff, or as the caller of the workflow if role is empty, and returns what it prints.
func (s *wholeStory) aepbctl(t *testing.T, role string, want int, stdin string, args ...string) string {
	t.Helper()
	args = append(args, "--dir", s.Dir, "--gateway", s.At.Public, "--admin", s.At.Admin)
	if role != "" {
		certificate, key := filepath.Join(s.Dir, role+".pem"), filepath.Join(s.Dir, role+"-key.pem")
		gatewaytest.Must(t, s.SVID(t, "/staff/"+role).WritePEM(certificate, key))
		args = append(args, "--cert", certificate, "--key", key)
	}
	commands := func(c *client.Client) []*cobra.Command {
		return slices.Concat(workflowcommands.Commands(c), approvals.Commands(c), evidence.Commands(c))
	}
	var out, failed bytes.Buffer
	if code := program.Run(t.Context(), commands, args, strings.NewReader(stdin), &out, &failed); code != want {
		t.Fatalf("aepbctl %s: exit code %d, expected %d: %s%s", args, code, want, &out, &failed)
	}
	return out.String()
}

// begins stores the plan and begins the workflow after it.
func (s *wholeStory) begins(t *testing.T) (start string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "journey.json")
	gatewaytest.Must(t, os.WriteFile(file, []byte(journey(t)), 0o600))
	s.aepbctl(t, "operator", program.ExitOK, "", "workflow", "put", file)
	var began struct{ WID, JTI string }
	gatewaytest.Must(t, json.Unmarshal([]byte(s.aepbctl(t, "", program.ExitOK, "", "workflow", "begin", "--descriptor", "journey", "-o", "json")), &began))
	s.wid = began.WID
	return began.JTI
}

// step has an A2A client that signs nothing call an agent, and returns the newest token of the answer.
func (s *wholeStory) step(t *testing.T, agent, parent, part string) (last string) {
	t.Helper()
	got := s.call(t, agent, parent, part)
	if got.Status != http.StatusOK {
		t.Fatalf("%s: %d %s", part, got.Status, gatewaytest.Short(got.Body))
	}
	for _, c := range s.Proofs(t, got) {
		last = string(c.ID)
	}
	return last
}

func (s *wholeStory) call(t *testing.T, agent, parent, part string) gatewaytest.Reply {
	t.Helper()
	return s.Send(t, gatewaytest.HTTPRequest{
		At: "/agents/" + agent + "/a2a", Header: map[string]string{"A2A-Version": "1.0", "Aepb-Parent-Jti": parent},
		Body: `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"` + string(ect.NewID()) + `","role":"ROLE_USER","parts":[` + part + `]}}}`,
	})
}

// skill is the part of a message that calls a tool.
func skill(tool, input string) string {
	return `{"data":{"skill":"` + tool + `","input":` + input + `}}`
}

// report is the state of each node.
func (s *wholeStory) report(t *testing.T) (out workflow.Report, states string) {
	t.Helper()
	got := s.Send(t, gatewaytest.HTTPRequest{Method: http.MethodGet, At: "/atd/workflows/" + s.wid, Media: "-"})
	out = gatewaytest.Answered[workflow.Report](t, got, http.StatusOK)
	var all []string
	for _, step := range out.Steps {
		all = append(all, step.Planned+": "+string(step.State))
	}
	return out, strings.Join(all, ", ")
}

// changing is what differs from run to run in a drawing: ids, and how long a step took.
var changing = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b[0-9]+(\.[0-9]+)? (s|ms|min)\b`)

// drawn compares the drawing of the workflow with the one that is stored.
func (s *wholeStory) drawn(t *testing.T, code int, golden string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "workflow.svg")
	s.aepbctl(t, "auditor", code, "", "workflow", s.wid, "--svg", file)
	image, err := os.ReadFile(file)
	gatewaytest.Must(t, err)
	places := map[string]string{}
	got := changing.ReplaceAllFunc(image, func(found []byte) []byte {
		if bytes.Contains(found, []byte(" ")) {
			return []byte("0 s")
		}
		if places[string(found)] == "" {
			places[string(found)] = "token " + strconv.Itoa(len(places)+1)
		}
		return []byte(places[string(found)])
	})
	if *update {
		gatewaytest.Must(t, os.WriteFile(golden, got, 0o600))
	}
	want, err := os.ReadFile(golden)
	gatewaytest.Must(t, err)
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs from what is drawn:\n%s", golden, got)
	}
}

// TestWholeStory_FailureUndoesBranch: a workflow follows a plan over an MCP server, an A2A agent and a SLIM agent, none of which knows the
// gateway. Its fifth step fails: the gateway cancels what was booked, has the SLIM agent roll back itself, leaves a finished branch as it
// is, and waits for an approver at the mail, which cannot be undone. After the grant the workflow is completed.
func TestWholeStory_FailureUndoesBranch(t *testing.T) {
	t.Parallel()
	s := newStory(t)
	start := s.begins(t)
	s.drawn(t, program.ExitOK, "testdata/whole_story_before.svg")
	if _, states := s.report(t); states != "offers: pending, mail: pending, other cabin: pending, cabin: pending, boat: pending, payment: pending" {
		t.Errorf("before the first call: %s", states)
	}

	offers := s.step(t, "agency", start, skill(toolOffers, `{}`))
	other := s.step(t, "agency", offers, skill(toolBook, `{"guest":"Alan"}`))
	mail := s.step(t, "post", offers, `{"text":"we are coming"}`)
	cabin := s.step(t, "agency", mail, skill(toolBook, `{"guest":"Ada"}`))
	boat := s.step(t, "dock", cabin, skill(toolReserve, `{}`))
	s.step(t, "agency", boat, skill(toolPay, `{}`))

	id := s.waits(t)
	s.drawn(t, program.ExitFailed, "testdata/whole_story_during.svg")
	const undone = "offers: done, other cabin: done, mail: done, cabin: rolled_back, boat: rolled_back, payment: escalated"
	if _, states := s.report(t); states != undone {
		t.Errorf("while an approver is waited for: %s", states)
	}
	if level := s.Gateway().Parts().Levels.Of(s.wid).Mode; level != hitl.Paused {
		t.Errorf("while an approver is waited for the workflow is %s", level)
	}
	if got := s.call(t, "agency", other, skill(toolOffers, `{}`)); !bytes.Contains(got.Body, []byte(`"code":"paused"`)) {
		t.Errorf("new work while an approver is waited for: %d %s", got.Status, got.Body)
	}

	s.grants(t, id)
	gatewaytest.Within(t, gatewaytest.Patience, "the workflow goes on", func() bool {
		return s.Gateway().Parts().Levels.Of(s.wid).Mode == hitl.Running
	})
	s.step(t, "agency", other, skill(toolOffers, `{}`))
	s.aepbctl(t, "", program.ExitOK, "", "workflow", "complete", s.wid)
	s.drawn(t, program.ExitFailed, "../../docs/whole-story.svg")
	const ended = "offers: done, other cabin: done, mail: done, : done, cabin: rolled_back, boat: rolled_back, payment: escalated"
	if report, states := s.report(t); states != ended || report.Declared != workflow.StatusEscalated {
		t.Errorf("at the end, %s: %s", report.Declared, states)
	}
	s.judges(t)
	s.verifies(t)
}

// waits waits for the approval that the rollback opens, and returns its id.
func (s *wholeStory) waits(t *testing.T) (id string) {
	t.Helper()
	gatewaytest.Within(t, gatewaytest.Patience, "an approval", func() bool {
		var page struct{ Approvals []struct{ ID string } }
		gatewaytest.Must(t, json.Unmarshal([]byte(s.aepbctl(t, "approver", program.ExitOK, "", "approvals", "list", "-o", "json")), &page))
		if len(page.Approvals) > 0 {
			id = page.Approvals[0].ID
		}
		return len(page.Approvals) == 1
	})
	return id
}

// grants has the approver read the text of an approval, and approve it.
func (s *wholeStory) grants(t *testing.T, id string) {
	t.Helper()
	var one struct{ Shown, Text string }
	gatewaytest.Must(t, json.Unmarshal([]byte(s.aepbctl(t, "approver", program.ExitOK, "", "approvals", "show", id, "-o", "json")), &one))
	if !strings.Contains(one.Text, `"agent": "post"`) || !strings.Contains(one.Text, "\ndeny: the workflow is stopped.\n") {
		t.Errorf("the approver reads %q, expected the agent whose work cannot be undone, and what follows", one.Text)
	}
	s.aepbctl(t, "approver", program.ExitOK, "", "approvals", "approve", id, "--yes", "--shown", one.Shown, "--reason", "the mail can stay")
}

// judges compares what the agents got with what they are to get, in order.
func (s *wholeStory) judges(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	want := []string{
		"agency list_offers {}", `agency book_cabin {"guest":"Alan"}`, `agency book_cabin {"guest":"Ada"}`, "dock reserve ", "agency pay {}",
		"dock rollback ", `agency cancel_cabin {"cabin":"cabin-2"}`, "agency list_offers {}",
	}
	if !slices.Equal(s.got, want) {
		t.Errorf("the agents got\n%q, expected\n%q", s.got, want)
	}
	if len(s.cabins) != 1 || s.cabins["cabin-1"] != "Alan" {
		t.Errorf("booked are %v, expected the cabin of the finished branch", s.cabins)
	}
	mails := 0
	for _, r := range s.post.Received() {
		if bytes.Contains(r.Body, []byte("we are coming")) {
			mails++
		}
	}
	if mails != 1 {
		t.Errorf("the mail was sent %d times", mails)
	}
}

// verifies has an auditor verify the tokens of the workflow offline.
func (s *wholeStory) verifies(t *testing.T) {
	t.Helper()
	tokens := s.aepbctl(t, "auditor", program.ExitOK, "", "dag", s.wid, "-o", "json")
	verdict := s.aepbctl(t, "", program.ExitOK, tokens, "ect", "verify", "--signer", s.Self())
	if strings.Contains(verdict, "NOT VERIFIED") {
		t.Errorf("the auditor says %s", verdict)
	}
	s.aepbctl(t, "", program.ExitFailed, strings.Replace(tokens, ".", ".e", 1), "ect", "verify", "--signer", s.Self())
	acts := map[ect.Act]int{}
	for _, claims := range workflowFixture(t, s.Fixture, s.Client, s.wid) {
		acts[claims.Act]++
		if status, _ := claims.Ext.String(ect.ExtStatus); claims.Act == ect.ActRollbackResult && status != "completed" {
			t.Errorf("the rollback, or a step of it, is %s", status)
		}
	}
	// A result of the dock, one of each step that is undone, and one of all.
	for act, n := range map[ect.Act]int{
		ect.ActWorkflowStart: 1, ect.ActCheckpoint: 5, ect.ActError: 1, ect.ActRollbackResult: 4, ect.ActApprovalGranted: 2, ect.ActWorkflowComplete: 1,
	} {
		if acts[act] != n {
			t.Errorf("%d tokens say %s, expected %d", acts[act], act, n)
		}
	}
}
