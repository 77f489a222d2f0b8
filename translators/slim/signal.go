package slim

import (
	"net/http"
	"strings"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/jsonrpc"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// MethodRollback asks an agent to undo what a checkpoint stands for: the one
// parameter, and the one member of the result, is a token. On SLIMRPC it is a
// service of its own.
const MethodRollback = "aepb/rollback"

// FieldCallback is where a request names the receiver of a human's decision: a
// field of the wire's header, and of SLIM's metadata.
const FieldCallback = "Aepb-Hitl-Callback"

// FieldExtensions names the extensions of A2A that a request activates.
const FieldExtensions = a2a.HeaderExtensions

const memberToken = "token"

// Signals reports that SLIM has a form for rollbacks, and that a request can name a callback.
// Decisions have no form: the gateway posts them to the callback.
func (t *Translator) Signals(op canonical.Op, _ translators.Target) bool {
	return op == canonical.OpRollback || op == canonical.OpInvoke
}

// signal reads a rollback request, or the answer to one.
func (t *Translator) signal(w translators.Wire, by words) (*canonical.Message, error) {
	env, err := jsonrpc.Parse(w.Body, t.cfg)
	if err != nil {
		return nil, err
	}
	m := &canonical.Message{
		Op: canonical.OpRollback, Phase: canonical.PhaseRequest, Correlation: canonical.Correlation{WireID: env.ID},
		Origin: canonical.Origin{Binding: by.binding, Version: by.version, Raw: w.Body}, Losses: env.Losses,
	}
	part, place := env.Params, "/params"
	if w.Re != "" {
		if m.Phase, part, place = canonical.PhaseResponse, env.Result, "/result"; env.Error != nil {
			w.Re = canonical.OpInvoke
			failed, err := by.codec.Decode(w)
			if failed != nil {
				failed.Op = canonical.OpRollback
			}
			return failed, err
		}
	}
	object := rawjson.Parse(part, place)
	signal := &canonical.Signal{Token: object.Required(memberToken)}
	if rest := object.Rest(); len(rest) > len("{}") {
		signal.Extensions = canonical.Extensions{by.binding: rest}
	}
	m.Body = signal
	if err := object.Err(); err != nil {
		return m, err
	}
	if !canonical.IsToken(signal.Token) {
		return m, &canonical.Error{Code: canonical.CodeBadParams, Message: "no execution context token: a rollback needs one"}
	}
	return m, nil
}

// saySignal writes one.
func (t *Translator) saySignal(m *canonical.Message, signal *canonical.Signal, by words, form string) (translators.Wire, []canonical.Loss, error) {
	switch {
	case m.Op != canonical.OpRollback:
		return translators.Wire{}, nil, &canonical.Error{Code: canonical.CodeUnsupportedOp, Message: "SLIM has no form for this message"}
	case !canonical.IsToken(signal.Token):
		return translators.Wire{}, nil, &canonical.Error{Code: canonical.CodeBadParams, Message: "no execution context token: a signal needs one"}
	}
	own := signal.Extensions[by.binding]
	if form == FormRPC {
		own = nil // the payload is the token
	}
	var losses []canonical.Loss
	for binding := range signal.Extensions {
		if binding != by.binding || own == nil {
			losses = append(losses, canonical.Loss{Code: canonical.LossExtension, Path: "/body/extensions/" + string(binding), Fate: canonical.Dropped})
		}
	}
	inner := rawjson.NewBuilder().String(memberToken, signal.Token).Merge(own).Bytes()
	if m.Phase == canonical.PhaseRequest {
		return translators.Wire{Body: jsonrpc.Request(m.Correlation.WireID, MethodRollback, inner)}, losses, nil
	}
	// On SLIMRPC nothing else tells a result that is a token from other results.
	return translators.Wire{Body: jsonrpc.Result(m.Correlation.WireID, inner), Re: m.Op}, losses, nil
}

// fields returns the header of a request: the URL for decisions, and the extensions.
func fields(m *canonical.Message, header http.Header) http.Header {
	if m.Phase != canonical.PhaseRequest {
		return nil
	}
	h := extensionsOf(header)
	if m.Callback != "" {
		h.Set(FieldCallback, m.Callback)
	}
	return h
}

func extensionsOf(header http.Header) http.Header {
	h := http.Header{}
	if list := header.Values(FieldExtensions); len(list) > 0 {
		h.Set(FieldExtensions, strings.Join(list, ","))
	}
	return h
}
