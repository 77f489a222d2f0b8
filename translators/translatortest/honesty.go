package translatortest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Honesty: every field of a foreign message that does not survive Encode and
// Decode is named in the losses. What is declared Carried comes back; what is
// declared Dropped does not arrive after all.
//
// The evidence that the gateway signs lists the losses, and policy refuses a
// message by them. An undeclared loss is a false statement under a signature.
func Honesty(tr translators.Translator, s Samples) []string {
	var failures []string
	for i, m := range s.Foreign {
		for _, failure := range honest(tr, m, s.target(m)) {
			failures = append(failures, name("foreign", i, m)+": "+failure)
		}
	}
	return failures
}

func honest(tr translators.Translator, m *canonical.Message, target translators.Target) []string {
	wire, losses, err := encode(tr, m, target)
	if err != nil {
		if isCanonical(err) {
			return nil
		}
		return []string{fmt.Sprintf("Encode failed with %T, which is no *canonical.Error: %v", err, err)}
	}
	back, err := again(tr, wire, m)
	if err != nil {
		return []string{fmt.Sprintf("Decode refuses what Encode wrote: %v", err)}
	}
	return compare(m, back, slices.Concat(losses, back.Losses))
}

func compare(m, back *canonical.Message, losses []canonical.Loss) []string {
	sent, got := leaves(m), leaves(back)
	var failures []string
	gone := map[leaf]bool{}
	for _, l := range difference(sent, got) {
		if moved(l, m, back, got) {
			continue
		}
		gone[l] = true
		switch fates := fates(losses, l.path); {
		case slices.Contains(fates, canonical.Dropped):
		case len(fates) > 0:
			failures = append(failures, fmt.Sprintf("%s is declared carried and does not come back: %q", l.path, clip(l.value)))
		default:
			failures = append(failures, fmt.Sprintf("%s is lost and not declared: %q", l.path, clip(l.value)))
		}
	}
	return append(failures, boasts(sent, gone, losses)...)
}

// boasts finds things that are declared dropped although every bit arrives.
func boasts(sent []leaf, gone map[leaf]bool, losses []canonical.Loss) []string {
	var failures []string
	for _, loss := range losses {
		if loss.Fate != canonical.Dropped || aboutForm(loss.Code) {
			continue
		}
		below, lost := 0, 0
		for _, l := range sent {
			if covers(loss.Path, l.path) {
				below++
				if gone[l] {
					lost++
				}
			}
		}
		if below > 0 && lost == 0 {
			failures = append(failures, fmt.Sprintf("%s: declared dropped, and all of it arrives", loss))
		}
	}
	return failures
}

// aboutForm: the code speaks of something other than the values at its place,
// bytes, chunks or removed characters, so the values may well arrive.
func aboutForm(code canonical.LossCode) bool {
	return code == canonical.LossBytes || code == canonical.LossChunks || code == canonical.LossText
}

func fates(losses []canonical.Loss, path string) []canonical.Fate {
	var found []canonical.Fate
	for _, loss := range losses {
		if covers(loss.Path, path) {
			found = append(found, loss.Fate)
		}
	}
	return found
}

// covers reports whether a loss declared at place speaks of the leaf at path.
func covers(place, path string) bool {
	place, path = strings.ToLower(place), strings.ToLower(path)
	if place == "" || place == "/" || place == "/body" {
		return false
	}
	return within(place, path) || within(place, strings.TrimPrefix(path, "/body"))
}

func within(place, path string) bool {
	return path == place || strings.HasPrefix(path, place+"/")
}

// moved reports whether a leaf that is not at its place any more is said
// elsewhere, because the view that held it has no counterpart over there.
func moved(l leaf, m, back *canonical.Message, got []leaf) bool {
	view := viewOf(l.path)
	if view == "" || present(view, got) {
		return false
	}
	if implied(l, view, m, back) {
		return true
	}
	return slices.ContainsFunc(got, func(g leaf) bool {
		if l.kind == kindText && g.kind == kindText {
			return strings.Contains(g.value, l.value)
		}
		return g.kind != kindMark && g.value == l.value
	})
}

// viewOf names the view of an invocation or a result that a path lies in.
func viewOf(path string) string {
	for _, view := range []string{"/body/turn", "/body/call", "/body/task", "/body/output"} {
		if within(view, path) {
			return view
		}
	}
	return ""
}

func present(view string, got []leaf) bool {
	return slices.ContainsFunc(got, func(l leaf) bool {
		switch view {
		case "/body/turn":
			return within("/body/turn/parts", l.path)
		case "/body/output":
			return within("/body/output/parts", l.path) || within("/body/output/structured", l.path)
		default:
			return within(view, l.path)
		}
	})
}

// implied: what a leaf says follows from the view that the destination uses.
func implied(l leaf, view string, m, back *canonical.Message) bool {
	last := l.path[strings.LastIndexByte(l.path, '/')+1:]
	switch {
	case l.kind == kindMark, last == "kind", last == "role":
		return true
	case l.path == "/body/task/status/state":
		return sameOutcome(canonical.State(l.value), back)
	case l.path == "/body/output/failed":
		return !sameOutcome(canonical.StateCompleted, back)
	default:
		return view == "/body/call" && derived(m)
	}
}

// sameOutcome compares a task's end with what stands in its place.
func sameOutcome(state canonical.State, back *canonical.Message) bool {
	result, ok := back.Body.(*canonical.Result)
	switch {
	case !ok:
		return false
	case result.Output != nil:
		return state == canonical.StateCompleted && !result.Output.Failed ||
			state == canonical.StateFailed && result.Output.Failed
	case result.Task != nil:
		return result.Task.Status.State == state
	default:
		return state == canonical.StateCompleted
	}
}

// derived: the message has a call because its turn is one; the turn says it all.
func derived(m *canonical.Message) bool {
	invoke, ok := m.Body.(*canonical.Invoke)
	return ok && len(invoke.Turn.Parts) > 0
}
