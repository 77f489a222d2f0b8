package a2a

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
	form "github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/a2a/security"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// CardPath is where a card is found, below an agent's URL (A2A 8.2).
const CardPath = "/.well-known/agent-card.json"

// endpointPath is the path of A2A below an agent's URL (R9).
const endpointPath = "/a2a"

// cardAge is how long a client may keep a card without asking, in seconds.
const cardAge = "max-age=300"

// CardHandler serves the agent's card, from the directory and with the server's
// own URL. A client that names a version gets a card with the members of that one
// alone; most fetch cards without naming one, and get the card of both (R9).
// Refusals are problem documents: the request was no JSON-RPC call.
func (d *Server) CardHandler(handler transport.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		card, err := d.card(r, handler)
		if err != nil {
			problem.Write(w, r, err)
			return
		}
		tag := `"` + ect.Hash(card) + `"`
		h := w.Header()
		h.Set("ETag", tag)
		h.Set("Cache-Control", cardAge)
		h.Add("Vary", form.HeaderVersion)
		if transport.Unchanged(r.Header, tag) {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		h.Set("Content-Type", form.Media)
		h.Set("X-Content-Type-Options", "nosniff")
		w.WriteHeader(http.StatusOK)
		if r.Method != http.MethodHead {
			_, _ = w.Write(card) // a caller that went away needs no answer
		}
	})
}

func (d *Server) card(r *http.Request, handler transport.Handler) (_ []byte, err error) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return nil, &problem.MethodError{Allow: "GET, HEAD"}
	}
	agent := r.PathValue("agent")
	q := transport.CallInfoFrom(r.Context(), agent, form.Binding)
	if q.Pass, err = handler.Limit(r.Context(), q); err != nil {
		return nil, err
	}
	description, err := handler.Describe(r.Context(), q)
	if err != nil {
		return nil, err
	}
	version := form.Spoken(fields(r).Get(form.HeaderVersion))
	return d.deps.faces(d.deps.BaseURL(r, agent)).card(d.deps.Form, description, agent, version)
}

// interfaceURLs is where an agent is reached through us.
type interfaceURLs struct {
	url      string           // of the agent, over HTTP; its A2A URL is below it
	grpc     string           // host:port of the gRPC server; empty: there is none
	security security.Schemes // what its cards declare
}

func (d ServerDeps) faces(url string) interfaceURLs {
	out := interfaceURLs{url: url, grpc: d.GRPC}
	if d.Security != nil {
		out.security = d.Security()
	}
	return out
}

// maxSkills bounds the skills of a card, in bytes: clients over gRPC refuse more than 4 MiB.
const maxSkills = 2 << 20

// fit leaves out the last skills of a card where there are more than a card holds, and
// says so in its description. They can be called all the same.
func fit(d *canonical.Description) {
	size, all := 0, len(d.Capabilities)
	for i := range d.Capabilities {
		c := d.Capabilities[i]
		c.InputSchema, c.OutputSchema = nil, nil // no card has them
		if size += c.Size() + len(c.Extensions[form.Binding]); size > maxSkills {
			d.Capabilities = d.Capabilities[:i]
			d.Description = strings.TrimSpace(fmt.Sprintf("%s\n\nThis card shows the first %d of %d skills. The others can be called by their ids.", cmp.Or(d.Description, d.Instructions), i, all))
			return
		}
	}
}

// card writes an agent's card in a version; empty: in both at once.
func (f interfaceURLs) card(codec translators.Translator, description *canonical.Description, agent, version string) ([]byte, error) {
	served := form.Served(description, f.url+endpointPath, version == "")
	fit(served)
	served.Name = cmp.Or(served.Name, agent) // an MCP server need not say who it is
	if f.grpc != "" {
		served.Interfaces = append(served.Interfaces, canonical.Interface{
			URL: f.grpc, Transport: form.FormGRPC, Version: form.Version, Tenant: agent,
		})
	}
	m := &canonical.Message{Op: canonical.OpDescribe, Phase: canonical.PhaseResponse, Body: served}
	wire, _, err := codec.Encode(m, translators.Target{Version: version})
	if unsaid, ok := errors.AsType[*canonical.Error](err); ok && unsaid.Code == canonical.CodeCardUnavailable {
		return nil, &problem.NotFoundError{What: "agent card: the agent names nothing that it can do"}
	}
	if err != nil {
		return nil, err
	}
	return f.security.On(wire.Body, security.Words{V10: version != form.Version03, V03: version != form.Version}), nil
}

// extended makes the call that asks an agent for its extended card (A2A 3.1.11):
// where the agent says that it has one, and to callers that have proved who they
// are. What comes back names our URLs, as every card of ours does.
func (f interfaceURLs) extended(ctx context.Context, codec translators.Translator, handler transport.Handler, call transport.Call, request *canonical.Message) (transport.Call, error) {
	description, err := handler.Describe(ctx, transport.CallInfoFrom(ctx, call.Agent, form.Binding).With(call.Pass))
	switch {
	case err != nil:
		return call, err
	case !description.Extended && request.Origin.Version == form.Version03:
		return call, &canonical.Error{Code: canonical.CodeCardUnavailable, Message: "the agent has no extended card: use its public one"}
	case !description.Extended:
		return call, &canonical.Error{Code: canonical.CodeUnsupportedOp, Message: "the agent has no extended card: use its public one"}
	case call.Caller.Anonymous:
		return call, &problem.UnauthenticatedError{}
	}
	if native, ok := request.Body.(*canonical.Native); ok && call.Tenanted { // the tenant is our name for the agent
		request.Body = &canonical.Native{Method: native.Method, Params: json.RawMessage("{}")} // without params agents refuse it
	}
	call.Message = request
	call.Card = func(extended *canonical.Description) (json.RawMessage, error) {
		return f.card(codec, extended, call.Agent, request.Origin.Version)
	}
	return call, nil
}
