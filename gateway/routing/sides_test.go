package routing_test

import (
	"slices"
	"testing"

	"github.com/aepb/aepb-gateway/gateway/admission"
	"github.com/aepb/aepb-gateway/gateway/destination"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/routing"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// carrier has no words of its own: its versions are the protocols whose words they use.
type carrier struct{ translators.Translator }

func (carrier) Info() translators.Info { return translators.Info{Binding: "carrier-v1"} }

func (carrier) Carries(version string) canonical.Binding { return canonical.Binding(version) }

// sides are of a message in a version between two codecs.
func sides(from translators.Translator, version string, to translators.Translator, can ...canonical.Mode) routing.Sides {
	return routing.Sides{
		In: &admission.Admitted{Source: from, Features: translators.FeaturesOf(from)},
		To: &destination.Destination{Codec: to, Features: translators.FeaturesOf(to), Agent: directory.Agent{
			Endpoints: []directory.Endpoint{{Binding: to.Info().Binding, Version: "listed"}},
		}},
		Message: &canonical.Message{Origin: canonical.Origin{Version: version}, Preferences: canonical.Preferences{CanAnswer: can}},
	}
}

// TestSides_SameWords: which sides use the same words, and which also the same protocol.
func TestSides_SameWords(t *testing.T) {
	t.Parallel()
	tools, tasks, over := codec(mcp.Binding), codec(a2a.Binding), carrier{}
	for name, c := range map[string]struct {
		sides       routing.Sides
		version     string
		same, relay bool
	}{
		"one protocol":                {sides(tools, "", tools), "", true, true},
		"two protocols":               {sides(tasks, "", tools), "", false, false},
		"carried, of the same":        {sides(over, "mcp-v1", tools), "", true, false},
		"carried, of another":         {sides(over, "a2a-v1", tools), "", false, false},
		"to a carrier, of the same":   {sides(tasks, "", over), "a2a-v1", true, false},
		"to a carrier, of another":    {sides(tasks, "", over), "mcp-v1", false, false},
		"both carried, of one":        {sides(over, "mcp-v1", over), "mcp-v1", true, true},
		"both carried, of two":        {sides(over, "mcp-v1", over), "a2a-v1", false, false},
		"one protocol, other version": {sides(tools, mcp.Modern, tools), mcp.Legacy, true, true},
	} {
		if same, relay := c.sides.SameWords(c.version), c.sides.Relay(c.version); same != c.same || relay != c.relay {
			t.Errorf("%s: the same words %t, relay %t", name, same, relay)
		}
	}
	before := sides(over, "", over)
	if before.Message = nil; !before.Relay("a2a-v1") {
		t.Error("before a message is read, one protocol is not relayed")
	}
}

// TestSides_Askable: what an agent may ask a caller.
func TestSides_Askable(t *testing.T) {
	t.Parallel()
	tools, tasks, silent := codec(mcp.Binding), codec(a2a.Binding), carrier{}
	form, sampling := canonical.ModeForm, canonical.ModeSampling
	for name, c := range map[string]struct {
		sides   routing.Sides
		asking  translators.Asking
		askable []canonical.Mode
	}{
		"by its task":                           {sides(tasks, "", tools), translators.AskTask, []canonical.Mode{form, canonical.ModeURL}},
		"by a reply":                            {sides(tools, mcp.Modern, tasks, form), translators.AskReply, []canonical.Mode{form}},
		"in a stream":                           {sides(tools, mcp.Legacy, tasks, form), translators.AskStream, []canonical.Mode{form}},
		"it answers nothing":                    {sides(tools, mcp.Modern, tasks), translators.AskNone, nil},
		"only what has no form":                 {sides(tools, mcp.Modern, tasks, sampling, canonical.ModeRoots), translators.AskNone, nil},
		"what has no form, to its own protocol": {sides(tools, mcp.Modern, tools, sampling), translators.AskReply, []canonical.Mode{sampling}},
		"across, what has a form of these":      {sides(tools, mcp.Modern, tasks, sampling, form), translators.AskReply, []canonical.Mode{form}},
		"its version has no questions":          {sides(tools, mcp.LegacyMarch, tasks, form), translators.AskNone, nil},
		"its protocol has no questions":         {sides(silent, "", tasks, form), translators.AskNone, nil},
	} {
		if got := c.sides.Asking(""); got != c.asking {
			t.Errorf("%s: asked %q, expected %q", name, got, c.asking)
		}
		if got := c.sides.Askable(""); !slices.Equal(got, c.askable) {
			t.Errorf("%s: %v, expected %v", name, got, c.askable)
		}
	}
	both := sides(tools, mcp.Modern, tasks, form, sampling)
	if both.Askable(""); len(both.Message.Preferences.CanAnswer) != 2 || both.Message.Preferences.CanAnswer[1] != sampling {
		t.Errorf("what the caller answers was changed: %v", both.Message.Preferences.CanAnswer)
	}
}

// TestSides_AgentVersion: that of the endpoint, else the listed one.
func TestSides_AgentVersion(t *testing.T) {
	t.Parallel()
	s := sides(codec(a2a.Binding), "", codec(mcp.Binding))
	if got := s.AgentVersion("2"); got != "2" {
		t.Errorf("at an endpoint: %q", got)
	}
	if got := s.AgentVersion(""); got != "listed" {
		t.Errorf("before it was asked: %q", got)
	}
}
