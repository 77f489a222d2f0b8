package a2a

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
	form "github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// CardPath is where a card is found, below an agent's URL (A2A 8.2).
const CardPath = "/.well-known/agent-card.json"

// doorPath is where the door is, below an agent's URL (R9).
const doorPath = "/a2a"

// cardAge is how long a client may keep a card without asking, in seconds.
const cardAge = "max-age=300"

// CardHandler serves the agent's card, from the directory and with the door's
// own URL. Refusals are problem documents: nobody made a JSON-RPC call.
func (d *Door) CardHandler(road transport.Exchanger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		card, err := d.card(r, road)
		if err != nil {
			problem.Write(w, r, err)
			return
		}
		tag := `"` + ect.Hash(card) + `"`
		h := w.Header()
		h.Set("ETag", tag)
		h.Set("Cache-Control", cardAge)
		if unchanged(r.Header.Values("If-None-Match"), tag) {
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

func (d *Door) card(r *http.Request, road transport.Exchanger) ([]byte, error) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return nil, &problem.MethodError{Allow: "GET, HEAD"}
	}
	agent := r.PathValue("agent")
	return d.deps.faces(d.deps.BaseURL(r, agent)).card(r.Context(), d.deps.Form, road, agent, false)
}

// faces is where an agent is reached through us.
type faces struct {
	url  string // of the agent, over HTTP; the door is below it
	grpc string // host:port of the door over gRPC; empty: there is none
}

func (d DoorDeps) faces(url string) faces { return faces{url, d.GRPC} }

// card writes an agent's card. limited: the limit has been asked.
func (f faces) card(ctx context.Context, codec translators.Translator, road transport.Exchanger, agent string, limited bool) ([]byte, error) {
	inquiry := transport.Asking(ctx, agent, form.Binding)
	inquiry.Limited = limited
	description, err := road.Describe(ctx, inquiry)
	if err != nil {
		return nil, err
	}
	served := form.Served(description, f.url+doorPath)
	if served.Name == "" {
		served.Name = agent // an MCP server need not say who it is
	}
	if f.grpc != "" {
		served.Interfaces = append(served.Interfaces, canonical.Interface{
			URL: f.grpc, Transport: form.FormGRPC, Version: form.Version, Tenant: agent,
		})
	}
	m := &canonical.Message{Op: canonical.OpDescribe, Phase: canonical.PhaseResponse, Body: served}
	wire, _, err := codec.Encode(m, translators.Target{})
	var unsaid *canonical.Error
	if errors.As(err, &unsaid) && unsaid.Code == canonical.CodeCardUnavailable {
		return nil, &problem.NotFoundError{What: "agent card: the agent names nothing that it can do"}
	}
	return wire.Body, err
}

// unchanged reads If-None-Match (RFC 9110 13.1.2).
func unchanged(values []string, tag string) bool {
	for _, value := range values {
		for member := range strings.SplitSeq(value, ",") {
			member = strings.TrimSpace(member)
			if member == "*" || strings.TrimPrefix(member, "W/") == tag {
				return true
			}
		}
	}
	return false
}
