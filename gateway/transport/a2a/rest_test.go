package a2a

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/transporttest"
	"github.com/aepb/aepb-gateway/translators"
	form "github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// below is a request to a place below the door.
func below(method, rest, body string) *http.Request {
	r := httptest.NewRequest(method, "/agents/bob/a2a"+rest, strings.NewReader(body))
	r.SetPathValue("rest", rest)
	r.Header.Set("Content-Type", form.MediaHTTP)
	return r
}

func TestServer_HTTPCall(t *testing.T) {
	t.Parallel()
	for _, media := range []string{form.Media, form.MediaHTTP} {
		fake := &fakeHandler{answer: transporttest.Answer(translators.Wire{Body: []byte(noHTTP), Status: 404}, "a.b.c")}
		r := below(http.MethodPost, routeSend, helloHTTP)
		r.Header.Set("Content-Type", media)
		r.Header.Set("A2A-Version", "1.0")
		w := ask(newEndpoint(t, 0).Handler(fake), r)
		want := translators.Wire{
			Binding: form.Binding, Form: form.FormHTTP, Media: media, Body: []byte(helloHTTP), Verb: http.MethodPost, Path: routeSend,
			Header: http.Header{"A2a-Version": {"1.0"}},
		}
		if diff := cmp.Diff(want, fake.call.Wire); diff != "" || fake.call.Agent != "bob" {
			t.Errorf("the call: %s", diff)
		}
		if w.Code != http.StatusNotFound || w.Body.String() != noHTTP || w.Header().Get("Content-Type") != media || w.Header().Get("Execution-Context") != "a.b.c" {
			t.Errorf("answered %d %v %s", w.Code, w.Header(), w.Body)
		}
	}
}

func TestServer_HTTPRefusals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		request *http.Request
		err     error
		status  int
		reason  string
	}{
		"get":                 {below(http.MethodGet, routeSend, ""), nil, 405, "INVALID_REQUEST"},
		"too large":           {below(http.MethodPost, routeSend, strings.Repeat(" ", 2000)), nil, 413, "INVALID_REQUEST"},
		"unknown agent":       {below(http.MethodPost, routeSend, helloHTTP), &problem.UnknownAgentError{Agent: "bob"}, 404, "SKILL_NOT_FOUND"},
		"no path":             {below(http.MethodPost, routeSend, helloHTTP), &problem.NoPathError{}, 400, "UNSUPPORTED_OPERATION"},
		"bad reply":           {below(http.MethodPost, routeSend, helloHTTP), &transport.BadReplyError{Agent: "bob"}, 500, "INVALID_AGENT_RESPONSE"},
		"timeout":             {below(http.MethodPost, routeSend, helloHTTP), &transport.TimeoutError{Agent: "bob"}, 504, "TIMEOUT"},
		"no JSON":             {below(http.MethodPost, routeSend, "{"), &translators.MalformedError{Syntax: true, Reason: "truncated"}, 400, "PARSE"},
		"delete a task":       {below(http.MethodDelete, "/tasks/t", ""), nil, 405, "INVALID_REQUEST"},
		"get to cancel":       {below(http.MethodGet, "/tasks/t:cancel", ""), nil, 405, "INVALID_REQUEST"},
		"steps in the path":   {below(http.MethodGet, "/tasks/..", ""), nil, 404, "METHOD_NOT_FOUND"},
		"an unknown task":     {below(http.MethodGet, "/tasks/t", ""), &canonical.Error{Code: canonical.CodeTaskNotFound}, 404, "TASK_NOT_FOUND"},
		"a stream, refused":   {below(http.MethodPost, "/message:stream", helloHTTP), &canonical.Error{Code: canonical.CodeUnsupportedOp}, 400, "UNSUPPORTED_OPERATION"},
		"get in 0.3":          {below(http.MethodGet, "/v1/message:send", ""), nil, 405, "INVALID_REQUEST"},
		"the type of 1.0":     {below(http.MethodPost, "/v1/message:send", helloHTTP), nil, 415, "CONTENT_TYPE_NOT_SUPPORTED"},
		"a tenant in 0.3":     {below(http.MethodGet, "/v1/a/tasks/t", ""), nil, 404, "METHOD_NOT_FOUND"},
		"that of 1.0 in 0.3":  {below(http.MethodGet, "/v1/extendedAgentCard", ""), nil, 404, "METHOD_NOT_FOUND"},
		"that of 0.3 in 1.0":  {below(http.MethodGet, "/card", ""), nil, 404, "METHOD_NOT_FOUND"},
		"the place of 0.3":    {below(http.MethodPost, "/v1", ""), nil, 404, "METHOD_NOT_FOUND"},
		"no version":          {below(http.MethodPost, "/v1message:send", ""), nil, 404, "METHOD_NOT_FOUND"},
		"nothing of the sort": {below(http.MethodGet, "/tasksmith", ""), nil, 404, "METHOD_NOT_FOUND"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fake := &fakeHandler{err: c.err}
			w := ask(newEndpoint(t, 1000).Handler(fake), c.request)
			body := w.Body.String()
			if w.Code != c.status || !strings.Contains(body, `"reason":"`+c.reason+`"`) || !strings.HasPrefix(body, `{"error":{"code":`) {
				t.Errorf("%d %s, want %d with %s", w.Code, body, c.status, c.reason)
			}
			if (c.err == nil) != (fake.call.Agent == "") {
				t.Error("the pipeline was asked, or not")
			}
		})
	}
	r := below(http.MethodPost, routeSend, helloHTTP)
	r.Header.Set("Content-Type", "text/plain")
	if w := ask(newEndpoint(t, 0).Handler(&fakeHandler{}), r); w.Code != http.StatusUnsupportedMediaType || w.Header().Get("Content-Type") != form.Media {
		t.Errorf("another type: %d %v", w.Code, w.Header())
	}
}

// TestServer_HTTP03VersionFromPath: the place says the version, in the question and in what
// is refused.
func TestServer_HTTP03VersionFromPath(t *testing.T) {
	t.Parallel()
	for _, err := range []error{nil, &problem.NoPathError{}} {
		fake := &fakeHandler{err: err, answer: transporttest.Answer(translators.Wire{Body: []byte(answerHTTP), Status: 200})}
		r := below(http.MethodPost, "/v1/message:send/", hello03HTTP)
		r.Header.Set("Content-Type", form.Media+"; charset=utf-8")
		w := ask(newEndpoint(t, 0).Handler(fake), r)
		want := translators.Wire{
			Binding: form.Binding, Version: form.Version03, Form: form.FormHTTP, Media: form.Media, Body: []byte(hello03HTTP), Header: http.Header{},
			Verb: http.MethodPost, Path: "/v1/message:send",
		}
		if diff := cmp.Diff(want, fake.call.Wire); diff != "" {
			t.Errorf("the call: %s", diff)
		}
		if w.Header().Get("Content-Type") != form.Media || w.Header().Get("A2A-Version") != "" || (w.Code == 200) != (err == nil) {
			t.Errorf("answered %d %v %s", w.Code, w.Header(), w.Body)
		}
	}
}

// TestServer_RefusesInTheRequestsVersion: what is refused is said in the version of the request.
func TestServer_RefusesInTheRequestsVersion(t *testing.T) {
	t.Parallel()
	old := `{"jsonrpc":"2.0","id":"q1","method":"message/send","params":{"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"text","text":"hi"}]}}}`
	w := ask(newEndpoint(t, 0).Handler(&fakeHandler{err: &problem.NoPathError{}}), post(old))
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"id":"q1","error":{"code":-32004`) || w.Header().Get("A2A-Version") != "" {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
}

// TestServer_CardBelowTheEndpoint: clients look for it there as well.
func TestServer_CardBelowTheEndpoint(t *testing.T) {
	t.Parallel()
	w := ask(newEndpoint(t, 0).Handler(&fakeHandler{description: description()}), below(http.MethodGet, CardPath, ""))
	for _, want := range []string{`"protocolBinding":"HTTP+JSON"`, `"protocolVersion":"0.3"`, `"preferredTransport":"JSONRPC"`, `"additionalInterfaces":[{"transport":"HTTP+JSON"`, `"url":"https://gw.example/agents/bob/a2a"`} {
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%d %s lacks %s", w.Code, w.Body, want)
		}
	}
}
