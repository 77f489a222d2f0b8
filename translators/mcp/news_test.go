package mcp_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

func native(method, params string) *canonical.Native {
	n := &canonical.Native{Method: method}
	if params != "" {
		n.Params = json.RawMessage(params)
	}
	return n
}

func TestNotifications_Subscribe(t *testing.T) {
	t.Parallel()
	tr := mcp.New(translators.Config{})
	all := translators.NotificationFilter{Tools: true, Prompts: true, Resources: true, URIs: []string{"a:1", "a:2"}}
	filter := `{"notifications":{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["a:1","a:2"]}}`
	for _, tc := range []struct {
		version string
		verb    translators.FilterVerb
		want    *canonical.Native
	}{
		{mcp.Modern, translators.FilterListen, native("subscriptions/listen", filter)},
		{mcp.Modern, translators.FilterSubscribe, native("subscriptions/listen", filter)},
		{mcp.Modern, translators.FilterUnsubscribe, nil},
		{mcp.Modern, translators.FilterLevel, nil},
		{mcp.Legacy, translators.FilterListen, native("GET", "")},
		{mcp.LegacyMarch, translators.FilterSubscribe, native("resources/subscribe", `{"uri":"a:1"}`)},
		{mcp.LegacyJune, translators.FilterUnsubscribe, native("resources/unsubscribe", `{"uri":"a:1"}`)},
		{mcp.Legacy, translators.FilterLevel, native("logging/setLevel", `{"level":"info"}`)},
	} {
		notification := all
		notification.Verb, notification.Level = tc.verb, "info"
		got := tr.Ask(tc.version, notification)
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s %s: %s", tc.version, tc.verb, diff)
		}
		if got == nil {
			continue
		}
		read, err := tr.Wants(got)
		if err != nil || read == nil || tc.version != mcp.Modern && read.Verb != tc.verb || len(read.URIs) > 0 && read.URIs[0] != "a:1" {
			t.Errorf("%s %s reads as %+v, %v", tc.version, tc.verb, read, err)
		}
	}
	if got, err := tr.Wants(native("prompts/get", `{"name":"x"}`)); got != nil || err != nil {
		t.Errorf("a request for something else reads as %+v, %v", got, err)
	}
	many := `{"notifications":{"resourceSubscriptions":["u"` + strings.Repeat(`,"u"`, 1024) + `]}}`
	for _, wrong := range []*canonical.Native{
		native("subscriptions/listen", ""), native("subscriptions/listen", "{}"), native("subscriptions/listen", `{"notifications":[]}`), native("subscriptions/listen", many),
		native("subscriptions/listen", `{"notifications":{"toolsListChanged":1}}`), native("subscriptions/listen", `{"notifications":{"resourceSubscriptions":[7]}}`),
		native("resources/subscribe", `{"uri":""}`), native("resources/unsubscribe", `{}`), native("logging/setLevel", `{"level":"loud"}`), native("logging/setLevel", `[]`),
	} {
		got, err := tr.Wants(wrong)
		var bad *canonical.Error
		if !errors.As(err, &bad) || bad.Code != canonical.CodeBadParams || got == nil || got.Verb == "" || len(got.URIs) > 0 {
			t.Errorf("%s %.60s reads as %+v, %v", wrong.Method, wrong.Params, got, err)
		}
	}
}

func TestOffers_ByCapabilities(t *testing.T) {
	t.Parallel()
	tr := mcp.New(translators.Config{})
	d := &canonical.Description{Extensions: canonical.Extensions{mcp.Binding: json.RawMessage(
		`{"capabilities":{"tools":{"listChanged":true},"prompts":{"listChanged":false},"resources":{"subscribe":true},"logging":{}}}`,
	)}}
	want := translators.NotificationFilter{Tools: true, Any: true, Log: true}
	if diff := cmp.Diff(want, tr.Offers(d)); diff != "" {
		t.Error(diff)
	}
	if got := tr.Offers(&canonical.Description{}); !got.Same(translators.NotificationFilter{}) || got.Any || got.Log {
		t.Errorf("nothing is %+v", got)
	}
	request := translators.NotificationFilter{Tools: true, Prompts: true, URIs: []string{"u"}}
	if got := request.Among(want); !got.Same(translators.NotificationFilter{Tools: true, URIs: []string{"u"}}) || got.Quiet() {
		t.Errorf("of that it tells %+v", got)
	}
}

// What is told to a hearer is a message of his revision.
func TestNotifications_InTheReceiversRevision(t *testing.T) {
	t.Parallel()
	tr := mcp.New(translators.Config{})
	official := map[string]*schemas{mcp.Modern: loadSchemas(t, mcp.Modern), mcp.Legacy: loadSchemas(t, mcp.Legacy)}
	modern := translators.Subscriber{Version: mcp.Modern, ID: json.RawMessage(`"l"`), Filter: translators.NotificationFilter{Tools: true, URIs: []string{"a:1"}}}
	legacy := translators.Subscriber{Version: mcp.Legacy}
	const tag = `"io.modelcontextprotocol/subscriptionId":"l"`
	for _, tc := range []struct {
		to         translators.Subscriber
		text       *canonical.Native
		definition string
		want       string // nothing: nobody is told
	}{
		{modern, native("notifications/tools/list_changed", ""), "ToolListChangedNotification", `{"_meta":{` + tag + `}}`},
		{modern, native("notifications/tools/list_changed", `{"_meta":{"io.modelcontextprotocol/subscriptionId":1,"a":2}}`), "ToolListChangedNotification", `{"_meta":{` + tag + `,"a":2}}`},
		{modern, native("notifications/resources/updated", `{"uri":"a:1/x","title":"t"}`), "ResourceUpdatedNotification", `{"_meta":{` + tag + `},"uri":"a:1/x","title":"t"}`},
		{modern, native("notifications/prompts/list_changed", ""), "", ""},
		{modern, native("notifications/tasks/status", `{}`), "", ""},
		{modern, native("notifications/own", `{}`), "", ""},
		{modern, native("notifications/tools/list_changed", `[]`), "", ""},
		{legacy, native("notifications/tools/list_changed", `{"_meta":{`+tag+`}}`), "ToolListChangedNotification", "-"},
		{legacy, native("notifications/resources/updated", `{"_meta":{`+tag+`,"a":2},"uri":"a:1"}`), "ResourceUpdatedNotification", `{"_meta":{"a":2},"uri":"a:1"}`},
		{legacy, native("notifications/subscriptions/acknowledged", `{"_meta":{`+tag+`},"notifications":{}}`), "", ""},
		{legacy, native("notifications/own", `{"_meta":{`+tag+`},"x":1}`), "", `{"x":1}`},
	} {
		got := tr.Retell(tc.text, tc.to)
		if (got == nil) != (tc.want == "") || got != nil && string(got.Params) != strings.TrimPrefix(tc.want, "-") {
			t.Errorf("%s is told %s as %+v", tc.to.Version, tc.text.Method, got)
			continue
		}
		if got != nil && tc.definition != "" {
			official[tc.to.Version].check(t, tc.definition, emit(t, tr, tc.to.Version, got))
		}
	}
	first, last := tr.Frame(modern)
	official[mcp.Modern].check(t, "SubscriptionsAcknowledgedNotification", emit(t, tr, mcp.Modern, first))
	official[mcp.Modern].check(t, "SubscriptionsListenResult", last.Result)
	if agreed, err := tr.Wants(first); err != nil || agreed.Verb != translators.FilterAgreed || !agreed.Tools || !slices.Equal(agreed.URIs, []string{"a:1"}) {
		t.Errorf("the agreement reads as %+v, %v", agreed, err)
	}
	if first, last := tr.Frame(legacy); first != nil || last != nil {
		t.Error("a stream of a session has no frame")
	}
}

func emit(t *testing.T, tr *mcp.Translator, version string, n *canonical.Native) []byte {
	t.Helper()
	wire, losses, err := tr.Encode(&canonical.Message{
		Op: canonical.OpNative, Phase: canonical.PhaseEvent, Body: &canonical.Event{Native: n}, Origin: canonical.Origin{Binding: mcp.Binding},
	}, translators.Target{Version: version})
	if err != nil || len(losses) > 0 {
		t.Fatal(fmt.Sprint(err, losses))
	}
	return wire.Body
}

// Since 2026-07-28 the log is for requests that want it.
func TestNotifications_LogOnlyOnRequest(t *testing.T) {
	t.Parallel()
	tr := mcp.New(translators.Config{})
	for _, tc := range []struct {
		version, wants, level string
		origin                string
		notified              bool
	}{
		{mcp.Modern, "", "emergency", mcp.Legacy, false},
		{mcp.Modern, "warning", "info", mcp.Legacy, false},
		{mcp.Modern, "warning", "warning", mcp.Legacy, true},
		{mcp.Modern, "debug", "their own", mcp.Legacy, true},
		{mcp.Modern, "", "info", mcp.Modern, true},
		{mcp.Legacy, "", "debug", mcp.Modern, true},
	} {
		_, _, err := tr.Encode(&canonical.Message{
			Op: canonical.OpInvoke, Phase: canonical.PhaseEvent, Origin: canonical.Origin{Binding: mcp.Binding, Version: tc.origin},
			Body:        &canonical.Event{Log: &canonical.Log{Level: tc.level, Data: json.RawMessage("1")}},
			Preferences: canonical.Preferences{LogLevel: tc.wants},
		}, translators.Target{Version: tc.version})
		var refused *canonical.Error
		if tc.notified != (err == nil) || err != nil && (!errors.As(err, &refused) || refused.Code != canonical.CodeUnsupportedOp) {
			t.Errorf("%+v: %v", tc, err)
		}
	}
}
