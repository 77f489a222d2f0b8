package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// TestErrand_RecordsRequestAndReply: the gateway has an agent do something on its own account, in the agent's protocol, though the
// agent's list of callers does not name it: request and answer are on record below the lineage, and the agent
// gets the token of the request. Policy about protocols holds, and an unknown agent and a failing one are errors.
func TestErrand_RecordsRequestAndReply(t *testing.T) {
	t.Parallel()
	b := newFixture(t, gateway.Settings{}, policy.Rules{Callers: []string{"spiffe://example.com/client"}})
	wid, start := b.begin(t)
	call := addition
	lineage := attest.Lineage{Workflow: wid, Parents: []ect.ID{start.ID}}
	answer, err := b.Errand(t.Context(), gateway.Errand{Agent: "calculator", Message: call(), Lineage: lineage})
	if err != nil {
		t.Fatal(err)
	}
	result, ok := answer.Message.Body.(*canonical.Result)
	if !ok || result.Output == nil || string(result.Output.Structured) != `{"sum":3}` {
		t.Errorf("the answer is %+v", answer.Message.Body)
	}
	tokens := b.tokensOf(t, wid)
	if !slices.Equal(acts(tokens), []ect.Act{ect.ActWorkflowStart, ect.ActTranslate, ect.ActTranslate}) {
		t.Fatalf("on record are %v", acts(tokens))
	}
	request, reply := tokens[1], tokens[2]
	caller, _ := request.Ext.String(ect.ExtCaller)
	direction, _ := reply.Ext.String(ect.ExtLeg)
	if !slices.Equal(request.Parents, []ect.ID{start.ID}) || caller != string(b.self.ID) || !slices.Equal(reply.Parents, []ect.ID{request.ID}) ||
		direction != "reply" || answer.ID != reply.ID || reply.InputHash == "" {
		t.Errorf("request %+v, reply %+v, returned %v", request, reply, answer.ID)
	}
	if len(b.agent.tokens) != 1 || claims(t, b.agent.tokens[0][0]).ID != request.ID || request.OutputHash != ect.Hash(b.agent.bodies[0]) {
		t.Errorf("the agent got %v", b.agent.tokens)
	}
	if _, err := b.Errand(t.Context(), gateway.Errand{Agent: "unlisted", Message: call(), Lineage: lineage}); problem.From(err).Status != 404 {
		t.Errorf("an unknown agent: %v", err)
	}
	b.agent.fail = &transport.UnreachableError{Agent: "calculator"}
	if _, err := b.Errand(t.Context(), gateway.Errand{Agent: "calculator", Message: call(), Lineage: lineage}); !errors.As(err, new(*transport.UnreachableError)) {
		t.Errorf("an agent that is not reached: %v", err)
	}
	b.agent.fail = nil
	b.Apply(gateway.Settings{Constraints: policy.Constraints{RestrictDest: true, AllowedDest: []string{string(a2a.Binding)}}})
	if _, err := b.Errand(t.Context(), gateway.Errand{Agent: "calculator", Message: call(), Lineage: lineage}); !errors.As(err, new(*policy.Denied)) {
		t.Errorf("a protocol that policy forbids: %v", err)
	}
}

// TestAttack_CallerWithTheGatewaysName: a caller whose identity is the gateway's own passes no agent's list of
// callers by that: only the gateway itself sends errands.
func TestAttack_CallerWithTheGatewaysName(t *testing.T) {
	t.Parallel()
	b := newFixture(t, gateway.Settings{}, policy.Rules{Callers: []string{"spiffe://example.com/client"}})
	call := b.call(addBody)
	call.Caller.Peer = b.self.Peer()
	if _, err := b.Exchange(t.Context(), call); !errors.As(err, new(*policy.Forbidden)) {
		t.Errorf("got %v, expected it to be refused", err)
	}
}

// TestErrand_ReplyInStream: an agent may tell of progress and log before it replies, as MCP servers do. The reply is taken, with the token that
// closes the stream; a stream without a reply, with a question, or with a token of another stream is an error.
func TestErrand_ReplyInStream(t *testing.T) {
	t.Parallel()
	progress := transport.Event{Wire: translators.Wire{Media: "application/json", Body: []byte(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}}`)}}
	logged := transport.Event{Wire: translators.Wire{Media: "application/json", Body: []byte(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"x"}}`)}}
	odd := transport.Event{Wire: translators.Wire{Media: "application/json", Body: []byte(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}`)}}
	asks := transport.Event{Wire: translators.Wire{Media: "application/json", Body: []byte(`{"jsonrpc":"2.0","id":9,"method":"elicitation/create","params":{"message":"which?","requestedSchema":{"type":"object","properties":{}}}}`)}}
	for name, c := range map[string]struct {
		before  []transport.Event
		silent  bool // it does not reply
		end     error
		closing string // the stream whose hash the closing token has: this, another; empty: there is no such token
		want    string // the error
	}{
		"progress and logs":        {before: []transport.Event{progress, logged}, end: io.EOF},
		"a notice that is wrong":   {before: []transport.Event{odd}, end: io.EOF},
		"a token that closes it":   {before: []transport.Event{progress}, end: io.EOF, closing: "this"},
		"a stream that goes on":    {before: []transport.Event{progress}},
		"a token of another":       {before: []transport.Event{progress}, end: io.EOF, closing: "another", want: "its ECT does not verify"},
		"no reply":                 {before: []transport.Event{progress}, silent: true, end: io.EOF, want: "its stream ended without a reply"},
		"no reply, a token":        {silent: true, closing: "this", want: "its stream ended without a reply"},
		"no reply in time":         {before: []transport.Event{progress}, silent: true, want: "did not answer within 5m0s"},
		"a stream that breaks off": {before: []transport.Event{progress}, silent: true, end: &transport.UnreachableError{Agent: "calculator"}, want: "calculator"},
		"a question":               {before: []transport.Event{asks}, end: io.EOF, want: "it asks a question"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newFixture(t, gateway.Settings{}, policy.Rules{Open: true})
				b.agent.version = mcp.Legacy // whose servers may ask in a stream
				wid, start := b.begin(t)
				var closes ect.ID
				b.agent.stream = func(reply translators.Wire) transport.Events {
					all := slices.Clone(c.before)
					if !c.silent {
						all = append(all, transport.Event{Wire: reply})
					}
					if c.closing != "" {
						var whole ect.StreamHash
						for _, e := range all {
							whole.Add(e.Wire.Body)
						}
						if c.closing == "another" {
							whole.Add([]byte("more"))
						}
						request := claims(t, b.agent.tokens[len(b.agent.tokens)-1][0])
						token, err := b.server.Signer(t, func() time.Time { return b.now() }).Sign(ect.Claims{
							Audience: []string{string(b.self.ID)}, Workflow: wid, Act: "add", Parents: []ect.ID{request.ID}, OutputHash: whole.Sum(),
						})
						if err != nil {
							t.Error(err)
						}
						closes = token.Claims().ID
						all = append(all, transport.Event{Evidence: []string{token.Compact()}})
					}
					return &events{left: all, end: c.end}
				}
				answer, err := b.Errand(t.Context(), gateway.Errand{Agent: "calculator", Message: addition(), Lineage: attest.Lineage{Workflow: wid, Parents: []ect.ID{start.ID}}})
				if c.want != "" {
					if err == nil || !strings.Contains(err.Error(), c.want) {
						t.Errorf("the error is %v, expected %q", err, c.want)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if result, ok := answer.Message.Body.(*canonical.Result); !ok || string(result.Output.Structured) != `{"sum":3}` {
					t.Errorf("the answer is %+v", answer.Message.Body)
				}
				tokens := b.tokensOf(t, wid)
				if last := tokens[len(tokens)-1]; last.ID != answer.ID || last.InputHash != answer.Hash || slices.Contains(last.Parents, closes) != (closes != "") {
					t.Errorf("the last token is %+v, the closing one %q", last, closes)
				}
			})
		})
	}
}

// addition is a message that adds two numbers.
func addition() *canonical.Message {
	return &canonical.Message{Op: canonical.OpInvoke, Phase: canonical.PhaseRequest, Body: &canonical.Invoke{
		Call: &canonical.Call{Name: "add", Args: json.RawMessage(`{"a":1,"b":2}`)},
	}}
}

// lateStore hides what it has from one read, as a store does into which another replica writes at that moment.
type lateStore struct {
	ect.Store
	hides atomic.Bool
}

func (s *lateStore) Get(ctx context.Context, refs ...ect.Ref) ([][]ect.Record, error) {
	if s.hides.Swap(false) {
		return make([][]ect.Record, len(refs)), nil
	}
	return s.Store.Get(ctx, refs...)
}

// TestErrand_SentAgain: what is sent again under its id has the token that it had, also where another replica records that between the look for it
// and the record of a new one.
func TestErrand_SentAgain(t *testing.T) {
	t.Parallel()
	late := &lateStore{}
	b := newFixture(t, gateway.Settings{}, policy.Rules{Open: true}, func(d *gateway.Deps) {
		late.Store = d.Evidence
		recorder, err := ect.NewRecorder(ect.RecorderDeps{Store: late})
		if err != nil {
			t.Fatal(err)
		}
		d.Recorder = recorder
	})
	wid, start := b.begin(t)
	e := gateway.Errand{
		Agent: "calculator", Lineage: attest.Lineage{Workflow: wid, Parents: []ect.ID{start.ID}}, ID: ect.NewID(), At: b.now(),
		Message: &canonical.Message{Op: canonical.OpInvoke, Phase: canonical.PhaseRequest, Body: &canonical.Invoke{
			Call: &canonical.Call{Name: "add", Args: json.RawMessage(`{"a":1,"b":2}`)},
		}},
	}
	for _, hides := range []bool{false, false, true} {
		late.hides.Store(hides)
		if _, err := b.Errand(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		b.setNow(b.now().Add(time.Second))
	}
	for i, tokens := range b.agent.tokens {
		if tokens[0] != b.agent.tokens[0][0] || string(b.agent.bodies[i]) != string(b.agent.bodies[0]) || claims(t, tokens[0]).ID != e.ID {
			t.Errorf("the agent got another message or token the %d. time", i+1)
		}
	}
}
