package outbound_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/outbound"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// describer notes that it was asked, and says its name and one more version.
type describer struct {
	name   string
	err    error
	called *[]string
}

func (d describer) Describe(_ context.Context, e transport.Endpoint) (*canonical.Description, transport.Endpoint, error) {
	*d.called = append(*d.called, d.name)
	e.Version = "found by " + d.name
	if d.err != nil {
		return nil, e, d.err
	}
	return &canonical.Description{Name: d.name}, e, nil
}

// looking and revised have one of the capabilities each, whole has both.
type looking struct{ describer }

func (looking) ByCapabilities() {}

type revised struct{ describer }

func (revised) Revisions() []string { return []string{"2", "1"} }

func (revised) Revision(d *canonical.Description, own string, can []canonical.Mode) string {
	if len(can) == 0 {
		return ""
	}
	return d.Name + " in " + own
}

type whole struct{ revised }

func (whole) ByCapabilities() {}

// TestDescribers_PassTheChain: every question who an agent is passes the stages with the
// agent's name, is not measured as a message, and comes back as its describer answers it,
// also where that fails.
func TestDescribers_PassTheChain(t *testing.T) {
	t.Parallel()
	var called []string
	failure := errors.New("unreachable")
	network := &outbound.Network{
		Describers: map[canonical.Binding]transport.Describer{
			"a2a-v1": describer{name: "card", called: &called}, "mcp-v1": describer{name: "tools", err: failure, called: &called},
		},
		Beyond: describer{name: "peer", called: &called},
	}
	var seen []*outbound.Call
	watch := func(next outbound.Sender) outbound.Sender {
		return outbound.SendFunc(func(ctx context.Context, c *outbound.Call) (outbound.Reply, error) {
			seen = append(seen, c)
			return next.Send(ctx, c)
		})
	}
	var measured meter
	agents, beyond := outbound.Describers(outbound.NewChain(network, outbound.Metrics(&measured, time.Now), watch), network)
	for i, c := range []struct {
		by      transport.Describer
		binding canonical.Binding
		name    string
		err     error
	}{
		{agents["a2a-v1"], "a2a-v1", "card", nil},
		{agents["mcp-v1"], "mcp-v1", "tools", failure},
		{beyond, "mcp-v1", "peer", nil},
	} {
		description, at, err := c.by.Describe(t.Context(), transport.Endpoint{Agent: "calculator", Binding: c.binding, URL: "https://calculator"})
		if !errors.Is(err, c.err) || at.Version != "found by "+c.name || at.URL != "https://calculator" || err == nil && description.Name != c.name {
			t.Errorf("%s answered %+v at %+v, %v", c.name, description, at, err)
		}
		if len(seen) != i+1 || len(called) != i+1 || called[i] != c.name {
			t.Fatalf("after %s the stage has seen %d calls, and asked were %v", c.name, len(seen), called)
		}
		if got := seen[i]; got.Kind != outbound.Description || got.Agent != "calculator" || got.Endpoint.Binding != c.binding {
			t.Errorf("the stage sees %+v", got)
		}
	}
	if len(measured) > 0 {
		t.Errorf("measured were %v", measured)
	}
}

// TestDescribers_Refused: what a stage refuses is not asked, and the endpoint is the one
// that was to be asked.
func TestDescribers_Refused(t *testing.T) {
	t.Parallel()
	var called []string
	open := errors.New("open")
	network := &outbound.Network{Describers: map[canonical.Binding]transport.Describer{"a2a-v1": describer{name: "card", called: &called}}}
	agents, _ := outbound.Describers(outbound.SendFunc(func(context.Context, *outbound.Call) (outbound.Reply, error) {
		return outbound.Reply{}, open
	}), network)
	description, at, err := agents["a2a-v1"].Describe(t.Context(), transport.Endpoint{Agent: "calculator", URL: "https://calculator"})
	if !errors.Is(err, open) || description != nil || at.URL != "https://calculator" || len(called) > 0 {
		t.Errorf("%+v at %+v, %v, asked were %v", description, at, err, called)
	}
}

// TestDescribers_Capabilities: one that stands for another has its capabilities and no
// others, and nothing stands for what is not there.
func TestDescribers_Capabilities(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		own           transport.Describer
		looks, chosen bool
	}{
		"neither": {own: describer{}},
		"looks":   {own: looking{}, looks: true},
		"chosen":  {own: revised{}, chosen: true},
		"both":    {own: whole{}, looks: true, chosen: true},
	} {
		network := &outbound.Network{Describers: map[canonical.Binding]transport.Describer{"mcp-v1": c.own}, Beyond: c.own}
		agents, beyond := outbound.Describers(network, network)
		for _, got := range []transport.Describer{agents["mcp-v1"], beyond} {
			_, looks := got.(transport.ByCapabilities)
			by, chosen := got.(transport.ByRevision)
			if looks != c.looks || chosen != c.chosen {
				t.Errorf("%s: looks %v, chosen %v", name, looks, chosen)
			}
			if chosen && (len(by.Revisions()) != 2 || by.Revision(&canonical.Description{Name: "n"}, "1", []canonical.Mode{canonical.ModeForm}) != "n in 1") {
				t.Errorf("%s: it chooses by itself", name)
			}
		}
	}
	network := &outbound.Network{Describers: map[canonical.Binding]transport.Describer{"mcp-v1": nil}}
	if agents, beyond := outbound.Describers(network, network); agents["mcp-v1"] != nil || beyond != nil {
		t.Errorf("something stands for nothing: %v, %v", agents, beyond)
	}
}
