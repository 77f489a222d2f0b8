package a2a

import (
	"slices"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

func oldHTTP(body string, re canonical.Op) translators.Wire {
	return translators.Wire{Binding: Binding, Version: Version03, Form: FormHTTP, Body: []byte(body), Re: re}
}

const (
	oldHTTPHead = `{"message":{"messageId":"m","role":"ROLE_USER","content":[`
	oldHTTPTail = `]},"configuration":{"blocking":true}}`
)

// TestHTTP03_NormalizesVariants: what may be said in several ways leaves in
// one, and says so.
func TestHTTP03_NormalizesVariants(t *testing.T) {
	t.Parallel()
	const message = `"message":{"messageId":"m","role":"ROLE_USER","content":[{"text":"a"}]}`
	for name, c := range map[string]struct {
		re         canonical.Op
		says, home string
		loss       canonical.LossCode
	}{
		"no configuration":     {"", `{` + message + `}`, `{` + message + `,"configuration":{"blocking":true}}`, canonical.LossBytes},
		"null configuration":   {"", `{` + message + `,"configuration":null}`, `{` + message + `,"configuration":{"blocking":true}}`, canonical.LossBytes},
		"empty configuration":  {"", `{` + message + `,"configuration":{}}`, `{` + message + `,"configuration":{"blocking":false}}`, canonical.LossBytes},
		"null flag":            {"", `{` + message + `,"configuration":{"blocking":null}}`, `{` + message + `,"configuration":{"blocking":false}}`, canonical.LossBytes},
		"no history length":    {"", `{` + message + `,"configuration":{"blocking":true,"historyLength":0}}`, `{` + message + `,"configuration":{"blocking":true}}`, canonical.LossBytes},
		"null beside":          {"", oldHTTPHead + `{"text":"a","file":null,"data":null}` + oldHTTPTail, oldHTTPHead + `{"text":"a"}` + oldHTTPTail, canonical.LossBytes},
		"base64 unpadded":      {"", oldHTTPHead + `{"file":{"fileWithBytes":"QVA4PQ"}}` + oldHTTPTail, oldHTTPHead + `{"file":{"fileWithBytes":"QVA4PQ=="}}` + oldHTTPTail, canonical.LossBytes},
		"a list as data":       {"", oldHTTPHead + `{"data":{"data":[1.0]},"metadata":{"data_part_compat":7,"k":1}}` + oldHTTPTail, oldHTTPHead + `{"data":{"data":{"value":[1.0]}},"metadata":{"data_part_compat":true,"k":1}}` + oldHTTPTail, canonical.LossBytes},
		"more than data":       {"", oldHTTPHead + `{"data":{"data":{},"later":1}}` + oldHTTPTail, oldHTTPHead + `{"data":{"data":{}}}` + oldHTTPTail, canonical.LossExtension},
		"canceled with one l":  {canonical.OpInvoke, `{"task":{"id":"t","status":{"state":"TASK_STATE_CANCELED"}}}`, `{"task":{"id":"t","status":{"state":"TASK_STATE_CANCELLED"}}}`, canonical.LossBytes},
		"no context, but said": {canonical.OpInvoke, `{"task":{"id":"t","contextId":"","status":{"state":"TASK_STATE_WORKING"}}}`, `{"task":{"id":"t","status":{"state":"TASK_STATE_WORKING"}}}`, canonical.LossBytes},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := New(translators.Config{})
			m, err := tr.Decode(oldHTTP(c.says, c.re))
			if err != nil {
				t.Fatal(err)
			}
			if len(m.Losses) == 0 || m.Losses[0].Code != c.loss || m.Losses[0].Fate != canonical.Dropped {
				t.Errorf("losses %v, want %s", m.Losses, c.loss)
			}
			home, _, err := tr.Encode(m, translators.Target{Version: Version03, Form: FormHTTP})
			if err != nil || !rawjson.Equal(home.Body, raw(c.home)) {
				t.Fatalf("%v: %s", err, home.Body)
			}
			if m.Preferences.NoWait != strings.Contains(c.home, `"blocking":false`) || m.Preferences.HistoryLength != nil {
				t.Errorf("preferences %+v", m.Preferences)
			}
			home.Re = c.re
			roundTrip(t, tr, home)
		})
	}
}

// TestHTTP03_ReasonsForRefusal: the reasons, where more than one would refuse.
func TestHTTP03_ReasonsForRefusal(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		re         canonical.Op
		says, want string
	}{
		"base64 once":         {"", oldHTTPHead + `{"file":{"fileWithBytes":"AP8="}}` + oldHTTPTail, "/content/0/file/fileWithBytes: not base64 of base64"},
		"base64 of no base64": {"", oldHTTPHead + `{"file":{"fileWithBytes":"Pz8/"}}` + oldHTTPTail, "/content/0/file/fileWithBytes: not base64 of base64"},
		"two contents":        {"", oldHTTPHead + `{"text":"a","data":{"data":{}}}` + oldHTTPTail, "a part has one content"},
		"bytes in disguise":   {"", oldHTTPHead + `{"file":{"fileWithUri":"https://x.example/","bytes":"AP8="}}` + oldHTTPTail, "another version"},
		"URI is no text":      {"", oldHTTPHead + `{"file":{"fileWithUri":7}}` + oldHTTPTail, "/content/0/file/fileWithUri: not a string"},
		"push in disguise":    {"", strings.Replace(oldHTTPHead+`{"text":"a"}`+oldHTTPTail, `"blocking"`, `"pushNotificationConfig":{"url":"u"},"blocking"`, 1), "another version"},
		"a kind of task":      {canonical.OpInvoke, `{"task":{"kind":"task","id":"t","status":{"state":"TASK_STATE_WORKING"}}}`, "another version"},
	} {
		_, err := New(translators.Config{}).Decode(oldHTTP(c.says, c.re))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

// TestHTTP03_UnknownMembersGainNoMeaning: members that nobody knew in 1.0 and that
// the HTTP form of 0.3 has do not begin to mean something there.
func TestHTTP03_UnknownMembersGainNoMeaning(t *testing.T) {
	t.Parallel()
	body := `{"configuration":{"pushNotification":{"url":"https://evil.example"}},"message":{"messageId":"m","role":"ROLE_USER","content":[{"text":"evil"}],` +
		`"parts":[{"url":"https://x.example/","file":{"fileWithUri":"https://evil.example","later":1}},{"text":"a","file":{"fileWithUri":"https://evil.example"}}]}}`
	tr := New(translators.Config{})
	m, err := tr.Decode(translators.Wire{Binding: Binding, Form: FormHTTP, Body: []byte(body)})
	if err != nil {
		t.Fatal(err)
	}
	wire, losses, err := tr.Encode(m, translators.Target{Version: Version03, Form: FormHTTP})
	if err != nil || strings.Contains(string(wire.Body), "evil") || rawjson.Check(wire.Body, 1<<20, 64) != nil {
		t.Fatalf("%v: %s", err, wire.Body)
	}
	if !dropped(losses) || !strings.Contains(string(wire.Body), `"later":1`) {
		t.Errorf("losses %v: %s", losses, wire.Body)
	}
}

// TestHTTP03_LossNamesTheTask: what is lost of a task on a list has its place there.
func TestHTTP03_LossNamesTheTask(t *testing.T) {
	asks := canonical.Task{ID: "t-2", Status: canonical.Status{State: canonical.StateInputRequired}, Inputs: []canonical.Input{
		{Key: "k", Mode: canonical.ModeForm, Schema: raw(`{"type":"object"}`)},
	}}
	list := from(&canonical.TaskList{Tasks: []canonical.Task{{ID: "t-1", Status: canonical.Status{State: canonical.StateWorking}}, asks}}, func(m *canonical.Message) {
		m.Op, m.Phase = canonical.OpTaskList, canonical.PhaseResponse
	})
	_, losses, err := New(translators.Config{}).Encode(list, translators.Target{Version: Version03, Form: FormHTTP})
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, l := range losses {
		if l.Code == canonical.LossMediaType {
			found = append(found, l.Path)
		}
	}
	if want := []string{"/body/tasks/1/status/message/parts/0/media"}; !slices.Equal(found, want) {
		t.Errorf("media types are lost at %q, want %q", found, want)
	}
}

// TestPush_FormOf03: a push notification of 0.3 is the task alone, as JSON-RPC has it
// (A2A 0.3, section 9.5). It is no form of 1.0, and no request has it.
func TestPush_FormOf03(t *testing.T) {
	t.Parallel()
	tr := New(translators.Config{})
	task := &canonical.Task{ID: "t", ContextID: "c", Status: canonical.Status{State: canonical.StateInputRequired}}
	m := &canonical.Message{Op: canonical.OpTaskGet, Phase: canonical.PhaseResponse, Body: &canonical.Result{Task: task}}
	const want = `{"kind":"task","id":"t","contextId":"c","status":{"state":"input-required"}}`
	wire, losses, err := tr.Encode(m, translators.Target{Version: Version03, Form: FormPush})
	if err != nil || len(losses) != 0 || !rawjson.Equal(wire.Body, raw(want)) {
		t.Errorf("%v, losing %v: %s", err, losses, wire.Body)
	}
	wire.Re = canonical.OpTaskGet
	if back, err := tr.Decode(wire); err != nil || back.Body.(*canonical.Result).Task.ID != "t" {
		t.Errorf("read back: %+v, %v", back, err)
	}
	if _, _, err := tr.Encode(m, translators.Target{Version: Version, Form: FormPush}); err == nil {
		t.Error("1.0 has it too")
	}
	wire.Re = ""
	if _, err := tr.Decode(wire); err == nil {
		t.Error("it is read as a request")
	}
}
