package gateway_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/outbound"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

const (
	oldAdd  = `{"jsonrpc":"2.0","id":7,"method":"message/send","params":{"message":{"kind":"message","messageId":"m1","role":"user","parts":[{"kind":"data","data":{"skill":"add","input":{"a":1,"b":2}}}]}}}`
	bareAdd = `{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"data":{"skill":"add","input":{"a":1,"b":2}}}]}}`
)

// TestReply_UsesVersionAndFormOfTheRequest: version and form of the answer are those
// that the caller used, and the evidence covers the bytes on its wire (R5).
func TestReply_UsesVersionAndFormOfTheRequest(t *testing.T) {
	t.Parallel()
	b := newFixture(t, gateway.Settings{}, policy.Rules{Open: true})
	for name, c := range map[string]struct {
		wire translators.Wire
		want string
	}{
		"0.3":       {translators.Wire{Body: []byte(oldAdd)}, `{"jsonrpc":"2.0","id":7,"result":{"kind":"task"`},
		"0.3, said": {translators.Wire{Body: []byte(oldAdd), Version: a2a.Version03}, `{"jsonrpc":"2.0","id":7,"result":{"kind":"task"`},
		"HTTP":      {translators.Wire{Body: []byte(bareAdd), Form: a2a.FormHTTP}, `{"task":{"id":`},
	} {
		call := b.call(string(c.wire.Body))
		c.wire.Binding, c.wire.Media = a2a.Binding, a2a.Media
		call.Wire = c.wire
		answer, err := b.Exchange(t.Context(), call)
		if err != nil || !strings.HasPrefix(string(answer.Wire().Body), c.want) || answer.Wire().Form != c.wire.Form {
			t.Errorf("%s: %v %+v %s", name, err, answer.Wire().Form, answer.Wire().Body)
			continue
		}
		directions := answer.Evidence
		if got := claims(t, directions[0]).InputHash; got != ect.Hash(c.wire.Body) {
			t.Errorf("%s: the request's evidence covers something else", name)
		}
		if got := claims(t, directions[1]).OutputHash; got != ect.Hash(answer.Wire().Body) {
			t.Errorf("%s: the reply's evidence covers something else", name)
		}
	}
}

// TestTranslateEndpoint_A2A03: a2a-v1@0.3 as source and as destination (R8).
func TestTranslateEndpoint_A2A03(t *testing.T) {
	t.Parallel()
	b := newFixture(t, gateway.Settings{}, policy.Rules{Open: true})
	old := translators.Wire{Binding: a2a.Binding, Version: a2a.Version03, Body: []byte(oldAdd)}
	answer, err := b.Exchange(t.Context(), b.revised(t, "", old, mcp.Binding, ""))
	if err != nil || !strings.Contains(string(answer.Wire().Body), `"name":"add","arguments":{"a":1,"b":2}`) {
		t.Errorf("from 0.3: %v %s", err, answer.Wire().Body)
	}
	tool := translators.Wire{Binding: mcp.Binding, Version: mcp.Legacy, Body: []byte(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"add","arguments":{"a":1}}}`)}
	answer, err = b.Exchange(t.Context(), b.revised(t, "", tool, a2a.Binding, a2a.Version03))
	if err != nil || answer.Wire().Version != a2a.Version03 || !strings.Contains(string(answer.Wire().Body), `"method":"message/send"`) {
		t.Errorf("to 0.3: %v %s", err, answer.Wire().Body)
	}
	lies := translators.Wire{Binding: a2a.Binding, Version: a2a.Version03, Body: []byte(addBody)}
	if _, err := b.Exchange(t.Context(), b.revised(t, "", lies, mcp.Binding, "")); err == nil {
		t.Error("1.0 was taken for 0.3")
	}
}

// twoPlaces is an agent that speaks 1.0 over HTTP at one place and 0.3 at
// another. It keeps where and how it was called.
type twoPlaces struct{ at, sent string }

func (*twoPlaces) Describe(_ context.Context, e transport.Endpoint) (*canonical.Description, transport.Endpoint, error) {
	if e.Version == a2a.Version03 {
		e.URL += "/old"
	} else {
		e.URL, e.Version, e.Form = e.URL+"/http", a2a.Version, a2a.FormHTTP
	}
	return &canonical.Description{
		Name: "two", Versions: []string{a2a.Version, a2a.Version03},
		Capabilities: []canonical.Capability{{ID: "add", Profile: canonical.ProfileMessage}},
	}, e, nil
}

func (p *twoPlaces) Dial(_ context.Context, e transport.Endpoint, sealed transport.Sealed) (transport.Reply, error) {
	wire, _, err := sealed.Open()
	p.at, p.sent = e.URL, string(wire.Body)
	return transport.Reply{}, errors.Join(err, &transport.UnreachableError{Agent: e.Agent})
}

// TestEndpoint_ChosenByVersionAndForm: the version that is asked for decides where an
// agent is called, and the form of the place how.
func TestEndpoint_ChosenByVersionAndForm(t *testing.T) {
	t.Parallel()
	b := newFixture(t, gateway.Settings{}, policy.Rules{})
	agent, deps := &twoPlaces{}, b.Deps
	list, err := directory.New(directory.Deps{
		Describers: map[canonical.Binding]transport.Describer{a2a.Binding: agent}, Egress: closed{}, Now: deps.Now, Logger: deps.Logger,
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, version := range map[string]string{"two": "", "new-only": a2a.Version} {
		if err := list.Put(directory.Agent{Name: name, Rules: policy.Rules{Open: true}, Endpoints: []directory.Endpoint{
			{Binding: a2a.Binding, Version: version, URL: "https://two.example"},
		}}); err != nil {
			t.Fatal(err)
		}
	}
	deps.Directory, deps.Network = list, &outbound.Network{Agents: map[canonical.Binding]transport.Dialer{a2a.Binding: agent}}
	if b.Gateway, err = gateway.New(gateway.Settings{}, chained(deps)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ agent, version, at, sent string }{
		{"two", "", "https://two.example/http", `{"message":`},
		{"two", a2a.Version, "https://two.example/http", `{"message":`},
		{"two", a2a.Version03, "https://two.example/old", `{"jsonrpc":"2.0","id":`},
		{"new-only", a2a.Version03, "", ""},
	} {
		*agent = twoPlaces{}
		_, err := b.Exchange(t.Context(), b.revised(t, c.agent, translators.Wire{Binding: a2a.Binding, Body: []byte(addBody)}, a2a.Binding, c.version))
		if agent.at != c.at || !strings.HasPrefix(agent.sent, c.sent) {
			t.Errorf("%s in %q: called at %q with %s (%v)", c.agent, c.version, agent.at, agent.sent, err)
		}
		if noPath, ok := errors.AsType[*problem.NoPathError](err); (c.at == "") != ok || (ok && noPath.Detail != "unsupported_version") {
			t.Errorf("%s in %q: %v", c.agent, c.version, err)
		}
	}
}
