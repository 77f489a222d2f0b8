package approvals

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
	"unicode"

	"github.com/google/uuid"

	"github.com/aepb/aepb-gateway/test/harness/wait"
)

const (
	maxBody    = 4 << 20
	sendTime   = 15 * time.Second // one request
	patience   = 40 * time.Second // until one of the replicas answers
	retryEvery = 100 * time.Millisecond
	askEvery   = 250 * time.Millisecond
	// endsIn is how long a call may take to end: it waits, then for its release, then until its replica is known
	// to be lost and another one looks.
	endsIn = 2*waits + 45*time.Second
)

// What becomes of a call; its key begins with it.
const (
	wantGrant = "grant-"
	wantDeny  = "deny-"
	wantLeave = "leave-"
)

const (
	kindA2A       = "a2a"
	kindMCP       = "mcp"
	kindTranslate = "translate"
)

// call is one call, and how it went.
type call struct {
	kind, key string
	workflow  string // of translate, which names one

	approval string // the last one that the caller was told of
	task     string // of A2A; empty: its caller was not told
	state    string // of the task, or of any other call as the state* below
	why      string
	failure  string // what was wrong
}

// waits reports whether the caller gets a task. Any other one sends its call again.
func (c *call) waits() bool { return c.kind != kindMCP }

// The ends of calls that are no tasks.
const (
	endResult  = "result"
	endRefused = "refused" // denied, or not decided about
	endUnclear = "unclear" // an error that is not about the approval
)

// answer is what one request came to.
type answer struct {
	status int
	text   string
}

// approval is the id in the path that an answer names; empty: none.
func (a answer) approval() string {
	_, id, _ := strings.Cut(a.text, "/hitl/approvals/")
	if end := strings.IndexFunc(id, func(r rune) bool { return r != '-' && !unicode.IsLetter(r) && !unicode.IsDigit(r) }); end >= 0 {
		id = id[:end]
	}
	return id
}

// post sends a body to one replica.
func (g *group) post(ctx context.Context, replica int, path string, fields map[string]string, body []byte) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, sendTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.Public(replica)+path, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for name, value := range fields {
		req.Header.Set(name, value)
	}
	resp, err := g.HTTP.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	return answer{resp.StatusCode, string(text)}, err
}

// send sends the call of whatever kind once.
func (g *group) send(ctx context.Context, c *call, replica int) (answer, error) {
	part := map[string]any{"data": map[string]any{"skill": tool, "input": map[string]any{"key": c.key}}, "mediaType": "application/json"}
	message := map[string]any{"message": map[string]any{"messageId": uuid.NewString(), "role": "ROLE_USER", "parts": []any{part}}}
	switch c.kind {
	case kindMCP:
		body, err := rpc("tools/call", map[string]any{"name": tool, "arguments": map[string]any{"key": c.key}, "_meta": map[string]any{
			"io.modelcontextprotocol/protocolVersion":    modern,
			"io.modelcontextprotocol/clientInfo":         map[string]any{"name": "chaos", "version": "1"},
			"io.modelcontextprotocol/clientCapabilities": map[string]any{},
		}})
		if err != nil {
			return answer{}, err
		}
		return g.post(ctx, replica, "/agents/agent/mcp", map[string]string{"Mcp-Protocol-Version": modern, "Mcp-Method": "tools/call", "Mcp-Name": tool}, body)
	case kindTranslate:
		body, err := rpc("SendMessage", message)
		if err != nil {
			return answer{}, err
		}
		token, err := g.minter.Mint(string(body), c.workflow, time.Minute)
		if err != nil {
			return answer{}, err
		}
		return g.post(ctx, replica, "/aepb/translate?from=a2a-v1&dest=agent", map[string]string{"Execution-Context": token}, body)
	}
	return g.a2a(ctx, replica, "SendMessage", message)
}

const modern = "2026-07-28"

func rpc(method string, params map[string]any) ([]byte, error) {
	return json.Marshal(map[string]any{"jsonrpc": "2.0", "id": uuid.NewString(), "method": method, "params": params})
}

func (g *group) a2a(ctx context.Context, replica int, method string, params map[string]any) (answer, error) {
	body, err := rpc(method, params)
	if err != nil {
		return answer{}, err
	}
	return g.post(ctx, replica, "/agents/agent/a2a", map[string]string{"A2A-Version": "1.0"}, body)
}

// run makes a call from its first message to its end. Its first requests go to one replica, which may be killed.
func (g *group) run(ctx context.Context, c *call, r *round) {
	ctx, cancel := context.WithTimeout(ctx, endsIn)
	defer cancel()
	g.journal.expect(c.key, r.reaching(answering))
	r.reach(parking)
	a, err := g.send(ctx, c, r.replica)
	if c.waits() {
		g.runTask(ctx, c, r, a, err)
		return
	}
	for n := r.replica; ; n++ {
		switch id := a.approval(); {
		case err != nil, a.status >= http.StatusInternalServerError: // another replica may answer
		case strings.Contains(a.text, done(c.key)):
			c.state = endResult
			return
		case id == "" || strings.Contains(a.text, "approval_refused"):
			c.state, c.why = endRefused, fmt.Sprintf("%d %.300s", a.status, a.text)
			if id == "" {
				c.state = endUnclear
			}
			return
		case id != c.approval:
			c.approval = id
			if c.failure = g.approve(ctx, c, r); c.failure != "" {
				return
			}
			n = r.replica - 1 + g.Replicas // it is sent again to that replica
			r.reach(releasing)
		}
		if strings.HasPrefix(c.key, wantLeave) && c.approval != "" {
			c.state = endRefused // its caller gives up
			return
		}
		if !wait.Pause(ctx, retryEvery) {
			c.failure = fmt.Sprintf("it did not end in %s: %d %.300s %v", endsIn, a.status, a.text, err)
			return
		}
		a, err = g.send(ctx, c, (n+1)%g.Replicas)
	}
}

// approve decides about the approval of a call, at first at the replica of the round.
func (g *group) approve(ctx context.Context, c *call, r *round) string {
	a, err := g.show(ctx, r.replica, c.approval)
	if err == nil {
		err = g.decide(ctx, r.replica, a, r.reaching(deciding))
	}
	if err != nil {
		return "it could not be decided: " + err.Error()
	}
	return ""
}

// runTask follows a task to its end.
func (g *group) runTask(ctx context.Context, c *call, r *round, a answer, err error) {
	var t taskState
	if err != nil || !t.read(a.text) {
		c.why = fmt.Sprintf("%d %.300s %v", a.status, a.text, err)
		return // its caller was not told of a task
	}
	c.task, c.approval = t.id, a.approval()
	if c.approval == "" {
		c.failure = fmt.Sprintf("its task does not say for which approval it waits: %.300s", a.text)
		return
	}
	if c.failure = g.approve(ctx, c, r); c.failure != "" {
		return
	}
	r.reach(releasing)
	for n := r.replica; ; n++ {
		a, err = g.a2a(ctx, n%g.Replicas, "GetTask", map[string]any{"id": c.task})
		if err == nil && t.read(a.text) {
			c.state, c.why = t.state, t.why
			if t.state == taskDone && !strings.Contains(a.text, done(c.key)) {
				c.failure = fmt.Sprintf("it is completed without the agent's answer: %.300s", a.text)
			}
			if t.over() {
				return
			}
		} else if err == nil && a.status < http.StatusInternalServerError {
			c.failure = fmt.Sprintf("its task is not known: %d %.300s", a.status, a.text)
			return
		}
		if !wait.Pause(ctx, askEvery) {
			c.failure = fmt.Sprintf("its task did not end in %s, it is %s: %.300s %v", endsIn, c.state, a.text, err)
			return
		}
	}
}

// taskState is as much of an A2A task as is needed.
type taskState struct{ id, state, why string }

const (
	taskDone     = "TASK_STATE_COMPLETED"
	taskFailed   = "TASK_STATE_FAILED"
	taskRejected = "TASK_STATE_REJECTED"
)

func (t *taskState) over() bool {
	return t.state == taskDone || t.state == taskFailed || t.state == taskRejected || t.state == "TASK_STATE_CANCELED"
}

// read takes the task of an answer; false: it has none.
func (t *taskState) read(text string) bool {
	type task struct {
		ID     string `json:"id"`
		Status struct {
			State   string          `json:"state"`
			Message json.RawMessage `json:"message"`
		} `json:"status"`
	}
	var m struct {
		Result struct {
			task

			Task *task `json:"task"`
		} `json:"result"`
	}
	if json.Unmarshal([]byte(text), &m) != nil {
		return false
	}
	found := m.Result.task
	if m.Result.Task != nil {
		found = *m.Result.Task
	}
	t.id, t.state, t.why = found.ID, found.Status.State, string(found.Status.Message)
	return t.id != ""
}
