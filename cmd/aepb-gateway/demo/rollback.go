package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/aepb/aepb-gateway/ect"
)

// The tools of the booking office in the scene of rollbacks.
const (
	BookTool   = "book_table"
	CancelTool = "cancel_booking"
	PayTool    = "pay_deposit"
)

// office is what the booking tools of an MCP server keep. The server knows nothing of rollbacks.
type office struct {
	mu     sync.Mutex
	serial int
	booked map[string]string // names, by the id of the booking
}

// addBookings adds the tools of a booking office to an MCP server.
func addBookings(s *mcp.Server) {
	o := &office{booked: map[string]string{}}
	schema := func(members string) json.RawMessage {
		return json.RawMessage(`{"type":"object","properties":{` + members + `},"additionalProperties":false}`)
	}
	for name, t := range map[string]struct {
		members string
		call    func(in map[string]string) (result string, failed bool)
	}{
		BookTool:        {`"name":{"type":"string"}`, o.book},
		CancelTool:      {`"booking":{"type":"string"}`, o.cancel},
		PayTool:         {`"booking":{"type":"string"}`, func(map[string]string) (string, bool) { return "the card was declined", true }},
		"list_bookings": {``, o.list},
	} {
		s.AddTool(&mcp.Tool{Name: name, InputSchema: schema(t.members)}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			in := map[string]string{}
			if err := json.Unmarshal(r.Params.Arguments, &in); err != nil {
				return nil, err
			}
			text, failed := t.call(in)
			result := &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}, IsError: failed}
			if !failed {
				result.StructuredContent = json.RawMessage(text)
			}
			return result, nil
		})
	}
}

func (o *office) book(in map[string]string) (string, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.serial++
	id := fmt.Sprintf("table-%d", o.serial)
	o.booked[id] = in["name"]
	return fmt.Sprintf(`{"booking":%q}`, id), false
}

func (o *office) cancel(in map[string]string) (string, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, there := o.booked[in["booking"]]; !there {
		return "there is no such booking", true
	}
	delete(o.booked, in["booking"])
	return `{"canceled":true}`, false
}

func (o *office) list(map[string]string) (string, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	text, err := json.Marshal(map[string][]string{"bookings": append([]string{}, slices.Sorted(maps.Keys(o.booked))...)})
	return string(text), err != nil
}

// CascadePolicy is the policy document of the scene of rollbacks.
const CascadePolicy = `{"constraints":{"atd.cascade":true}}`

// PlayRollback has a caller begin a workflow over agents of three protocols, in which a step fails. The gateway undoes what led to that, leaves the rest,
// and waits for an approver at what cannot be undone. The approver grants that, and all evidence of the workflow is verified.
func (s *Stage) PlayRollback(ctx context.Context, with Scene) error {
	f := s.open(with)
	f.say("1. A caller begins a workflow. The policy document of the operator is %s: a failure undoes what led to it.", CascadePolicy)
	got, _ := f.send(ctx, http.MethodPost, f.stage.publicURL+"/atd/workflows", `{"description":"dinner for two"}`, http.StatusCreated)
	var begun struct{ WID, JTI string }
	f.decode(got, &begun)

	f.say("2. An unmodified A2A client has a table booked for Alan. That is a branch of its own, and is done.")
	f.step(ctx, "calculator", BookTool, `{"data":{"skill":"book_table","input":{"name":"Alan"}}}`, begun.JTI)
	f.say("3. Three more steps follow from each other, at agents of A2A, MCP and µACP.")
	last := f.step(ctx, "concierge", "mail", `{"text":"We are coming!"}`, begun.JTI)
	last = f.step(ctx, "calculator", BookTool, `{"data":{"skill":"book_table","input":{"name":"Ada"}}}`, last)
	last = f.step(ctx, DockName, ReserveTool, `{"data":{"skill":"reserve_boat","input":{}}}`, last)
	f.bookings(ctx)

	f.say("4. The next step fails.")
	f.step(ctx, "calculator", PayTool, `{"data":{"skill":"pay_deposit","input":{}}}`, last)

	f.say("5. Without a request of anyone, the dock is asked to roll back itself, and %s undoes the booking of Ada.", CancelTool)
	f.evidence(ctx, ect.ActRollbackRequest)
	id, shown, text := f.waits(ctx)
	f.bookings(ctx)

	f.say("6. The mail cannot be undone: the workflow is paused. An approver reads what is left, and lets it stay.")
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "words:") || strings.HasPrefix(line, "approve:") || strings.HasPrefix(line, "deny:") || strings.Contains(line, `"agent":`) {
			f.say("   │ %s", strings.TrimSpace(line))
		}
	}
	f.decide(ctx, id, shown, "approve")
	f.evidence(ctx, ect.ActApprovalGranted)
	f.states(ctx, begun.WID)
	return f.err
}

// step has an agent do something after an earlier step, and returns the token of the answer.
func (f *scene) step(ctx context.Context, agent, what, part, after string) (last string) {
	body := fmt.Sprintf(`{"message":{"messageId":%q,"role":"ROLE_USER","parts":[%s]}}`, ect.NewID(), part)
	_, header := f.sendWith(ctx, http.MethodPost, f.stage.publicURL+"/agents/"+agent+"/a2a/message:send", body, http.StatusOK, http.Header{"Aepb-Parent-Jti": {after}})
	for _, token := range header.Values(ect.HeaderName) {
		claims, _, err := ect.ParseUnverified(token)
		if err != nil && f.err == nil {
			f.err = err
		}
		last = string(claims.ID)
	}
	f.say("   %-14s at %-11s Aepb-Reversible: %s", what, agent, header.Get("Aepb-Reversible"))
	return last
}

// bookings shows what is booked and reserved.
func (f *scene) bookings(ctx context.Context) {
	body := `{"message":{"messageId":"list","role":"ROLE_USER","parts":[{"data":{"skill":"list_bookings","input":{}}}]}}`
	got, _ := f.send(ctx, http.MethodPost, f.stage.publicURL+"/agents/calculator/a2a/message:send", body, http.StatusOK)
	var reply struct {
		Task struct {
			Artifacts []struct {
				Parts []struct{ Data json.RawMessage }
			}
		}
	}
	f.decode(got, &reply)
	for _, artifact := range reply.Task.Artifacts {
		for _, part := range artifact.Parts {
			if part.Data != nil {
				f.say("   booked now: %s, boats reserved: %d", part.Data, f.stage.dock.boats())
			}
		}
	}
}

// waits waits until the rollback has left something to an approver: an approval, with what the approver reads.
func (f *scene) waits(ctx context.Context) (id, shown, text string) {
	for f.err == nil {
		got, _ := f.send(ctx, http.MethodGet, f.Admin+"/api/approvals?state=pending", "", http.StatusOK)
		var list struct{ Approvals []struct{ ID string } }
		if f.decode(got, &list); len(list.Approvals) > 0 {
			return f.fetch(ctx)
		}
		select {
		case <-time.After(pollEvery):
		case <-ctx.Done():
			f.err = fmt.Errorf("no approval waits: %w", ctx.Err())
		}
	}
	return "", "", ""
}

// states shows the steps of a workflow, and verifies all of its evidence offline.
func (f *scene) states(ctx context.Context, wid string) {
	got, _ := f.send(ctx, http.MethodGet, f.stage.publicURL+"/atd/workflows/"+wid, "", http.StatusOK)
	var report struct {
		Steps []struct {
			Agents []string
			State  string
		}
	}
	f.decode(got, &report)
	for _, step := range report.Steps {
		f.say("   %-11s %s", step.State, strings.Join(step.Agents, ", "))
	}
	got, _ = f.send(ctx, http.MethodGet, f.stage.publicURL+"/workflows/"+wid, "", http.StatusOK)
	var page struct{ ECTs []string }
	f.decode(got, &page)
	if f.tokens = page.ECTs; f.err != nil {
		return
	}
	verified, err := f.stage.verify(ctx, f.tokens)
	f.err = err
	f.say("All %d ECTs of the workflow verified against the trust bundle.", len(verified))
}
