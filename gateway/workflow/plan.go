package workflow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/lifecycle/descriptor"
	"github.com/aepb/aepb-gateway/lifecycle/workflow"
)

// Bound is the version of a descriptor that a workflow follows, from its start to its end (R27).
type Bound struct {
	Name    string `json:"name"`
	Version int    `json:"version"`
	Hash    string `json:"sha256"` // of its text
}

// Plans knows descriptors, and the agents that they name.
type Plans interface {
	// Plan finds a version of a descriptor and its text; 0 is the newest. Its errors are *[problem.NotFoundError] and
	// *[problem.RecordingError].
	Plan(ctx context.Context, name string, version int) (Bound, []byte, error)
	// Names are what tokens call an agent of the directory; empty: there is no such agent.
	Names(ctx context.Context, agent string) []string
}

// Bounds of what is remembered of descriptors; of more all is forgotten, and read again.
const (
	maxPlans = 64   // descriptors: some 5 MB
	maxBound = 4096 // workflows
)

// plans remembers which descriptor a workflow follows. That never changes. The zero value is ready.
type plans struct {
	mu    sync.Mutex
	of    map[string]*Bound // by workflow that has a start; nil: it follows none
	texts map[Bound]descriptor.Descriptor
}

func (p *plans) find(wid string) (bound *Bound, d descriptor.Descriptor, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	bound, known = p.of[wid]
	if bound != nil {
		d, known = p.texts[*bound]
	}
	return bound, d, known
}

// bound is what a workflow follows, if that is remembered.
func (p *plans) bound(wid string) *Bound {
	bound, _, _ := p.find(wid)
	return bound
}

func (p *plans) add(wid string, bound *Bound, d descriptor.Descriptor) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil || len(p.of) >= maxBound {
		p.of = map[string]*Bound{}
	}
	if p.texts == nil || len(p.texts) >= maxPlans {
		p.texts = map[Bound]descriptor.Descriptor{}
	}
	p.of[wid] = bound
	if bound != nil {
		p.texts[*bound] = d
	}
}

// Descriptor is the plan that a workflow follows; false: it follows none, or has no start on record. It is remembered, and
// it costs next to nothing to ask again. Its errors are *[problem.NotFoundError] and *[problem.RecordingError].
func (s *Service) Descriptor(ctx context.Context, wid string) (descriptor.Descriptor, bool, error) {
	if bound, d, known := s.plans.find(wid); known {
		return d, bound != nil, nil
	}
	r, started, err := s.Started(ctx, wid)
	if err != nil {
		return descriptor.Descriptor{}, false, attest.Recording(err)
	}
	if !started {
		return descriptor.Descriptor{}, false, nil
	}
	var d descriptor.Descriptor
	if r.Plan != nil {
		found, text, err := s.load(ctx, r.Plan.Name, r.Plan.Version)
		if err != nil {
			return descriptor.Descriptor{}, false, err
		}
		if d = text; found != *r.Plan {
			err := fmt.Errorf("workflow: version %d of descriptor %q is not the text with which %s began: restore the store", found.Version, found.Name, wid)
			return descriptor.Descriptor{}, false, attest.Recording(err)
		}
	}
	s.plans.add(wid, r.Plan, d)
	return d, r.Plan != nil, nil
}

// load finds and reads a version.
func (s *Service) load(ctx context.Context, name string, version int) (Bound, descriptor.Descriptor, error) {
	if s.deps.Plans == nil {
		return Bound{}, descriptor.Descriptor{}, &problem.NotFoundError{What: "workflow descriptor", Hint: "this gateway stores none"}
	}
	bound, text, err := s.deps.Plans.Plan(ctx, name, version)
	if err != nil {
		return bound, descriptor.Descriptor{}, err
	}
	d, err := descriptor.Parse(text)
	if err != nil { // it was read when it was stored
		err = attest.Recording(err)
	}
	return bound, d, err
}

// names says what tokens call the agents of a descriptor.
func (s *Service) names(ctx context.Context) func(agent string) []string {
	if s.deps.Plans == nil {
		return nil
	}
	return func(agent string) []string { return s.deps.Plans.Names(ctx, agent) }
}

// follow binds a workflow that begins to the descriptor of its plan, and has its start say so.
func (s *Service) follow(ctx context.Context, plan *Plan, ext ect.Ext) (*Bound, error) {
	if plan.Descriptor == "" {
		if plan.Version != 0 {
			return nil, &problem.QueryError{Reason: "version is that of a descriptor: name the descriptor, or leave version out"}
		}
		return nil, nil //nolint:nilnil // it follows none
	}
	bound, d, err := s.load(ctx, plan.Descriptor, plan.Version)
	if err != nil {
		return nil, err
	}
	nodes := len(d.Order())
	if plan.Steps != 0 && plan.Steps != nodes {
		return nil, &problem.QueryError{Reason: fmt.Sprintf("node_count is %d, and the descriptor has %d nodes: leave node_count out", plan.Steps, nodes)}
	}
	if plan.Steps = nodes; plan.Description == "" {
		plan.Description = d.Description()
	}
	ext.SetString(ect.ExtDescriptor, bound.Name)
	ext.SetInt(ect.ExtPlanVersion, int64(bound.Version))
	ext.SetString(ect.ExtPlanHash, bound.Hash)
	return &bound, nil
}

// named finds the descriptor that a caller's own start names; nil: it names none. Without a version it is the newest one
// at the time. Its errors are *[ect.InvalidError] and those of [Plans.Plan].
func (s *Service) named(ctx context.Context, id ect.ID, ext ect.Ext) (*Bound, error) {
	if ext[ect.ExtDescriptor] == nil {
		return nil, nil //nolint:nilnil // it follows none
	}
	name, _ := ext.String(ect.ExtDescriptor)
	version, err := 0, error(nil)
	if text := ext[ect.ExtPlanVersion]; text != nil {
		version, err = strconv.Atoi(string(text))
	}
	if name == "" {
		return nil, &ect.InvalidError{Reason: ect.ReasonInvalidClaim, ID: id, Claim: ect.ExtDescriptor}
	}
	if err != nil || version < 0 {
		return nil, &ect.InvalidError{Reason: ect.ReasonInvalidClaim, ID: id, Claim: ect.ExtPlanVersion}
	}
	bound, _, err := s.load(ctx, name, version)
	if err != nil {
		return nil, err
	}
	if hash, given := ext.String(ect.ExtPlanHash); given && hash != bound.Hash {
		return nil, &ect.InvalidError{Reason: ect.ReasonInvalidClaim, ID: id, Claim: ect.ExtPlanHash}
	}
	return &bound, nil
}

// recording is an error of a decision about a start: what is wrong with it, or the store's.
func recording(err error) error {
	if _, invalid := errors.AsType[*ect.InvalidError](err); invalid {
		return err
	}
	if _, missing := errors.AsType[*problem.NotFoundError](err); missing {
		return err
	}
	return attest.Recording(err)
}

// Critical says which nodes of the plan of a workflow are critical; a nil function: none is. Its errors are those of [Service.Descriptor].
func (s *Service) Critical(ctx context.Context, wid string) (func(node string) bool, error) {
	d, follows, err := s.Descriptor(ctx, wid)
	if err != nil || !follows {
		return nil, err
	}
	return func(id string) bool {
		node, known := d.Node(id)
		return known && node.Severity == workflow.SeverityCritical
	}, nil
}

// Gates are the roles that approvers need before a step of a workflow begins, sorted; none: no node of its plan that the step can be has a
// gate (ATD, Optional Declarative Workflow Format). A step that can be a node without a gate as well, which has not begun and
// whose turn it is, needs none. Its errors are those of [Service.Descriptor] and [Service.Read].
func (s *Service) Gates(ctx context.Context, wid string, who ect.Identity, x workflow.Prospect) ([]string, error) {
	d, follows, err := s.Descriptor(ctx, wid)
	if err != nil || !follows || !d.Gated() {
		return nil, err
	}
	var roles []string
	var open []workflow.Planned
	for _, p := range d.Planned(s.names(ctx)) {
		node, _ := d.Node(p.ID)
		switch {
		case !p.Fits(x):
		case node.Gated:
			roles = append(roles, node.Role)
		default:
			open = append(open, p)
		}
	}
	slices.Sort(roles)
	if roles = slices.Compact(roles); len(roles) == 0 || len(open) == 0 {
		return roles, nil
	}
	run, _, err := s.Read(ctx, wid, who)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(open, func(p workflow.Planned) bool { return run.HasTurn(p, x.Task) }) {
		return nil, nil
	}
	return roles, nil
}

// Priority is that of the node which a step can be, and of several the highest; empty: the workflow follows no plan, or the step is not in it (ATD,
// Priority Levels). Its errors are those of [Service.Descriptor].
func (s *Service) Priority(ctx context.Context, wid string, x func() workflow.Prospect) (highest descriptor.Priority, err error) {
	d, follows, err := s.Descriptor(ctx, wid)
	if err != nil || !follows {
		return "", err
	}
	step := x()
	for _, p := range d.Planned(s.names(ctx)) {
		if node, _ := d.Node(p.ID); p.Fits(step) && node.Hints.Priority.Above(highest) {
			highest = node.Hints.Priority
		}
	}
	return highest, nil
}

// Followed is the plan that a workflow follows, as its members see it.
type Followed struct {
	Bound

	Text   string
	Agents map[string][]string // what tokens call each agent that it names
}

// Follows is the plan that a workflow follows, for its members. Its errors are *[problem.NotFoundError] for others, and where it follows none, and
// those of [Service.Descriptor].
func (s *Service) Follows(ctx context.Context, wid string, who ect.Identity) (out Followed, err error) {
	if err := s.member(ctx, wid, who); err != nil {
		return out, err
	}
	r, _, err := s.Started(ctx, wid)
	if err != nil {
		return out, attest.Recording(err)
	}
	if r.Plan == nil || s.deps.Plans == nil {
		return out, &problem.NotFoundError{What: "descriptor of this workflow"}
	}
	d, _, err := s.Descriptor(ctx, wid) // which compares the text with the hash of the start
	if err != nil {
		return out, err
	}
	found, text, err := s.deps.Plans.Plan(ctx, r.Plan.Name, r.Plan.Version)
	out = Followed{Bound: found, Text: string(text), Agents: map[string][]string{}}
	for _, node := range d.Order() {
		if names := s.deps.Plans.Names(ctx, node.Agent); node.Agent != "" && len(names) > 0 {
			out.Agents[node.Agent] = names
		}
	}
	return out, err
}
