package envelope_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/envelope"
)

// The turn of a call is the call in other words: it is not said a second time,
// and still there for whoever reads it. What is more than the call is said.
func TestEnvelope_CallWrittenOnce(t *testing.T) {
	t.Parallel()
	codec := envelope.New("toy-v1")
	call := &canonical.Call{Name: "add", Args: json.RawMessage(`{"a":9007199254740993,"b":2}`)}
	data := func(text string) canonical.Part {
		return canonical.Part{Kind: canonical.KindData, Media: "application/json", Data: json.RawMessage(text)}
	}
	same := data(`{"input":{"b":2, "a":9007199254740993},"skill":"add"}`)
	for name, tc := range map[string]struct {
		parts  []canonical.Part
		text   string // of the object
		losses []canonical.LossCode
	}{
		"the call alone":     {[]canonical.Part{same}, `{"parts":"call"}`, nil},
		"a text beside it":   {[]canonical.Part{same, {Kind: canonical.KindText, Text: "please"}}, "please", []canonical.LossCode{canonical.LossPartBoundaries}},
		"another number":     {[]canonical.Part{data(`{"skill":"add","input":{"a":9007199254740992,"b":2}}`)}, "9007199254740992", []canonical.LossCode{canonical.LossContent}},
		"a name for its use": {[]canonical.Part{{Kind: canonical.KindData, Media: "application/json", Data: same.Data, Name: "x.json"}}, "x.json", []canonical.LossCode{canonical.LossPartBoundaries}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &canonical.Message{Body: &canonical.Invoke{Call: call, Turn: canonical.Content{Parts: tc.parts}}}
			d := codec.Write(m, &canonical.Message{Body: &canonical.Invoke{Call: call}})
			if !strings.Contains(string(d.Members), tc.text) {
				t.Errorf("it says %s", d.Members)
			}
			var codes []canonical.LossCode
			for _, loss := range d.Losses {
				codes = append(codes, loss.Code)
			}
			if diff := cmp.Diff(tc.losses, codes); diff != "" {
				t.Error(diff)
			}
			got := &canonical.Invoke{Call: call}
			if _, ok := codec.Read(d.Members, &canonical.Message{Body: got}); !ok || len(got.Turn.Parts) != len(tc.parts) {
				t.Fatalf("%s is read as %+v", d.Members, got.Turn)
			}
			if len(codec.Write(&canonical.Message{Body: got}, m).Members) != 0 {
				t.Errorf("%s is read as %s", d.Members, got.Turn.Parts[0].Data)
			}
		})
	}
	if _, ok := codec.Read(json.RawMessage(`{"parts":"call"}`), &canonical.Message{Body: &canonical.Invoke{}}); ok {
		t.Error("the call that the parts are does not stand there")
	}
}

// Artifacts whose parts stand in native words already count them. What counts
// other parts than there are is not believed.
func TestEnvelope_ArtifactPartsWrittenOnce(t *testing.T) {
	t.Parallel()
	codec := envelope.New("toy-v1")
	word := func(text string) canonical.Part { return canonical.Part{Kind: canonical.KindText, Text: text} }
	seen := func() *canonical.Message {
		return &canonical.Message{Body: &canonical.Result{Output: &canonical.Output{Parts: []canonical.Part{word("one"), word("two"), word("three")}}}}
	}
	for name, tc := range map[string]struct {
		artifacts []canonical.Artifact
		counted   bool
	}{
		"one":           {[]canonical.Artifact{{ID: "a", Parts: []canonical.Part{word("one"), word("two"), word("three")}}}, true},
		"two":           {[]canonical.Artifact{{ID: "a", Parts: []canonical.Part{word("one")}}, {ID: "b", Name: "n", Parts: []canonical.Part{word("two"), word("three")}}}, true},
		"an empty one":  {[]canonical.Artifact{{ID: "a"}, {ID: "b", Parts: []canonical.Part{word("one"), word("two"), word("three")}}}, true},
		"another order": {[]canonical.Artifact{{ID: "a", Parts: []canonical.Part{word("two"), word("one"), word("three")}}}, false},
		"more":          {[]canonical.Artifact{{ID: "a", Parts: []canonical.Part{word("one"), word("two"), word("three"), word("four")}}}, false},
	} {
		m := &canonical.Message{Body: &canonical.Result{Task: &canonical.Task{ID: "t", Status: canonical.Status{State: canonical.StateCompleted}, Artifacts: tc.artifacts}}}
		d := codec.Write(m, seen())
		if strings.Contains(string(d.Members), "three") == tc.counted || !strings.Contains(string(d.Members), `"id":"a"`) {
			t.Errorf("%s: it says %s", name, d.Members)
		}
		got := seen()
		if _, ok := codec.Read(d.Members, got); !ok {
			t.Errorf("%s: %s cannot be read", name, d.Members)
		} else if diff := cmp.Diff(tc.artifacts, got.Body.(*canonical.Result).Task.Artifacts); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	for _, bad := range []string{`4`, `0`, `-1`, `1e0`, `"1"`, `{}`} {
		if _, ok := codec.Read(json.RawMessage(`{"kind":"task","artifacts":[{"id":"a","parts":`+bad+`}]}`), seen()); ok {
			t.Errorf("%s parts are taken off three", bad)
		}
	}
}
