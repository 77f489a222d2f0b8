package mcp

import (
	"encoding/json"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// WithoutNulls is the body of a message as it is read: without the members that are null, and of
// a server that says nothing of its capabilities with empty ones.
func WithoutNulls(w translators.Wire) json.RawMessage {
	b := rawjson.NewBuilder()
	for _, m := range rawjson.Parse(w.Body, "").Members() {
		if m.Name == "params" || m.Name == "result" {
			m.Value = withoutNulls(m.Value, w.Version)
		}
		if w.Re == canonical.OpDescribe && m.Name == "result" && rawjson.IsObject(m.Value) && !rawjson.Parse(m.Value, "").Has("capabilities") {
			m.Value = rawjson.NewBuilder().Merge(m.Value).Raw("capabilities", json.RawMessage("{}")).Bytes()
		}
		b.Raw(m.Name, m.Value)
	}
	return b.Bytes()
}
