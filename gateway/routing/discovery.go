package routing

import (
	"context"

	"github.com/aepb/aepb-gateway/gateway/destination"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Discovery answers who an agent is. It is safe for concurrent use.
type Discovery struct {
	directory    *directory.Directory
	registry     *translators.Registry
	destinations *destination.Resolver
}

// NewDiscovery makes one that answers from a directory.
func NewDiscovery(d *directory.Directory, registry *translators.Registry, destinations *destination.Resolver) *Discovery {
	return &Discovery{d, registry, destinations}
}

// Admit judges who may ask what a server side answers by itself, such as a ping: those who may
// call the agent in whose name it does. Its errors are [limit.ErrNoPass],
// *[problem.UnknownAgentError] and those of [destination.MayCall].
func (d *Discovery) Admit(_ context.Context, q transport.CallInfo) error {
	_, err := d.approach(q)
	return err
}

// approach finds an agent for those who may call it.
func (d *Discovery) approach(q transport.CallInfo) (directory.Agent, error) {
	if !q.Pass.Valid() {
		return directory.Agent{}, limit.ErrNoPass
	}
	agent, ok := d.directory.Find(q.Agent)
	if !ok {
		return directory.Agent{}, &problem.UnknownAgentError{Agent: q.Agent}
	}
	if err := destination.MayCall(q.Caller, agent.Rules); err != nil {
		return agent, err
	}
	return agent, q.Caller.Permits(agent.Name, "")
}

// Describe answers discovery from the directory (R8), to those who may call, and a listing in
// a session with what the agent lists in the one that mirrors it. Its errors are
// those of Admit, *[problem.NoPathError] and those of the directory.
func (d *Discovery) Describe(ctx context.Context, q transport.CallInfo) (*canonical.Description, error) {
	agent, err := d.approach(q)
	if err != nil {
		return nil, err
	}
	if agent, err = d.destinations.Current(ctx, q.Caller, agent); err != nil {
		return nil, err
	}
	endpoint := agent.Endpoint(q.Binding)
	if endpoint.Binding == "" {
		return nil, &problem.NoPathError{From: string(q.Binding)}
	}
	viewer := directory.Viewer{Caller: q.Caller.ID, CanAnswer: q.CanAnswer, Listing: !q.Known, Offer: policy.OfferOf(q.Caller.ID, agent.Rules)}
	if endpoint.Binding == q.Binding {
		viewer.Version = q.Version
	}
	viewer.CanAnswer = askableBy(d.registry.Features(q.Binding).Asker, "", q.Form, q.CanAnswer)
	description, at, err := d.directory.DescribeFor(ctx, agent, endpoint, viewer)
	if err == nil && viewer.Listing && q.Session != "" && endpoint.Through == "" && at.Version == viewer.Version {
		at.Session, at.AnswerModes = q.Session, askableBy(d.registry.Features(q.Binding).Asker, at.Version, q.Form, q.CanAnswer)
		description = d.directory.DescribeSession(ctx, agent, at, description, viewer.Offer)
	}
	return description, err
}

// askableBy is what an agent may ask callers that use a protocol's version and form.
// can is what they say themselves, where their protocol has that.
func askableBy(asker translators.InputStyler, version, form string, can []canonical.Mode) []canonical.Mode {
	if asker == nil {
		return nil
	}
	switch asker.Asks(version, form) {
	case translators.AskNone:
		return nil
	case translators.AskTask:
		return []canonical.Mode{canonical.ModeForm, canonical.ModeURL}
	default:
		return can
	}
}

// NoticeOf is what an agent's capability document says of its future.
func NoticeOf(l directory.Lifecycle) transport.LifecycleNotice {
	if l.Status != directory.Deprecated {
		return transport.LifecycleNotice{}
	}
	return transport.LifecycleNotice{Deprecated: l.DeprecatedAt, Sunset: l.SunsetAt, Successor: l.Successor}
}

// Notice is what is known of an agent's future, to those who may call it. A server side
// asks at the end, so that whatever was learned on the way is in it.
func (d *Discovery) Notice(q transport.CallInfo) transport.LifecycleNotice {
	agent, ok := d.directory.Find(q.Agent)
	if !ok || destination.MayCall(q.Caller, agent.Rules) != nil {
		return transport.LifecycleNotice{}
	}
	return NoticeOf(d.directory.Known(agent))
}
