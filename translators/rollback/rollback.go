// Package rollback is the form that rollback requests and their results have over
// HTTP, whatever protocol else is spoken there (ATD, Basic Rollback; AEPB,
// Checkpoint and Rollback Signal Carriage): a POST to /.well-known/atd/rollback.
//
// The token is in the field Execution-Context, and the body repeats its claims,
// as the draft's figures show them. The draft does not say what the body is; what
// others put there is not read.
//
// Alternatives considered: the same in the codecs of A2A and MCP (two codecs with
// one form that neither protocol knows).
package rollback

import (
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

const (
	// Path is where rollbacks are taken, on every host (ATD, Basic Rollback).
	Path = "/.well-known/atd/rollback"
	// Name is the form's name (translators.Wire.Form).
	Name = "ATD"
	// Field holds the token: exactly one, the request's or the result's.
	Field = "Execution-Context"
	// Media is the media type of bodies.
	Media = "application/json"
)

// Form reads and writes rollbacks of the peers of one protocol. It is a
// translator of canonical.OpRollback and nothing else.
type Form struct{ info translators.Info }

var (
	_ translators.Translator = (*Form)(nil)
	_ translators.Signaler   = (*Form)(nil)
)

// Over is the form for peers that speak the protocol of t otherwise.
func Over(t translators.Translator) *Form {
	info := t.Info()
	info.Media, info.Streams = []string{Media}, translators.StreamsNone
	return &Form{info}
}

// Info is the protocol's own, without its streams.
func (f *Form) Info() translators.Info { return f.info }

// Signals knows rollbacks only.
func (*Form) Signals(op canonical.Op, _ translators.Target) bool { return op == canonical.OpRollback }

// Decode reads a request, or the answer to one. An answer with a status other than
// success is an error in canonical words. *canonical.Error: there is not one token.
func (f *Form) Decode(w translators.Wire) (*canonical.Message, error) {
	m := &canonical.Message{
		Op: canonical.OpRollback, Phase: canonical.PhaseRequest, Origin: canonical.Origin{Binding: f.info.Binding, Raw: w.Body},
	}
	if w.Re != "" {
		if m.Phase = canonical.PhaseResponse; w.Status >= http.StatusMultipleChoices {
			m.Phase, m.Body = canonical.PhaseError, refusal(w.Status)
			return m, nil
		}
	}
	tokens := w.Header.Values(Field)
	if len(tokens) != 1 || claims(tokens[0]) == nil {
		return m, &canonical.Error{Code: canonical.CodeBadParams, Message: "a rollback needs exactly one execution context token"}
	}
	m.Body = &canonical.Signal{Token: tokens[0]}
	return m, nil
}

// refusal is what an HTTP status says of a rollback.
func refusal(status int) *canonical.Error {
	code := canonical.CodeBadUpstream
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		code = canonical.CodeForbidden
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusGone, http.StatusNotImplemented:
		code = canonical.CodeUnsupportedOp
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		code = canonical.CodeBadParams
	case http.StatusTooManyRequests:
		code = canonical.CodeRateLimited
	case http.StatusServiceUnavailable:
		code = canonical.CodeUnavailable
	}
	return &canonical.Error{Code: code, Message: "the agent does not roll back: " + strings.ToLower(http.StatusText(status))}
}

// Encode writes a request or a result. An error has no form here: it is returned
// unchanged, and the server writes it as a problem document. Content of other protocols
// beside the token is lost.
func (f *Form) Encode(m *canonical.Message, _ translators.Target) (translators.Wire, []canonical.Loss, error) {
	if failed, ok := m.Body.(*canonical.Error); ok {
		return translators.Wire{}, nil, failed
	}
	signal, ok := m.Body.(*canonical.Signal)
	if !ok || m.Op != canonical.OpRollback {
		return translators.Wire{}, nil, &canonical.Error{Code: canonical.CodeUnsupportedOp, Message: "only rollbacks have this form"}
	}
	body := claims(signal.Token)
	if body == nil {
		return translators.Wire{}, nil, &canonical.Error{Code: canonical.CodeBadParams, Message: "a rollback needs exactly one execution context token"}
	}
	var losses []canonical.Loss
	for binding := range signal.Extensions {
		losses = append(losses, canonical.Loss{Code: canonical.LossExtension, Path: "/body/extensions/" + string(binding), Fate: canonical.Dropped})
	}
	wire := translators.Wire{
		Binding: f.info.Binding, Form: Name, Media: Media, Header: http.Header{Field: {signal.Token}}, Body: body,
		Verb: http.MethodPost, Path: Path,
	}
	if m.Phase != canonical.PhaseRequest {
		wire.Re, wire.Verb, wire.Path = m.Op, "", ""
	}
	return wire, losses, nil
}

// Body is the body that goes with a token; nil: it is not a compact token.
func Body(token string) []byte { return claims(token) }

// claims are those of a compact token, as its issuer wrote them; nil: it is none.
// Whether they hold shows elsewhere.
func claims(token string) []byte {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return nil
	}
	for _, part := range parts {
		if _, err := base64.RawURLEncoding.Strict().DecodeString(part); err != nil || part == "" {
			return nil
		}
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if value := jsontext.Value(payload); err != nil || value.Kind() != '{' || !value.IsValid() {
		return nil
	}
	return payload
}
