package mcp

import (
	"encoding/json"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// WithoutNulls is the body of a message as it is read: without the members that are null.
func WithoutNulls(w translators.Wire) json.RawMessage {
	b := rawjson.NewBuilder()
	for _, m := range rawjson.Parse(w.Body, "").Members() {
		if m.Name == "params" || m.Name == "result" {
			m.Value = withoutNulls(m.Value, w.Version)
		}
		b.Raw(m.Name, m.Value)
	}
	return b.Bytes()
}
