package gateway_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

const (
	listening  = "subscriptions/listen"
	everything = `{"tools":{"listChanged":true},"prompts":{},"resources":{"subscribe":true},"logging":{}}`
)

// agreed is how a stream of a server of 2026-07-28 begins.
func agreed(notification string) string {
	return notice("subscriptions/acknowledged", `,"notifications":{`+notification+`}`)
}

// notice is a piece of news on such a stream.
func notice(method, more string) string {
	return `{"jsonrpc":"2.0","method":"notifications/` + method + `","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":ID}` + more + `}}`
}

const (
	agreedU1  = `"toolsListChanged":true,"resourceSubscriptions":["news://1"]`
	updatedU1 = `,"uri":"news://1"`
)

// inSession is a message of a legacy client in its session.
func (s *stage) inSession(method, params string) transport.Call {
	call := s.by(mcp.Binding, mcp.Legacy, `{"jsonrpc":"2.0","id":7,"method":"`+method+`","params":{`+params+`}}`)
	call.Agent, call.Session = "asker", "s1"
	if method == http.MethodGet {
		call.Wire.Body, call.Wire.Verb = nil, method
	}
	return call
}

// listens is a request of a modern client for news.
func (s *stage) listens(notification string) transport.Call {
	call := s.extended(listening, `"notifications":{`+notification+`}`)
	call.Agent = "asker"
	return call
}

// notificationStage plays scenes to a server that speaks a version.
func notificationStage(t *testing.T, version string, scenes map[string][]scene, test func(*stage)) {
	t.Helper()
	play(t, scenes, func(s *stage) {
		s.asker.version, s.asker.offers = version, everything
		test(s)
		if s.asker.open > 0 && !t.Failed() {
			t.Errorf("%d streams of the server are still open", s.asker.open)
		}
	})
}

// heardNext is the next thing that is told.
func heardNext(t *testing.T, events transport.Events) string {
	t.Helper()
	if events == nil {
		t.Fatal("there is no stream")
	}
	event, err := events.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return string(event.Wire.Body)
}

// What a modern server says to whoever listens, a legacy client hears on the
// stream of its session, and says in that which resources it wants.
func TestNotification_ModernServerToLegacyClient(t *testing.T) {
	t.Parallel()
	notificationStage(t, mcp.Modern, map[string][]scene{listening: {
		{events: []string{agreed(`"toolsListChanged":true`), notice("tools/list_changed", "")}},
		{events: []string{agreed(`"resourceSubscriptions":["news://1"]`)}},                            // asked when its client subscribes
		{events: []string{agreed(agreedU1), notice("resources/updated", updatedU1)}},                  // and heard from then on
		{events: []string{agreed(`"toolsListChanged":true`), notice("tools/list_changed", `,"n":1`)}}, // when it unsubscribes
	}}, func(s *stage) {
		t := s.t
		notification := s.ask(t, s, s.inSession(http.MethodGet, "")).Events()
		if got := heardNext(t, notification); got != `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}` {
			t.Errorf("heard %s", got)
		}
		if got := s.asker.last(); !strings.Contains(got, `"notifications":{"toolsListChanged":true}`) {
			t.Errorf("the server was asked %s", got)
		}
		if got := s.ask(t, s, s.inSession("resources/subscribe", `"uri":"news://1"`)); string(got.Wire().Body) != `{"jsonrpc":"2.0","id":7,"result":{}}` || len(got.Evidence) != 2 {
			t.Errorf("subscribed with %s, %d tokens", got.Wire().Body, len(got.Evidence))
		}
		if got := heardNext(t, notification); got != `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"news://1"}}` {
			t.Errorf("heard %s", got)
		}
		if got := s.asker.last(); !strings.Contains(got, `"notifications":{`+agreedU1+`}`) {
			t.Errorf("the server was asked %s", got)
		}
		s.ask(t, s, s.inSession("resources/unsubscribe", `"uri":"news://1"`))
		if got := heardNext(t, notification); !strings.Contains(got, `"params":{"n":1}`) {
			t.Errorf("heard %s", got)
		}
		if s.asker.open != 1 || strings.Contains(s.asker.last(), "news://1") {
			t.Errorf("%d streams, the last by %s", s.asker.open, s.asker.last())
		}
		if err := notification.Close(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
	})
}

// A stream of a server that ends is asked for again, less and less often; one of
// a server that has none is not.
func TestSubscription_ReopenedWithBackoff(t *testing.T) {
	t.Parallel()
	notificationStage(t, mcp.Modern, map[string][]scene{listening: {
		{events: []string{agreed(`"toolsListChanged":true`), result(`{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":ID}}`)}, end: io.EOF},
		{fail: errBroken},
		{reply: failure("-32603")},
		{events: []string{agreed(`"toolsListChanged":true`), notice("tools/list_changed", "")}, end: errBroken},
		{reply: failure("-32601")},
	}}, func(s *stage) {
		t := s.t
		notification, began := s.ask(t, s, s.inSession(http.MethodGet, "")).Events(), time.Now()
		if got, took := heardNext(t, notification), time.Since(began); !strings.Contains(got, "tools/list_changed") || took != 7*time.Second {
			t.Errorf("heard %s after %s", got, took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
		defer cancel()
		if event, err := notification.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("heard %s, %v", event.Wire.Body, err)
		}
		if n := len(strings.Fields(s.asker.was())); n != 5 {
			t.Errorf("it was asked %d times", n)
		}
		_ = notification.Close()
		synctest.Wait()
	})
}

// What a server refuses, and what nobody could hear, is refused.
func TestSubscription_Refusals(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		method, params, offers, session string
		scenes                          []scene
		want                            canonical.Code
	}{
		"by the server":        {"resources/subscribe", `"uri":"news://9"`, everything, "s1", []scene{{reply: failure("-32602")}}, canonical.CodeBadParams},
		"without a word":       {"resources/subscribe", `"uri":"news://9"`, everything, "s1", []scene{{events: []string{agreed("")}, end: io.EOF}}, canonical.CodeResourceNotFound},
		"with something else":  {"resources/subscribe", `"uri":"news://9"`, everything, "s1", []scene{{reply: result(`{"resultType":"complete"}`)}}, canonical.CodeResourceNotFound},
		"no subscriptions":     {"resources/subscribe", `"uri":"news://9"`, `{"resources":{}}`, "s1", nil, canonical.CodeNoMethod},
		"no session":           {"resources/subscribe", `"uri":"news://9"`, everything, "", nil, canonical.CodeNoMethod},
		"no resource":          {"resources/subscribe", `"uri":7`, everything, "s1", nil, canonical.CodeBadParams},
		"no log":               {"logging/setLevel", `"level":"info"`, `{"resources":{}}`, "s1", nil, canonical.CodeNoMethod},
		"no level":             {"logging/setLevel", `"level":"loud"`, everything, "s1", nil, canonical.CodeBadParams},
		"a resource too large": {"resources/unsubscribe", `"uri":"` + strings.Repeat("x", 2049) + `"`, everything, "s1", nil, canonical.CodeBadParams},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			notificationStage(t, mcp.Modern, map[string][]scene{listening: tc.scenes}, func(s *stage) {
				s.asker.offers = tc.offers
				call := s.inSession(tc.method, tc.params)
				call.Session = tc.session
				_, err := s.Exchange(s.t.Context(), call)
				if refused, ok := errors.AsType[*canonical.Error](err); !ok || refused.Code != tc.want {
					s.t.Errorf("got %v", err)
				}
			})
		})
	}
}

// A server that tells no news at all is not asked for any.
func TestSubscription_NotOpenedWithoutCapability(t *testing.T) {
	t.Parallel()
	notificationStage(t, mcp.Modern, nil, func(s *stage) {
		s.asker.offers = `{"tools":{}}`
		if got := s.ask(s.t, s, s.inSession(http.MethodGet, "")); got.Events() != nil || len(got.Evidence) != 0 {
			s.t.Errorf("got %+v", got)
		}
	})
}

// What a legacy server says on the stream of a session, a modern client hears
// that listens: what it asked for, and nothing else.
func TestNotification_LegacyServerToModernClient(t *testing.T) {
	t.Parallel()
	plain := func(method, params string) string {
		return `{"jsonrpc":"2.0","method":"notifications/` + method + `","params":` + params + `}`
	}
	notificationStage(t, mcp.Legacy, map[string][]scene{
		http.MethodGet: {
			{events: []string{
				plain("prompts/list_changed", `{}`), plain("message", `{"level":"error","data":1}`), plain("tools/list_changed", `{"_meta":{"a":1}}`),
				`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"who?","requestedSchema":{"type":"object","properties":{}}}}`,
				plain("resources/updated", `{"uri":"news://1/part"}`),
			}, end: errBroken},
			{events: []string{plain("tools/list_changed", `{}`)}},
		},
		"resources/subscribe": {{reply: result(`{}`)}, {reply: failure("-32002")}, {reply: result(`{}`)}},
		"":                    {{reply: "taken"}},
	}, func(s *stage) {
		t := s.t
		answer := s.ask(t, s, s.listens(`"toolsListChanged":true,"promptsListChanged":true,"resourceSubscriptions":["news://1","news://2"],"taskIds":["t"]`))
		meta := func(more string) string { return `"_meta":{"io.modelcontextprotocol/subscriptionId":7` + more + `}` }
		for _, want := range []string{
			plain("subscriptions/acknowledged", `{`+meta("")+`,"notifications":{`+agreedU1+`}}`),
			plain("tools/list_changed", `{`+meta(`,"a":1`)+`}`),
			plain("resources/updated", `{`+meta("")+`,"uri":"news://1/part"}`),
			plain("tools/list_changed", `{`+meta("")+`}`),
		} {
			if got := heardNext(t, answer.Events()); got != want {
				t.Errorf("heard %s, want %s", got, want)
			}
		}
		if got := s.asker.was(); got != "GET resources/subscribe resources/subscribe  GET resources/subscribe" {
			t.Errorf("the server was asked %s", got)
		}
		if request := claims(t, answer.Evidence[0]); len(answer.Evidence) != 2 || request.OutputHash != ect.Hash(nil) || request.InputHash == "" {
			t.Errorf("evidence %+v", request)
		}
		go func() { _ = s.Close() }() // it is told that this is the end
		synctest.Wait()
		bodies, closing := read(t, answer.Events())
		if len(bodies) != 1 || bodies[0] != `{"jsonrpc":"2.0","id":7,"result":{"resultType":"complete",`+meta("")+`}}` || len(closing) != 1 {
			t.Errorf("at the end it is told %s, with %d tokens", bodies, len(closing))
		}
	})
}

// Of what is not there nothing is promised, and the stream ends.
func TestSubscription_NothingAvailableEndsStream(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		offers, requested string
		scenes            map[string][]scene
	}{
		"nothing offered":  {`{}`, `"toolsListChanged":true`, nil},
		"nothing wanted":   {everything, ``, nil},
		"no stream":        {everything, `"toolsListChanged":true`, map[string][]scene{http.MethodGet: {{reply: ""}}}},
		"no such resource": {everything, `"resourceSubscriptions":["news://9"]`, map[string][]scene{http.MethodGet: {{events: []string{"x"}}}, "resources/subscribe": {{reply: failure("-32002")}}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			notificationStage(t, mcp.Legacy, tc.scenes, func(s *stage) {
				s.asker.offers = tc.offers
				bodies, _ := read(s.t, s.ask(s.t, s, s.listens(tc.requested)).Events())
				if len(bodies) != 2 || !strings.Contains(bodies[0], `"notifications":{}`) || !strings.Contains(bodies[1], `"result"`) {
					s.t.Errorf("heard %s", bodies)
				}
			})
		})
	}
	notificationStage(t, mcp.Legacy, map[string][]scene{http.MethodGet: {{fail: errBroken}}}, func(s *stage) {
		var gone *transport.UnreachableError
		if _, err := s.Exchange(s.t.Context(), s.listens(`"toolsListChanged":true`)); !errors.As(err, &gone) {
			s.t.Errorf("of a server that is away: %v", err)
		}
		var wrong *canonical.Error
		if _, err := s.Exchange(s.t.Context(), s.listens(`"toolsListChanged":1`)); !errors.As(err, &wrong) || wrong.Code != canonical.CodeBadParams {
			s.t.Errorf("of what is no wish: %v", err)
		}
	})
}

// A log is wanted once by one revision, and with each request by the other.
func TestLogLevel_BetweenRevisions(t *testing.T) {
	t.Parallel()
	log := func(level string) string {
		return `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"` + level + `","data":1}}`
	}
	notificationStage(t, mcp.Modern, map[string][]scene{calling: {{events: []string{log("warning"), result(complete)}}}}, func(s *stage) {
		t := s.t
		s.ask(t, s, s.inSession("logging/setLevel", `"level":"warning"`))
		bodies, _ := read(t, s.ask(t, s, s.inSession(calling, `"name":"ask","arguments":{}`)).Events())
		if len(bodies) != 2 || bodies[0] != log("warning") || !strings.Contains(s.asker.last(), `"io.modelcontextprotocol/logLevel":"warning"`) {
			t.Errorf("heard %s after %s", bodies, s.asker.last())
		}
		other := s.inSession(calling, `"name":"ask","arguments":{}`)
		other.Session = "s2"
		read(t, s.ask(t, s, other).Events())
		if strings.Contains(s.asker.last(), "logLevel") {
			t.Errorf("another session asks %s", s.asker.last())
		}
	})
	notificationStage(t, mcp.Legacy, map[string][]scene{
		calling:            {{events: []string{log("info"), log("error"), result(complete)}}},
		"logging/setLevel": {{reply: result(`{}`)}, {reply: failure("-32601")}},
	}, func(s *stage) {
		t := s.t
		for _, tc := range []struct {
			level, want string
			requested   int
		}{{"", "", 1}, {"warning", "error", 3}, {"error", "error", 5}} {
			call := s.extended(calling, `"name":"ask","arguments":{}`)
			call.Agent = "asker"
			if tc.level != "" {
				call.Wire.Body = []byte(strings.Replace(string(call.Wire.Body), `"_meta":{`, `"_meta":{"io.modelcontextprotocol/logLevel":"`+tc.level+`",`, 1))
			}
			bodies, _ := read(t, s.ask(t, s, call).Events())
			if n := len(strings.Fields(s.asker.was())); n != tc.requested || len(bodies) != map[bool]int{true: 2, false: 1}[tc.want != ""] || tc.want != "" && bodies[0] != log(tc.want) {
				t.Errorf("%q: heard %s after %s", tc.level, bodies, s.asker.was())
			}
		}
	})
}

// A modern client that hears nothing for long from a modern server still listens.
func TestSubscription_SurvivesLongSilence(t *testing.T) {
	t.Parallel()
	notificationStage(t, mcp.Modern, map[string][]scene{listening: {{events: []string{agreed(`"toolsListChanged":true`)}}}}, func(s *stage) {
		t := s.t
		notification := s.ask(t, s, s.listens(`"toolsListChanged":true`)).Events()
		if got := heardNext(t, notification); !strings.Contains(got, "acknowledged") {
			t.Errorf("heard %s", got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Minute)
		defer cancel()
		if event, err := notification.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("heard %s, %v", event.Wire.Body, err)
		}
		_ = notification.Close()
		synctest.Wait()
	})
}

// Another replica is told what a session wants, by the one where its client said that.
func TestSubscription_RequestedAtAnotherReplica(t *testing.T) {
	t.Parallel()
	notificationStage(t, mcp.Modern, map[string][]scene{listening: {
		{events: []string{agreed(`"toolsListChanged":true`)}},
		{events: []string{agreed(`"resourceSubscriptions":["news://1"]`)}},
		{events: []string{agreed(agreedU1), notice("resources/updated", updatedU1)}},
	}}, func(s *stage) {
		t := s.t
		other := s.replica(t)
		notification := s.ask(t, s, s.inSession(http.MethodGet, "")).Events()
		received := make(chan string)
		go func() { received <- heardNext(t, notification) }()
		synctest.Wait()
		s.ask(t, other, s.inSession("resources/subscribe", `"uri":"news://1"`))
		if got := <-received; !strings.Contains(got, "news://1") {
			t.Errorf("heard %s", got)
		}
		_ = notification.Close()
		_ = other.Close()
		synctest.Wait()
	})
}
