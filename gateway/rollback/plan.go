package rollback

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/dag"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/checkpoint"
	pure "github.com/aepb/aepb-gateway/lifecycle/checkpoint"
	undo "github.com/aepb/aepb-gateway/lifecycle/rollback"
	"github.com/aepb/aepb-gateway/lifecycle/workflow"
)

// planner plans rollbacks from what is on record.
type planner struct{ deps Deps }

// errOthers refuses the rollback of a branch upon which others have built since it was found.
var errOthers = errors.New("rollback: work of others was built meanwhile upon what would be undone")

// plan says what a rollback would do now, and which checkpoints agents know by other names.
func (p planner) plan(ctx context.Context, o Order) (undo.Plan, map[ect.ID]ect.ID, error) {
	if _, err := p.deps.Checkpoints.Find(ctx, o.Workflow, o.From); err != nil {
		return undo.Plan{}, nil, err
	}
	run, tokens, err := p.deps.Workflows.Read(ctx, o.Workflow, o.Issuer)
	if err != nil {
		return undo.Plan{}, nil, err
	}
	known, natives, err := p.known(ctx, o.Workflow, tokens)
	if err != nil {
		return undo.Plan{}, nil, err
	}
	if o.Follows != nil && !slices.Contains(p.branchOf(*o.Follows, run, tokens, known).Roots, o.From) {
		return undo.Plan{}, nil, errOthers
	}
	r := undo.Request{From: o.From, Cascade: o.Cascade, At: p.deps.Now(), Patience: p.deps.Patience(), Retention: ect.DefaultRetention}
	if !o.Reviewed {
		if r.Critical, err = p.deps.Workflows.Critical(ctx, o.Workflow); err != nil {
			return undo.Plan{}, nil, err
		}
	}
	plan, err := undo.Make(run, known, r)
	return plan, natives, err
}

// branch finds what a failure takes with it.
func (p planner) branch(ctx context.Context, a aftermath) (undo.Branch, error) {
	run, tokens, err := p.deps.Workflows.Read(ctx, a.Workflow, a.Caller)
	if err != nil {
		return undo.Branch{}, err
	}
	known, _, err := p.known(ctx, a.Workflow, tokens)
	if err != nil {
		return undo.Branch{}, err
	}
	return p.branchOf(a, run, tokens, known), nil
}

// branchOf finds what a failure takes with it. A caller's word is about its own steps alone (R22).
func (p planner) branchOf(a aftermath, run workflow.Run, tokens []workflow.Token, known map[ect.ID]undo.Known) undo.Branch {
	wanted := map[ect.ID]ect.Identity{} // by the gateway's own tokens: for whom
	for _, t := range tokens {
		if t.Node.Issuer == p.deps.Self {
			wanted[t.Node.ID] = t.Caller
		}
	}
	by := func(step workflow.Step) ect.Identity {
		switch {
		case step.Kind == workflow.KindTask:
			return step.Issuer
		case step.Issuer == p.deps.Self:
			return wanted[step.ID]
		}
		return "" // what another gateway says of its callers is not known here
	}
	branch := undo.BranchOf(run, known, undo.Failure{Actions: a.Actions, Caller: a.Caller, By: by, At: p.deps.Now()})
	branch.Stuck = slices.DeleteFunc(branch.Stuck, func(id ect.ID) bool { return known[id].Undone })
	return branch
}

// known is what is known of the checkpoints of a workflow whose tokens are on record: those that are saved here, and those
// that agents signed and keep themselves.
func (p planner) known(ctx context.Context, wid string, tokens []workflow.Token) (map[ect.ID]undo.Known, map[ect.ID]ect.ID, error) {
	recorded, undone := map[ect.ID][]ect.Identity{}, map[ect.ID][]ect.Identity{}
	for _, t := range tokens {
		switch {
		case t.Node.Act == ect.ActCheckpoint:
			recorded[t.Node.ID] = append(recorded[t.Node.ID], t.Node.Issuer)
		case t.Node.Act == ect.ActRollbackResult && t.Status == string(undo.StatusCompleted):
			undone[t.Checkpoint] = append(undone[t.Checkpoint], t.Node.Issuer)
		}
	}
	all, err := p.deps.Checkpoints.All(ctx, wid)
	if err != nil {
		return nil, nil, err
	}
	known, natives := map[ect.ID]undo.Known{}, p.natives(all, tokens)
	for _, k := range all {
		if slices.Contains(recorded[k.ID], k.Issuer) { // else its action did not leave; others may have used its id
			known[k.ID] = p.ours(k)
			delete(recorded, k.ID)
		}
	}
	for ours, id := range natives {
		if _, deposited := known[id]; deposited { // it is known by itself: ours stands for it
			h := known[ours]
			h.Parents = []ect.ID{id}
			known[ours] = h
			delete(natives, ours)
		}
		delete(recorded, id)
	}
	if err := p.theirs(ctx, wid, recorded, known); err != nil {
		return nil, nil, err
	}
	for id, h := range known {
		_, theirs := recorded[id]
		h.Undone = slices.Contains(undone[id], p.deps.Self) || theirs && slices.Contains(undone[id], h.Issuer)
		known[id] = h
	}
	return known, natives, nil
}

// ours is a checkpoint that is saved here.
func (p planner) ours(k checkpoint.Saved) undo.Known {
	h := undo.Known{Checkpoint: k.Checkpoint, How: undo.Never}
	if k.Plan == nil {
		agent, listed := p.deps.Directory.Find(string(k.Issuer))
		if h.Agent, h.Acts = agent.Name, []ect.Identity{k.Issuer}; listed && k.Reversible {
			h.How = undo.ByAgent
		}
		return h
	}
	h.Agent = k.Plan.Agent
	if agent, listed := p.deps.Directory.Find(k.Plan.Agent); listed && agent.ID != "" {
		h.Acts = []ect.Identity{agent.ID}
	}
	switch {
	case k.Outcome != nil && k.Outcome.Failed:
		h.How = undo.Nothing
	case k.Plan.Own:
		h.How = undo.ByAgent
	case k.Plan.Undo != nil:
		if _, _, err := k.Call(); err == nil {
			h.How = undo.ByCall
		}
	}
	return h
}

// theirs adds the checkpoints that agents signed and keep themselves, as their tokens say, and those of the gateway whose content is over: a human
// has to deal with these. One that is not as the draft has it is left out; of several under one id the first one counts.
func (p planner) theirs(ctx context.Context, wid string, recorded map[ect.ID][]ect.Identity, known map[ect.ID]undo.Known) error {
	refs := make([]ect.Ref, 0, len(recorded))
	for id, issuers := range recorded {
		ref := ect.Ref{ID: id, Workflow: wid, Issuer: issuers[0]}
		if slices.Contains(issuers, p.deps.Self) { // a token of another issuer does not stand for ours
			ref.Issuer = p.deps.Self
		}
		refs = append(refs, ref)
	}
	for page := range slices.Chunk(refs, ect.MaxLookups) {
		found, err := p.deps.Find(ctx, page...)
		if err != nil {
			return attest.Recording(err)
		}
		for i, ref := range page {
			for _, r := range found[i] {
				if r.Issuer == ref.Issuer && r.Workflow == wid {
					p.addRecorded(ctx, r, known)
				}
			}
		}
	}
	return nil
}

// addRecorded adds a checkpoint of which the token alone is here.
func (p planner) addRecorded(ctx context.Context, r ect.Record, known map[ect.ID]undo.Known) {
	claims, err := ect.ParseRecorded(r.Compact)
	if err != nil {
		return
	}
	c, err := pure.Parse(claims)
	if err != nil {
		p.deps.Logger.WarnContext(ctx, "a checkpoint of an agent is left out", slog.String("wid", r.Workflow), slog.Any("error", err))
		return
	}
	if c.Issuer == p.deps.Self {
		known[c.ID] = undo.Known{Checkpoint: c, Agent: c.Target, How: undo.Never}
		return
	}
	agent, listed := p.deps.Directory.Find(string(c.Issuer))
	k := undo.Known{Checkpoint: c, Agent: agent.Name, Acts: []ect.Identity{c.Issuer}, How: undo.Never}
	if listed && c.Reversible {
		k.How = undo.ByAgent
	}
	known[c.ID] = k
}

// natives are the checkpoints that agents which roll back themselves made of the actions of checkpoints that are saved here, by these: an agent knows
// its own. Its checkpoint is that of the request, or of its own task that follows from the request.
func (p planner) natives(all []checkpoint.Saved, tokens []workflow.Token) map[ect.ID]ect.ID {
	nodes := map[ect.ID]dag.Node{}
	for _, t := range tokens {
		nodes[t.Node.ID] = t.Node
	}
	own := map[string]ect.ID{} // by agent and action
	for _, k := range all {
		if k.Plan != nil && k.Plan.Own {
			agent, _ := p.deps.Directory.Find(k.Plan.Agent)
			own[string(agent.ID)+" "+string(k.Parents[0])] = k.ID
		}
	}
	natives := map[ect.ID]ect.ID{}
	for _, t := range tokens {
		if t.Node.Act != ect.ActCheckpoint || !t.Reversible {
			continue
		}
		actions := slices.Clone(t.Node.Parents)
		for _, id := range t.Node.Parents {
			if task := nodes[id]; task.Issuer == t.Node.Issuer {
				actions = append(actions, task.Parents...)
			}
		}
		for _, action := range actions {
			if ours, there := own[string(t.Node.Issuer)+" "+string(action)]; there {
				natives[ours] = t.Node.ID
			}
		}
	}
	return natives
}
