package oauth

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/aepb/aepb-gateway/ect"
)

// maxID bounds an id (SPIFFE-ID section 2.3), bytes.
const maxID = 2048

// Rule gives an id to the tokens that fulfil its conditions. An empty condition is always
// fulfilled; the others are exact or have * at the end.
type Rule struct {
	Subject, Client, Group string
	Path                   string // segments, each of which is text, {sub} or {client_id}
}

// The segments that are replaced.
const (
	segmentSubject = "{sub}"
	segmentClient  = "{client_id}"
)

func (r Rule) fits(a access) bool {
	return (r.Subject == "" || matches(r.Subject, a.subject)) && (r.Client == "" || matches(r.Client, a.client)) &&
		(r.Group == "" || slices.ContainsFunc(a.groups, func(group string) bool { return matches(r.Group, group) }))
}

// identify gives the id of who shows a token. Exactly one rule must fit. Its errors are
// *IdentityError.
func (i Issuer) identify(trustDomain string, a access) (ect.Identity, error) {
	refuse := func(reason string) (ect.Identity, error) {
		return "", &IdentityError{Issuer: i.Name, Reason: reason}
	}
	var fitting []int
	for n, rule := range i.Identities {
		if rule.fits(a) {
			fitting = append(fitting, n)
		}
	}
	switch len(fitting) {
	case 1:
	case 0:
		return refuse("none of its rules in identities fits")
	default:
		return refuse(fmt.Sprintf("%d of its rules in identities fit, expected one", len(fitting)))
	}
	segments := strings.Split(i.Identities[fitting[0]].Path, "/")
	for n, segment := range segments {
		name, value := "sub", a.subject
		switch segment {
		case segmentSubject:
		case segmentClient:
			name, value = "client_id", a.client
		default:
			continue
		}
		escaped, ok := escape(value)
		if !ok {
			return refuse("its " + name + " cannot stand in an id: it is a dot or two, or has a slash, a backslash or a control character")
		}
		segments[n] = escaped
	}
	id, err := spiffeid.FromString(Prefix(trustDomain) + i.Name + "/" + strings.Join(segments, "/"))
	if err != nil || len(id.String()) > maxID {
		return refuse("its id would be longer than 2048 bytes")
	}
	return ect.Identity(id.String()), nil
}

// escape makes a segment of a SPIFFE path of a value. Letters, digits, dots and hyphens stay; any
// other byte becomes _ and two hexadecimal digits, so that two values never become one. What might
// be taken for a path is refused.
func escape(value string) (string, bool) {
	if value == "" || value == "." || value == ".." || !utf8.ValidString(value) {
		return "", false
	}
	var out strings.Builder
	for _, r := range value {
		switch {
		case r == '/' || r == '\\' || unicode.IsControl(r):
			return "", false
		case plain(r):
			out.WriteRune(r)
		default:
			for _, b := range []byte(string(r)) {
				fmt.Fprintf(&out, "_%02X", b)
			}
		}
	}
	return out.String(), true
}

func plain(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '.' || r == '-'
}

func mistakesOfRules(rules []Rule, say func(field, reason string)) {
	if len(rules) == 0 {
		say("identities", "at least one rule is required: without one no token gives a caller")
	}
	for n, rule := range rules {
		at := "identities[" + strconv.Itoa(n) + "]"
		for _, condition := range []struct{ name, value string }{{"subject", rule.Subject}, {"client", rule.Client}, {"group", rule.Group}} {
			if strings.Contains(strings.TrimSuffix(condition.value, "*"), "*") {
				say(at+"."+condition.name, "expected text, with * at its end or without")
			}
		}
		segments := strings.Split(rule.Path, "/")
		if slices.ContainsFunc(segments, badSegment) {
			say(at+".path", "expected segments with slashes between them, each of which is {sub}, {client_id} or of letters, digits, dots, hyphens and underscores")
			continue
		}
		for m, other := range rules[:n] {
			if other.Path != rule.Path && meet(segments, strings.Split(other.Path, "/")) {
				say(at+".path", "could give the same id as identities["+strconv.Itoa(m)+"] to another: begin it with another segment")
			}
		}
	}
}

func badSegment(segment string) bool {
	switch segment {
	case segmentSubject, segmentClient:
		return false
	case "", ".", "..":
		return true
	}
	return strings.ContainsFunc(segment, func(r rune) bool { return !plain(r) && r != '_' })
}

// meet reports whether two different paths could become one.
func meet(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	for n := range a {
		if a[n] != b[n] && a[n][0] != '{' && b[n][0] != '{' {
			return false
		}
	}
	return true
}
