package main

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

// Rollback lets agents of the troupe go back where ATD says.
func (c *cast) Rollback(_ context.Context, _ transport.Call, token string) (transport.Answer, error) {
	p := &part{cast: c, asked: &canonical.Message{Op: canonical.OpRollback}}
	result := p.undone(token)
	wire, _, err := rollback.Over(c.troupe.list[c.troupe.order[0]].form).Encode(&canonical.Message{
		Op: canonical.OpRollback, Phase: canonical.PhaseResponse, Body: &canonical.Signal{Token: result},
	}, translators.Target{})
	return transporttest.Answer(wire), err
}

// undone is the result of a rollback; empty: there is none.
func (p *part) undone(request string) string {
	asked, _, err := ect.ParseUnverified(request)
	if err != nil {
		return ""
	}
	return strings.Join(p.sign(ect.Claims{
		Act: ect.ActRollbackResult, Audience: []string{p.troupe.stage.self()}, Workflow: asked.Workflow, Parents: []ect.ID{asked.ID},
		OutputHash: ect.Hash([]byte("as it was")), Ext: restored(asked),
	}), "")
}

// signs is a token of the caller's about what the gateway did for it.
func (c *caller) signs(ctx context.Context, act ect.Act) (string, ect.ID, error) {
	records, err := ecttest.All(ctx, c.stage.gateway.Evidence, c.wid)
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
	token, err := c.signer.Sign(ect.Claims{Act: act, Audience: []string{c.stage.self()}, Workflow: c.wid, Parents: []ect.ID{parent}})
	return token.Compact(), token.ID(), err
}

// rollsBack: what an agent did is undone by whoever had it done. Callers of
// protocols without a form for that ask where ATD says (TestRollbackOverHTTP).
func (c *caller) rollsBack(ctx context.Context) string {
	if h := c.tells(ctx, doUndo); !strings.Contains(h.text(), "can be undone") {
		return h.otherwise()
	}
	request, id, err := c.signs(ctx, ect.ActRollbackRequest)
	if err != nil {
		return err.Error()
	}
	c.parents = []ect.ID{id}
	h := c.ask(ctx, c.request(canonical.OpRollback, &canonical.Signal{Token: request}), false, nil)
	said, ok := h.last().(*canonical.Signal)
	if !ok {
		return h.otherwise()
	}
	claims, _, err := ect.ParseUnverified(said.Token)
	if err != nil || claims.Act != ect.ActRollbackResult || len(claims.Parents) != 1 || claims.Parents[0] != id {
		return "another result"
	}
	return "undone"
}

// grants is a decision of the caller's about what another one asked for: a
// caller cannot approve its own work.
func (c *caller) grants(ctx context.Context) (string, ect.ID, error) {
	if own, err := ecttest.All(ctx, c.stage.gateway.Evidence, c.wid); err != nil || len(own) == 0 {
		return "", "", cmp.Or(err, errors.New("no evidence"))
	}
	gate := ecttest.Mint(c.t, c.stage.me, ecttest.Recipe{Claims: ect.Claims{Audience: []string{c.stage.self()}, Workflow: string(ect.NewID())}})
	v, err := c.stage.judge.Verify(ctx, gate, ect.Check{Purpose: ect.Parent})
	if err != nil {
		return "", "", err
	}
	if err := c.stage.gateway.Recorder.Keep(ctx, v, ect.Filing{}); err != nil {
		return "", "", err
	}
	token, err := c.signer.Sign(ect.Claims{
		Act: ect.ActApprovalGranted, Audience: []string{c.stage.self()}, Workflow: v.Workflow(), Parents: []ect.ID{v.ID()},
	})
	return token.Compact(), token.ID(), err
}

// decides: somebody tells an agent what a human decided.
func (c *caller) decides(ctx context.Context) string {
	if c.says(ctx) != "said" {
		return "nothing to decide about"
	}
	granted, id, err := c.grants(ctx)
	if err != nil {
		return err.Error()
	}
	c.parents = []ect.ID{id}
	h := c.ask(ctx, c.request(canonical.OpDecision, &canonical.Signal{Approval: "a-1", Token: granted}), false, nil)
	if h.refused() != "" {
		return h.otherwise()
	}
	if !c.agents.heardOf(granted) {
		return "not told"
	}
	return "told"
}

// registers: a request says who is told of decisions, and its agent learns that.
func (c *caller) registers(ctx context.Context) string {
	m := c.request(canonical.OpInvoke, c.invoke("say it, and ask "+c.wid))
	m.Callback = decidedAt
	if h := c.ask(ctx, m, false, nil); !strings.Contains(h.text(), "You said") {
		return h.otherwise()
	}
	if c.agents.callback(c.wid) != decidedAt {
		return "kept here"
	}
	return "told"
}

// decidedAt is where decisions are to be told; nobody is there.
const decidedAt = "https://93.184.215.14/decided"

func (c *cast) heardOf(decision string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.decided[decision]
}

// callback is the callback of the request with this name in its words.
func (c *cast) callback(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for said, uri := range c.callbacks {
		if strings.Contains(said, name) {
			return uri
		}
	}
	return ""
}
