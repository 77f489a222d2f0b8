package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aepb/aepb-gateway/ect"
)

// Rules say who may call an agent. They are the operator's, from the directory.
type Rules struct {
	// Callers are SPIFFE ids, or path prefixes that end in "/*", each
	// optionally followed by "#" and one operation, or by "#invoke:" and a pattern of tools, in
	// which * stands for any characters. Empty: none may call.
	Callers    []string
	Open       bool   // all callers, even without credentials (R2: dev)
	RequireECT bool   // no unattested messages, not even at a native endpoint (R3)
	Also       *Rules // rules that must permit as well; nil: none

	Tools []string // patterns of the tools and skills that are offered at all; empty: all
	Names *Names   // under which tools are offered; nil: the agent's own

	parsed *parsed // nil: Callers were not read yet
}

// parsed are patterns, and the texts that they were read from.
type parsed struct {
	texts    []string
	patterns []pattern
}

// Parsed are the rules with their patterns read, so that no request has to.
func (r Rules) Parsed() Rules {
	r.parsed = nil
	r.parsed = &parsed{r.Callers, r.all()}
	if r.Also != nil {
		r.Also = new(r.Also.Parsed())
	}
	return r
}

// all are the patterns that can match.
func (r Rules) all() []pattern {
	if p := r.parsed; p != nil && len(p.texts) == len(r.Callers) && (len(p.texts) == 0 || &p.texts[0] == &r.Callers[0]) {
		return p.patterns // of these very texts: rules are copied, and get other callers
	}
	patterns := make([]pattern, 0, len(r.Callers))
	for _, text := range r.Callers {
		if p, err := parsePattern(text); err == nil {
			patterns = append(patterns, p)
		}
	}
	return patterns
}

// needsECT reports whether these rules, or those that must permit as well,
// take no unattested messages.
func (r Rules) needsECT() bool { return r.RequireECT || r.Also != nil && r.Also.needsECT() }

// Validate reports every caller pattern that could never match.
func (r Rules) Validate() error {
	var errs []error
	for _, pattern := range r.Callers {
		if _, err := parsePattern(pattern); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, r.checkTools()...)...)
}

// Admit judges only whether a caller may use an agent at all: for requests that the
// gateway answers in its stead, such as discovery. A caller that may use one operation
// of an agent may read how to. Its error is a *[Forbidden].
func Admit(caller ect.Identity, rules Rules) error {
	return callerMayCall(Request{Caller: caller, Native: true, Rules: rules})
}

// AdmitTo is [Admit] for one operation of the agent. Its error does not name the caller: another than
// the one who asks may read it.
func AdmitTo(caller ect.Identity, operation string, rules Rules) error {
	err := callerMayCall(Request{Caller: caller, Native: true, Operation: operation, Rules: rules})
	if refusal, ok := errors.AsType[*Forbidden](err); ok {
		refusal.Caller = ""
	}
	return err
}

// callerMayCall is the first question of all (R2).
func callerMayCall(r Request) error {
	refusal := &Forbidden{Agent: r.Agent, Caller: r.Caller, Constraint: ConstraintCallers}
	if r.Rules.Also != nil {
		also := r
		also.Rules = *r.Rules.Also
		if err := callerMayCall(also); err != nil {
			return err
		}
	}
	if r.Anonymous {
		refusal.Caller = "" // its id is not its own
	}
	if r.Caller == "" || (r.Anonymous && !r.Native) {
		return refusal
	}
	if r.Rules.Open {
		return nil
	}
	if r.Anonymous {
		return refusal
	}
	for _, p := range r.Rules.all() {
		if !p.matches(r.Caller) {
			continue
		}
		if p.operation == "" || r.Operation == "" || p.operation == r.Operation {
			return nil
		}
		refusal.Constraint = ConstraintOperation
	}
	return refusal
}

// operations are those that the patterns for a caller name; nil: all of them.
func operations(r Request) []string {
	if r.Rules.Also != nil {
		also, own := r, r
		also.Rules, own.Rules.Also = *r.Rules.Also, nil
		return both(operations(own), operations(also))
	}
	if r.Rules.Open {
		return nil
	}
	out := []string{}
	for _, p := range r.Rules.all() {
		switch {
		case !p.matches(r.Caller):
		case p.operation == "":
			return nil
		default:
			out = append(out, p.operation)
		}
	}
	return out
}

// both are the operations that both lists allow; nil is a list of all.
func both(a, b []string) []string {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return slices.DeleteFunc(slices.Clone(a), func(operation string) bool { return !slices.Contains(b, operation) })
}

// Operation is the operation that a pattern is limited to; empty: none.
func Operation(pattern string) string {
	_, operation, _ := strings.Cut(pattern, "#")
	operation, _, _ = strings.Cut(operation, ":")
	return operation
}

// Listed reports whether an identity is among ids, or under prefixes that end in
// "/*".
func Listed(patterns []ect.Identity, id ect.Identity) bool {
	return slices.ContainsFunc(patterns, func(text ect.Identity) bool {
		p, err := parsePattern(string(text))
		return err == nil && p.operation == "" && p.matches(id)
	})
}

// anonymous is the last path segment of the id of callers without credentials (R3).
const anonymous = "anonymous"

// pattern is one entry of Rules.Callers.
type pattern struct {
	id        string // exact, or up to and including the last slash
	prefix    bool
	operation string // empty: all
	tool      string // a pattern; empty: all
}

// Operations that say something of tools.
const (
	invoke   = "invoke"
	describe = "describe"
)

// matches never lets a prefix stand for the nameless: their id lies in our own
// trust domain, and an operator who admits the domain does not mean them.
func (p pattern) matches(id ect.Identity) bool {
	if p.prefix {
		rest, ok := strings.CutPrefix(string(id), p.id)
		return ok && rest != "" && !strings.HasSuffix(string(id), "/"+anonymous)
	}
	return string(id) == p.id
}

// parsePattern reads one entry. Anything that is not plainly an id or a prefix
// of ids is refused: a pattern that matches too much is worse than none.
func parsePattern(text string) (pattern, error) {
	id, operation, named := strings.Cut(text, "#")
	if named && operation == "" {
		return pattern{}, fmt.Errorf("policy: caller %q: expected an operation after #", text)
	}
	operation, tool, ofTools := strings.Cut(operation, ":")
	if ofTools && operation != invoke {
		return pattern{}, fmt.Errorf("policy: caller %q: tools stand behind #invoke: alone", text)
	}
	if ofTools {
		if err := checkTool(tool); err != nil {
			return pattern{}, fmt.Errorf("policy: caller %q: %w", text, err)
		}
	}
	id, prefix := strings.CutSuffix(id, "*")
	rest, ok := strings.CutPrefix(id, "spiffe://")
	domain, path, _ := strings.Cut(rest, "/")
	switch {
	case !ok || domain == "":
		return pattern{}, fmt.Errorf("policy: caller %q: not a SPIFFE id", text)
	case strings.ContainsAny(id, "*?%\\ "):
		return pattern{}, fmt.Errorf("policy: caller %q: the only wildcard is /* at the end", text)
	case prefix && !strings.HasSuffix(id, "/"):
		return pattern{}, fmt.Errorf("policy: caller %q: * must follow a slash", text)
	case !prefix && path == "":
		return pattern{}, fmt.Errorf("policy: caller %q: a trust domain is no caller, write /* behind it", text)
	}
	return pattern{id: id, prefix: prefix, operation: operation, tool: tool}, nil
}
