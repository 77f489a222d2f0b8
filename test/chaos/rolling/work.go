package rolling

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/aepb/aepb-gateway/test/harness/wait"
)

const (
	askEvery = 250 * time.Millisecond
	endsIn   = 30 * time.Second // from its beginning all work has to end in that: until a dead gateway is known to be, and until another looks for its work
)

// work is one thing that a caller wants done, and how it went.
type work struct {
	what               string // call, stream, task, question, pushed
	protocol, agent    string
	abrupt             bool   // it was under way when gateways were killed
	key                string // of the attempt that was acknowledged
	task               string // by which it is known, in the protocol of its caller
	at                 int    // the replica that acknowledged it
	broken             bool   // its stream was taken up elsewhere
	state, output, why string // how it ended
	wrong              []string
	turn               *request // which answers the question
}

func (w *work) kind() string { return w.what + " " + w.protocol + " > " + w.agent }

// mayBreak: the agent cannot be asked about the work again, so that it breaks with the
// connection of the gateway that is killed, or that stops before the answer comes.
func (w *work) mayBreak() bool { return w.agent == agentTools && w.abrupt || w.agent == agentHeld }

func (w *work) fails(format string, args ...any) {
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
}

// done: the work ended well.
func (w *work) done(output string) { w.state, w.output = stateDone, output }

// asking is the request for a job in the words of protocol and agent.
func asking(protocol, agent string, j job, hook string) request {
	arguments := map[string]any{"message": j.text()}
	tool := "work"
	switch agent {
	case agentTools, agentHeld:
		tool, arguments = j.How, map[string]any{"key": j.Key, "ms": j.Takes}
	case agentTasks:
		tool, arguments = taskingTool, map[string]any{"seconds": j.takes().Seconds(), "label": j.Key}
		if j.How == howAsk {
			tool, arguments = askingTool, map[string]any{"filename": j.Key}
		}
	}
	if protocol != protocolA2A {
		return request{
			agent: agent, protocol: protocol, method: "tools/call", name: tool, tasks: j.How == howSlow,
			params: map[string]any{"name": tool, "arguments": arguments},
		}
	}
	parts := map[string]any{"data": map[string]any{"skill": tool, "input": arguments}, "mediaType": "application/json"}
	if agent == agentWorker {
		parts = map[string]any{"text": j.text()}
	}
	settings := map[string]any{"returnImmediately": j.How == howSlow}
	if hook != "" {
		settings["taskPushNotificationConfig"] = map[string]any{"id": "p", "url": hook + "/" + j.Key}
	}
	return request{agent: agent, protocol: protocol, method: "SendMessage", params: map[string]any{
		"message":       map[string]any{"messageId": uuid.NewString(), "role": "ROLE_USER", "parts": []any{parts}},
		"configuration": settings,
	}}
}

// attempts builds the requests of one piece of work: each has a key of its own, so that
// it is seen which of them was done.
func (w *work) attempts(how string, takes time.Duration, hook string) func(int) request {
	return func(int) request {
		w.key = uuid.NewString()
		return asking(w.protocol, w.agent, job{how, w.key, int(takes.Milliseconds())}, hook)
	}
}

// call is one call, with an answer at once.
func (c *caller) call(ctx context.Context, w *work) {
	r, at, err := c.ask(ctx, w.at, w.attempts(howQuick, 0, ""))
	if w.at = at; err != nil {
		w.fails("a client that retried once was told: %s", err)
		return
	}
	w.done(string(r.Result))
}

// wait is one call whose answer takes a while.
func (c *caller) wait(ctx context.Context, w *work, takes time.Duration) {
	build := w.attempts(howSlow, takes, "")
	r, at, err := c.ask(ctx, w.at, func(attempt int) request {
		q := build(attempt)
		delete(q.params, "configuration")
		q.tasks = false
		return q
	})
	if w.at = at; err != nil {
		w.fails("a client that retried once was told: %s", err)
		return
	}
	if t := r.answer(); t != nil {
		w.state, w.output, w.why = t.Status.State, t.text(), t.why()
		return
	}
	w.done(string(r.Result))
}

// begin has work acknowledged.
func (c *caller) begin(ctx context.Context, w *work, takes time.Duration, hook string) {
	r, at, err := c.ask(ctx, w.at, w.attempts(howSlow, takes, hook))
	if w.at = at; err != nil {
		w.fails("it was not acknowledged: %s", err)
		return
	}
	var m mcpTask
	switch t := r.answer(); {
	case w.protocol == protocolA2A && t != nil:
		w.task = t.ID
	case w.protocol != protocolA2A && json.Unmarshal(r.Result, &m) == nil:
		if w.task = m.ID; m.Task != nil {
			w.task = m.Task.ID
		}
	}
	if w.task == "" {
		w.fails("it is no task: %.200s", r.Result)
	}
}

// finish asks about work until that has ended, a different replica each time.
func (c *caller) finish(ctx context.Context, w *work) {
	ctx, cancel := context.WithTimeout(ctx, endsIn)
	defer cancel()
	for n := 0; ; n++ {
		settled, err := c.look(ctx, w, c.fleet.other(w.at, n))
		switch {
		case err != nil && ctx.Err() != nil, err == nil && !settled && !wait.Pause(ctx, askEvery):
			w.fails("it did not end in %s: %s", endsIn, w.state)
			return
		case err != nil:
			w.fails("asked about it, a client that retried once was told: %s", err)
			return
		case settled:
			return
		}
	}
}

// look asks how work stands.
func (c *caller) look(ctx context.Context, w *work, replica int) (settled bool, err error) {
	q := request{agent: w.agent, protocol: w.protocol, method: "GetTask", params: map[string]any{"id": w.task}}
	switch w.protocol {
	case protocolMCP:
		q.method, q.name, q.tasks, q.params = "tasks/get", w.task, true, map[string]any{"taskId": w.task}
	case protocolLegacy:
		q.method, q.params = "tasks/get", map[string]any{"taskId": w.task}
	}
	r, _, err := c.ask(ctx, replica, same(q))
	if err != nil {
		return false, err
	}
	if w.protocol != protocolA2A {
		settled, err := w.heardMCP(r.Result)
		if err == nil && w.state == stateDone && w.protocol == protocolLegacy {
			q.method = "tasks/result"
			r, _, err = c.ask(ctx, replica, same(q))
			w.output = string(r.Result)
		}
		return settled, err
	}
	t := r.answer()
	if t == nil {
		return false, fmt.Errorf("no task: %.200s", r.Result)
	}
	w.state, w.output, w.why = t.Status.State, t.text(), t.why()
	return ended(w.state), nil
}

// heardMCP takes what tasks/get says.
func (w *work) heardMCP(result []byte) (settled bool, err error) {
	var t mcpTask
	if err := json.Unmarshal(result, &t); err != nil {
		return false, err
	}
	w.output, w.why = string(t.Result), t.Message+string(t.Error)
	switch w.state = t.Status; t.Status {
	case "completed":
		w.state = stateDone
	case "failed":
		w.state = stateFailed
	case "cancelled":
		w.state = stateCanceled
	}
	return ended(w.state), nil
}

// stream hears work as it goes, and takes the stream up elsewhere when it breaks. begun
// is called once the caller knows the work.
func (c *caller) stream(ctx context.Context, w *work, takes time.Duration, begun func()) {
	ctx, cancel := context.WithTimeout(ctx, endsIn)
	defer cancel()
	defer begun()
	build := w.attempts(howSlow, takes, "")
	streaming := func(attempt int) request {
		q := build(attempt)
		q.method = "SendStreamingMessage"
		delete(q.params, "configuration")
		return q
	}
	err := c.hear(ctx, w, streaming(0), begun)
	if errors.Is(err, errRetry) && w.task == "" {
		c.retried()
		w.at = c.next(ctx, w.at)
		err = c.hear(ctx, w, streaming(1), begun)
	}
	for err != nil && w.task != "" && ctx.Err() == nil && errors.Is(err, errRetry) {
		if w.broken && w.output == "" {
			break // that was the second attempt, and nothing was heard there
		}
		c.retried()
		w.broken, w.at = true, c.next(ctx, w.at)
		q := request{agent: w.agent, protocol: w.protocol, method: "SubscribeToTask", params: map[string]any{"id": w.task}}
		if err = c.hear(ctx, w, q, begun); err != nil && !errors.Is(err, errRetry) { // what has ended cannot be subscribed to
			c.finish(ctx, w)
			return
		}
	}
	if err != nil {
		w.fails("the stream: %s", err)
	}
}

// hear hears one stream to its end: errRetry, if that is not the end of the work.
func (c *caller) hear(ctx context.Context, w *work, q request, begun func()) error {
	resp, err := c.open(ctx, w.at, q)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	w.output = ""
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		text, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
		return errors.Join(fmt.Errorf("%w: replica %d: %.300s", errRefused, w.at, text), err, c.evidence(w.at, resp.Header, resp.Trailer))
	}
	var output []string
	var refused error
	_, over, err := eachData(resp.Body, func(data []byte) bool {
		var r reply
		var e event
		if json.Unmarshal(data, &r) != nil || r.Error != nil {
			refused = fmt.Errorf("%w: replica %d: %.300s", errRefused, w.at, data)
			return false
		}
		if json.Unmarshal(r.Result, &e) != nil {
			return false
		}
		if id := e.id(); id != "" && w.task == "" {
			w.task = id
			begun()
		}
		for _, t := range []*task{e.Task, e.Status} {
			if t != nil && t.Status.State != "" {
				w.state, w.why = t.Status.State, t.why()
			}
		}
		output = append(output, string(r.Result))
		return ended(w.state)
	})
	if w.output = strings.Join(output, "\n"); over {
		return errors.Join(c.evidence(w.at, resp.Header), c.evidence(w.at, resp.Trailer))
	}
	if err == nil {
		err = c.evidence(w.at, resp.Header, resp.Trailer)
	}
	if refused != nil && w.output == "" {
		return refused // it says nothing else: the stream did not begin
	}
	return errors.Join(fmt.Errorf("%w: replica %d ended the stream in %s", errRetry, w.at, w.state), refused, err)
}

// question has the agent ask something.
func (c *caller) question(ctx context.Context, w *work) {
	var sent request
	build := w.attempts(howAsk, 0, "")
	r, at, err := c.ask(ctx, w.at, func(attempt int) request { sent = build(attempt); return sent })
	if w.at = at; err != nil {
		w.fails("the question did not come: %s", err)
		return
	}
	if w.protocol == protocolMCP {
		var m struct {
			Asks  map[string]json.RawMessage `json:"inputRequests"`
			State string                     `json:"requestState"`
		}
		if json.Unmarshal(r.Result, &m) != nil || len(m.Asks) != 1 {
			w.fails("it is no question: %.300s", r.Result)
			return
		}
		answers := map[string]any{}
		for name, form := range m.Asks {
			answers[name] = map[string]any{"action": "accept", "content": filled(form)}
		}
		sent.params["inputResponses"], sent.params["requestState"] = answers, m.State
		w.turn = &sent
		return
	}
	t := r.answer()
	if t == nil || t.Status.State != stateAsks {
		w.fails("it is no question: %.300s", r.Result)
		return
	}
	w.task = t.ID
	part := map[string]any{"text": "answer " + w.key + " 0"}
	switch w.agent {
	case agentTools, agentHeld:
		part = map[string]any{"data": map[string]any{"answer": "yes"}, "mediaType": "application/json"}
	case agentTasks:
		part = map[string]any{"data": map[string]any{"confirm": true}, "mediaType": "application/json"}
	}
	w.turn = &request{agent: w.agent, protocol: w.protocol, method: "SendMessage", params: map[string]any{
		"message": map[string]any{"messageId": uuid.NewString(), "role": "ROLE_USER", "taskId": t.ID, "parts": []any{part}},
	}}
}

// filled fills all fields of a form.
func filled(form []byte) map[string]any {
	var m struct {
		Params struct {
			Schema struct {
				Properties map[string]json.RawMessage `json:"properties"`
			} `json:"requestedSchema"`
		} `json:"params"`
	}
	content := map[string]any{}
	if json.Unmarshal(form, &m) == nil {
		for name := range m.Params.Schema.Properties {
			content[name] = "yes"
		}
	}
	return content
}

// answer answers what was asked, at another replica than the one that asked.
func (c *caller) answer(ctx context.Context, w *work, n int) {
	if w.turn == nil {
		return
	}
	r, _, err := c.ask(ctx, c.fleet.other(w.at, n), same(*w.turn))
	if err != nil && w.mayBreak() { // it has ended by now, and says so
		c.finish(ctx, w)
		return
	}
	if err != nil {
		w.fails("the question of replica %d could not be answered: %s", w.at, err)
		return
	}
	if w.protocol == protocolMCP {
		w.done(string(r.Result))
		return
	}
	if t := r.answer(); t != nil {
		w.state, w.output, w.why = t.Status.State, t.text(), t.why()
	}
	if !ended(w.state) {
		c.finish(ctx, w)
	}
}

// takes is how long the n-th work of its kind takes. At an agent that can be asked about it
// that is up to longer than a gateway that stops waits, at the other one less. Some ends
// while its gateway does.
func takes(agent string, grace time.Duration, n int) time.Duration {
	longest := grace + 2*time.Second
	if agent == agentTools {
		longest = grace / 2
	}
	return longest * time.Duration(lengths-n%lengths) / lengths
}

// lengths is how many lengths work has.
const lengths = 5
