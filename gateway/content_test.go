package gateway_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// content is what an MCP server has beside tools, as skills.
func content() []canonical.Capability {
	object := json.RawMessage(`{"type":"object","properties":{"who":{"type":"string"}},"required":["who"]}`)
	return []canonical.Capability{
		{ID: "prompt.greet", Profile: canonical.ProfilePrompt, InputSchema: object},
		{ID: "resource.read", Profile: canonical.ProfileResource, InputSchema: object},
	}
}

// An A2A message that names a prompt, or a resource, is answered with what is in
// it, with evidence of both legs as for every other.
func TestContent_PromptsAndResourcesAsSkills(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ skill, input, result, sent, got string }{
		"a prompt": {
			"prompt.greet", `{"who":"you"}`, `{"resultType":"complete","description":"d","messages":[{"role":"user","content":{"type":"text","text":"hello you"}}]}`,
			`"method":"prompts/get"`, `"parts":[{"text":"hello you"},{"data":{"description":"d","messages":[{"role":"user"`,
		},
		"a resource": {
			"resource.read", `{"uri":"file:///x"}`, `{"resultType":"complete","ttlMs":0,"cacheScope":"private","contents":[{"uri":"file:///x","mimeType":"text/csv","text":"a,b"}]}`,
			`"method":"resources/read"`, `"text":"a,b"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t, gateway.Settings{}, policy.Rules{Open: true})
			b.agent.more, b.agent.result = content(), tc.result
			body := strings.NewReplacer(`"add"`, `"`+tc.skill+`"`, `{"a":1,"b":2}`, tc.input).Replace(addBody)
			call := b.translate(t, body)
			answer, err := b.Exchange(t.Context(), call)
			if err != nil {
				t.Fatal(err)
			}
			if sent := string(b.agent.bodies[0]); !strings.Contains(sent, tc.sent) || !strings.Contains(string(answer.Wire().Body), tc.got) {
				t.Errorf("sent %s\ngot %s", sent, answer.Wire().Body)
			}
			request, reply := claims(t, answer.Evidence[0]), claims(t, answer.Evidence[1])
			if request.OutputHash != ect.Hash(b.agent.bodies[0]) || reply.OutputHash != ect.Hash(answer.Wire().Body) || !slices.Equal(reply.Parents, []ect.ID{request.ID}) {
				t.Errorf("evidence %+v %+v", request, reply)
			}
			for _, loss := range answer.Losses {
				if loss.Semantic() || loss.Code == canonical.LossPrompts {
					t.Errorf("lost: %s", loss)
				}
			}
		})
	}
}

// What does not fit a prompt is refused before anybody is asked; an answer that is no prompt's goes on as data.
func TestContent_InvalidArgumentsAndReplies(t *testing.T) {
	t.Parallel()
	b := newFixture(t, gateway.Settings{}, policy.Rules{Open: true})
	b.agent.more, b.agent.result = content(), `{"resultType":"complete","content":[{"type":"text","text":"no messages"}]}`
	say := func(input string) error {
		_, err := b.Exchange(t.Context(), b.translate(t, strings.NewReplacer(`"add"`, `"prompt.greet"`, `{"a":1,"b":2}`, input).Replace(addBody)))
		return err
	}
	var reply *canonical.Error
	if err := say(`{"who":7}`); !errors.As(err, &reply) || reply.Code != canonical.CodeBadParams || len(b.agent.bodies) != 0 {
		t.Errorf("a number: %v", err)
	}
	if answer := b.exchange(t, b.translate(t, strings.NewReplacer(`"add"`, `"prompt.greet"`, `{"a":1,"b":2}`, `{"who":"you"}`).Replace(addBody))); !strings.Contains(string(answer.Wire().Body), "no messages") {
		t.Errorf("a tool's result: %s", answer.Wire().Body)
	}
}

// Text for a server with one tool is for that tool, whatever content there is
// beside it; and the name of a prompt chooses it.
func TestContent_DoesNotAffectSoleToolChoice(t *testing.T) {
	t.Parallel()
	b := newFixture(t, gateway.Settings{}, policy.Rules{Open: true})
	b.agent.more, b.agent.sole = content(), true
	text := `{"jsonrpc":"2.0","id":7,"method":"SendMessage","params":{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"you"}]}}}`
	if _, err := b.Exchange(t.Context(), b.call(text)); err != nil || !strings.Contains(string(b.agent.bodies[0]), `"name":"echo","arguments":{"message":"you"}`) {
		t.Fatalf("%v %s", err, b.agent.bodies)
	}
	b.agent.result = `{"resultType":"complete","messages":[]}`
	named := strings.Replace(text, `"parts"`, `"metadata":{"urn:aepb:translation:1":{"skill":"prompt.greet"}},"parts"`, 1)
	if _, err := b.Exchange(t.Context(), b.call(named)); err != nil || !strings.Contains(string(b.agent.bodies[1]), `"name":"greet","arguments":{"who":"you"}`) {
		t.Errorf("%v %s", err, b.agent.bodies)
	}
}
