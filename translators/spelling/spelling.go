// Package spelling finds the name that a person has probably meant, for "did you
// mean" in messages. Callers pass only names that the reader of the message may
// see.
package spelling

import (
	"strings"
	"unicode/utf8"
)

const (
	maxName  = 64  // bytes; longer names are not compared
	maxNames = 256 // that are compared
)

// Nearest returns the name that is closest to the one given: equal but for case, or
// at most a third of its characters away (inserted, left out, changed, or swapped
// with the next one), at most three. Empty: none is close, or two are as close.
func Nearest[T ~string](given string, names []T) string {
	if len(given) > maxName || given == "" {
		return ""
	}
	best, found, again := min(3, max(1, utf8.RuneCountInString(given)/3))+1, "", false
	for _, one := range names[:min(len(names), maxNames)] {
		name := string(one)
		if len(name) > maxName || name == given {
			continue
		}
		d := distance(strings.ToLower(given), strings.ToLower(name))
		switch {
		case d < best:
			best, found, again = d, name, false
		case d == best && found != "":
			again = true
		}
	}
	if again {
		return ""
	}
	return found
}

// DidYouMean is "; did you mean NAME?", or nothing.
func DidYouMean[T ~string](given string, names []T) string {
	if name := Nearest(given, names); name != "" {
		return "; did you mean " + name + "?"
	}
	return ""
}

// distance counts the characters to insert, leave out, change or swap with the next.
func distance(from, to string) int {
	a, b := []rune(from), []rune(to)
	var before []int
	last := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range a {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range b {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(row[j]+1, last[j+1]+1, last[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
