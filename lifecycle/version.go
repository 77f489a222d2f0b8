package lifecycle

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// maxVersion bounds a version, in bytes.
const maxVersion = 256

// Description is what a version says of an agent.
type Description struct {
	Version   string   // semantic version 2.0.0
	Protocols []string // entries of its capability document, such as "a2a-v1 1.0"
	Level     int      // the assurance level that it demands, 1 to 3
}

// CheckVersion says whether a description may follow another one: what breaks callers needs a
// higher major version (AEPB, "Versioning"). Its error is a [*SemverError] or a [*VersionError].
func CheckVersion(before, after Description) error {
	old, okOld := major(before.Version)
	latest, okLatest := major(after.Version)
	if !okOld || !okLatest {
		return &SemverError{}
	}
	var breaks []string
	for _, p := range before.Protocols {
		if !slices.Contains(after.Protocols, p) {
			breaks = append(breaks, "protocol "+strconv.Quote(p)+" is taken out")
		}
	}
	if after.Level > before.Level {
		breaks = append(breaks, "ect_assurance_level rises from L"+strconv.Itoa(before.Level)+" to L"+strconv.Itoa(after.Level))
	}
	if len(breaks) == 0 || cmp.Or(cmp.Compare(len(latest), len(old)), cmp.Compare(latest, old)) > 0 {
		return nil
	}
	return &VersionError{Breaks: breaks, Before: before.Version, After: after.Version}
}

// CheckSemver says whether a text is a semantic version 2.0.0, in full: major.minor.patch with
// optional pre-release and build, at most 256 bytes. Its error is a [*SemverError].
func CheckSemver(text string) error {
	if _, ok := major(text); !ok {
		return &SemverError{}
	}
	return nil
}

// major is the first number of a semantic version, as written; false: the text is no version.
func major(text string) (string, bool) {
	version, build, hasBuild := strings.Cut(text, "+")
	version, pre, hasPre := strings.Cut(version, "-")
	numbers := strings.Split(version, ".")
	ok := len(text) <= maxVersion && len(numbers) == 3 &&
		!slices.ContainsFunc(numbers, func(n string) bool { return !digits(n) || leadingZero(n) }) &&
		(!hasBuild || identifiers(build, false)) && (!hasPre || identifiers(pre, true))
	return numbers[0], ok
}

// identifiers accepts what stands behind - or +: texts between points, each not empty.
// Where order counts, numbers have no leading zeros.
func identifiers(text string, ordered bool) bool {
	for id := range strings.SplitSeq(text, ".") {
		if id == "" || strings.ContainsFunc(id, notOfIdentifier) || ordered && digits(id) && leadingZero(id) {
			return false
		}
	}
	return true
}

func notOfIdentifier(c rune) bool {
	return (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-'
}

func digits(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(c rune) bool { return c < '0' || c > '9' })
}

func leadingZero(number string) bool { return len(number) > 1 && number[0] == '0' }

// VersionError refuses a version that breaks callers without saying so.
type VersionError struct {
	Breaks        []string // what breaks them
	Before, After string   // the versions
}

func (e *VersionError) Error() string {
	return strings.Join(e.Breaks, "; ") + ": callers break, so the major version must rise; it goes from " + e.Before + " to " + e.After
}

// SemverError refuses a text that is no version.
type SemverError struct{}

func (*SemverError) Error() string {
	return "no semantic version 2.0.0: write major.minor.patch, such as 2.1.0, with an optional -pre-release and +build"
}
