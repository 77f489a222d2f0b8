package rawjson_test

import (
	"encoding/json"
	"testing"

	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// TestObject_MembersInAnotherCase: whatever encoding/json takes for a member that is
// read here is a failure, unless it has exactly this name; all else is left.
func TestObject_MembersInAnotherCase(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"name", "Name", "NAME", "names", "nam", "tasks", "taskſ", "\u212aey", "key", "", "ämter", "n\u0061me"} {
		raw, err := json.Marshal(map[string]string{name: "x", "other": "y"})
		if err != nil {
			t.Fatal(err)
		}
		for _, read := range []string{"name", "tasks", "key", "ämter"} {
			for how, look := range map[string]func(o *rawjson.Object) bool{
				"take": func(o *rawjson.Object) bool { return o.Take(read) != nil },
				"peek": func(o *rawjson.Object) bool { return o.Peek(read) != nil },
				"has":  func(o *rawjson.Object) bool { return o.Has(read) },
			} {
				o := rawjson.Parse(raw, "")
				found := look(o)
				if found != (name == read) || (o.Err() != nil) != (!found && folds(t, name, read)) {
					t.Errorf("%s %q of %s: %v, %v", how, read, raw, found, o.Err())
				}
			}
		}
	}
	both := rawjson.Parse([]byte(`{"NAME":1,"name":2}`), "")
	if both.Take("name") != nil || both.Err() == nil {
		t.Error("one of two spellings was taken")
	}
}

// folds reports whether encoding/json takes one name for the other.
func folds(t *testing.T, name, read string) bool {
	t.Helper()
	raw, err := json.Marshal(map[string]string{name: "x"})
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		Name  string `json:"name"`
		Tasks string `json:"tasks"`
		Key   string `json:"key"`
		Offic string `json:"ämter"`
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	return map[string]string{"name": v.Name, "tasks": v.Tasks, "key": v.Key, "ämter": v.Offic}[read] != ""
}
