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

// PlayRollback has a caller book a table at an MCP server that knows nothing of rollbacks, has the next step fail, shows what a rollback would do, rolls
// back, and verifies the evidence.
func (s *Stage) PlayRollback(ctx context.Context, with Scene) error {
	f := s.open(with)
	f.say("1. A caller begins a workflow. The operator has said in the configuration that %s undoes %s.", CancelTool, BookTool)
	got, _ := f.send(ctx, http.MethodPost, f.stage.publicURL+"/atd/workflows", `{"description":"dinner for two"}`, http.StatusCreated)
	var begun struct{ WID, JTI string }
	f.decode(got, &begun)
	f.evidence(ctx, ect.ActWorkflowStart)

	f.say("2. An unmodified A2A client has a table booked. Before the call leaves, the gateway keeps what is needed to undo it.")
	parent, checkpoint := f.step(ctx, BookTool, `{"name":"Ada"}`, begun.JTI)
	f.evidence(ctx, ect.ActCheckpoint)

	f.say("3. The next step fails: the table is booked, and it should not be.")
	f.step(ctx, PayTool, `{"booking":"table-1"}`, parent)
	f.bookings(ctx)

	f.say("4. What would a rollback do? Nothing happens yet.")
	got, _ = f.send(ctx, http.MethodPost, f.Admin+"/api/rollbacks", fmt.Sprintf(`{"checkpoint":%q,"cascade":true,"plan":true}`, checkpoint), http.StatusOK)
	var plan struct {
		Steps  []struct{ Checkpoint, Agent, How string }
		Agents []string
		By     time.Time
	}
	f.decode(got, &plan)
	for _, step := range plan.Steps {
		f.say("   │ %s at %s, checkpoint %s", step.How, step.Agent, step.Checkpoint)
	}
	f.say("   │ agents: %s; by %s", strings.Join(plan.Agents, ", "), plan.By.Format(time.RFC3339))

	f.say("5. The operator rolls back. The gateway sends the compensating call, with what the booking returned.")
	f.rollBack(ctx, checkpoint)
	f.evidence(ctx, ect.ActRollbackRequest)
	f.bookings(ctx)

	f.prove(ctx)
	return f.err
}

// step calls a tool after an earlier step, and returns the token of the answer and that of the checkpoint.
func (f *scene) step(ctx context.Context, tool, input, after string) (reply, checkpoint string) {
	body := fmt.Sprintf(`{"message":{"messageId":%q,"role":"ROLE_USER","parts":[{"data":{"skill":%q,"input":%s}}]}}`, tool, tool, input)
	got, header := f.sendWith(ctx, http.MethodPost, f.stage.publicURL+"/agents/calculator/a2a/message:send", body, http.StatusOK, http.Header{"Aepb-Parent-Jti": {after}})
	for _, token := range header.Values(ect.HeaderName) {
		claims, _, err := ect.ParseUnverified(token)
		if err != nil && f.err == nil {
			f.err = err
		}
		if reply = string(claims.ID); claims.Act == ect.ActCheckpoint {
			checkpoint = reply
		}
	}
	f.say("   %s", shorten(string(got)))
	if checkpoint != "" {
		f.say("   Aepb-Reversible: %s", header.Get("Aepb-Reversible"))
	}
	return reply, checkpoint
}

// bookings shows what is booked.
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
				f.say("   booked now: %s", part.Data)
			}
		}
	}
}

// rollBack rolls back, and waits for the end.
func (f *scene) rollBack(ctx context.Context, checkpoint string) {
	got, _ := f.send(ctx, http.MethodPost, f.Admin+"/api/rollbacks", fmt.Sprintf(`{"checkpoint":%q,"cascade":true,"reason":"the deposit cannot be paid"}`, checkpoint), http.StatusAccepted)
	for f.err == nil {
		var view struct {
			WID, Request, Status, ECT string
			Steps                     []struct{ Agent, State string }
		}
		f.decode(got, &view)
		if view.Status != "" {
			for _, step := range view.Steps {
				f.say("   %s: %s", step.Agent, step.State)
			}
			f.say("   the rollback is %s", view.Status)
			f.tokens = append(f.tokens, view.ECT)
			if view.Status != "completed" && f.err == nil {
				f.err = fmt.Errorf("the rollback ended as %s, expected completed", view.Status)
			}
			return
		}
		select {
		case <-time.After(pollEvery):
		case <-ctx.Done():
			f.err = fmt.Errorf("the rollback has not ended: %w", ctx.Err())
		}
		got, _ = f.send(ctx, http.MethodGet, f.Admin+"/api/rollbacks/"+view.WID+"/"+view.Request, "", http.StatusOK)
	}
}
