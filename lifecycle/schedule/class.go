package schedule

import "slices"

// Class is the priority of a job (ATD, Priority Levels). Classes are ordered; the zero value is none.
type Class uint8

// The classes, in increasing order.
const (
	Low Class = iota + 1
	Normal
	High
	Critical
)

var classes = []string{"", "low", "normal", "high", "critical"}

// Classes are the texts of the four classes, the highest first.
func Classes() []string { return []string{"critical", "high", "normal", "low"} }

// String is the text of the class; empty: none.
func (c Class) String() string {
	if int(c) < len(classes) {
		return classes[c]
	}
	return ""
}

// ParseClass reads one of critical, high, normal and low. Every other text is no class.
func ParseClass(text string) (Class, bool) {
	i := slices.Index(classes, text)
	return Class(max(i, 0)), i > 0 //nolint:gosec // a place in a list of five
}

// Effective is the class of a job: the lowest of what the operator allows and of the hints. A hint that is none does
// not count, so no hint raises a class.
func Effective(ceiling Class, hints ...Class) Class {
	for _, hint := range hints {
		if hint != 0 {
			ceiling = min(ceiling, hint)
		}
	}
	return ceiling
}
