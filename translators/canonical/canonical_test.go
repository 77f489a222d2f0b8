package canonical_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/translators/canonical"
)

// constants reads the string constants of one type out of a source file, so
// that a new one cannot be forgotten in the lists below.
func constants(t *testing.T, file, typeName string) []string {
	t.Helper()
	tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var values []string
	ast.Inspect(tree, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		if id, isIdent := spec.Type.(*ast.Ident); isIdent && id.Name == typeName {
			value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			values = append(values, value)
		}
		return true
	})
	if len(values) == 0 {
		t.Fatalf("%s: no constants of type %s", file, typeName)
	}
	return values
}

// TestCatalogue_IsCompleteAndInOrder: codes stand in signed evidence. A gap, a
// repetition or a constant without a row would make old evidence unreadable.
// TestJSON_Roundtrip: what is kept as JSON, as records of work are, comes back as it was.
func TestJSON_Roundtrip(t *testing.T) {
	t.Parallel()
	for name, data := range map[string]json.RawMessage{"absent": nil, "null": json.RawMessage("null"), "a value": json.RawMessage(`{"a":1}`)} {
		type all struct {
			Part   canonical.Part
			Output canonical.Output
			Input  canonical.Input
			Answer canonical.Answer
			Call   canonical.Call
		}
		was := all{
			canonical.Part{Data: data, Size: data, Annotations: data},
			canonical.Output{Structured: data},
			canonical.Input{Schema: data},
			canonical.Answer{Value: data},
			canonical.Call{Args: data},
		}
		stored, err := json.Marshal(was)
		if err != nil {
			t.Fatal(err)
		}
		var is all
		if err := json.Unmarshal(stored, &is); err != nil || !reflect.DeepEqual(is, was) {
			t.Errorf("%s: it was %+v and is %+v (%v)", name, was, is, err)
		}
	}
}

func TestCatalogue_IsCompleteAndInOrder(t *testing.T) {
	t.Parallel()
	var rows []string
	for i, entry := range canonical.Catalogue() {
		if want := canonical.LossCode(fmt.Sprintf("L%02d", i+1)); entry.Code != want {
			t.Errorf("row %d: got %s, want %s", i, entry.Code, want)
		}
		if entry.Weight != canonical.WeightContent && entry.Weight != canonical.WeightMeta {
			t.Errorf("%s: weight %q", entry.Code, entry.Weight)
		}
		if entry.Fate != canonical.Carried && entry.Fate != canonical.Dropped {
			t.Errorf("%s: fate %q", entry.Code, entry.Fate)
		}
		if entry.What == "" {
			t.Errorf("%s: says nothing", entry.Code)
		}
		if found, ok := canonical.Lookup(entry.Code); !ok || found != entry {
			t.Errorf("%s: Lookup: got %v %v", entry.Code, found, ok)
		}
		rows = append(rows, string(entry.Code))
	}
	if diff := cmp.Diff(constants(t, "catalogue.go", "LossCode"), rows); diff != "" {
		t.Errorf("constants and rows differ (-constants +rows):\n%s", diff)
	}
	if _, ok := canonical.Lookup("L00"); ok {
		t.Error("L00 is listed")
	}
}

func TestCatalogue_IsACopy(t *testing.T) {
	t.Parallel()
	canonical.Catalogue()[0].Weight = "spoiled"
	if canonical.Catalogue()[0].Weight == "spoiled" {
		t.Error("a caller can change the catalogue")
	}
}

func TestLoss_Semantic(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		loss canonical.Loss
		want bool
	}{
		"content dropped": {canonical.Loss{Code: canonical.LossContent, Fate: canonical.Dropped}, true},
		"content carried": {canonical.Loss{Code: canonical.LossState, Fate: canonical.Carried}, false},
		"state dropped":   {canonical.Loss{Code: canonical.LossState, Fate: canonical.Dropped}, true},
		"meta dropped":    {canonical.Loss{Code: canonical.LossTrace, Fate: canonical.Dropped}, false},
		"meta carried":    {canonical.Loss{Code: canonical.LossIDs, Fate: canonical.Carried}, false},
		"unknown dropped": {canonical.Loss{Code: "L99", Fate: canonical.Dropped}, true},
		"unknown carried": {canonical.Loss{Code: "L99", Fate: canonical.Carried}, false},
		"zero":            {canonical.Loss{}, false},
	} {
		if got := tc.loss.Semantic(); got != tc.want {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
	for _, entry := range canonical.Catalogue() {
		dropped := canonical.Loss{Code: entry.Code, Fate: canonical.Dropped}
		if got, want := dropped.Semantic(), entry.Weight == canonical.WeightContent; got != want {
			t.Errorf("%s dropped: got %v, want %v", entry.Code, got, want)
		}
	}
}

func TestLoss_String(t *testing.T) {
	t.Parallel()
	loss := canonical.Loss{Code: canonical.LossStatusUpdates, Path: "/body/task/status", Fate: canonical.Dropped}
	if got, want := loss.String(), "L05 dropped /body/task/status"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCodes_AreComplete(t *testing.T) {
	t.Parallel()
	var codes []string
	for _, code := range canonical.Codes() {
		codes = append(codes, string(code))
	}
	want := constants(t, "error.go", "Code")
	slices.Sort(want)
	slices.Sort(codes)
	if diff := cmp.Diff(want, codes); diff != "" {
		t.Errorf("constants and Codes differ (-constants +Codes):\n%s", diff)
	}
}

func TestError_TextHasItsCode(t *testing.T) {
	t.Parallel()
	var err error = &canonical.Error{Code: canonical.CodeTimeout, Message: "too late"}
	if got, want := err.Error(), "timeout: too late"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestState_Terminal(t *testing.T) {
	t.Parallel()
	terminal := []string{"completed", "failed", "rejected", "canceled"}
	for _, state := range constants(t, "body.go", "State") {
		if got, want := canonical.State(state).Terminal(), slices.Contains(terminal, state); got != want {
			t.Errorf("%s: got %v, want %v", state, got, want)
		}
	}
	if canonical.State("unheard-of").Terminal() {
		t.Error("an unknown state is final")
	}
}

// TestExtensions_With: what a binding has of its own is added, to a map that is made where
// there is none, and nothing changes where it has nothing.
func TestExtensions_With(t *testing.T) {
	t.Parallel()
	var empty canonical.Extensions
	if got := empty.With("a2a-v1", nil); got != nil {
		t.Errorf("nothing was added, and there is %v", got)
	}
	got := empty.With("a2a-v1", json.RawMessage(`{}`)).With("mcp-v1", json.RawMessage(`{"a":1}`)).With("a2a-v1", nil)
	if len(got) != 2 || string(got["a2a-v1"]) != "{}" || string(got["mcp-v1"]) != `{"a":1}` {
		t.Errorf("there is %v", got)
	}
}
