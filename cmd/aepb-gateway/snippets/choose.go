package snippets

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"unicode"

	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Placeholder stands in the programs in place of a skill, where none is fit to be called by a stranger.
const Placeholder = "NAME"

// Example is a skill that the programs call.
type Example struct {
	Skill string // [Placeholder]: none is fit
	Input string // its arguments, a JSON object of texts and numbers
	Why   string // why none is fit; empty: Skill is
}

// Choose chooses the skill to call: never one that its hints or its name call harmful, first those that
// only read, then those whose name says so; of equals the first that requires the fewest arguments.
func Choose(skills []canonical.Capability) Example {
	harmless := slices.DeleteFunc(slices.Clone(skills), func(c canonical.Capability) bool { return harms(&c) })
	none := Example{Skill: Placeholder, Input: "{}"}
	switch {
	case len(skills) == 0:
		none.Why = "it offers none"
	case len(harmless) == 0:
		none.Why = "each may destroy or reveal something, as its name or its destructiveHint says"
	default:
		none.Why = "no arguments could be made up for those that seem harmless"
	}
	best, example := []int{math.MaxInt}, none
	for _, c := range harmless {
		input, count, ok := arguments(&c)
		if order := []int{rank(&c), count}; ok && slices.Compare(order, best) < 0 {
			example, best = Example{Skill: c.ID, Input: input}, order
		}
	}
	return example
}

// hints are what an MCP server says of a tool. What it does not say is taken as false, although
// destructiveHint is true then (MCP, ToolAnnotations): names decide.
type hints struct{ ReadOnlyHint, DestructiveHint bool }

func hintsOf(c *canonical.Capability) (h hints) {
	_ = json.Unmarshal(c.Annotations, &h) // hints of another form say nothing
	return h
}

// harms reports whether the hints or the name of a skill say that it may destroy or reveal something.
func harms(c *canonical.Capability) bool {
	return hintsOf(c).DestructiveHint || slices.ContainsFunc(wordsOf(c.ID), isHarmful)
}

// rank is 0 for a skill that only reads, as it says, 1 for one whose name says so, and 2 for others.
func rank(c *canonical.Capability) int {
	switch words := wordsOf(c.ID); {
	case hintsOf(c).ReadOnlyHint:
		return 0
	case len(words) > 0 && slices.Contains(strings.Fields(reading), words[0]):
		return 1
	default:
		return 2
	}
}

// Words of names, in the singular.
const (
	reading = "get list read echo search find add show describe lookup query fetch say hello count sum time ping"
	harmful = `delete del remove rm drop kill destroy erase wipe purge clear reset truncate terminate shutdown stop
		restart reboot uninstall overwrite env environ environment secret token password passwd passphrase
		credential exec execute eval shell bash cmd command sudo run pay transfer deploy publish`
)

// isHarmful finds long words also inside others, such as in deleteall.
func isHarmful(word string) bool {
	return slices.ContainsFunc(strings.Fields(harmful), func(bad string) bool {
		return strings.TrimSuffix(word, "s") == bad || word == bad || len(bad) > 5 && strings.Contains(word, bad)
	})
}

// wordsOf takes a name such as read_note, read-note or readNote apart.
func wordsOf(name string) []string {
	var b strings.Builder
	lower := false
	for _, r := range name {
		if lower && unicode.IsUpper(r) {
			b.WriteByte(' ')
		}
		lower = unicode.IsLower(r)
		if !unicode.IsLetter(r) {
			r = ' '
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return strings.Fields(b.String())
}

// arguments are those that a skill requires, made up, and how many. False: they, or the names, do not
// stand in every language as they are.
func arguments(c *canonical.Capability) (input string, count int, ok bool) {
	var schema struct {
		Required   []string
		Properties map[string]struct{ Type any }
	}
	_ = json.Unmarshal(c.InputSchema, &schema) // a schema of another form requires nothing that is known
	given := map[string]any{}
	for _, property := range schema.Required {
		switch schema.Properties[property].Type {
		case "integer", "number":
			given[property] = 1
		case "string":
			given[property] = "hello"
		default:
			return "", 0, false
		}
		if !isPlain(property) {
			return "", 0, false
		}
	}
	text, err := json.Marshal(given)
	return string(text), len(given), err == nil && isPlain(c.ID)
}

// isPlain: a name can stand in a program, and on a terminal, as it is.
func isPlain(name string) bool {
	return name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-/") == ""
}
