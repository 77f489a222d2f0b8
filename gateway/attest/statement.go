package attest

import (
	"context"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/policy/limit"
)

// Statement is evidence about an agent and not about a message: that its circuit breaker has
// opened, for example.
type Statement struct {
	Act ect.Act
	Ext ect.Ext
}

// Signed is a statement that was signed and perhaps not recorded yet.
type Signed struct{ token ect.Token }

// Compact is the token.
func (s Signed) Compact() string { return s.token.Compact() }

// Statements signs and records statements.
type Statements struct{ service *Service }

// Statements are those of this service.
func (s *Service) Statements() Statements { return Statements{s} }

// State signs a statement and records it, and returns the token. Its errors are those of
// [Recording], and those of the signer.
func (s Statements) State(ctx context.Context, st Statement) (compact string, err error) {
	signed, err := s.Sign(ctx, st)
	if err != nil {
		return "", err
	}
	return signed.Compact(), s.Record(ctx, signed)
}

// Sign signs a statement. What is told to others must be recorded: [Statements.Record], or
// [Statements.Keep] by a process that goes on where another has ended before that.
func (s Statements) Sign(_ context.Context, st Statement) (Signed, error) {
	st.Ext.SetString(ect.ExtAgentVersion, s.service.deps.Version())
	st.Ext.SetString(ect.ExtGatewayID, string(s.service.self()))
	token, err := s.service.make(ect.DialectSeed, ect.Claims{Act: st.Act, Audience: []string{string(s.service.self())}, Parents: []ect.ID{}, Ext: st.Ext})
	return Signed{token}, err
}

// Record records a statement, in this gateway's own share. Its errors are those of [Recording].
func (s Statements) Record(ctx context.Context, signed Signed) error {
	if _, err := s.service.deps.Recorder.Record(ctx, signed.token, s.filing()); err != nil {
		return Recording(err)
	}
	s.service.deps.Metrics.Issued(string(signed.token.Claims().Act), signed.token.Level())
	return nil
}

// Keep records a statement that another replica of this gateway has signed. Once more it does
// nothing. Its errors are those of the verifier and of [Recording].
func (s Statements) Keep(ctx context.Context, compact string) error {
	v, err := s.service.Verify(ctx, compact, ect.Check{Purpose: ect.Parent})
	if err != nil {
		return err
	}
	if err := s.service.deps.Recorder.Keep(ctx, v, s.filing()); err != nil {
		return Recording(err)
	}
	return nil
}

// filing: statements count in this gateway's own share.
func (s Statements) filing() ect.Filing {
	return ect.Filing{Holder: limit.Identity(string(s.service.self()))}
}
