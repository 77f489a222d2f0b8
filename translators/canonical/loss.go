package canonical

import (
	"slices"
	"strings"
)

// Fate is what became of something that the destination cannot say natively.
type Fate string

const (
	// Carried: it rides in an extension field and comes back when the message returns home.
	Carried Fate = "carried"
	// Dropped: it is gone.
	Dropped Fate = "dropped"
)

// Weight is how much a loss matters when it is Dropped (AEPB, Gateway
// Requirements item 4; CPAT, Translation Gateway Requirements item 4).
type Weight string

const (
	// WeightContent: text, data, files, arguments, results, errors, state or
	// requested behaviour. Dropping it is semantic_loss unless policy allows the code.
	WeightContent Weight = "content"
	// WeightMeta: everything else. Dropping it is a warning.
	WeightMeta Weight = "meta"
)

// Loss is one thing that a translation could not say natively.
type Loss struct {
	Code LossCode
	Path string // where it stood in the canonical message, JSON Pointer form
	Fate Fate
}

// LossCode names an entry of the catalogue.
type LossCode string

// String is the form of a translation warning: "L05 dropped /path".
func (l Loss) String() string {
	return strings.Join([]string{string(l.Code), string(l.Fate), l.Path}, " ")
}

// Semantic reports whether the loss changes what the message means: Dropped,
// with weight content. An unknown code counts as content, so that forgetting
// to list one never hides a loss.
func (l Loss) Semantic() bool {
	if l.Fate != Dropped {
		return false
	}
	entry, ok := Lookup(l.Code)
	return !ok || entry.Weight == WeightContent
}

// maxMerged bounds the losses that MergeLosses adds to.
const maxMerged = 1024

// MergeLosses adds losses that are not known yet, up to 1024 of them: what every event of a
// stream loses is said once.
func MergeLosses(known, more []Loss) []Loss {
	for _, loss := range more {
		if len(known) < maxMerged && !slices.Contains(known, loss) {
			known = append(known, loss)
		}
	}
	return known
}
