package oauth

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Scopes say what the scopes of a token permit. Without ByName a token permits all.
type Scopes struct {
	ByName  map[string][]string // names of agents, exact or with * at the end, each optionally followed by # and one operation
	Initial []string            // that a client is asked for first; none: all
}

// Names are all scopes, sorted.
func (s Scopes) Names() []string { return slices.Sorted(maps.Keys(s.ByName)) }

// First are the scopes that a client without a token should ask for.
func (s Scopes) First() []string {
	if len(s.Initial) > 0 {
		return s.Initial
	}
	return s.Names()
}

// permits reports whether one of these scopes permits an operation of an agent. An empty operation is
// one that the gateway answers itself: it is permitted to who may use any operation.
func (s Scopes) permits(scopes []string, agent, operation string) bool {
	return len(s.ByName) == 0 || slices.ContainsFunc(scopes, func(scope string) bool {
		return slices.ContainsFunc(s.ByName[scope], func(pattern string) bool { return covers(pattern, agent, operation) })
	})
}

// permitting are the scopes each of which would permit an operation of an agent.
func (s Scopes) permitting(agent, operation string) []string {
	return slices.DeleteFunc(s.Names(), func(scope string) bool { return !s.permits([]string{scope}, agent, operation) })
}

func covers(pattern, agent, operation string) bool {
	name, only, limited := strings.Cut(pattern, "#")
	return matches(name, agent) && (!limited || operation == "" || only == operation)
}

// matches: exact, or with * at the end.
func matches(pattern, text string) bool {
	if start, open := strings.CutSuffix(pattern, "*"); open {
		return strings.HasPrefix(text, start)
	}
	return pattern == text
}

func (s Scopes) mistakes(say func(field, reason string)) {
	for _, name := range s.Names() {
		if !scopeToken(name) {
			say("scopes.'"+name+"'", "a scope has no spaces, quotes or backslashes (RFC 6749 section 3.3)")
		}
		for n, pattern := range s.ByName[name] {
			agent, operation, limited := strings.Cut(pattern, "#")
			if agent == "" || strings.Contains(strings.TrimSuffix(agent, "*"), "*") || limited && operation == "" {
				say("scopes.'"+name+"'["+strconv.Itoa(n)+"]", "expected the name of an agent, exact or with * at the end, and then optionally # and an operation")
			}
		}
	}
	for n, name := range s.Initial {
		if _, known := s.ByName[name]; !known {
			say("initial_scopes["+strconv.Itoa(n)+"]", "is not among scopes")
		}
	}
}

// scopeToken is RFC 6749 section 3.3.
func scopeToken(text string) bool {
	for i := range len(text) {
		if c := text[i]; c <= ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return text != ""
}
