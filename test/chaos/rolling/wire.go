package rolling

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"time"

	"github.com/google/uuid"
)

// The wire: just as much of A2A 1.0 and of MCP 2026-07-28 as a caller needs who takes its
// work up again. The SDKs have no words for that: they hide the header fields, the
// trailers and the status of an answer.

// event is a task of A2A, or what is said of one in a stream or to a webhook.
type event struct {
	Task     *task `json:"task"`
	Status   *task `json:"statusUpdate"`
	Artifact *task `json:"artifactUpdate"`
}

// task is a task of A2A, in any of its shapes.
type task struct {
	ID        string `json:"id"`
	TaskID    string `json:"taskId"`
	Status    status `json:"status"`
	Artifacts []struct {
		Parts []part `json:"parts"`
	} `json:"artifacts"`
}

type status struct {
	State   string `json:"state"`
	Message struct {
		Parts []part `json:"parts"`
	} `json:"message"`
}

// mcpTask is a task of MCP, of either revision.
type mcpTask struct {
	ID      string          `json:"taskId"`
	Status  string          `json:"status"`
	Message string          `json:"statusMessage"`
	Result  json.RawMessage `json:"result"`
	Error   json.RawMessage `json:"error"`
	Task    *mcpTask        `json:"task"` // around what 2025-11-25 acknowledges
}

type part struct {
	Text string `json:"text"`
}

const (
	stateAsks     = "TASK_STATE_INPUT_REQUIRED"
	stateDone     = "TASK_STATE_COMPLETED"
	stateFailed   = "TASK_STATE_FAILED"
	stateCanceled = "TASK_STATE_CANCELED"
)

func ended(state string) bool {
	return state == stateDone || state == stateFailed || state == stateCanceled || state == "TASK_STATE_REJECTED"
}

// state is the state that an event tells, if any.
func (e event) state() string {
	switch {
	case e.Task != nil:
		return e.Task.Status.State
	case e.Status != nil:
		return e.Status.Status.State
	default:
		return ""
	}
}

// id is the task that an event is about.
func (e event) id() string {
	for _, t := range []*task{e.Task, e.Status, e.Artifact} {
		if t != nil {
			return t.ID + t.TaskID
		}
	}
	return ""
}

// why is what a task's status says.
func (t *task) why() string {
	var output []string
	for _, p := range t.Status.Message.Parts {
		output = append(output, p.Text)
	}
	return strings.Join(output, " ")
}

// text is what came of a task.
func (t *task) text() string {
	var output []string
	for _, a := range t.Artifacts {
		for _, p := range a.Parts {
			output = append(output, p.Text)
		}
	}
	return strings.Join(append(output, t.why()), " ")
}

// reply is an answer of JSON-RPC.
type reply struct {
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// replyIn reads the last message of an answer, which may be a stream.
func replyIn(body []byte) (r reply, err error) {
	if bytes.HasPrefix(bytes.TrimSpace(body), []byte("{")) {
		return r, json.Unmarshal(body, &r)
	}
	last, _, err := eachData(bytes.NewReader(body), nil)
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(last, &r)
}

// eachData reads the events of a stream until it ends, or each says that it has
// enough: true. last is the newest one.
func eachData(r io.Reader, each func(data []byte) bool) (last []byte, enough bool, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxBody)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data:")
		if !ok || strings.TrimSpace(data) == "" {
			continue
		}
		if last = []byte(data); each != nil && each(last) {
			enough = true // what follows is the end, and the trailer
		}
	}
	return last, enough, lines.Err()
}

// answer reads what an A2A answer says of a task; nil: nothing.
func (r reply) answer() *task {
	var e event
	var t task
	switch {
	case r.Error != nil:
		return nil
	case json.Unmarshal(r.Result, &e) == nil && e.Task != nil:
		return e.Task
	case json.Unmarshal(r.Result, &t) == nil && t.ID != "":
		return &t
	default:
		return nil
	}
}

// request is what a caller asks: method and params at a door.
type request struct {
	agent, protocol, method string
	params                  map[string]any
	name                    string // of MCP: what the header field repeats
	tasks                   bool   // of MCP: the caller understands tasks
	silent                  bool   // it is a notification
}

const (
	modern = "2026-07-28"
	legacy = "2025-11-25"
)

func (q request) body() ([]byte, error) {
	params := q.params
	if q.tasks && q.protocol == protocolLegacy {
		params["task"] = map[string]any{"ttl": time.Minute.Milliseconds()}
	}
	if q.protocol == protocolMCP {
		extensions := map[string]any{}
		if q.tasks {
			extensions["io.modelcontextprotocol/tasks"] = map[string]any{}
		}
		params["_meta"] = map[string]any{
			"io.modelcontextprotocol/protocolVersion": modern,
			"io.modelcontextprotocol/clientInfo":      map[string]any{"name": "chaos", "version": "1"},
			"io.modelcontextprotocol/clientCapabilities": map[string]any{
				"elicitation": map[string]any{"form": map[string]any{}}, "extensions": extensions,
			},
		}
	}
	m := map[string]any{"jsonrpc": "2.0", "id": uuid.NewString(), "method": q.method, "params": params}
	if q.silent {
		delete(m, "id")
	}
	return json.Marshal(m)
}
