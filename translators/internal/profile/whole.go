package profile

import (
	"encoding/json"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// The functions below say canonical values in full, in the same words that an
// outline uses. They are for protocols whose extension field holds everything
// that their own members cannot say.

// WritePart writes a part with its content.
func WritePart(p *canonical.Part) json.RawMessage {
	b := rawjson.NewBuilder()
	writePart(b, p)
	return b.Bytes()
}

// ReadPart reads what WritePart wrote; ok is false for anything else.
func ReadPart(raw json.RawMessage) (p canonical.Part, ok bool) {
	o := rawjson.Parse(raw, "")
	p, ok = readPart(o)
	return p, ok && len(o.Members()) == 0
}

// WriteExt writes extensions by binding, but for own; nil: none.
func WriteExt(ext canonical.Extensions, own canonical.Binding) json.RawMessage {
	b := rawjson.NewBuilder()
	for _, binding := range bindings(ext) {
		if binding != own {
			b.Raw(string(binding), ext[binding])
		}
	}
	return b.Object()
}

// ReadExt reads what WriteExt wrote; ok is false for anything else, and for
// extensions of own, which no gateway carries to itself.
func ReadExt(raw json.RawMessage, own canonical.Binding) (canonical.Extensions, bool) {
	ext, ok := readExt(raw)
	_, itself := ext[own]
	return ext, ok && !itself
}
