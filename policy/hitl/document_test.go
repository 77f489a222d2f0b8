package hitl_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/policy/hitl"
)

// onError is the rule of the draft (ATD, HITL Escalation on Error).
const onError = `{"id": "r-critical-error",
	"trigger": {"kind": "keyword_match", "op": "eq", "value": "critical", "input_ref": "atd.severity"},
	"required_role": "operator:oncall", "action": "escalate", "allow_override": true, "override_action": "continue"}`

func documentOf(rules ...string) []byte {
	return []byte(`{"constraints": {}, "rules": [` + strings.Join(rules, ",") + `]}`)
}

func ruleOf(id, trigger, rest string) string {
	return `{"id":"` + id + `","trigger":{` + trigger + `},"required_role":"approver"` + rest + `}`
}

func trigger(kind, op, value, ref string) string {
	return `"kind":"` + kind + `","op":"` + op + `","value":` + value + `,"input_ref":"` + ref + `"`
}

func parseDocument(t *testing.T, rules ...string) hitl.Rules {
	t.Helper()
	r, err := hitl.ParseDocumentRules(documentOf(rules...))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestParseDocumentRules_RuleOfTheDraft(t *testing.T) {
	t.Parallel()
	r := parseDocument(t, onError)
	got, ok := r.MatchError("critical", "unknown")
	want := hitl.Reaction{Level: hitl.LevelApproval, Demand: hitl.Demand{
		Rules: []string{"r-critical-error"}, Roles: []string{"operator:oncall"}, Approvers: 1, Wait: 15 * time.Minute,
		Unreachable: hitl.DenyCall, Hash: got.Hash,
	}}
	if !ok || !reflect.DeepEqual(got, want) || got.Hash == "" {
		t.Errorf("%+v, %t, want %+v", got, ok, want)
	}
	if _, ok := r.MatchError("error", "unknown"); ok {
		t.Error("an error that is not critical matches")
	}
	if _, ok := r.Match(facts("")); ok {
		t.Error("a rule on errors matches a call")
	}
	if names := r.Names(); !slices.Equal(names, []string{"oncall"}) {
		t.Errorf("names %q", names)
	}
}

func TestMatchError_HighestLevel(t *testing.T) {
	t.Parallel()
	severity := func(id, op, value, action, rest string) string {
		return ruleOf(id, trigger("keyword_match", op, `"`+value+`"`, "atd.severity"), `,"action":"`+action+`"`+rest)
	}
	r := parseDocument(t,
		severity("p", "ne", "info", "pause", `,"wait_s":60`), severity("a", "matches", "*r*", "require_approval", `,"approvers":2`),
		severity("s", "eq", "critical", "stop", ""),
		ruleOf("t", trigger("keyword_match", "eq", `"timeout"`, "atd.error_type"), `,"action":"pause"`))
	for _, c := range []struct {
		severity, errorType string
		level               hitl.Level
		rules               []string
	}{
		{"info", "unknown", 0, nil},
		{"info", "timeout", hitl.LevelPause, []string{"t"}},
		{"error", "unknown", hitl.LevelApproval, []string{"p", "a"}},
		{"critical", "timeout", hitl.LevelStop, []string{"p", "a", "s", "t"}},
	} {
		got, ok := r.MatchError(c.severity, c.errorType)
		if ok != (c.rules != nil) || got.Level != c.level || !slices.Equal(got.Rules, c.rules) {
			t.Errorf("%s, %s: %+v, %t", c.severity, c.errorType, got, ok)
		}
	}
	if got, _ := r.MatchError("error", ""); got.Approvers != 2 || got.Wait != time.Minute {
		t.Errorf("two rules: %+v", got)
	}
	for level, text := range map[hitl.Level]string{0: "", hitl.LevelPause: "pause", hitl.LevelApproval: "approval", hitl.LevelStop: "stop", 9: ""} {
		if level.String() != text {
			t.Errorf("level %d: %q, want %q", level, level, text)
		}
	}
}

func TestParseDocumentRules_Inputs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind, op, value, ref string
		want                 bool
	}{
		{"keyword_match", "eq", `"files"`, "agent", true},
		{"keyword_match", "ne", `"files"`, "agent", false},
		{"keyword_match", "contains", `"delete"`, "tool", true},
		{"keyword_match", "contains", `"create"`, "tool", false},
		{"keyword_match", "matches", `"delete_*"`, "tool", true},
		{"keyword_match", "eq", `"spiffe://a.example/team/x"`, "caller", true},
		{"keyword_match", "ne", `"spiffe://a.example/team/x"`, "caller", false},
		{"keyword_match", "matches", `"*/team/*"`, "caller", true},
		{"keyword_match", "eq", `"invoke"`, "operation", true},
		{"keyword_match", "eq", `"L05"`, "loss", true},
		{"keyword_match", "contains", `"L3"`, "loss", false},
		{"keyword_match", "eq", `"/etc"`, "args/path/0", true},
		{"keyword_match", "eq", `"\u002fetc"`, "args/path/0", true},
		{"keyword_match", "ne", `"/etc"`, "args/path/0", false},
		{"threshold", "gt", `10`, "args/n", true},
		{"threshold", "gt", `11`, "args/n", false},
		{"threshold", "ge", `11`, "args/n", true},
		{"threshold", "lt", `1.2e1`, "args/n", true},
		{"threshold", "le", `10.99`, "args/n", false},
		{"threshold", "eq", `11.0`, "args/n", true},
		{"threshold", "eq", `12`, "args/n", false},
		{"threshold", "eq", `12`, "args/path/0", true},
	} {
		r := parseDocument(t, ruleOf("r", trigger(c.kind, c.op, c.value, c.ref), `,"action":"require_approval"`))
		if _, got := r.Match(facts(`{"path":["/etc"],"n":11}`)); got != c.want {
			t.Errorf("%s %s %s %s: %t, want %t", c.ref, c.kind, c.op, c.value, got, c.want)
		}
	}
}

func TestParseDocumentRules_Members(t *testing.T) {
	t.Parallel()
	r := parseDocument(t, ruleOf("r", trigger("keyword_match", "eq", `"files"`, "agent"),
		`,"action":"escalate","allow_override":true,"unreachable_human":"continue","wait_s":86400,"approvers":5`))
	d, _ := r.Match(facts(""))
	want := hitl.Demand{Rules: []string{"r"}, Roles: []string{"approver"}, Approvers: 5, Wait: 24 * time.Hour, Unreachable: hitl.Continue, Hash: d.Hash}
	if !reflect.DeepEqual(d, want) {
		t.Errorf("%+v, want %+v", d, want)
	}
	for _, text := range []string{`{}`, `{"rules":[]}`, ` {"dag":{"rules":1}} `} {
		if r, err := hitl.ParseDocumentRules([]byte(text)); err != nil || !r.Empty() {
			t.Errorf("%s: %v, want no rules", text, err)
		}
	}
}

func TestParseDocumentRules_Mistakes(t *testing.T) {
	t.Parallel()
	fine := trigger("keyword_match", "eq", `"files"`, "agent")
	const action = `,"action":"require_approval"`
	for name, c := range map[string]struct{ rule, expected string }{
		"no object":               {`7`, "rule 1: expected a JSON object"},
		"no id":                   {`{"trigger":{` + fine + `},"action":"escalate"}`, "id: it is missing"},
		"id no string":            {`{"id":7}`, "id: expected a string"},
		"id twice":                {ruleOf("r", fine, action+`,"\u0069d":"r"`), "twice"},
		"no trigger":              {`{"id":"r","action":"escalate"}`, "(r): trigger: expected an object"},
		"member":                  {ruleOf("r", fine, action+`,"Action":"stop"`), "unknown member"},
		"member of the trigger":   {ruleOf("r", fine+`,"x":1`, action), "unknown member"},
		"trigger with op twice":   {ruleOf("r", fine+`,"op":"ne"`, action), "each once"},
		"kind":                    {ruleOf("r", trigger("regex", "eq", `"x"`, "agent"), action), "expected keyword_match or threshold"},
		"no kind":                 {ruleOf("r", `"op":"eq","value":"x","input_ref":"agent"`, action), "kind: it is missing"},
		"op":                      {ruleOf("r", trigger("keyword_match", "like", `"x"`, "agent"), action), "expected eq, ne, contains or matches"},
		"op of the other kind":    {ruleOf("r", trigger("keyword_match", "gt", `"1"`, "args/n"), action), "expected eq, ne, contains or matches"},
		"op of the first kind":    {ruleOf("r", trigger("threshold", "contains", `1`, "args/n"), action), "expected lt, le, gt, ge or eq"},
		"value no string":         {ruleOf("r", trigger("keyword_match", "eq", `7`, "agent"), action), "value: expected a string"},
		"value no number":         {ruleOf("r", trigger("threshold", "gt", `"7"`, "args/n"), action), "value: expected a number"},
		"value missing":           {ruleOf("r", `"kind":"threshold","op":"gt","input_ref":"args/n"`, action), "value: expected a number"},
		"value empty":             {ruleOf("r", trigger("keyword_match", "eq", `""`, "agent"), action), "value: it is empty"},
		"value far":               {ruleOf("r", trigger("threshold", "gt", `1e9999999999`, "args/n"), action), "exponent"},
		"input_ref":               {ruleOf("r", trigger("keyword_match", "eq", `"x"`, "body"), action), "input_ref: expected atd.severity"},
		"input_ref below agent":   {ruleOf("r", trigger("keyword_match", "eq", `"x"`, "agent/x"), action), "input_ref: expected"},
		"input_ref args":          {ruleOf("r", trigger("keyword_match", "eq", `"x"`, "args"), action), "input_ref: expected"},
		"threshold on a name":     {ruleOf("r", trigger("threshold", "gt", `1`, "agent"), action), "args/amount"},
		"pointer":                 {ruleOf("r", trigger("keyword_match", "eq", `"x"`, "args/a~2"), action), "expected 0 or 1 after each ~"},
		"severity":                {ruleOf("r", trigger("keyword_match", "eq", `"fatal"`, "atd.severity"), action), "expected one of info"},
		"error type":              {ruleOf("r", trigger("keyword_match", "ne", `"crash"`, "atd.error_type"), action), "expected one of action_failed"},
		"caller":                  {ruleOf("r", trigger("keyword_match", "ne", `"bob"`, "caller"), action), "expected a SPIFFE ID"},
		"caller is a pattern":     {ruleOf("r", trigger("keyword_match", "eq", `"spiffe://a.example/*"`, "caller"), action), "expected a SPIFFE ID"},
		"loss":                    {ruleOf("r", trigger("keyword_match", "ne", `"L17"`, "loss"), action), "expected an op"},
		"action":                  {ruleOf("r", fine, `,"action":"log"`), "expected require_approval, escalate, pause or stop"},
		"no action":               {ruleOf("r", fine, ``), "action: it is missing"},
		"stop for a call":         {ruleOf("r", fine, `,"action":"stop"`), "a call is held for an approval"},
		"pause for a call":        {ruleOf("r", fine, `,"action":"pause"`), "a call is held for an approval"},
		"role":                    {`{"id":"r","trigger":{` + fine + `},"required_role":"auditor","action":"escalate"}`, "role: expected approver or operator"},
		"approvers":               {ruleOf("r", fine, action+`,"approvers":0`), "from 1 to 5"},
		"approvers no integer":    {ruleOf("r", fine, action+`,"approvers":1.5`), "from 1 to 5"},
		"wait_s":                  {ruleOf("r", fine, action+`,"wait_s":86401`), "from 1 to 86400"},
		"wait_s overflows":        {ruleOf("r", fine, action+`,"wait_s":99999999999999999999`), "from 1 to 86400"},
		"unreachable_human":       {ruleOf("r", fine, action+`,"unreachable_human":"allow"`), "expected deny, escalate or continue"},
		"continue":                {ruleOf("r", fine, action+`,"unreachable_human":"continue"`), "needs allow_override"},
		"allow_override":          {ruleOf("r", fine, action+`,"allow_override":"true"`), "expected true or false"},
		"override_action":         {ruleOf("r", fine, action+`,"allow_override":true,"override_action":"skip"`), "expected continue"},
		"override_action without": {ruleOf("r", fine, action+`,"override_action":"continue"`), "needs allow_override"},
		"two of one id":           {ruleOf("r", fine, action) + "," + ruleOf("r", fine, action), "rule 2 (r): id"},
	} {
		_, err := hitl.ParseDocumentRules(documentOf(c.rule))
		if _, ok := errors.AsType[*hitl.RuleError](err); !ok || !strings.Contains(err.Error(), c.expected) {
			t.Errorf("%s: %v, want %q", name, err, c.expected)
		}
	}
	for _, text := range []string{
		``, `[]`, `{"rules":{}}`, `{"rules":null}`, `{"rules":[1]}`, `{"rules":[],"rules":[]}`, `{"Rules":[]}`, `{"rules":[]}}`, `{"rules":[],}`,
		`{"rules":[` + strings.Repeat(" ", 64<<10) + `]}`, string(documentOf(slices.Repeat([]string{`{}`}, 300)...)),
	} {
		if _, err := hitl.ParseDocumentRules([]byte(text)); err == nil {
			t.Errorf("%.40s: no error", text)
		}
	}
}

func TestParseDocumentRules_TooMany(t *testing.T) {
	t.Parallel()
	var rules []string
	for i := range 257 {
		rules = append(rules, ruleOf("r"+string(rune('A'+i/26))+string(rune('a'+i%26)), trigger("keyword_match", "eq", `"f"`, "agent"), `,"action":"escalate"`))
	}
	parseDocument(t, rules[:256]...)
	if _, err := hitl.ParseDocumentRules(documentOf(rules...)); err == nil || !strings.Contains(err.Error(), "at most 256") {
		t.Errorf("257 rules: %v", err)
	}
}
