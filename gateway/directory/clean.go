package directory

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Caps on untrusted text (R9), in bytes.
const (
	maxName        = 256
	maxDescription = 4096
	maxList        = 32
)

// Clean removes from a description what could mislead a reader or a model:
// control, bidirectional and tag characters, and excess length; and of
// capabilities of one name all but the first, which no caller could name. It reports whether anything was removed (loss L32). It works on a shallow
// copy.
func Clean(d canonical.Description) (canonical.Description, bool) {
	var c cleaner
	d.Name, d.Title, d.Version = c.text(d.Name, maxName), c.text(d.Title, maxName), c.text(d.Version, maxName)
	d.Description, d.Instructions = c.text(d.Description, maxDescription), c.text(d.Instructions, maxDescription)
	capabilities := make([]canonical.Capability, 0, len(d.Capabilities))
	seen := make(map[string]bool, len(d.Capabilities))
	for _, capability := range d.Capabilities {
		if seen[capability.ID] {
			c.removed = true
			continue
		}
		seen[capability.ID] = true
		capability.Title = c.text(capability.Title, maxName)
		capability.Description = c.text(capability.Description, maxDescription)
		capability.Tags = c.list(capability.Tags)
		capability.Examples = c.list(capability.Examples)
		capabilities = append(capabilities, capability)
	}
	d.Capabilities = capabilities
	d.Omitted = slices.Clone(d.Omitted)
	for i, o := range d.Omitted {
		d.Omitted[i] = canonical.Omission{Name: c.text(o.Name, maxName), Reason: c.text(o.Reason, maxName)}
	}
	return d, c.removed
}

type cleaner struct{ removed bool }

func (c *cleaner) list(in []string) []string {
	if len(in) > maxList {
		in, c.removed = in[:maxList], true
	}
	out := make([]string, len(in))
	for i, text := range in {
		out[i] = c.text(text, maxName)
	}
	return out
}

func (c *cleaner) text(in string, limit int) string {
	out := strings.Map(func(r rune) rune {
		if hidden(r) {
			return -1
		}
		return r
	}, in)
	if len(out) > limit {
		out = out[:limit]
		for !utf8.ValidString(out) {
			out = out[:len(out)-1]
		}
	}
	c.removed = c.removed || out != in
	return out
}

// hidden reports characters that a reader does not see but a machine obeys:
// controls except newline and tab, format characters that reorder text, the
// tag block and variation-selector supplement, interlinear and zero-width marks.
func hidden(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case unicode.IsControl(r):
		return true
	case r >= 0x200B && r <= 0x200F, r >= 0x202A && r <= 0x202E, r >= 0x2060 && r <= 0x206F:
		return r != 0x200C && r != 0x200D // joiners spell words and emoji
	case r == 0xFEFF, r == 0x061C, r == 0x00AD, r >= 0xFFF9 && r <= 0xFFFB:
		return true
	case r >= 0xE0000 && r <= 0xE0FFF:
		return true
	default:
		return false
	}
}
