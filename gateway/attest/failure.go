package attest

import (
	"context"
	"errors"
	"log/slog"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/policy"
)

// maxDescription bounds aepb.description, in bytes (R11).
const maxDescription = 256

// Failure is a message that could not be carried, or not to its end.
type Failure struct {
	Subject  Subject
	Lineage  Lineage
	Cause    error
	Input    string // hash of the message as it came
	Pair     Pair
	Unlisted bool // the caller has no part in the workflow that its message names
}

// Failure leaves an aepb:translate_error token (AEPB, Translation Failure Handling; at a
// CPAT endpoint too, since CPAT registers no act for it, R10). False: it could not be
// recorded, which is logged.
func (s *Service) Failure(ctx context.Context, t *Trail, f Failure) bool {
	p := problem.From(f.Cause)
	ext := s.ext(f.Subject)
	ext.SetString(ect.ExtGatewayID, string(s.self()))
	ext.SetString(ect.ExtSourceProtocol, string(f.Pair.From))
	ext.SetString(ect.ExtDestProtocol, string(f.Pair.To))
	ext.SetString(ect.ExtError, p.ECTError)
	if f.Pair.HashForm != "" {
		ext.SetString(ect.ExtHashForm, f.Pair.HashForm)
	}
	ext.SetString(ect.ExtDescription, bounded(problem.OnRecord(f.Cause), maxDescription))
	if why := problem.Evident(ctx, f.Cause); why != "" {
		ext.SetString(ect.ExtUpstreamReason, string(why))
	}
	if withheld, ok := errors.AsType[*policy.NotOfferedError](f.Cause); ok {
		ext.SetString(ect.ExtRule, "agents."+f.Subject.Permit.Agent()+"."+withheld.Rule)
	}
	filing := s.filing(f.Subject, nil)
	filing.Unlisted = f.Unlisted
	token, _, err := s.sign(ctx, ect.DialectSeed, ect.Claims{
		Act: ect.ActTranslateError, Audience: []string{string(f.Subject.Caller.ID), string(s.self())},
		Workflow: f.Lineage.Workflow, Parents: f.Lineage.Parents, InputHash: f.Input, Ext: ext,
	}, f.Subject.Permit, filing)
	if err != nil {
		s.deps.Logger.ErrorContext(ctx, "error evidence could not be recorded", slog.Any("error", err))
		return false
	}
	t.issued(token.Compact(), token.ID(), nil)
	return true
}

// bounded cuts a text between two characters.
func bounded(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	cut := limit
	for cut > 0 && text[cut]&0xC0 == 0x80 {
		cut--
	}
	return text[:cut]
}
