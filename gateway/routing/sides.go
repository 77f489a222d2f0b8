package routing

import (
	"slices"

	"github.com/aepb/aepb-gateway/gateway/admission"
	"github.com/aepb/aepb-gateway/gateway/destination"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Sides are the caller and the agent of a message, as their protocols have them.
type Sides struct {
	In      *admission.Admitted
	To      *destination.Destination
	Message *canonical.Message // of the caller
}

// SameWords reports whether both sides use the words of one protocol, whatever carries them. version
// is that in which the agent is spoken to.
func (s Sides) SameWords(version string) bool {
	return wordsOf(s.In.Source, s.In.Features, s.Message.Origin.Version) == wordsOf(s.To.Codec, s.To.Features, version)
}

func wordsOf(t translators.Translator, f *translators.Features, version string) canonical.Binding {
	if f.Carrier != nil {
		return f.Carrier.Carries(version)
	}
	return t.Info().Binding
}

// Relay reports whether both sides speak one protocol. SLIM is two if its agents use the words
// of different ones.
func (s Sides) Relay(version string) bool {
	return s.In.Source.Info().Binding == s.To.Codec.Info().Binding && (s.Message == nil || s.SameWords(version))
}

// Way is how the caller's protocol asks.
func (s Sides) Way() translators.Asking {
	if s.In.Features.Asker == nil {
		return translators.AskNone
	}
	return s.In.Features.Asker.Asks(s.Message.Origin.Version, s.In.Call.Wire.Form)
}

// Asking is how this caller can be asked.
func (s Sides) Asking(version string) translators.Asking {
	way := s.Way()
	understood := func(mode canonical.Mode) bool { return s.understood(mode, version) }
	if way == translators.AskTask || slices.ContainsFunc(s.Message.Preferences.CanAnswer, understood) {
		return way
	}
	return translators.AskNone
}

// understood: what an agent of the same protocol asks in its own words needs no
// form; across protocols there is nothing else.
func (s Sides) understood(mode canonical.Mode, version string) bool {
	return (mode != canonical.ModeSampling && mode != canonical.ModeRoots) || s.SameWords(version)
}

// Askable is what the agent may ask, because this caller can answer it.
func (s Sides) Askable(version string) []canonical.Mode {
	if s.Asking(version) == translators.AskTask {
		return []canonical.Mode{canonical.ModeForm, canonical.ModeURL}
	}
	return s.Answerable(s.Message.Preferences.CanAnswer, version)
}

// Answerable is what of that which a caller says it answers this agent may ask: nothing
// where the caller cannot be asked.
func (s Sides) Answerable(modes []canonical.Mode, version string) []canonical.Mode {
	if s.Asking(version) == translators.AskNone {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(modes), func(mode canonical.Mode) bool { return !s.understood(mode, version) })
}

// AgentVersion is the version in which the agent is spoken to at an endpoint; empty: it was not
// asked yet, and none is listed.
func (s Sides) AgentVersion(endpoint string) string {
	if endpoint != "" {
		return endpoint
	}
	listed, _ := s.To.Agent.EndpointOf(s.To.Codec.Info().Binding)
	return listed.Version
}
