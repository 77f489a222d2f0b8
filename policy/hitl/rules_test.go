package hitl_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/policy/hitl"
)

func parse(t testing.TB, configs ...hitl.Config) hitl.Rules {
	t.Helper()
	r, err := hitl.ParseRules(configs)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func facts(args string) hitl.Facts {
	f := hitl.Facts{Caller: "spiffe://a.example/team/x", Agent: "files", Operation: "invoke", Tool: "delete_file", Losses: []string{"L05", "L17"}}
	if args != "" {
		f.Args = json.RawMessage(args)
	}
	return f
}

func TestMatch_Conditions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rule hitl.Config
		want bool
	}{
		"agent":                   {hitl.Config{Agent: "files"}, true},
		"agent, other":            {hitl.Config{Agent: "file"}, false},
		"agent, any":              {hitl.Config{Agent: "*"}, true},
		"tool, start":             {hitl.Config{Tool: "delete_*"}, true},
		"tool, end":               {hitl.Config{Tool: "*_file"}, true},
		"tool, middle":            {hitl.Config{Tool: "d*te*i?e"}, true},
		"tool, one character":     {hitl.Config{Tool: "delete?file"}, true},
		"tool, too few":           {hitl.Config{Tool: "delete_file?"}, false},
		"tool, no substring":      {hitl.Config{Tool: "delete"}, false},
		"tool, end overlaps":      {hitl.Config{Tool: "delete_file*file"}, false},
		"tool, end has wildcard":  {hitl.Config{Tool: "*_f?le"}, true},
		"tool, other case":        {hitl.Config{Tool: "DELETE_*"}, false},
		"caller":                  {hitl.Config{Caller: "spiffe://a.example/team/x"}, true},
		"caller, prefix":          {hitl.Config{Caller: "spiffe://a.example/team/*"}, true},
		"caller, other domain":    {hitl.Config{Caller: "spiffe://b.example/*"}, false},
		"operation":               {hitl.Config{Operation: "invoke"}, true},
		"operation, other":        {hitl.Config{Operation: "native"}, false},
		"loss":                    {hitl.Config{Loss: "L17"}, true},
		"loss, pattern":           {hitl.Config{Loss: "L1?"}, true},
		"loss, other":             {hitl.Config{Loss: "L18"}, false},
		"all":                     {hitl.Config{Agent: "files", Tool: "delete_*", Caller: "spiffe://a.example/*", Operation: "invoke", Loss: "L05"}, true},
		"all but one":             {hitl.Config{Agent: "files", Tool: "delete_*", Caller: "spiffe://a.example/*", Operation: "invoke", Loss: "L06"}, false},
		"all but the first":       {hitl.Config{Agent: "x", Tool: "delete_*", Caller: "spiffe://a.example/*", Operation: "invoke", Loss: "L05"}, false},
		"argument and other tool": {hitl.Config{Tool: "x", Argument: &hitl.Argument{Pointer: "/a", Op: "ne", Value: "x"}}, false},
	} {
		if _, got := parse(t, c.rule).Match(facts(`{"a":1}`)); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

func TestMatch_CallerPrefixHoldsForAnonymous(t *testing.T) {
	t.Parallel()
	f := facts("")
	f.Caller = "spiffe://gw.example/anonymous"
	if _, ok := parse(t, hitl.Config{Caller: "spiffe://gw.example/*"}).Match(f); !ok {
		t.Error("a caller without credentials needs no approval, want that of all callers of its domain")
	}
}

func TestMatch_Arguments(t *testing.T) {
	t.Parallel()
	const long = `"` + "x"
	for _, c := range []struct {
		pointer, op, value, args string
		want                     bool
	}{
		{"/path", "eq", "/etc", `{"path":"/etc"}`, true},
		{"/path", "eq", "/etc", `{"path":"/etc/x"}`, false},
		{"/path", "eq", "/etc", `{"\u0070ath":"\u002fetc"}`, true},
		{"/path", "eq", "/etc", `{"x":{"path":"/etc"}}`, false},
		{"/path", "ne", "/etc", `{"path":"/etc"}`, false},
		{"/path", "ne", "/etc", `{"path":"/tmp"}`, true},
		{"/path", "contains", "etc", `{"path":"/etc/x"}`, true},
		{"/path", "contains", "etc", `{"path":"/tmp"}`, false},
		{"/path", "matches", "/etc/*", `{"path":"/etc/x"}`, true},
		{"/path", "matches", "/etc/*", `{"path":"/tmp/etc/"}`, false},
		{"/a/b/0", "eq", "x", `{"a":{"b":["x","y"]}}`, true},
		{"/a/b/1", "eq", "x", `{"a":{"b":["x","y"]}}`, false},
		{"/a/b/2", "eq", "x", `{"a":{"b":["x","y"]}}`, false},
		{"/a/b/01", "eq", "y", `{"a":{"b":["x","y"]}}`, false},
		{"/a~1b/c~0d", "eq", "x", `{"a/b":{"c~d":"x"}}`, true},
		{"/a~01", "eq", "x", `{"a~1":"x"}`, true},
		{"/", "eq", "x", `{"":"x"}`, true},
		{"/0", "eq", "x", `{"0":"x"}`, true},
		{"/0", "eq", "x", `["x"]`, true},
		// missing and null
		{"/path", "eq", "", `{}`, false},
		{"/path", "ne", "/etc", `{}`, true},
		{"/path", "ne", "/etc", ``, true},
		{"/path", "ne", "/etc", `{"path":null}`, true},
		{"/path", "eq", "null", `{"path":null}`, false},
		{"/path", "contains", "x", ``, false},
		{"/n", "gt", "1", `{"n":null}`, false},
		// numbers
		{"/n", "gt", "1000", `{"n":1000}`, false},
		{"/n", "gt", "1000", `{"n":1000.0000000000000000000000001}`, true},
		{"/n", "ge", "1000", `{"n":1e3}`, true},
		{"/n", "lt", "1000", `{"n":999.99999999999999999999999}`, true},
		{"/n", "lt", "1000", `{"n":1000.0}`, false},
		{"/n", "le", "1000", `{"n":1000.0}`, true},
		{"/n", "le", "1000", `{"n":1000.1}`, false},
		{"/n", "lt", "-5", `{"n":-5.1}`, true},
		{"/n", "gt", "-5", `{"n":-4}`, true},
		{"/n", "gt", "-5", `{"n":-0}`, true},
		{"/n", "lt", "0.01", `{"n":0.001}`, true},
		{"/n", "eq", "9007199254740993", `{"n":9007199254740992}`, false},
		{"/n", "eq", "1e2", `{"n":100.00}`, true},
		{"/n", "eq", "0", `{"n":-0.0e9}`, true},
		{"/n", "eq", "100", `{"n":"1e2"}`, true},
		{"/n", "ne", "100", `{"n":"1e2"}`, false},
		{"/n", "gt", "1000", `{"n":"2000"}`, true},
		{"/n", "gt", "1000", `{"n":"2"}`, false},
		{"/n", "gt", "1", `{"n":1e999999999}`, true},
		{"/n", "lt", "1", `{"n":1e-999999999}`, true},
		{"/n", "lt", "1", `{"n":1e999999999999999999999999999}`, false},
		{"/n", "gt", "1", `{"n":1e-999999999999999999999999999}`, false},
		{"/n", "lt", "1", `{"n":-1e999999999999999999999999999}`, true},
		{"/b", "eq", "true", `{"b":true}`, true},
		{"/b", "eq", "true", `{"b":false}`, false},
		// values of another type
		{"/n", "gt", "1000", `{"n":"many"}`, true},
		{"/n", "gt", "1000", `{"n":true}`, true},
		{"/n", "gt", "1000", `{"n":[1]}`, true},
		{"/path", "eq", "/etc", `{"path":["/tmp"]}`, true},
		{"/path", "ne", "/etc", `{"path":{}}`, true},
		{"/path", "contains", "x", `{"path":7}`, true},
		{"/path", "contains", "x", `{"path":true}`, false},
		{"/path", "eq", "x", `{"path":7}`, false},
		// names that stand twice
		{"/path", "eq", "/etc", `{"path":"/tmp","path":"/tmp"}`, true},
		{"/path", "eq", "/etc", `{"path":"/tmp","\u0070ath":"/tmp"}`, true},
		{"/a/path", "eq", "/etc", `{"a":{"path":"/tmp"},"a":1}`, true},
		{"/a/path", "eq", "/etc", `{"a":1,"a":1,"a":1}`, true},
		{"/path", "eq", "/etc", `{"path":"/tmp","x":1,"x":2}`, false},
		{"/path", "eq", "/etc", `{"path":"/tmp","y":{"path":1,"path":2}}`, false},
		// arguments that cannot be read
		{"/path", "eq", "/etc", `{"path":"/tmp"`, true},
		{"/path", "eq", "/etc", `{"path":"/tmp"}}`, true},
		{"/path", "eq", "/etc", `{"path":"/tmp",}`, true},
		{"/path", "eq", "/etc", `{"path":"/tmp","x":01}`, true},
		{"/path", "eq", "/etc", `{"path":"/tmp","x":1.}`, true},
		{"/path", "eq", "/etc", `{"path":"/tmp","x":1e}`, true},
		{"/path", "eq", "/etc", `{"path":"/tmp","x":tru}`, true},
		{"/path", "eq", "/etc", `{"path":"/tmp","x":"\ud800"}`, true},
		{"/path", "eq", "/etc", `{"path":"/tmp","x":"\ud800\u0041"}`, true},
		{"/path", "eq", "/etc", `{"path":"/tmp","x":"\ud83d\ude00"}`, false},
		{"/path", "eq", "/etc", `{"path":"/tmp","x":"\q"}`, true},
		{"/path", "eq", "/etc", `{"path":"/tmp","x":"\u12g4"}`, true},
		{"/path", "eq", "/etc", "{\"path\":\"/tmp\",\"x\":\"\xff\"}", true},
		{"/path", "eq", "/etc", "{\"path\":\"/tmp\",\"x\":\"\n\"}", true},
		{"/path", "eq", "/etc", ` `, true},
		{"/path", "eq", "/etc", `{"path":"/tmp","x":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`, true},
		{"/path", "eq", "/etc", `{"path":"/tmp"}` + strings.Repeat(" ", 16<<20), true},
		// what is too long to be compared
		{"/path", "contains", "/etc", `{"path":` + long + strings.Repeat("x", 256<<10) + `"}`, true},
		{"/path", "contains", "/etc", `{"path":"/tmp","x":` + long + strings.Repeat("x", 256<<10) + `"}`, false},
	} {
		r := parse(t, hitl.Config{Argument: &hitl.Argument{Pointer: c.pointer, Op: c.op, Value: c.value}})
		if _, got := r.Match(facts(c.args)); got != c.want {
			t.Errorf("%s %s %q in %.100s: %t, want %t", c.pointer, c.op, c.value, c.args, got, c.want)
		}
	}
}

// TestMatch_AllRulesHold: what several rules demand together.
func TestMatch_AllRulesHold(t *testing.T) {
	t.Parallel()
	r := parse(t,
		hitl.Config{Agent: "files", Wait: time.Hour, Unreachable: hitl.Continue, AllowOverride: true},
		hitl.Config{ID: "two", Tool: "delete_*", Approvers: 3, Unreachable: hitl.Escalate, Role: "operator"},
		hitl.Config{Agent: "other", Role: "operator:oncall"},
		hitl.Config{ID: "four", Operation: "invoke", Wait: time.Second, Approvers: 2},
	)
	d, ok := r.Match(facts(""))
	want := hitl.Demand{
		Rules: []string{"approval-1", "two", "four"}, Roles: []string{"approver", "operator"}, Approvers: 3, Wait: time.Second, Unreachable: hitl.DenyCall, Hash: d.Hash,
	}
	if !ok || !reflect.DeepEqual(d, want) || len(d.Hash) != 43 {
		t.Errorf("%+v, %t\nwant %+v", d, ok, want)
	}
	f := facts("")
	f.Tool = "read"
	f.Operation = "native"
	if d, _ := r.Match(f); d.Unreachable != hitl.Continue || d.Wait != time.Hour {
		t.Errorf("one rule: %+v", d)
	}
	if d, ok := (hitl.Rules{}).Match(facts("")); ok || !reflect.DeepEqual(d, hitl.Demand{}) {
		t.Errorf("no rules: %+v, %t", d, ok)
	}
}

// TestDemand_Hash changes with each thing that a matching rule says, and with nothing else.
func TestDemand_Hash(t *testing.T) {
	t.Parallel()
	base := hitl.Config{ID: "a", Agent: "files", AllowOverride: true}
	hash := func(configs ...hitl.Config) string {
		d, ok := parse(t, configs...).Match(facts(`{"a":"x"}`))
		if !ok {
			t.Fatalf("%+v does not match", configs)
		}
		return d.Hash
	}
	first := hash(base)
	if again := hash(base, hitl.Config{ID: "b", Agent: "other"}); again != first {
		t.Error("it changes with a rule that does not match")
	}
	seen := []string{first}
	for _, change := range []func(*hitl.Config){
		func(c *hitl.Config) { c.ID = "b" }, func(c *hitl.Config) { c.Agent = "file?" }, func(c *hitl.Config) { c.Tool = "*" },
		func(c *hitl.Config) { c.Caller = "spiffe://a.example/*" }, func(c *hitl.Config) { c.Operation = "invoke" },
		func(c *hitl.Config) { c.Argument = &hitl.Argument{Pointer: "/a", Op: "eq", Value: "x"} },
		func(c *hitl.Config) { c.Argument = &hitl.Argument{Pointer: "/a", Op: "matches", Value: "x"} },
		func(c *hitl.Config) { c.Argument = &hitl.Argument{Pointer: "/b", Op: "ne", Value: "x"} },
		func(c *hitl.Config) { c.Loss = "L17" }, func(c *hitl.Config) { c.Role = "operator" }, func(c *hitl.Config) { c.Approvers = 2 },
		func(c *hitl.Config) { c.Wait = time.Minute }, func(c *hitl.Config) { c.Unreachable = hitl.Escalate },
		func(c *hitl.Config) { c.AllowOverride = false },
	} {
		c := base
		change(&c)
		seen = append(seen, hash(c))
	}
	slices.Sort(seen)
	if n := len(slices.Compact(seen)); n != 15 {
		t.Errorf("%d hashes of 15 rules", n)
	}
}

func TestRules_NeedsLosses(t *testing.T) {
	t.Parallel()
	r := parse(t, hitl.Config{Agent: "files", Loss: "L17"}, hitl.Config{Agent: "other"})
	f := facts("")
	f.Losses = nil
	if !r.NeedsLosses(f) {
		t.Error("a rule on losses may match: got false")
	}
	f.Agent = "other"
	if r.NeedsLosses(f) {
		t.Error("a rule on losses of another agent: got true")
	}
	if _, ok := r.Match(f); !ok {
		t.Error("a rule without losses does not match")
	}
}

func TestRules_Names(t *testing.T) {
	t.Parallel()
	r := parse(t, hitl.Config{Agent: "a", Role: "operator:oncall"}, hitl.Config{Agent: "a", Role: "approver:bob", Operation: "invoke"},
		hitl.Config{Agent: "a", Role: "approver:oncall", Operation: "native"}, hitl.Config{Agent: "a"})
	if got := r.Names(); !slices.Equal(got, []string{"bob", "oncall"}) {
		t.Errorf("names %q", got)
	}
	if got := r.Operations(); !slices.Equal(got, []string{"invoke", "native"}) {
		t.Errorf("operations %q", got)
	}
}

func TestJoin_BothSetsMatch(t *testing.T) {
	t.Parallel()
	argument := func(id, pointer string) hitl.Rules {
		return parse(t, hitl.Config{ID: id, Argument: &hitl.Argument{Pointer: pointer, Op: "eq", Value: "x"}})
	}
	a, b := argument("a", "/a"), argument("b", "/b")
	both, err := hitl.Join(a, b, hitl.Rules{})
	if err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string][]string{`{"a":"x"}`: {"a"}, `{"b":"x"}`: {"b"}, `{"a":"x","b":"x"}`: {"a", "b"}, `{}`: nil} {
		if d, _ := both.Match(facts(args)); !slices.Equal(d.Rules, want) {
			t.Errorf("%s: %q, want %q", args, d.Rules, want)
		}
	}
	if _, err := hitl.Join(a, a); err == nil {
		t.Error("two rules of one id: no error")
	}
	if d, _ := b.Match(facts(`{"a":"x"}`)); d.Rules != nil {
		t.Error("to join rules changed them")
	}
}

func TestParseRules_Mistakes(t *testing.T) {
	t.Parallel()
	argument := func(pointer, op, value string) hitl.Config {
		return hitl.Config{Argument: &hitl.Argument{Pointer: pointer, Op: op, Value: value}}
	}
	for name, c := range map[string]struct {
		rule  hitl.Config
		field string
	}{
		"no condition":           {hitl.Config{Role: "approver"}, ""},
		"id of control bytes":    {hitl.Config{ID: "a\x1b", Agent: "a"}, "id"},
		"id too long":            {hitl.Config{ID: strings.Repeat("a", 129), Agent: "a"}, "id"},
		"agent too long":         {hitl.Config{Agent: strings.Repeat("a", 257)}, "agent"},
		"agent no UTF-8":         {hitl.Config{Agent: "\xff"}, "agent"},
		"caller":                 {hitl.Config{Caller: "bob"}, "caller"},
		"caller, star":           {hitl.Config{Caller: "spiffe://a.example/x*"}, "caller"},
		"caller with operation":  {hitl.Config{Caller: "spiffe://a.example/x#invoke"}, "caller"},
		"loss":                   {hitl.Config{Loss: "latency"}, "loss"},
		"role":                   {hitl.Config{Agent: "a", Role: "admin"}, "role"},
		"role viewer":            {hitl.Config{Agent: "a", Role: "viewer"}, "role"},
		"role without its name":  {hitl.Config{Agent: "a", Role: "operator:"}, "role"},
		"role, name unprintable": {hitl.Config{Agent: "a", Role: "operator:\u202e"}, "role"},
		"approvers":              {hitl.Config{Agent: "a", Approvers: 6}, "approvers"},
		"approvers negative":     {hitl.Config{Agent: "a", Approvers: -1}, "approvers"},
		"two of one name":        {hitl.Config{Agent: "a", Approvers: 2, Role: "operator:oncall"}, "approvers"},
		"wait short":             {hitl.Config{Agent: "a", Wait: time.Millisecond}, "wait"},
		"wait long":              {hitl.Config{Agent: "a", Wait: 24*time.Hour + 1}, "wait"},
		"unreachable":            {hitl.Config{Agent: "a", Unreachable: "allow"}, "unreachable"},
		"continue":               {hitl.Config{Agent: "a", Unreachable: hitl.Continue}, "unreachable"},
		"op":                     {argument("/a", "like", "x"), "argument"},
		"no op":                  {argument("/a", "", "x"), "argument"},
		"pointer, none":          {argument("", "eq", "x"), "argument"},
		"pointer, no slash":      {argument("a", "eq", "x"), "argument"},
		"pointer, tilde":         {argument("/a~2", "eq", "x"), "argument"},
		"pointer, tilde at end":  {argument("/a~", "eq", "x"), "argument"},
		"pointer too long":       {argument("/"+strings.Repeat("a", 512), "eq", "x"), "argument"},
		"pointer too deep":       {argument(strings.Repeat("/a", 33), "eq", "x"), "argument"},
		"value too long":         {argument("/a", "eq", strings.Repeat("a", 1025)), "argument"},
		"value no number":        {argument("/a", "gt", "many"), "argument"},
		"value of Go's numbers":  {argument("/a", "gt", "0x10"), "argument"},
		"value too large":        {argument("/a", "gt", "1e1000000001"), "argument"},
		"value empty":            {argument("/a", "contains", ""), "argument"},
		"severity":               {hitl.Config{Severity: "fatal"}, "severity"},
		"severity and a tool":    {hitl.Config{Severity: "critical", Tool: "a"}, "severity"},
		"action of a call":       {hitl.Config{Tool: "a", Action: "stop"}, "action"},
		"action":                 {hitl.Config{Severity: "critical", Action: "escalate"}, "action"},
	} {
		_, err := hitl.ParseRules([]hitl.Config{{Agent: "fine"}, c.rule})
		e, ok := errors.AsType[*hitl.RuleError](err)
		if !ok || e.Index != 1 || e.Field != c.field || !strings.Contains(err.Error(), "expected") && !strings.Contains(err.Error(), "needs") {
			t.Errorf("%s: %v, want an error of rule 2 and its field %q", name, err, c.field)
		}
	}
}

func TestParseRules_Bounds(t *testing.T) {
	t.Parallel()
	many := slices.Repeat([]hitl.Config{{Agent: "a"}}, 257)
	if _, err := hitl.ParseRules(many); err == nil {
		t.Error("257 rules: no error")
	}
	if _, err := hitl.ParseRules(many[:256]); err != nil {
		t.Errorf("256 rules: %v", err)
	}
	if _, err := hitl.ParseRules([]hitl.Config{{ID: "approval-2", Agent: "a"}, {Agent: "a"}}); err == nil {
		t.Error("an id that stands twice: no error")
	}
	_, err := hitl.ParseRules([]hitl.Config{{Agent: "a", Role: "x"}, {Agent: "a", Wait: 1}})
	if text := err.Error(); !strings.Contains(text, "rule 1 (approval-1): role") || !strings.Contains(text, "rule 2 (approval-2): wait") {
		t.Errorf("two mistakes: %v", err)
	}
}

// BenchmarkMatch_FiftyThatDoNot is the cost of rules for a call that none of them is about: at most 2 us.
func BenchmarkMatch_FiftyThatDoNot(b *testing.B) {
	var configs []hitl.Config
	for i := range 50 {
		c := hitl.Config{Agent: "agent-" + string(rune('a'+i%26)), Argument: &hitl.Argument{Pointer: "/path", Op: "contains", Value: "/etc"}}
		if i%2 == 0 {
			c = hitl.Config{Agent: "fil*", Tool: "*_all?", Caller: "spiffe://a.example/team/*", Argument: c.Argument}
		}
		configs = append(configs, c)
	}
	r := parse(b, configs...)
	f := facts(`{"path":"/tmp/x"}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := r.Match(f); ok {
			b.Fatal("a rule matches")
		}
	}
}

// BenchmarkMatch_LargeArguments is one pass over 16 MiB for 256 rules.
func BenchmarkMatch_LargeArguments(b *testing.B) {
	var configs []hitl.Config
	for range 256 {
		configs = append(configs, hitl.Config{Argument: &hitl.Argument{Pointer: "/path", Op: "contains", Value: "/etc"}})
	}
	r := parse(b, configs...)
	f := facts(`{"path":"/tmp","x":[` + strings.Repeat(`{"path":1},`, 1<<20) + `0]}`)
	for b.Loop() {
		if _, ok := r.Match(f); ok {
			b.Fatal("a rule matches")
		}
	}
}

// TestParseRules_OfErrors: a rule of the configuration about a severity pauses or stops the workflow, and matches no call.
func TestParseRules_OfErrors(t *testing.T) {
	t.Parallel()
	for action, want := range map[string]hitl.Level{"": hitl.LevelPause, "pause": hitl.LevelPause, "stop": hitl.LevelStop} {
		r := parse(t, hitl.Config{Severity: "critical", Action: action, Role: "operator:oncall"})
		got, ok := r.MatchError("critical", "unknown")
		if !ok || got.Level != want || !slices.Equal(got.Roles, []string{"operator:oncall"}) {
			t.Errorf("%q: %+v, %v", action, got, ok)
		}
		if _, ok := r.MatchError("error", "unknown"); ok {
			t.Errorf("%q: it matches another severity", action)
		}
		if _, ok := r.Match(facts("")); ok {
			t.Errorf("%q: it matches a call", action)
		}
	}
}
