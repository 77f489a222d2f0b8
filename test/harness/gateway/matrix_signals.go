package gatewaytest

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/transporttest"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/rollback"
)

// Rollback lets agents of the simulator go back where ATD says.
func (c *fakeAgents) Rollback(_ context.Context, _ transport.Call, token string) (transport.Answer, error) {
	p := &part{fakeAgents: c, request: &canonical.Message{Op: canonical.OpRollback}}
	result := p.undone(token)
	wire, _, err := rollback.Over(c.simulator.List[c.simulator.order[0]].Codec).Encode(&canonical.Message{
		Op: canonical.OpRollback, Phase: canonical.PhaseResponse, Body: &canonical.Signal{Token: result},
	}, translators.Target{})
	return transporttest.Answer(wire), err
}

// undone is the result of a rollback; empty: there is none.
func (p *part) undone(request string) string {
	claims, _, err := ect.ParseUnverified(request)
	if err != nil {
		return ""
	}
	return strings.Join(p.sign(ect.Claims{
		Act: ect.ActRollbackResult, Audience: []string{p.simulator.Stage.Self()}, Workflow: claims.Workflow, Parents: []ect.ID{claims.ID},
		OutputHash: ect.Hash([]byte("as it was")), Ext: Restored(claims),
	}), "")
}

// signs is a token of the caller's about what the gateway did for it.
func (c *Caller) signs(ctx context.Context, act ect.Act) (string, ect.ID, error) {
	records, err := ecttest.All(ctx, c.Stage.Gateway().Evidence, c.Wid)
	if err != nil {
		return "", "", err
	}
	var parent ect.ID
	for _, r := range records {
		if r.Act == "atd:checkpoint" || r.Act == ect.ActTranslate && parent == "" {
			parent = r.ID
		}
	}
	if parent == "" {
		return "", "", errors.New("no evidence")
	}
	token, err := c.signer.Sign(ect.Claims{Act: act, Audience: []string{c.Stage.Self()}, Workflow: c.Wid, Parents: []ect.ID{parent}})
	return token.Compact(), token.ID(), err
}

// rollsBack: what an agent did is undone by whoever had it done. Callers of
// protocols without a form for that ask where ATD says (TestRollback_OverHTTP).
func (c *Caller) rollsBack(ctx context.Context) string {
	if h := c.tells(ctx, doUndo); !strings.Contains(h.Text(), "can be undone") {
		return h.Otherwise()
	}
	request, id, err := c.signs(ctx, ect.ActRollbackRequest)
	if err != nil {
		return err.Error()
	}
	c.parents = []ect.ID{id}
	h := c.Ask(ctx, c.Request(canonical.OpRollback, &canonical.Signal{Token: request}), false, nil)
	signal, ok := h.last().(*canonical.Signal)
	if !ok {
		return h.Otherwise()
	}
	claims, _, err := ect.ParseUnverified(signal.Token)
	if err != nil || claims.Act != ect.ActRollbackResult || len(claims.Parents) != 1 || claims.Parents[0] != id {
		return "another result"
	}
	return "undone"
}

// grants is a decision of the caller's about what another one asked for: a
// caller cannot approve its own work.
func (c *Caller) grants(ctx context.Context) (string, ect.ID, error) {
	if own, err := ecttest.All(ctx, c.Stage.Gateway().Evidence, c.Wid); err != nil || len(own) == 0 {
		return "", "", cmp.Or(err, errors.New("no evidence"))
	}
	gate := ecttest.Mint(c.t, c.Stage.Me, ecttest.Recipe{Claims: ect.Claims{Audience: []string{c.Stage.Self()}, Workflow: string(ect.NewID())}})
	v, err := c.Stage.Judge.Verify(ctx, gate, ect.Check{Purpose: ect.Parent})
	if err != nil {
		return "", "", err
	}
	if err := c.Stage.Gateway().Recorder.Keep(ctx, v, ect.Filing{}); err != nil {
		return "", "", err
	}
	token, err := c.signer.Sign(ect.Claims{
		Act: ect.ActApprovalGranted, Audience: []string{c.Stage.Self()}, Workflow: v.Workflow(), Parents: []ect.ID{v.ID()},
	})
	return token.Compact(), token.ID(), err
}

// decides: somebody tells an agent what a human decided.
func (c *Caller) decides(ctx context.Context) string {
	if c.says(ctx) != "said" {
		return "nothing to decide about"
	}
	granted, id, err := c.grants(ctx)
	if err != nil {
		return err.Error()
	}
	c.parents = []ect.ID{id}
	h := c.Ask(ctx, c.Request(canonical.OpDecision, &canonical.Signal{Approval: "a-1", Token: granted}), false, nil)
	if h.Refused() != "" {
		return h.Otherwise()
	}
	if !c.Agents.heardOf(granted) {
		return "not told"
	}
	return "told"
}

// registers: a request says who is told of decisions, and its agent learns that.
func (c *Caller) registers(ctx context.Context) string {
	m := c.Request(canonical.OpInvoke, c.Invoke("say it, and ask "+c.Wid))
	m.Callback = decidedAt
	if h := c.Ask(ctx, m, false, nil); !strings.Contains(h.Text(), "You said") {
		return h.Otherwise()
	}
	if c.Agents.callback(c.Wid) != decidedAt {
		return "kept here"
	}
	return "told"
}

// decidedAt is where decisions are to be told; nobody is there.
const decidedAt = "https://93.184.215.14/decided"

func (c *fakeAgents) heardOf(decision string) bool {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	return c.decided[decision]
}

// callback is the callback of the request with this name in its words.
func (c *fakeAgents) callback(name string) string {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	for text, uri := range c.callbacks {
		if strings.Contains(text, name) {
			return uri
		}
	}
	return ""
}
