package httpapi

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/directory/admindoc"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// maxSpeaks bounds the protocols that an operator may name for a caller.
const maxSpeaks = 16

// negotiationDocument is both sides and what they come to (AEPB, Protocol Negotiation).
type negotiationDocument struct {
	Agent   string             `json:"agent"`
	Ours    capabilityDocument `json:"ours"`
	Theirs  capabilityDocument `json:"theirs"`
	Outcome outcomeDocument    `json:"outcome"`
}

type outcomeDocument struct {
	Path       string              `json:"path"` // direct or gateway
	Protocol   string              `json:"protocol"`
	From       string              `json:"from"`
	Endpoint   string              `json:"endpoint"`
	Gateway    string              `json:"gateway,omitempty"`
	Reason     string              `json:"reason"`
	Candidates []candidateDocument `json:"candidates"`
}

type candidateDocument struct {
	From string `json:"from"`
	To   string `json:"to"`
	Sum  int    `json:"priority_sum"`
}

// negotiation writes how a caller reaches an agent with the protocols of the gateway, or with those
// of the query: speaks=a2a-v1:10,mcp-v1.
func (a admin) negotiation(c *gin.Context) {
	ctx := c.Request.Context()
	agent, ok := a.deps.Directory.Find(c.Param("name"))
	if !ok {
		problem.Write(c.Writer, c.Request, &problem.UnknownAgentError{Agent: c.Param("name")})
		return
	}
	agent, err := a.deps.Directory.Reach(ctx, agent)
	if err != nil {
		problem.Write(c.Writer, c.Request, err)
		return
	}
	ours, err := a.ours(c.Query("speaks"))
	if err != nil {
		problem.Write(c.Writer, c.Request, err)
		return
	}
	theirs := directory.Offer{Protocols: agent.Endpoints, Gateways: agent.Gateways}
	for _, b := range agent.Beyond { // another gateway may speak it
		theirs.Protocols = append(theirs.Protocols, directory.Endpoint{Binding: b})
	}
	own := ours.Gateways[0]
	outcome, ok := directory.Negotiate(ours, theirs, func(gateway string, from, to canonical.Binding) bool {
		if gateway == own {
			return a.translates(from, to)
		}
		return a.deps.Directory.Serves(ctx, gateway, string(from), string(to))
	})
	if !ok {
		problem.Write(c.Writer, c.Request, noPath(ours, theirs))
		return
	}
	c.JSON(http.StatusOK, negotiationDocument{
		Agent: agent.Name, Ours: a.offer(a.deps.Self, ours, directory.Agent{}), Theirs: a.offer(agent.ID, theirs, agent),
		Outcome: describeOutcome(outcome, agent, own),
	})
}

func noPath(ours, theirs directory.Offer) error {
	e := &problem.NoPathError{From: "none", To: "none"}
	if len(ours.Protocols) > 0 {
		e.From = string(ours.Protocols[0].Binding)
	}
	if len(theirs.Protocols) > 0 {
		e.To = string(theirs.Protocols[0].Binding)
	}
	return e
}

func (a admin) translates(from, to canonical.Binding) bool {
	return slices.Contains(a.deps.Registry.Pairs(), translators.Pair{From: from, To: to})
}

// ours is our own offer, or that of a caller who speaks what the query names.
func (a admin) ours(speaks string) (directory.Offer, error) {
	translate := a.deps.PublicURL + aepbNames().translate
	offer := directory.Offer{Gateways: []string{translate}}
	for _, p := range a.deps.Directory.Peers() {
		offer.Gateways = append(offer.Gateways, p.URL)
	}
	if speaks == "" {
		for i, id := range a.deps.Registry.Bindings() {
			t, _ := a.deps.Registry.Translator(id)
			offer.Protocols = append(offer.Protocols, directory.Endpoint{
				Binding: id, Version: t.Info().Versions[0], URL: translate + "?from=" + string(id), Priority: 10 * (i + 1),
			})
		}
		return offer, nil
	}
	names := strings.Split(speaks, ",")
	if len(names) > maxSpeaks {
		return offer, &problem.QueryError{Reason: "speaks names too many protocols"}
	}
	for _, entry := range names {
		id, text, ranked := strings.Cut(strings.TrimSpace(entry), ":")
		e := directory.Endpoint{Binding: canonical.Binding(id)}
		if ranked {
			n, err := strconv.ParseUint(text, 10, 16)
			if err != nil {
				return offer, &problem.QueryError{Reason: "speaks is a list of protocol or protocol:priority"}
			}
			if e.Priority = int(n); n == 0 {
				e.Priority = directory.Foremost
			}
		}
		if id == "" || len(id) > 64 {
			return offer, &problem.QueryError{Reason: "speaks is a list of protocol or protocol:priority"}
		}
		offer.Protocols = append(offer.Protocols, e)
	}
	return offer, nil
}

// offer is a side as a capability document.
func (a admin) offer(id ect.Identity, side directory.Offer, agent directory.Agent) capabilityDocument {
	doc := capabilityDocument{
		versions: aepbNames().versions(), AgentID: string(id), TranslationGateways: side.Gateways,
		AssuranceLevel: "L2", Lifecycle: lifecycleOf(agent.Lifecycle),
	}
	if agent.AssuranceLevel != 0 {
		doc.AssuranceLevel = "L" + strconv.Itoa(int(agent.AssuranceLevel))
	}
	if doc.TranslationGateways == nil {
		doc.TranslationGateways = []string{}
	}
	for _, e := range side.Protocols {
		doc.Protocols = append(doc.Protocols, protocolEntry{ID: string(e.Binding), Version: e.Version, Endpoint: e.URL, Priority: e.Rank()})
	}
	return doc
}

func describeOutcome(o directory.Outcome, agent directory.Agent, own string) outcomeDocument {
	doc := outcomeDocument{
		Path: "direct", Protocol: string(o.Chosen.To), From: string(o.Chosen.From), Endpoint: o.Endpoint.URL,
		Reason: fmt.Sprintf("both sides speak %s, which has the lowest sum of priorities (%d) of %d in common", o.Chosen.To, o.Chosen.Sum, len(o.Candidates)),
	}
	if !o.Direct() {
		doc.Path, doc.Gateway = "gateway", o.Chosen.Gateway
		if o.Chosen.Gateway == own {
			doc.Gateway += "?from=" + doc.From + "&to=" + doc.Protocol + "&dest=" + agent.Name
		}
		doc.Reason = fmt.Sprintf("no protocol in common; the gateway translates %s to %s, the lowest sum of priorities (%d) of %d pairs",
			o.Chosen.From, o.Chosen.To, o.Chosen.Sum, len(o.Candidates))
	}
	if l := agent.Lifecycle; l.Status == directory.Deprecated {
		doc.Reason += "; the agent is deprecated"
		if l.Successor != "" {
			doc.Reason += ", its successor is described at " + l.Successor
		}
	}
	for _, c := range o.Candidates {
		doc.Candidates = append(doc.Candidates, candidateDocument{From: string(c.From), To: string(c.To), Sum: c.Sum})
	}
	return doc
}

// lifecycleOf is nil for an agent whose document says nothing of it.
func lifecycleOf(l directory.Lifecycle) *admindoc.Lifecycle {
	if l.Status == "" {
		return nil
	}
	out := &admindoc.Lifecycle{Status: string(l.Status), Version: l.Version, DeprecatedAt: instant(l.DeprecatedAt), SunsetAt: instant(l.SunsetAt)}
	if l.Successor != "" {
		out.Successor = &l.Successor
	}
	return out
}

func instant(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	return new(t.UTC().Format(time.RFC3339))
}

func (a admin) pins(c *gin.Context, agent directory.Agent) []admindoc.Pin {
	var out []admindoc.Pin
	for _, e := range agent.Endpoints {
		views, err := a.deps.Directory.Views(c.Request.Context(), agent, e)
		if err != nil {
			continue
		}
		for _, pin := range views {
			out = append(out, documentOf(e, pin))
		}
	}
	return out
}

func documentOf(e directory.Endpoint, pin directory.Pin) admindoc.Pin {
	doc := admindoc.Pin{Binding: string(e.Binding), Hash: pin.Hash}
	if pin.Pending == nil {
		return doc
	}
	doc.Pending = &admindoc.Pending{Hash: pin.Pending.Hash}
	for _, change := range pin.Changes() {
		doc.Pending.Changes = append(doc.Pending.Changes, admindoc.Change{
			Capability: change.Capability, Kind: change.Kind, Members: change.Members, Was: change.Was, Is: change.Is,
		})
	}
	return doc
}

// accept makes what waits the description that counts (R9). With sha256 only
// the one that the operator has read.
func (a admin) accept(c *gin.Context) {
	ctx := c.Request.Context()
	agent, ok := a.deps.Directory.Find(c.Param("name"))
	if !ok {
		problem.Write(c.Writer, c.Request, &problem.UnknownAgentError{Agent: c.Param("name")})
		return
	}
	agent, err := a.deps.Directory.Resolve(ctx, agent)
	accepted := false
	if err == nil {
		accepted, err = a.deps.Directory.Accept(ctx, agent, c.Query("sha256"))
	}
	switch {
	case err != nil:
		problem.Write(c.Writer, c.Request, err)
	case !accepted:
		problem.Write(c.Writer, c.Request, &problem.ConflictError{Reason: "no change of this agent waits under that hash"})
	default:
		a.deps.Logger.InfoContext(ctx, "changed description accepted", slog.String("agent", agent.Name))
		c.Status(http.StatusNoContent)
	}
}
