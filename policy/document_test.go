package policy_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/policy"
)

// nodeOf is a document with one node of ours.
func nodeOf(kind, constraints string) string {
	return `{"dag":{"nodes":[{"id":"n","type":"` + kind + `","agent":"` + string(self) + `","constraints":` + constraints + `}]}}`
}

// Everything that a document may say, and what becomes of the operator's own
// constraints. The two examples are the drafts'.
func TestDocument_Constraints(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		text string
		base policy.Constraints
		want policy.Constraints
	}{
		"nothing": {text: `{}`},
		"AEPB's example": {
			text: `{"constraints":{"aepb.allowed_source_protocols":["a2a-v1","mcp-v1"],"aepb.allowed_dest_protocols":["slim-v1"],"aepb.max_translation_hops":2}}`,
			want: policy.Constraints{
				RestrictSource: true, AllowedSource: []string{"a2a-v1", "mcp-v1"},
				RestrictDest: true, AllowedDest: []string{"slim-v1"}, MaxHops: 2,
			},
		},
		"CPAT's example": {
			text: nodeOf("cpat:translate", `{"allowed_source_protocols":["a2a-v1","mcp-v1"],"allowed_dest_protocols":["slim-v1"],"max_translation_hops":2}`),
			want: policy.Constraints{
				RestrictSource: true, AllowedSource: []string{"a2a-v1", "mcp-v1"},
				RestrictDest: true, AllowedDest: []string{"slim-v1"}, MaxHops: 2,
			},
		},
		"AEPB's security":          {text: `{"constraints":{"aepb.min_protocol_security":"tls-1.3"}}`, want: policy.Constraints{MinSecurity: policy.SecurityTLS13}},
		"bare names at the top":    {text: `{"constraints":{"max_translation_hops":1}}`},
		"bare names in aepb's act": {text: nodeOf("aepb:translate", `{"max_translation_hops":1}`)},
		"prefixed in any node":     {text: nodeOf("send_task", `{"aepb.max_translation_hops":1}`), want: policy.Constraints{MaxHops: 1}},
		"no hops at all":           {text: `{"constraints":{"aepb.max_translation_hops":0}}`, want: policy.Constraints{MaxHops: -1}},
		"more hops than the default": {
			text: `{"constraints":{"aepb.max_translation_hops":9}}`, want: policy.Constraints{MaxHops: policy.DefaultMaxHops},
		},
		"both names, bare is stricter": {
			text: nodeOf("cpat:translate", `{"aepb.max_translation_hops":2,"max_translation_hops":1}`), want: policy.Constraints{MaxHops: 1},
		},
		"both names, prefixed is stricter": {
			text: nodeOf("cpat:translate", `{"max_translation_hops":2,"aepb.max_translation_hops":1}`), want: policy.Constraints{MaxHops: 1},
		},
		"both lists": {
			text: nodeOf("cpat:translate", `{"allowed_dest_protocols":["a2a-v1","mcp-v1"],"aepb.allowed_dest_protocols":["mcp-v1","slim-v1"]}`),
			want: policy.Constraints{RestrictDest: true, AllowedDest: []string{"mcp-v1"}},
		},
		"lists that have nothing in common": {
			text: nodeOf("cpat:translate", `{"allowed_source_protocols":["a2a-v1"],"aepb.allowed_source_protocols":["mcp-v1"]}`),
			want: policy.Constraints{RestrictSource: true, AllowedSource: []string{}},
		},
		"the operator is stricter": {
			text: `{"constraints":{"aepb.max_translation_hops":2,"aepb.allowed_dest_protocols":["a2a-v1","mcp-v1"]}}`,
			base: policy.Constraints{MaxHops: 1, RestrictDest: true, AllowedDest: []string{"mcp-v1"}, MinSecurity: policy.SecurityTLS13, AllowLosses: []string{"L07"}},
			want: policy.Constraints{MaxHops: 1, RestrictDest: true, AllowedDest: []string{"mcp-v1"}, MinSecurity: policy.SecurityTLS13, AllowLosses: []string{"L07"}},
		},
		"the operator allows none": {
			text: `{"constraints":{"aepb.max_translation_hops":2,"aepb.allowed_dest_protocols":["a2a-v1"]}}`,
			base: policy.Constraints{MaxHops: -1, RestrictDest: true}, want: policy.Constraints{MaxHops: -1, RestrictDest: true},
		},
		"somebody else's node": {
			text: `{"dag":{"nodes":[{"type":"cpat:translate","agent":"spiffe://else.test/gw","constraints":{"max_translation_hops":1}}]}}`,
		},
		"anybody's node": {
			text: `{"dag":{"nodes":[{"type":"cpat:translate","constraints":{"max_translation_hops":1}}]}}`, want: policy.Constraints{MaxHops: 1},
		},
		"as much as may be": {
			text: `{"constraints":{"aepb.max_translation_hops":1048576,"aepb.allowed_dest_protocols":["x"` + strings.Repeat(`,"x"`, 255) + `]},` +
				`"dag":{"nodes":[` + strings.Repeat(`{},`, 255) + `{}]}}`,
			want: policy.Constraints{MaxHops: policy.DefaultMaxHops, RestrictDest: true, AllowedDest: slices.Repeat([]string{"x"}, 256)},
		},
		"other modules' names": {text: `{"constraints":{"atd.deadline":0.5,"x":{}},"hitl":{}}`},
		"ATD's example": {
			text: `{"constraints":{"atd.circuit_threshold":0.5,"atd.circuit_window_s":60}}`,
			want: policy.Constraints{Circuit: policy.Circuit{Threshold: 500, Window: time.Minute}},
		},
		"a failure undoes": {text: `{"constraints":{"atd.cascade":true}}`, want: policy.Constraints{Cascade: policy.CascadeAlways}},
		"one node forbids to undo": {
			text: `{"constraints":{"atd.cascade":false},"dag":{"nodes":[{"type":"cpat:translate","constraints":{"atd.cascade":true}}]}}`, want: policy.Constraints{Cascade: policy.CascadeNever},
		},
		"all may fail": {text: `{"constraints":{"atd.circuit_threshold":1}}`, want: policy.Constraints{Circuit: policy.Circuit{Threshold: 1000}}},
		"a stricter breaker": {
			text: `{"constraints":{"atd.circuit_threshold":0.125,"atd.circuit_window_s":3600}}`,
			base: policy.Constraints{Circuit: policy.Circuit{Threshold: 900, Window: time.Second, Samples: 7}},
			want: policy.Constraints{Circuit: policy.Circuit{Threshold: 125, Window: time.Second, Samples: 7}},
		},
	} {
		d, err := policy.ParseDocument([]byte(tc.text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(tc.want, d.Narrow(tc.base, self)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// What cannot be followed is refused: to overlook it would be to allow.
func TestDocument_Refuses(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"nothing": "", "null": "null", "an array": "[]", "more": "{} {}", "cut": `{"constraints":{`,
		"too long":                  `{"a":"` + strings.Repeat("x", policy.MaxDocument) + `"}`,
		"twice":                     `{"constraints":{"aepb.max_translation_hops":1,"aepb.max_translation_hops":2}}`,
		"two constraints":           `{"constraints":{},"constraints":{"aepb.max_translation_hops":2}}`,
		"constraints a list":        `{"constraints":[]}`,
		"hops text":                 `{"constraints":{"aepb.max_translation_hops":"2"}}`,
		"hops fraction":             `{"constraints":{"aepb.max_translation_hops":2.5}}`,
		"hops negative":             `{"constraints":{"aepb.max_translation_hops":-1}}`,
		"hops null":                 `{"constraints":{"aepb.max_translation_hops":null}}`,
		"one hop too many":          `{"constraints":{"aepb.max_translation_hops":1048577}}`,
		"protocols, 257":            `{"constraints":{"aepb.allowed_dest_protocols":["x"` + strings.Repeat(`,"x"`, 256) + `]}}`,
		"hops huge":                 `{"constraints":{"aepb.max_translation_hops":99999999999999999999}}`,
		"protocols text":            `{"constraints":{"aepb.allowed_source_protocols":"a2a-v1"}}`,
		"protocols null":            `{"constraints":{"aepb.allowed_dest_protocols":null}}`,
		"protocols numbers":         `{"constraints":{"aepb.allowed_dest_protocols":[1]}}`,
		"protocols nulls":           `{"constraints":{"aepb.allowed_dest_protocols":[null]}}`,
		"security unknown":          `{"constraints":{"aepb.min_protocol_security":"tls-1.4"}}`,
		"security below":            `{"constraints":{"aepb.min_protocol_security":"tls-1.2"}}`,
		"security case":             `{"constraints":{"aepb.min_protocol_security":"TLS-1.3"}}`,
		"security number":           `{"constraints":{"aepb.min_protocol_security":1.3}}`,
		"cascade text":              `{"constraints":{"atd.cascade":"true"}}`,
		"threshold zero":            `{"constraints":{"atd.circuit_threshold":0}}`,
		"threshold above one":       `{"constraints":{"atd.circuit_threshold":1.001}}`,
		"threshold fine":            `{"constraints":{"atd.circuit_threshold":0.5001}}`,
		"threshold text":            `{"constraints":{"atd.circuit_threshold":"0.5"}}`,
		"threshold exponent":        `{"constraints":{"atd.circuit_threshold":5e-1}}`,
		"no circuit window":         `{"constraints":{"atd.circuit_window_s":0}}`,
		"a circuit window of a day": `{"constraints":{"atd.circuit_window_s":86400}}`,
		"unknown of AEPB":           `{"constraints":{"aepb.max_hops":1}}`,
		"unknown of CPAT":           `{"constraints":{"cpat.max_translation_hops":1}}`,
		"bare hops text":            nodeOf("cpat:translate", `{"max_translation_hops":"1"}`),
		"no nodes":                  `{"dag":{}}`,
		"no node":                   `{"dag":{"nodes":[]}}`,
		"a member cut off":          `{"a":`,
		"a member without":          `{"a"}`,
		"a name that is none":       `{1:2}`,
		"an open object":            `{"a":1`,
		"too many nodes":            `{"dag":{"nodes":[` + strings.Repeat(`{},`, 256) + `{}]}}`,
		"a node is no object":       `{"dag":{"nodes":[1]}}`,
		"the type no text":          `{"dag":{"nodes":[{"type":1}]}}`,
		"the agent no text":         `{"dag":{"nodes":[{"agent":null}]}}`,
	} {
		var bad *policy.DocumentError
		if d, err := policy.ParseDocument([]byte(text)); !errors.As(err, &bad) {
			t.Errorf("%s: got %v, %v", name, d, err)
		}
	}
}

func FuzzDocument_Parse(f *testing.F) {
	f.Add([]byte(nodeOf("cpat:translate", `{"max_translation_hops":1}`)))
	f.Add([]byte(`{"constraints":{"aepb.max_translation_hops":1,"aepb.allowed_source_protocols":["a2a-v1"],"aepb.min_protocol_security":"tls-1.3"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := policy.ParseDocument(data)
		if err != nil {
			return
		}
		base := policy.Constraints{MaxHops: 2, RestrictSource: true, AllowedSource: []string{"mcp-v1"}, MinSecurity: policy.SecurityTLS13}
		got := d.Narrow(base, self)
		if got.MaxHops > base.MaxHops || !got.RestrictSource || len(got.AllowedSource) > 1 || got.MinSecurity < base.MinSecurity || got.MaxHops == 0 {
			t.Fatalf("widened: %+v", got)
		}
	})
}

// A sender may narrow what holds for its own message, in the drafts' names.
func TestConstraints_OfTheSender(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		ext  ect.Ext
		want string
	}{
		"nothing":            {nil, "permit"},
		"two hops":           {ect.Ext{"aepb.max_translation_hops": []byte("2")}, "permit"},
		"one hop":            {ect.Ext{"aepb.max_translation_hops": []byte("1")}, "denied aepb.max_translation_hops"},
		"more than allowed":  {ect.Ext{"aepb.max_translation_hops": []byte("9")}, "permit"},
		"hops malformed":     {ect.Ext{"aepb.max_translation_hops": []byte(`"1"`)}, "denied aepb.max_translation_hops"},
		"source listed":      {ect.Ext{"aepb.allowed_source_protocols": []byte(`["a2a-v1"]`)}, "permit"},
		"source not listed":  {ect.Ext{"aepb.allowed_source_protocols": []byte(`["mcp-v1"]`)}, "denied aepb.allowed_source_protocols"},
		"dest not listed":    {ect.Ext{"aepb.allowed_dest_protocols": []byte(`[]`)}, "denied aepb.allowed_dest_protocols"},
		"dest malformed":     {ect.Ext{"aepb.allowed_dest_protocols": []byte(`{}`)}, "denied aepb.allowed_dest_protocols"},
		"security":           {ect.Ext{"aepb.min_protocol_security": []byte(`"tls-1.3"`)}, "permit"},
		"security unknown":   {ect.Ext{"aepb.min_protocol_security": []byte(`"tls-9"`)}, "denied aepb.min_protocol_security"},
		"bare names are not": {ect.Ext{"max_translation_hops": []byte("0")}, "permit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := allowed(newWorld(t).tokenWith(t, alice, "ask", 0, tc.ext))
			r.Path = via("spiffe://b.test/gateway")
			if got := outcome(t, r); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// The level of our evidence is the higher of both agents', and never below L2
// (CPAT, Assurance Level Inheritance). Level 3 needs a ledger.
func TestEvaluate_Levels(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, source := range []ect.Level{0, ect.L1, ect.L2, ect.L3} {
		for _, dest := range []ect.Level{0, ect.L1, ect.L2, ect.L3} {
			r := allowed(w.token(t, alice, "ask", 0))
			r.SourceLevel, r.DestLevel = source, dest
			permit, err := policy.Evaluate(r)
			var level *policy.LevelError
			if source == ect.L3 || dest == ect.L3 {
				if !errors.As(err, &level) || level.Required != ect.L3 || !strings.Contains(err.Error(), "L3") {
					t.Errorf("%d and %d: got %v", source, dest, err)
				}
				continue
			}
			if err != nil || permit.Level() != ect.L2 {
				t.Errorf("%d and %d: level %d, %v", source, dest, permit.Level(), err)
			}
		}
	}
	r := allowed(w.unsigned(t, "ask"))
	for level, want := range map[ect.Level]string{0: "permit", ect.L1: "permit", ect.L2: "invalid level_too_low"} {
		r.DestLevel = level
		if got := outcome(t, r); got != want {
			t.Errorf("an L1 token for an agent that demands L%d: %s, want %s", level, got, want)
		}
	}
}

func TestPermit_MinimumSecurity(t *testing.T) {
	t.Parallel()
	for least, want := range map[policy.Security]bool{policy.SecurityNone: true, policy.SecurityTLS13: false} {
		r := allowed(newWorld(t).token(t, alice, "ask", 0))
		r.Constraints.MinSecurity = least
		permit, err := policy.Evaluate(r)
		if err != nil {
			t.Fatal(err)
		}
		if got := permit.Carry(policy.SecurityNone) == nil; got != want {
			t.Errorf("minimum %d: plaintext passes: %v", least, got)
		}
		if err := permit.Carry(policy.SecurityTLS13); err != nil {
			t.Errorf("minimum %d: %v", least, err)
		}
	}
	if err := (policy.Permit{}).Carry(policy.SecurityTLS13); !errors.Is(err, policy.ErrNoPermit) {
		t.Errorf("no permit: %v", err)
	}
}

// An operation that was not known yet is judged once it is.
func TestPermit_OperationKnownLater(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		callers         []string
		open            bool
		invoke, getTask bool
	}{
		"all":              {callers: []string{string(alice)}, invoke: true, getTask: true},
		"one":              {callers: []string{string(alice) + "#invoke"}, invoke: true},
		"another":          {callers: []string{string(alice) + "#task.get"}, getTask: true},
		"two":              {callers: []string{string(alice) + "#invoke", "spiffe://a.test/*#task.get"}, invoke: true, getTask: true},
		"one and all":      {callers: []string{string(alice) + "#invoke", "spiffe://a.test/*"}, invoke: true, getTask: true},
		"others' are not":  {callers: []string{string(alice) + "#invoke", string(bob)}, invoke: true},
		"open to everyone": {open: true, invoke: true, getTask: true},
	} {
		r := allowed(newWorld(t).token(t, alice, "ask", 0))
		r.Operation, r.Rules = "", policy.Rules{Callers: tc.callers, Open: tc.open}
		permit, err := policy.Evaluate(r)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := permit.Perform("invoke") == nil; got != tc.invoke {
			t.Errorf("%s: invoke %v", name, got)
		}
		var forbidden *policy.Forbidden
		if err := permit.Perform("task.get"); (err == nil) != tc.getTask || err != nil && (!errors.As(err, &forbidden) || forbidden.Constraint != policy.ConstraintOperation) {
			t.Errorf("%s: task.get %v", name, err)
		}
	}
	if err := (policy.Permit{}).Perform("invoke"); !errors.Is(err, policy.ErrNoPermit) {
		t.Errorf("no permit: %v", err)
	}
}

// delegation is a document with nodes n0 to n255 and edges such as "n0>n1 n1>n2".
func delegation(edges string) string {
	nodes, list := make([]string, 256), []string{}
	for i := range nodes {
		nodes[i] = fmt.Sprintf(`{"id":"n%d"}`, i)
	}
	for edge := range strings.FieldsSeq(edges) {
		from, to, _ := strings.Cut(edge, ">")
		list = append(list, fmt.Sprintf(`{"from":%q,"to":%q}`, from, to))
	}
	return `{"dag":{"nodes":[` + strings.Join(nodes, ",") + `],"edges":[` + strings.Join(list, ",") + `]}}`
}

// TestParseDocument_Cycles: a delegation graph with a cycle is refused (ATD, Topological Order).
func TestParseDocument_Cycles(t *testing.T) {
	t.Parallel()
	var around []string
	for i := range 256 {
		around = append(around, fmt.Sprintf("n%d>n%d", i, (i+1)%256))
	}
	const cycle, node, edge = "dag.edges has a cycle, expected none: ", "a node has an id that is no string of 1 to 128 printable bytes, or that another node has", "an edge has a from or a to that is the id of no node"
	const edges = "dag.edges is an array of at most 1024 edges"
	for name, tc := range map[string]struct{ text, want string }{
		"no edges":                  {delegation(""), ""},
		"nodes without ids":         {`{"dag":{"nodes":[{},{}]}}`, ""},
		"a diamond":                 {delegation("n0>n1 n0>n2 n1>n3 n2>n3"), ""},
		"an edge twice":             {delegation("n0>n1 n0>n1"), ""},
		"a chain of all nodes":      {delegation(strings.Join(around[:255], " ")), ""},
		"as many edges as may be":   {delegation(strings.Repeat("n0>n1 ", 1024)), ""},
		"a self edge":               {delegation("n0>n1 n1>n1"), cycle + "n1 -> n1"},
		"a cycle of two":            {delegation("n0>n1 n1>n2 n2>n1 n2>n3"), cycle + "n2 -> n1 -> n2"},
		"a cycle of all nodes":      {delegation(strings.Join(around, " ")), "-> (246 more) ->"},
		"one edge too many":         {delegation(strings.Repeat("n0>n1 ", 1025)), edges},
		"edges are no array":        {`{"dag":{"nodes":[{"id":"a"}],"edges":{}}}`, edges},
		"edges are null":            {`{"dag":{"nodes":[{"id":"a"}],"edges":null}}`, edges},
		"an edge is no object":      {`{"dag":{"nodes":[{"id":"a"}],"edges":[["a","a"]]}}`, "an edge is no JSON object"},
		"an end twice":              {`{"dag":{"nodes":[{"id":"a"}],"edges":[{"from":"a","from":"a","to":"a"}]}}`, "an edge names one member twice"},
		"an end is missing":         {`{"dag":{"nodes":[{"id":"a"}],"edges":[{"from":"a"}]}}`, edge},
		"an end is no string":       {`{"dag":{"nodes":[{"id":"a"}],"edges":[{"from":"a","to":1}]}}`, edge},
		"an unknown end":            {delegation("n0>n256"), edge},
		"an unknown start":          {delegation("x>n1"), edge},
		"an end of a nameless node": {`{"dag":{"nodes":[{"id":"a"},{}],"edges":[{"from":"a","to":""}]}}`, edge},
		"two nodes of one id":       {`{"dag":{"nodes":[{"id":"a"},{"id":"a"}]}}`, node},
		"an empty id":               {`{"dag":{"nodes":[{"id":""}]}}`, node},
		"an id that is null":        {`{"dag":{"nodes":[{"id":null}]}}`, node},
		"an id that is a number":    {`{"dag":{"nodes":[{"id":1}]}}`, node},
		"an id with a line break":   {`{"dag":{"nodes":[{"id":"a\nb"}]}}`, node},
		"an id of 128 bytes":        {`{"dag":{"nodes":[{"id":"` + strings.Repeat("a", 128) + `"}]}}`, ""},
		"an id of 129 bytes":        {`{"dag":{"nodes":[{"id":"` + strings.Repeat("a", 129) + `"}]}}`, node},
	} {
		_, err := policy.ParseDocument([]byte(tc.text))
		if tc.want == "" && err != nil {
			t.Errorf("%s: got %v", name, err)
		}
		if _, ok := errors.AsType[*policy.DocumentError](err); tc.want != "" && (!ok || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: got %v, want %q", name, err, tc.want)
		}
	}
}
