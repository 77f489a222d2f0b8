package profile

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// Wrap builds the object that one level carries: the canonical members in
// canon (may be nil) and the extensions of every binding but own. What an
// earlier Unwrap left under CanonKey is merged into canon. Nil: nothing to carry.
func Wrap(canon json.RawMessage, ext canonical.Extensions, own canonical.Binding) json.RawMessage {
	b := rawjson.NewBuilder()
	b.Raw(CanonKey, Merge(canon, ext[CanonKey]))
	for _, binding := range bindings(ext) {
		if binding != own && binding != CanonKey {
			b.Raw(string(binding), ext[binding])
		}
	}
	return b.Object()
}

// Merge joins two objects, either of which may be nil; a member of the first wins.
func Merge(first, second json.RawMessage) json.RawMessage {
	if first == nil || second == nil {
		if first == nil {
			return second
		}
		return first
	}
	o := rawjson.Parse(first, "")
	b := rawjson.NewBuilder().Rest(o)
	for _, m := range rawjson.Parse(second, "").Members() {
		if !o.Has(m.Name) {
			b.Raw(m.Name, m.Value)
		}
	}
	return b.Bytes()
}

// Carried is one level's carriage, read.
type Carried struct {
	Canon *rawjson.Object      // never nil; the caller takes what it knows
	Ext   canonical.Extensions // foreign bindings; nil: none
}

// Unwrap reads what Wrap wrote, at path for errors; a nil raw gives an empty
// Carried. It refuses anything but objects, and the reader's own binding,
// which no gateway carries to itself. Errors: *translators.MalformedError.
func Unwrap(raw json.RawMessage, path string, own canonical.Binding) (Carried, error) {
	c := Carried{Canon: rawjson.Empty()}
	if raw == nil {
		return c, nil
	}
	o := rawjson.Parse(raw, path)
	if canon := o.Object(CanonKey); canon != nil {
		c.Canon = canon
		if len(canon.Members()) == 0 {
			o.Fail(CanonKey, "empty")
		}
	}
	for _, m := range o.Members() {
		if m.Value[0] != '{' || m.Name == string(own) {
			o.Fail("", "not what a gateway carries")
			break
		}
		if c.Ext == nil {
			c.Ext = canonical.Extensions{}
		}
		c.Ext[canonical.Binding(m.Name)] = m.Value
	}
	if o.Err() == nil && c.Ext == nil && len(c.Canon.Members()) == 0 {
		return c, &translators.MalformedError{Path: path, Reason: "empty"}
	}
	return c, o.Err()
}

// Extensions is what to keep of a level after the caller took its canonical
// members: the foreign bindings, the rest of canon under CanonKey, and the
// caller's own leftovers (nil: none). It is nil when there is nothing.
func (c Carried) Extensions(own canonical.Binding, leftovers json.RawMessage) canonical.Extensions {
	return c.Ext.With(CanonKey, c.Canon.Rest()).With(own, leftovers)
}

// ForeignLosses lists, as Carried, what a level holds for other bindings than
// own: L30 for metadata, L29 for members that only the other protocol knows, each with the member's name in its
// path if that is short. A default that is said explicitly is none. path is the level's place in the canonical message.
func ForeignLosses(ext canonical.Extensions, own canonical.Binding, path string) []canonical.Loss {
	var losses []canonical.Loss
	for _, binding := range bindings(ext) {
		if binding == own {
			continue
		}
		at := path + "/extensions/" + string(binding)
		first := len(losses)
		for _, m := range rawjson.Parse(ext[binding], "").Members() {
			if saysDefault(m.Name, m.Value) {
				continue
			}
			loss := canonical.Loss{Code: canonical.LossExtension, Path: at, Fate: canonical.Carried}
			if m.Name == "metadata" || m.Name == "_meta" || m.Name == "extensions" {
				loss.Code = canonical.LossMetadata
			}
			if len(losses)-first < mostNamed {
				loss.Path = memberPath(at, m.Name)
			}
			if !slices.Contains(losses[first:], loss) {
				losses = append(losses, loss)
			}
		}
	}
	return losses
}

// mostNamed is of how many members of an object the paths of losses have the names.
const mostNamed = 8

// memberPath is the path of a member of an object: that of the object where the name is not a short word, since
// peers choose names.
func memberPath(at, name string) string {
	const longest = 40
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' || r == '.'
	}
	if name == "" || len(name) > longest || strings.ContainsFunc(name, func(r rune) bool { return !plain(r) }) {
		return at
	}
	return at + "/" + name
}

// saysDefault reports whether a member of MCP or A2A says what its absence says
// too: some SDKs write all members (FastMCP isError, those with protobuf the rest).
func saysDefault(name string, value json.RawMessage) bool {
	var unsaid string
	switch name {
	case "isError":
		unsaid = "false"
	case "metadata", "_meta", "annotations":
		unsaid = "{}"
	case "extensions", "referenceTaskIds", "history", "artifacts":
		unsaid = "[]"
	case "name", "title", "description", "filename", "mediaType", "contextId", "taskId":
		unsaid = `""`
	default:
		return false
	}
	return string(value) == "null" || string(value) == unsaid || rawjson.Equal(value, json.RawMessage(unsaid))
}

// bindings lists the keys in order. Most levels have no extensions at all.
func bindings(ext canonical.Extensions) []canonical.Binding {
	if len(ext) == 0 {
		return nil
	}
	names := make([]canonical.Binding, 0, len(ext))
	for binding := range ext {
		names = append(names, binding)
	}
	slices.Sort(names)
	return names
}
