package tasked

import (
	"crypto/rand"
	"encoding/json"
	"time"
)

const (
	life = 10 * time.Minute
	poll = 100 * time.Millisecond
)

// task is work that goes on. Until ready it is at work; what it asks comes
// first.
type task struct {
	id               string
	state            string
	created, changed time.Time
	ready            time.Time
	asks             map[string]json.RawMessage // what is not answered
	answers          map[string]json.RawMessage
	finish           func(answers map[string]json.RawMessage) (json.RawMessage, *rpcError)
	result           json.RawMessage
	failure          *rpcError
}

// begin makes a task, which everybody finds from now on.
func (s *Server) begin(takes time.Duration, asks map[string]json.RawMessage, finish func(map[string]json.RawMessage) (json.RawMessage, *rpcError)) *task {
	now := time.Now()
	t := &task{
		id: rand.Text(), state: "working", created: now, changed: now, ready: now.Add(takes),
		asks: asks, answers: map[string]json.RawMessage{}, finish: finish,
	}
	if len(asks) > 0 {
		t.state = "input_required"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tasks == nil {
		s.tasks = map[string]*task{}
	}
	s.tasks[t.id] = t
	return t
}

// advance lets time pass.
func (t *task) advance(now time.Time) {
	if t.state != "working" || now.Before(t.ready) {
		return
	}
	t.changed = now
	if t.result, t.failure = t.finish(t.answers); t.failure != nil {
		t.state = "failed"
	} else {
		t.state = "completed"
	}
}

// take hears answers; those to what was not asked are ignored.
func (t *task) take(now time.Time, answers map[string]json.RawMessage) {
	for key, answer := range answers {
		if _, asked := t.asks[key]; asked && t.state == "input_required" {
			delete(t.asks, key)
			t.answers[key] = answer
		}
	}
	if t.state == "input_required" && len(t.asks) == 0 {
		t.state, t.changed = "working", now
	}
}

func (t *task) cancel(now time.Time) {
	if t.state == "working" || t.state == "input_required" {
		t.state, t.changed, t.asks = "cancelled", now, nil
	}
}

// told is a task in the words of the extension.
type told struct {
	Type    string                     `json:"resultType"`
	ID      string                     `json:"taskId"`
	State   string                     `json:"status"`
	Created string                     `json:"createdAt"`
	Changed string                     `json:"lastUpdatedAt"`
	TTL     int64                      `json:"ttlMs"`
	Poll    int64                      `json:"pollIntervalMs"`
	Asks    map[string]json.RawMessage `json:"inputRequests,omitempty"`
	Result  json.RawMessage            `json:"result,omitempty"`
	Error   *rpcError                  `json:"error,omitempty"`
}

func (t *task) brief(kind string) told {
	return told{
		Type: kind, ID: t.id, State: t.state, TTL: life.Milliseconds(), Poll: poll.Milliseconds(),
		Created: t.created.UTC().Format(time.RFC3339Nano), Changed: t.changed.UTC().Format(time.RFC3339Nano),
	}
}

func (t *task) detailed() told {
	d := t.brief("complete")
	d.Asks, d.Result, d.Error = t.asks, t.result, t.failure
	return d
}
