package slim

import (
	"cmp"
	"slices"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Encode writes a message in the words of the target's version. It fails with a
// *canonical.Error.
func (t *Translator) Encode(m *canonical.Message, target translators.Target) (translators.Wire, []canonical.Loss, error) {
	target.Version = cmp.Or(target.Version, VersionA2A)
	by, ok := t.of(target.Version)
	if !ok || target.Form != "" && (target.Form != FormRPC || by.prefix != prefixA2A) {
		return translators.Wire{}, nil, unsupportedVersion()
	}
	form, version := target.Form, target.Version
	target.Version, target.Form = by.version, ""
	if signal, ok := m.Body.(*canonical.Signal); ok {
		wire, losses, err := t.saySignal(m, signal, by, form)
		wire.Binding, wire.Version, wire.Form, wire.Media = Binding, version, form, Media
		return wire, losses, err
	}
	returned := t.returned(m)
	var more []canonical.Loss
	if failure, failed := m.Body.(*canonical.Error); failed && form == FormRPC {
		returned.Body, more = terse(failure)
	}
	wire, losses, err := by.codec.Encode(returned, target)
	if err != nil {
		return translators.Wire{}, nil, err
	}
	wire.Binding, wire.Version, wire.Form, wire.Media = Binding, version, form, Media
	wire.Header, wire.Status = fields(m, wire.Header), 0
	return wire, slices.Concat(more, losses), nil
}

// returned is the message as its codec knows it if it was born in the same
// words; a copy, for the original belongs to the caller.
func (t *Translator) returned(m *canonical.Message) *canonical.Message {
	copied := *m
	if origin, ok := t.of(m.Origin.Version); ok && (m.Origin.Binding == Binding || m.Origin.Binding == origin.binding) {
		copied.Origin.Binding, copied.Origin.Version = origin.binding, origin.version
	}
	return &copied
}

// terse is an error as SLIMRPC can say it: a code and a text.
func terse(e *canonical.Error) (*canonical.Error, []canonical.Loss) {
	var losses []canonical.Loss
	for _, part := range []struct {
		name    string
		dropped bool
	}{
		{"retryAfter", e.RetryAfter != 0},
		{"schema", e.Schema != nil},
		{"details", len(e.Details) > 0},
		{"native", e.Native != nil},
		{"extensions", len(e.Extensions) > 0},
	} {
		if part.dropped {
			losses = append(losses, canonical.Loss{Code: canonical.LossErrorDetail, Path: "/body/" + part.name, Fate: canonical.Dropped})
		}
	}
	return &canonical.Error{Code: e.Code, Message: e.Message}, losses
}
