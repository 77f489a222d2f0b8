package translators

import (
	"errors"
	"fmt"
	"slices"

	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Registry is the set of protocols that a gateway speaks. It is immutable.
type Registry struct {
	order []canonical.Binding
	byID  map[canonical.Binding]Translator
}

// NewRegistry builds a registry; two translators of one binding are an error.
func NewRegistry(list ...Translator) (*Registry, error) {
	r := &Registry{byID: make(map[canonical.Binding]Translator, len(list))}
	for _, t := range list {
		id := t.Info().Binding
		if id == "" {
			return nil, errors.New("translators: a translator without a binding identifier")
		}
		if _, dup := r.byID[id]; dup {
			return nil, fmt.Errorf("translators: two translators for %s", id)
		}
		r.byID[id] = t
		r.order = append(r.order, id)
	}
	return r, nil
}

// Translator finds the translator of a binding.
func (r *Registry) Translator(id canonical.Binding) (Translator, bool) {
	t, ok := r.byID[id]
	return t, ok
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
