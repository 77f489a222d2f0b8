package translators

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Registry is the set of protocols that a gateway speaks. It is immutable.
type Registry struct {
	order    []canonical.Binding
	byID     map[canonical.Binding]Translator
	features map[canonical.Binding]*Features
	none     *Features // of an unknown binding
}

// NewRegistry builds a registry; two translators of one binding are an error.
func NewRegistry(list ...Translator) (*Registry, error) {
	r := &Registry{byID: make(map[canonical.Binding]Translator, len(list)), features: make(map[canonical.Binding]*Features, len(list)), none: &Features{}}
	for _, t := range list {
		id := t.Info().Binding
		if id == "" {
			return nil, errors.New("translators: translator without a binding id, expected one")
		}
		if _, dup := r.byID[id]; dup {
			return nil, fmt.Errorf("translators: two translators for %s", id)
		}
		r.byID[id], r.features[id] = t, FeaturesOf(t)
		r.order = append(r.order, id)
	}
	return r, nil
}

// Translator finds the translator of a binding.
func (r *Registry) Translator(id canonical.Binding) (Translator, bool) {
	t, ok := r.byID[id]
	return t, ok
}

// Features are the optional interfaces of the codec of a binding; those of an unknown binding
// are all nil.
func (r *Registry) Features(id canonical.Binding) *Features {
	if f := r.features[id]; f != nil {
		return f
	}
	return r.none
}

// Bindings lists the bindings in order of registration.
func (r *Registry) Bindings() []canonical.Binding { return slices.Clone(r.order) }

// Pair is an ordered pair of bindings.
type Pair struct{ From, To canonical.Binding }

// Pairs lists every ordered pair of different bindings (AEPB, Gateway
// Requirements item 1).
func (r *Registry) Pairs() []Pair {
	var pairs []Pair
	for _, from := range r.order {
		for _, to := range r.order {
			if from != to {
				pairs = append(pairs, Pair{from, to})
			}
		}
	}
	return pairs
}

// Side is one side of a translation: a binding, and a version of it if one was
// named.
type Side struct {
	Binding canonical.Binding
	Version string
}

// ParseSide reads "a2a-v1" or "a2a-v1@0.3".
func ParseSide(text string) Side {
	binding, version, _ := strings.Cut(text, "@")
	return Side{canonical.Binding(binding), version}
}

// String is the side as ParseSide reads it.
func (s Side) String() string {
	if s.Version == "" {
		return string(s.Binding)
	}
	return string(s.Binding) + "@" + s.Version
}

// Serves reports whether anything is translated from one side to the other: two
// protocols, or two versions of one.
func (r *Registry) Serves(from, to Side) bool {
	if !r.speaks(from) || !r.speaks(to) {
		return false
	}
	switch {
	case from.Binding != to.Binding:
		return true
	case from.Version != "" && to.Version != "":
		return from.Version != to.Version
	default:
		return len(r.byID[from.Binding].Info().Versions) > 1
	}
}

func (r *Registry) speaks(s Side) bool {
	t, ok := r.byID[s.Binding]
	return ok && (s.Version == "" || slices.Contains(t.Info().Versions, s.Version))
}

// VersionPairs lists every ordered pair of different versions of one protocol.
func (r *Registry) VersionPairs() [][2]Side {
	var pairs [][2]Side
	for _, id := range r.order {
		versions := r.byID[id].Info().Versions
		for _, from := range versions {
			for _, to := range versions {
				if from != to {
					pairs = append(pairs, [2]Side{{id, from}, {id, to}})
				}
			}
		}
	}
	return pairs
}
