package main

import (
	"encoding/json"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// greeter is an agent whose tool wants one short text.
const greeter = "greeter"

func greetTool() canonical.Capability {
	return canonical.Capability{
		ID: "greet", Title: "Greet", Description: "Greets.", Profile: canonical.ProfileTyped,
		InputSchema: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string","maxLength":5}},"required":["name"]}`),
	}
}

// isTypedCall reports whether an agent is called with arguments of its own.
func isTypedCall(body *canonical.Invoke) bool {
	return body.Call != nil && (body.Call.Name == greetTool().ID || body.Call.Name == "add")
}

// opens is the message to which a question answers.
func (c *caller) opens(r response) *canonical.Message {
	if r.args == "" {
		return c.asking(r.does())
	}
	tool := "add"
	if c.agent == c.troupe.listed(c.to, greeter) {
		tool = greetTool().ID
	}
	return c.request(canonical.OpInvoke, &canonical.Invoke{Call: &canonical.Call{Name: tool, Args: json.RawMessage(r.args)}})
}

// argumentsAsked is the tables of what becomes of words and arguments for a tool of an
// MCP server, and of the gateway's own question for the arguments.
func (tr *troupe) argumentsAsked(t *testing.T, others *troupe, callers []*nature) string {
	t.Helper()
	to := tr.agentSide(byRequest)
	must(t, tr.stage.directory.Put(directory.Agent{
		Name: tr.listed(to.side, greeter), ID: tr.settings.svid.ID, Timeout: 2 * patienceOfPlays, Rules: policy.Rules{Open: true},
		Endpoints: []directory.Endpoint{{Binding: to.binding, Version: to.version, URL: tr.at.Public + "/agents/" + greeter + "/mcp"}},
	}))
	must(t, tr.directory.Put(directory.Agent{
		Name: greeter, Rules: policy.Rules{Open: true}, Endpoints: []directory.Endpoint{{Binding: to.binding, URL: tr.at.Public}},
	}))
	values := func(value string) canonical.Answer {
		return canonical.Answer{Action: canonical.Accept, Value: json.RawMessage(value)}
	}
	const long = "Ada Lovelace"
	numbers := values(`{"a":40,"b":2}`)
	return tr.argumentsTable(t, others, callers, to, greeter, "Words for a tool with one required text of at most 5 characters", []response{
		{name: "text that fits", do: "Ada", accepts: true},
		{name: "longer text, then one that fits", do: long, words: "Ada", accepts: true},
		{name: "longer text, twice", do: long, words: long},
		{name: "longer text, then a value that fits", do: long, answer: values(`{"name":"Ada"}`), accepts: true},
		{name: "longer text, then a value that does not", do: long, answer: values(`{"name":"` + long + `"}`)},
		{name: "longer text, then decline", do: long, answer: canonical.Answer{Action: canonical.Decline}},
	}) + tr.argumentsTable(t, others, callers, to, adder, "Words for a tool that wants two numbers, and the answers to \"Which arguments?\"", []response{
		{name: "accept", do: "add", accepts: true, answer: numbers},
		{name: "accept, twice", do: "add", accepts: true, answer: numbers, twice: true},
		{name: "one of two", do: "add", answer: values(`{"a":40}`)},
		{name: "another type", do: "add", answer: values(`{"a":"x","b":2}`)},
		{name: "no values", do: "add", answer: canonical.Answer{Action: canonical.Accept}},
		{name: "decline", do: "add", answer: canonical.Answer{Action: canonical.Decline}},
		{name: "cancel", do: "add", answer: canonical.Answer{Action: canonical.Cancel}},
		{name: "text", do: "add", words: "40 and 2"},
		{name: "nothing", do: "add", empty: true},
		{name: "another caller", do: "add", accepts: true, answer: numbers, other: true},
		{name: "one of two, at once", args: `{"a":40}`, accepts: true}, // which the server judges
	})
}

func (tr *troupe) argumentsTable(t *testing.T, others *troupe, callers []*nature, to *nature, agent, name string, columns []response) string {
	t.Helper()
	var seen cells
	var group errgroup.Group
	group.SetLimit(atOnce)
	var names []string
	for _, r := range columns {
		names = append(names, r.name)
		for _, from := range callers {
			asked := from.asks == translators.AskTask
			if from.side == to.side || r.args == "" && from.words == mcp.Binding || !asked && r.name != columns[0].name && r.args == "" || from.bare && r.args != "" || !r.of(from) {
				continue
			}
			group.Go(func() error {
				seen.put("by the gateway", from.name, r.name, tr.responded(t, others, agent, nil, from, to, r))
				return nil
			})
		}
	}
	must(t, group.Wait())
	return seen.table(name, names)
}
