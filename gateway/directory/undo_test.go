package directory_test

import (
	"encoding/json"
	"testing"

	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/lifecycle/compensation"
)

// TestUndo_IsReadOnly: a tool is read-only by its exact name, or where all are.
func TestUndo_IsReadOnly(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		list []string
		tool string
		want bool
	}{
		{nil, "search", false},
		{nil, "*", false},
		{[]string{"list", "search"}, "search", true},
		{[]string{"list", "search"}, "Search", false},
		{[]string{"list", "search"}, "", false},
		{[]string{"sear*"}, "search", false},
		{[]string{"*"}, "search", true},
		{[]string{"*"}, "", true},
	} {
		if got := (directory.Undo{ReadOnly: c.list}).IsReadOnly(c.tool); got != c.want {
			t.Errorf("%v: %q is read-only: %t, expected %t", c.list, c.tool, got, c.want)
		}
	}
}

// undo is one with every field.
func undo(t *testing.T) directory.Undo {
	t.Helper()
	rule, err := compensation.ParseRule(json.RawMessage(`{"tool":"cancel","arguments":{"id":{"result":"/id"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	return directory.Undo{ReadOnly: []string{"search"}, Own: true, Compensate: map[string]compensation.Rule{"book": rule}}
}

func isUndo(u directory.Undo) bool {
	return u.IsReadOnly("search") && !u.IsReadOnly("book") && u.Own && u.Compensate["book"].Tool == "cancel"
}

// TestUndo_OfAnAgentWithADocument: a capability document says nothing about it, and takes nothing from it.
func TestUndo_OfAnAgentWithADocument(t *testing.T) {
	t.Parallel()
	d, w, _ := newWeb(t)
	w.put(home, 200, documentOf(pricing, "L3", activeLife, toyEndpoint))
	a := described("pricing", home)
	a.Undo = undo(t)
	list(t, d, a)
	got, err := d.Resolve(t.Context(), a)
	if err != nil || len(got.Endpoints) != 1 || !isUndo(got.Undo) {
		t.Errorf("got %+v, %v", got, err)
	}
}

// TestUndo_IsOfTheAgent: the directory has its own copy, shows it with the agent, and replaces it with the agent.
func TestUndo_IsOfTheAgent(t *testing.T) {
	t.Parallel()
	d := newDirectory(t, &agentSays{}, &gate{}, true)
	a := agent("bookings", "https://bookings.example")
	a.Undo = undo(t)
	list(t, d, a)
	a.Undo.ReadOnly[0] = "book"
	delete(a.Undo.Compensate, "book")

	if got, _ := d.Find("bookings"); !isUndo(got.Undo) {
		t.Errorf("got %+v", got.Undo)
	}
	a.Undo = directory.Undo{}
	list(t, d, a)
	if got, _ := d.Find("bookings"); got.Undo.Own || got.Undo.ReadOnly != nil || got.Undo.Compensate != nil {
		t.Errorf("after it was listed again: %+v", got.Undo)
	}
}
