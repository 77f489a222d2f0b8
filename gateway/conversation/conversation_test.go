package conversation

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

var alice = Parties{Owner: "spiffe://x/alice", Agent: "calculator"}

// TestKey_Stays: replicas of earlier versions find the same dialogue, and the agent knows
// it by the same id.
func TestKey_Stays(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("testdata/stored.json")
	if err != nil {
		t.Fatal(err)
	}
	var stored map[string]string
	if err := json.Unmarshal(raw, &stored); err != nil {
		t.Fatal(err)
	}
	if got := alice.Key("ctx"); got != stored["dialogue_key"] {
		t.Errorf("the key is %q, stored is %q", got, stored["dialogue_key"])
	}
	if got := alice.BoundID("ctx"); got != stored["dialogue_bound"] {
		t.Errorf("the bound id is %q, stored is %q", got, stored["dialogue_bound"])
	}
}

// remembered is a Store with some dialogues.
type remembered map[string]ect.ID

func (r remembered) Last(_ context.Context, key string) (string, ect.ID, bool, error) {
	if r == nil {
		return "", "", false, errors.New("away")
	}
	id, ok := r[key]
	return "workflow of " + string(id), id, ok, nil
}

func (remembered) Remember(context.Context, string, string, ect.ID) {}

// TestThread_AgentID: an id passes as it is only if the agent has given it to this
// caller; else the agent gets one that only this caller's messages lead to.
func TestThread_AgentID(t *testing.T) {
	t.Parallel()
	bound := alice.BoundID("mine")
	for name, c := range map[string]struct {
		store    remembered
		recorded Names
		agentSay string // the agent's id in its reply
		id, want string
		last     ect.ID // of the dialogue; empty: none is remembered
	}{
		"no dialogue":                  {store: remembered{}, id: "", want: ""},
		"the caller's invention":       {store: remembered{}, id: "mine", want: bound},
		"the invention again":          {store: remembered{alice.Key(bound): "two"}, id: "mine", want: bound, last: "two"},
		"given by the agent":           {store: remembered{alice.Key("theirs"): "one"}, id: "theirs", want: "theirs", last: "one"},
		"given to another caller":      {store: remembered{Parties{"spiffe://x/bob", "calculator"}.Key("theirs"): "one"}, id: "theirs", want: alice.BoundID("theirs")},
		"given by another agent":       {store: remembered{Parties{alice.Owner, "other"}.Key("theirs"): "one"}, id: "theirs", want: alice.BoundID("theirs")},
		"of a recorded task":           {store: remembered{}, recorded: Names{Agent: "theirs", Caller: "mine"}, id: "mine", want: "theirs"},
		"the agent's of that task":     {store: remembered{}, recorded: Names{Agent: "theirs", Caller: "mine"}, id: "theirs", want: "theirs"},
		"named by the agent meanwhile": {store: remembered{}, agentSay: "new", id: "new", want: "new"},
	} {
		thread, err := Thread{}.WithAgentID(c.agentSay).Resolve(t.Context(), c.store, alice, c.id, c.recorded)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := thread.AgentID(alice, c.id, c.recorded); got != c.want {
			t.Errorf("%s: the agent knows it as %q, expected %q", name, got, c.want)
		}
		if _, last, ok := thread.Last(); last != c.last || ok != (c.last != "") {
			t.Errorf("%s: the last ECT is %q (%v), expected %q", name, last, ok, c.last)
		}
		if thread.Renamed() != (c.id != c.want) {
			t.Errorf("%s: renamed is %v", name, thread.Renamed())
		}
	}
}

// TestThread_StoreAway: it is not guessed whose dialogue an id is.
func TestThread_StoreAway(t *testing.T) {
	t.Parallel()
	_, err := Thread{}.Resolve(t.Context(), remembered(nil), alice, "mine", Names{})
	if _, away := errors.AsType[*problem.RecordingError](err); !away {
		t.Errorf("the error is %v, expected a RecordingError", err)
	}
}

// TestThread_NamesOnBothSides: the agent gets its id, the caller has its own back, in the
// message and in the task, and neither message is changed in place.
func TestThread_NamesOnBothSides(t *testing.T) {
	t.Parallel()
	thread, err := Thread{}.Resolve(t.Context(), remembered{}, alice, "mine", Names{})
	if err != nil {
		t.Fatal(err)
	}
	request := &canonical.Message{Conversation: canonical.Conversation{ContextID: "mine"}}
	bound := alice.BoundID("mine")
	if got := thread.ToAgent(alice, request, Names{}).Conversation.ContextID; got != bound || request.Conversation.ContextID != "mine" {
		t.Errorf("the agent gets %q of %q", got, request.Conversation.ContextID)
	}
	for name, body := range map[string]canonical.Body{
		"reply": &canonical.Result{Task: &canonical.Task{ContextID: bound}},
		"event": &canonical.Event{Task: &canonical.Task{ContextID: bound}},
	} {
		reply := &canonical.Message{Conversation: canonical.Conversation{ContextID: bound}, Body: body}
		toCaller := thread.ToCaller(alice, reply, Names{})
		inTask := func(m *canonical.Message) string {
			if r, ok := m.Body.(*canonical.Result); ok {
				return r.Task.ContextID
			}
			return m.Body.(*canonical.Event).Task.ContextID
		}
		if toCaller.Conversation.ContextID != "mine" || inTask(toCaller) != "mine" {
			t.Errorf("%s: the caller gets %q and, in the task, %q", name, toCaller.Conversation.ContextID, inTask(toCaller))
		}
		if reply.Conversation.ContextID != bound || inTask(reply) != bound {
			t.Errorf("%s: the agent's message was changed", name)
		}
	}
}
