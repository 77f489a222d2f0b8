package slim

import (
	"cmp"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/jsonrpc"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// methodOf is the method of a JSON-RPC request; empty: it is none.
func methodOf(body []byte, depth int) string {
	if rawjson.Check(body, len(body), depth) != nil {
		return ""
	}
	envelope, _ := jsonrpc.Skim(body)
	return envelope.Method
}

// Decode reads a request, or with Wire.Re the reply to one. A refusal comes
// with as much of the message as its own codec gives.
func (t *Translator) Decode(w translators.Wire) (*canonical.Message, error) {
	by, ok := t.of(w.Version)
	switch {
	case w.Version == "":
		by = t.shown(w)
	case !ok:
		return nil, unsupportedVersion()
	}
	inner := w
	inner.Binding, inner.Version, inner.Form, inner.Status = by.binding, by.version, "", 0
	// What header fields say elsewhere, SLIM has no place for but A2A's extensions.
	inner.Header = extensionsOf(w.Header)
	read := by.codec.Decode
	if w.Re == canonical.OpRollback || w.Re == "" && len(w.Body) <= t.cfg.BodyLimit && methodOf(w.Body, t.cfg.Depth) == MethodRollback {
		read = func(w translators.Wire) (*canonical.Message, error) { return t.signal(w, by) }
	}
	m, err := read(inner)
	if m != nil {
		t.arrived(m, by)
		if m.Phase == canonical.PhaseRequest {
			m.Callback = w.Header.Get(FieldCallback)
		}
	}
	return m, err
}

// arrived sets the origin of a message, which is the protocol that it is written in:
// to a peer who uses them too, SLIM or not, nothing about it is foreign.
func (t *Translator) arrived(m *canonical.Message, by words) {
	version := cmp.Or(m.Origin.Version, by.codec.Info().Versions[0])
	m.Origin.Binding, m.Origin.Version = by.binding, by.prefix+version
	if by.prefix == prefixMCP && m.Phase == canonical.PhaseRequest && m.Preferences.Stream {
		m.Preferences.Stream = false // notices on the way are for another day: nothing pairs them with their call
		m.Losses = append(m.Losses, canonical.Loss{Code: canonical.LossProgress, Path: "/correlation/progress", Fate: canonical.Dropped})
	}
}
