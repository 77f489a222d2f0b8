package ainp

import (
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/profile"
)

// fit gives an invocation the shape that AINP has for it.
func (e *encoder) fit() error {
	if e.m.Phase != canonical.PhaseRequest {
		return nil
	}
	if !e.socket && (e.m.Preferences.Stream || e.m.Preferences.CanAnswer != nil) {
		e.decline()
	}
	invoke, ok := e.m.Body.(*canonical.Invoke)
	if !ok || e.home() || e.capability == nil {
		return nil
	}
	return e.profiled(invoke)
}

// decline leaves out preferences that cannot be met: without a connection that
// stays open there is one answer, and no input request.
func (e *encoder) decline() {
	m := *e.m
	if m.Preferences.Stream {
		e.losses = append(e.losses, canonical.Loss{Code: canonical.LossStatusUpdates, Path: "/preferences/stream", Fate: canonical.Dropped})
	}
	if m.Preferences.CanAnswer != nil {
		e.losses = append(e.losses, canonical.Loss{Code: canonical.LossPeerInfo, Path: "/preferences/canAnswer", Fate: canonical.Dropped})
	}
	m.Preferences.Stream, m.Preferences.CanAnswer = false, nil
	e.m = &m
}

// profiled applies the invocation profiles: the arguments of a tool that takes a
// message are a note (P1), and a note for a tool with one required text is its
// argument (P3).
func (e *encoder) profiled(invoke *canonical.Invoke) error {
	m, next := *e.m, *invoke
	switch {
	case invoke.Call != nil && len(invoke.Turn.Parts) == 0 && e.capability.Profile == canonical.ProfileMessage:
		turn, err := profile.TurnOf(invoke, e.capability)
		if err != nil {
			return err
		}
		next.Call, next.Turn, next.Extensions = nil, turn.Content, turn.Extensions
		if turn.Conversation.ContextID != "" {
			m.Conversation.ContextID = turn.Conversation.ContextID
		}
		if turn.Conversation.TaskID != "" {
			m.Conversation.TaskID = turn.Conversation.TaskID
		}
		e.losses = append(e.losses, turn.Losses...)
	case invoke.Call == nil && e.capability.Profile == canonical.ProfileTyped && e.capability.InputSchema != nil && len(invoke.Answers) == 0:
		args, _, _, ok := profile.BindTurn(&invoke.Turn, e.capability.InputSchema)
		if !ok {
			return &canonical.Error{
				Code: canonical.CodeBadParams, Schema: e.capability.InputSchema,
				Message: "this service takes arguments: send one data part {\"skill\": …, \"input\": …} that matches its schema",
			}
		}
		next.Call = &canonical.Call{Name: e.capability.ID, Args: args}
	default:
		return nil
	}
	m.Body, e.m = &next, &m
	return nil
}
