package attest

import (
	"context"
	"errors"
	"log/slog"
	"strconv"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/sample"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/limit"
)

// maxFlushed bounds how many sources have their own last sample at the end.
const maxFlushed = 64

// Refusal leaves a sampled error token (architecture section 5): a flood of refusals must
// not become a flood of signatures. source is a key of policy/limit.
func (s *Service) Refusal(ctx context.Context, source string, cause error) {
	counted, due := s.deps.Refusals.Note(sample.Key{Source: source, Reason: problem.From(cause).Code})
	if due {
		_ = s.recordSample(ctx, counted) // logged, and counted again
	}
}

// Warn logs that a token breaks a rule of its workflow's graph, and is taken all the same.
func (s *Service) Warn(ctx context.Context, finding string, v ect.Verified) {
	s.deps.Logger.WarnContext(ctx, "a token breaks a rule of its workflow's graph", slog.String("jti", string(v.ID())), slog.String("wid", v.Workflow()), slog.String("finding", finding))
}

// Flush records what was counted and not recorded yet. Nothing is refused after it.
func (s *Service) Flush(ctx context.Context) error {
	var errs []error
	for _, counted := range s.deps.Refusals.Flush(maxFlushed) {
		errs = append(errs, s.recordSample(ctx, counted))
	}
	return errors.Join(errs...)
}

// recordSample records one sample. It testifies to no single message, so it has neither
// parents nor hashes nor a workflow.
func (s *Service) recordSample(ctx context.Context, counted sample.Sample) error {
	ctx = context.WithoutCancel(ctx)
	ext := ect.Ext{
		ect.ExtRefusals:     strconv.AppendUint(nil, counted.Count, 10),
		ect.ExtRefusedSince: strconv.AppendInt(nil, counted.Since.Unix(), 10),
	}
	audience := []string{string(s.self())}
	source, known := limit.IdentityOf(counted.Key.Source)
	if known {
		ext.SetString(ect.ExtCaller, source)
		audience = append(audience, source)
	}
	ext.SetString(ect.ExtAgentVersion, s.deps.Version())
	ext.SetString(ect.ExtGatewayID, string(s.self()))
	ext.SetString(ect.ExtError, problem.ECTInternal)
	ext.SetString(ect.ExtDescription, "requests refused without further work")
	ext.SetString(ect.ExtRefusal, counted.Key.Reason)
	token, _, err := s.sign(ctx, ect.DialectSeed, ect.Claims{Act: ect.ActTranslateError, Audience: audience, Parents: []ect.ID{}, Ext: ext},
		policy.Permit{}, ect.Filing{Holder: counted.Key.Source})
	if err != nil {
		s.deps.Refusals.Return(counted)
		s.deps.Logger.ErrorContext(ctx, "a sample of refusals could not be recorded", slog.Any("error", err))
		return err
	}
	s.deps.Logger.WarnContext(ctx, "refused", slog.String("reason", counted.Key.Reason), slog.String("source", counted.Key.Source),
		slog.Uint64("count", counted.Count), slog.String("jti", string(token.ID())))
	return nil
}
