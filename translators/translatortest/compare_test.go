package translatortest

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/translators/canonical"
)

// TestCompare_ChangedViews: a turn becomes arguments and a task an output; the values
// count then, and only then, wherever they stand.
func TestCompare_ChangedViews(t *testing.T) {
	t.Parallel()
	text := func(s string) canonical.Part { return canonical.Part{Kind: canonical.KindText, Text: s} }
	invoke := func(b *canonical.Invoke) *canonical.Message {
		return &canonical.Message{Op: canonical.OpInvoke, Phase: canonical.PhaseRequest, Body: b}
	}
	result := func(b *canonical.Result) *canonical.Message {
		return &canonical.Message{Op: canonical.OpInvoke, Phase: canonical.PhaseResponse, Body: b}
	}
	task := func(state canonical.State, parts ...canonical.Part) *canonical.Task {
		return &canonical.Task{Status: canonical.Status{State: state}, Artifacts: []canonical.Artifact{{Parts: parts}}}
	}
	turn := canonical.Content{Role: canonical.RoleCaller, Parts: []canonical.Part{text("one"), text("two")}}
	file := canonical.Part{Kind: canonical.KindFile, Bytes: []byte{0, 1, 2}}
	for name, tc := range map[string]struct {
		sent, got *canonical.Message
		losses    []canonical.Loss
		want      string // in the only failure; empty: none
	}{
		"turn to arguments": {
			sent: invoke(&canonical.Invoke{Turn: turn}),
			got:  invoke(&canonical.Invoke{Call: &canonical.Call{Name: "message", Args: json.RawMessage(`{"message":"one\n\ntwo"}`)}}),
		},
		"turn to arguments, one part short": {
			sent: invoke(&canonical.Invoke{Turn: turn}),
			got:  invoke(&canonical.Invoke{Call: &canonical.Call{Name: "message", Args: json.RawMessage(`{"message":"one"}`)}}),
			want: `/body/turn/parts/1/text is lost`,
		},
		"turn to arguments, declared": {
			sent:   invoke(&canonical.Invoke{Turn: turn}),
			got:    invoke(&canonical.Invoke{Call: &canonical.Call{Name: "message", Args: json.RawMessage(`{"message":"one"}`)}}),
			losses: []canonical.Loss{{Code: canonical.LossContent, Path: "/turn/parts/1", Fate: canonical.Dropped}},
		},
		"file to base64": {
			sent: invoke(&canonical.Invoke{Turn: canonical.Content{Parts: []canonical.Part{file}}}),
			got:  invoke(&canonical.Invoke{Call: &canonical.Call{Args: json.RawMessage(`{"files":["AAEC"]}`)}}),
		},
		"a view that stays keeps its places": {
			sent: invoke(&canonical.Invoke{Turn: turn}),
			got:  invoke(&canonical.Invoke{Turn: canonical.Content{Role: canonical.RoleCaller, Parts: []canonical.Part{text("one"), text("two more")}}}),
			want: "/body/turn/parts/1/text is lost",
		},
		"a number rounded on the move": {
			sent: invoke(&canonical.Invoke{Call: &canonical.Call{Args: json.RawMessage(`{"n":9007199254740993}`)}}),
			got:  invoke(&canonical.Invoke{Turn: canonical.Content{Parts: []canonical.Part{{Kind: canonical.KindData, Data: json.RawMessage(`{"n":9007199254740992}`)}}}}),
			want: "/body/call/args/n is lost",
		},
		"done is done": {
			sent: result(&canonical.Result{Task: task(canonical.StateCompleted, text("sunny"))}),
			got:  result(&canonical.Result{Output: &canonical.Output{Parts: []canonical.Part{text("sunny")}}}),
		},
		"failed is not done": {
			sent: result(&canonical.Result{Task: task(canonical.StateFailed, text("sunny"))}),
			got:  result(&canonical.Result{Output: &canonical.Output{Parts: []canonical.Part{text("sunny")}}}),
			want: "/body/task/status/state is lost",
		},
		"working is not failed": {
			sent: result(&canonical.Result{Task: task(canonical.StateWorking, text("sunny"))}),
			got:  result(&canonical.Result{Output: &canonical.Output{Failed: true, Parts: []canonical.Part{text("sunny")}}}),
			want: "/body/task/status/state is lost",
		},
		"a failed output is a failed task": {
			sent: result(&canonical.Result{Output: &canonical.Output{Failed: true, Parts: []canonical.Part{text("no")}}}),
			got:  result(&canonical.Result{Task: task(canonical.StateFailed, text("no"))}),
		},
		"a failed output is no finished task": {
			sent: result(&canonical.Result{Output: &canonical.Output{Failed: true, Parts: []canonical.Part{text("no")}}}),
			got:  result(&canonical.Result{Task: task(canonical.StateCompleted, text("no"))}),
			want: "/body/output/failed is lost",
		},
		"carried and missing": {
			sent:   &canonical.Message{Conversation: canonical.Conversation{ContextID: "c"}},
			got:    &canonical.Message{},
			losses: []canonical.Loss{{Code: canonical.LossIDs, Path: "/conversation/contextid", Fate: canonical.Carried}},
			want:   "/conversation/contextID is declared carried and does not come back",
		},
	} {
		failures := compare(tc.sent, tc.got, tc.losses)
		switch {
		case tc.want == "" && len(failures) > 0:
			t.Errorf("%s: got %q, want none", name, failures)
		case tc.want != "" && (len(failures) != 1 || !strings.Contains(failures[0], tc.want)):
			t.Errorf("%s: got %q, want one with %q", name, failures, tc.want)
		}
	}
}

func TestSameJSON_ExactValues(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		a, b string
		same bool
	}{
		"member order":   {`{"a":1,"b":2}`, `{"b":2,"a":1}`, true},
		"escapes":        {`"\u00e9\/"`, `"é/"`, true},
		"white space":    {` [1, 2] `, `[1,2]`, true},
		"element order":  {`[1,2]`, `[2,1]`, false},
		"digits":         {`1`, `1.0`, false},
		"long integers":  {`9007199254740993`, `9007199254740992`, false},
		"number, string": {`1`, `"1"`, false},
		"null, absent":   {`{"a":null}`, `{}`, false},
		"empty, absent":  {`{"a":[]}`, `{}`, false},
		"empty, null":    {`{"a":{}}`, `{"a":null}`, false},
		"odd names":      {`{"a/b":1}`, `{"a":{"b":1}}`, false},
		"empty, string":  {`{"a":{}}`, `{"a":"{}"}`, false},
		"nothing":        {``, `null`, false},
	} {
		if what, same := sameJSON([]byte(tc.a), []byte(tc.b)); same != tc.same {
			t.Errorf("%s: got same=%v (%s), want %v", name, same, what, tc.same)
		}
	}
}

func TestPlace_Paths(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]bool{
		"/body/turn/parts/0/media":            true,
		"/turn/parts/12":                      true,
		"/task/artifacts/0/parts/1/data/x/y":  true,
		"/body/extensions/a2a-v1/metadata/x":  true,
		"/extensions/a2a-v1":                  true,
		"/Conversation/ContextID":             true,
		"/output/structured":                  true,
		"/capabilities/0/inputSchema/type":    true,
		"/native/data/0":                      true,
		"/deadline":                           true,
		"/deadline/sec":                       false,
		"/arguments/_meta":                    false,
		"/body/turn/parts/first":              false,
		"/body/turn/parts/0/media/subtype":    false,
		"body/turn":                           false,
		"/body/turn/parts/0/nativeAnnotation": false,
	} {
		if got := place(path); got != want {
			t.Errorf("%s: got %v, want %v", path, got, want)
		}
	}
}
