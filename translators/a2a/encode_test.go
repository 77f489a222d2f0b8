package a2a

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

func TestEncode_Bodies(t *testing.T) {
	t.Parallel()
	ask := &canonical.Capability{ID: "ask it", Profile: canonical.ProfileMessage}
	typed := &canonical.Capability{ID: "sum", Profile: canonical.ProfileTyped}
	cases := map[string]struct {
		body   canonical.Body
		target *canonical.Capability
		want   string // of params or result
		losses string
	}{
		"a call becomes a typed data part named as the agent names it": {
			call("sum-1", `{"a":1}`), typed,
			`{"message":{"messageId":"m-1","role":"ROLE_USER","parts":[{"data":{"skill":"sum","input":{"a":1}},"mediaType":"application/json"}],"extensions":["urn:aepb:translation:1"]}}`, "",
		},
		"absent arguments are told apart from empty ones": {
			call("sum", ""), typed,
			`{"message":{"messageId":"m-1","role":"ROLE_USER","parts":[{"data":{"skill":"sum","input":{}},"mediaType":"application/json"}],"extensions":["urn:aepb:translation:1"]},"metadata":{"urn:aepb:translation:1":{"canon":{"argumentsAbsent":true}}}}`,
			"L25 carried /body/call/args",
		},
		"a message tool's arguments become a turn, for the skill that the tool stands for": {
			call("ask_it", `{"message":"hi","context_id":"c","task_id":"t"}`), ask,
			`{"message":{"messageId":"m-1","role":"ROLE_USER","contextId":"c","taskId":"t","parts":[{"text":"hi"}],"metadata":{"urn:aepb:translation:1":{"skill":"ask it"}}}}`, "",
		},
		"a number that a double cannot hold is sent and declared": {
			call("sum", `{"a":9007199254740993}`), typed,
			`{"message":{"messageId":"m-1","role":"ROLE_USER","parts":[{"data":{"skill":"sum","input":{"a":9007199254740993}},"mediaType":"application/json"}],"extensions":["urn:aepb:translation:1"]}}`,
			"L16 carried /body/call/args",
		},
		"blocks become the parts of one artifact": {
			output(false, "", text("a"), text("b")), nil,
			`{"task":{"id":"task-1","contextId":"context-1","status":{"state":"TASK_STATE_COMPLETED"},"artifacts":[{"artifactId":"result","parts":[{"text":"a"},{"text":"b"}]}],"metadata":{"urn:aepb:translation:1":{"canon":{"output":true}}}}}`, "",
		},
		"structured content comes last": {
			output(false, `{"x":1}`, text("a")), nil,
			`{"task":{"id":"task-1","contextId":"context-1","status":{"state":"TASK_STATE_COMPLETED"},"artifacts":[{"artifactId":"result","parts":[{"text":"a"},{"data":{"x":1},"mediaType":"application/json","metadata":{"urn:aepb:translation:1":{"canon":{"structured":true}}}}]}],"metadata":{"urn:aepb:translation:1":{"canon":{"output":true}}}}}`,
			"L17 carried /body/output/structured",
		},
		"structured content takes the place of its text copy": {
			output(false, `{"x":1}`, text(`{"x":1}`)), nil,
			`{"task":{"id":"task-1","contextId":"context-1","status":{"state":"TASK_STATE_COMPLETED"},"artifacts":[{"artifactId":"result","parts":[{"data":{"x":1},"metadata":{"urn:aepb:translation:1":{"canon":{"copy":true}}}}]}],"metadata":{"urn:aepb:translation:1":{"canon":{"output":true}}}}}`,
			"L17 carried /body/output/structured",
		},
		"a failed call is a failed task and never empty": {
			output(true, ""), nil,
			`{"task":{"id":"task-1","contextId":"context-1","status":{"state":"TASK_STATE_FAILED","message":{"messageId":"task-1/status","contextId":"context-1","taskId":"task-1","role":"ROLE_AGENT","parts":[{"text":"The call failed without saying why.","metadata":{"urn:aepb:translation:1":{"canon":{"filler":true}}}}]}},"metadata":{"urn:aepb:translation:1":{"canon":{"output":true}}}}}`, "",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wire, losses, err := New(translators.Config{}).Encode(from(c.body, nil), translators.Target{Capability: c.target})
			if err != nil {
				t.Fatal(err)
			}
			o := rawjson.Parse(wire.Body, "")
			got := o.Take("params")
			if got == nil {
				got = o.Take("result")
			}
			if !rawjson.Equal(got, raw(c.want)) {
				t.Error(cmp.Diff(indent(raw(c.want)), indent(got)))
			}
			if printed := lines(losses); printed != c.losses {
				t.Errorf("losses %q, want %q", printed, c.losses)
			}
		})
	}
}

func lines(losses []canonical.Loss) string {
	var out []string
	for _, l := range losses {
		out = append(out, l.String())
	}
	return strings.Join(out, "\n")
}

func TestEncode_Headers(t *testing.T) {
	t.Parallel()
	m := from(call("sum", `{}`), func(m *canonical.Message) {
		m.Trace = canonical.Trace{Parent: "00-a-b-01", Baggage: "x\r\ny: z"}
		m.Extensions = canonical.Extensions{Binding: raw(`{"A2A-Extensions":"https://e.x/1"}`)}
	})
	wire, losses, err := New(translators.Config{}).Encode(m, translators.Target{})
	if err != nil {
		t.Fatal(err)
	}
	h := wire.Header
	if h.Get(HeaderVersion) != "1.0" || joined(h, HeaderExtensions) != "https://e.x/1, urn:aepb:translation:1" || h.Get("traceparent") != "00-a-b-01" {
		t.Errorf("headers %v", h)
	}
	if h.Get("baggage") != "" || !strings.Contains(lines(losses), "L34 dropped /trace/baggage") {
		t.Errorf("baggage that breaks a header: %v, %v", h, losses)
	}
}

func TestEncode_Refuses(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		m    *canonical.Message
		want canonical.Code
	}{
		"ping":            {from(nil, func(m *canonical.Message) { m.Op = canonical.OpPing }), canonical.CodeUnsupportedOp},
		"list":            {from(&canonical.Page{}, nil), canonical.CodeUnsupportedOp},
		"list reply":      {from(&canonical.CapabilityList{}, nil), canonical.CodeUnsupportedOp},
		"describe":        {from(&canonical.DescribeRequest{}, nil), canonical.CodeUnsupportedOp},
		"no task id":      {from(output(false, ""), func(m *canonical.Message) { m.Conversation.TaskID = "" }), canonical.CodeInternal},
		"no message id":   {from(call("a", "{}"), func(m *canonical.Message) { m.Correlation.MessageID = "" }), canonical.CodeInternal},
		"no request id":   {from(call("a", "{}"), func(m *canonical.Message) { m.Correlation.WireID = nil }), canonical.CodeInternal},
		"nothing said":    {from(&canonical.Invoke{}, nil), canonical.CodeBadParams},
		"empty result":    {from(&canonical.Result{}, nil), canonical.CodeInternal},
		"no capabilities": {from(&canonical.Description{Name: "n", Interfaces: []canonical.Interface{{URL: "u"}}}, nil), canonical.CodeCardUnavailable},
	}
	for name, c := range cases {
		_, _, err := New(translators.Config{}).Encode(c.m, translators.Target{})
		var answer *canonical.Error
		if !errors.As(err, &answer) || answer.Code != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	for _, target := range []translators.Target{
		{Version: "0.2"}, {Version: "2.0"}, {Form: "SOAP"}, {Version: Version03, Form: "GRPC"},
	} {
		_, _, err := New(translators.Config{}).Encode(from(call("a", "{}"), nil), target)
		var answer *canonical.Error
		if !errors.As(err, &answer) || answer.Code != canonical.CodeUnsupportedVersion {
			t.Errorf("%+v: %v", target, err)
		}
	}
}

// TestEncode_DomainsOfReasons: the reason of wrong parameters stands under A2A's own
// domain, as the official SDKs write it. Their clients over HTTP know a reason only
// there, and take every other error for an internal one.
func TestEncode_DomainsOfReasons(t *testing.T) {
	t.Parallel()
	for code, want := range map[canonical.Code]string{
		canonical.CodeBadParams:     `"reason":"INVALID_PARAMS","domain":"a2a-protocol.org"`,
		canonical.CodeTaskNotFound:  `"reason":"TASK_NOT_FOUND","domain":"a2a-protocol.org"`,
		canonical.CodeSkillNotFound: `"reason":"SKILL_NOT_FOUND","domain":"urn:aepb:translation:1"`,
	} {
		for _, form := range []string{"", FormHTTP} {
			wire, _, err := New(translators.Config{}).Encode(from(&canonical.Error{Code: code, Message: "no"}, nil), translators.Target{Form: form})
			if err != nil || !strings.Contains(string(wire.Body), want) {
				t.Errorf("%s in %q: %v %s", code, form, err, wire.Body)
			}
		}
	}
}

// TestEncode_CarriedExtensionsAddNothing: what another protocol's peer carries as A2A leftovers says
// nothing that the canonical message does not.
func TestEncode_CarriedExtensionsAddNothing(t *testing.T) {
	t.Parallel()
	own := func(text string) canonical.Extensions {
		return canonical.Extensions{Binding: raw(text)}
	}
	// In a request a skill makes our member believable; in a reply it makes it an echo, which stays.
	hint := `"metadata":{"urn:aepb:translation:1":{"skill":"x","canon":{"deadline":"x"}}},"later":1`
	inert := `"metadata":{"urn:aepb:translation:1":{"canon":{"deadline":"x"}}},"later":1`
	part, replied := text("honest"), text("honest")
	replied.Extensions = own(`{` + inert + `}`)
	part.Extensions = own(`{"text":"x","Text":"x","data":"x","raw":"AAAA","url":"x","mediaType":"x","media_type":"x","filename":"x",` + hint + `}`)
	reply := own(`{"messageId":"x","message_id":"x","role":"ROLE_AGENT","parts":["x"],"extensions":["x"],"contextId":"x","taskId":"x","TASKID":"x","task_id":"x","referenceTaskIds":["x"],` + hint + `}`)
	params := own(`{"tenant":"x","Tenant":"x","message":"x","configuration":{"acceptedOutputModes":["x"],"historyLength":"7","taskPushNotificationConfig":{"url":"x"},"returnImmediately":true},` + hint + `}`)
	task := own(`{"id":"x","ID":"x","contextId":"x","artifacts":["x"],"history":["x"],"status":{"state":"TASK_STATE_COMPLETED","message":"x","timestamp":"2026-01-01T00:00:00Z"},` + inert + `}`)
	result := own(`{"task":"x","message":"x","Message":"x"}`)
	failure := own(`{"code":"x","data":"x","Message":"x"}`)
	content := canonical.Content{ID: "r", Role: canonical.RoleCaller, Parts: []canonical.Part{part}, Extensions: reply}
	answer := canonical.Content{ID: "r", Role: canonical.RoleCaller, Parts: []canonical.Part{replied}, Extensions: own(`{"messageId":"x",` + inert + `}`)}
	tr := New(translators.Config{})
	for name, body := range map[string]canonical.Body{
		"request": &canonical.Invoke{Turn: content, Extensions: params},
		"reply":   &canonical.Result{Turn: &answer, Extensions: result},
		"task":    &canonical.Result{Task: &canonical.Task{Status: canonical.Status{State: canonical.StateWorking}, Extensions: task}, Extensions: result},
		"error":   &canonical.Error{Code: canonical.CodeInternal, Native: &canonical.NativeError{Binding: Binding, Code: -32603}, Extensions: failure},
	} {
		wire, _, err := tr.Encode(from(body, nil), translators.Target{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, word := range []string{`"x"`, "COMPLETED", "AGENT", "AAAA", "2026-01", `"7"`, "true"} {
			if strings.Contains(string(wire.Body), word) {
				t.Errorf("%s says %s: %s", name, word, wire.Body)
			}
		}
		if err := rawjson.Check(wire.Body, 1<<20, 64); err != nil {
			t.Errorf("%s: %v: %s", name, err, wire.Body)
		}
	}
}
