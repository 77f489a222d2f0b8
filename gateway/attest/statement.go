package attest

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy/limit"
)

// Statement is evidence that covers no message: that the circuit breaker of an agent has opened, that a
// workflow begins, or that an action of it failed.
type Statement struct {
	Act      ect.Act
	Lineage  Lineage  // what it follows from; the zero value: it begins a graph of its own
	Audience []string // who may read it and, in a workflow, is a member by it; beside the gateway itself
	Input    string   // inp_hash; empty: it is about no bytes
	Output   string   // out_hash
	Ext      ect.Ext
	Holder   string         // in whose share of the store it counts, a key of policy/limit; empty: the gateway's own
	ID       ect.ID         // empty: a fresh one
	Members  []ect.Identity // whom it makes members of its workflow beside Audience
	// HoldUntil has its record kept at least until then, as [ect.Filing] says; zero: as long as usual.
	HoldUntil time.Time
}

// After is the lineage of what follows a token of the gateway's own: the same workflow, and that token as
// the only parent. After a token without a workflow, or none, a new one begins.
func After(compact string) Lineage {
	if before, _, err := ect.ParseUnverified(compact); err == nil && before.Workflow != "" {
		return Lineage{Workflow: before.Workflow, Parents: []ect.ID{before.ID}}
	}
	return Lineage{Workflow: string(ect.NewID())}
}

// Signed is a statement that was signed and perhaps not recorded yet.
type Signed struct {
	token  ect.Token
	filing ect.Filing
}

// ID is the token's jti.
func (s Signed) ID() ect.ID { return s.token.ID() }

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
	own := string(s.service.self())
	st.Ext = maps.Clone(st.Ext)
	if st.Ext == nil {
		st.Ext = ect.Ext{}
	}
	st.Ext.SetString(ect.ExtAgentVersion, s.service.deps.Version())
	st.Ext.SetString(ect.ExtGatewayID, own)
	claims := ect.Claims{
		Act: st.Act, Audience: append(slices.Clone(st.Audience), own), Workflow: st.Lineage.Workflow, Parents: st.Lineage.Parents,
		InputHash: st.Input, OutputHash: st.Output, Ext: st.Ext, ID: st.ID,
	}
	if claims.Parents == nil {
		claims.Parents = []ect.ID{}
	}
	token, err := s.service.make(ect.DialectSeed, claims)
	filing := s.filing(claims.Audience, st.Holder)
	filing.HoldUntil, filing.Members = st.HoldUntil, append(filing.Members, st.Members...)
	return Signed{token, filing}, err
}

// Record records a statement. Its errors are those of [Recording].
func (s Statements) Record(ctx context.Context, signed Signed) error {
	if _, err := s.service.deps.Recorder.Record(ctx, signed.token, signed.filing); err != nil {
		return Recording(err)
	}
	s.service.deps.Metrics.Issued(string(signed.token.Claims().Act), signed.token.Level())
	return nil
}

// errForeign reports a record whose token is not of this gateway.
var errForeign = errors.New("attest: the statement is of another issuer, expected one of this gateway's own")

// Keep records a statement that another replica of this gateway has signed, in the gateway's own share. Once
// more it does nothing. Its errors are those of the verifier and of [Recording].
func (s Statements) Keep(ctx context.Context, compact string) error {
	v, err := s.service.Verify(ctx, compact, ect.Check{Purpose: ect.Parent})
	if err != nil {
		return err
	}
	if v.Issuer() != s.service.self() {
		return errForeign
	}
	if err := s.service.deps.Recorder.Keep(ctx, v, s.filing(v.Claims().Audience, "")); err != nil {
		return Recording(err)
	}
	return nil
}

// Complete records once more, byte for byte, a statement of this gateway with a fixed id. The process that recorded it may have
// ended before the store had noted it in its workflow. Its errors are those of Keep, and *[ect.ConflictError] if the id is not that
// of a statement of this workflow.
func (s Statements) Complete(ctx context.Context, workflow string, id ect.ID) error {
	receipt, found, err := s.service.deps.Recorder.Find(ctx, ect.Ref{ID: id, Workflow: workflow, Issuer: s.service.self()})
	if err != nil {
		return Recording(err)
	}
	if !found {
		return &ect.ConflictError{ID: id}
	}
	return s.Keep(ctx, receipt.Compact())
}

// Bring verifies a statement that its issuer brings itself, and records it in the share of holder. Its errors
// are those of the verifier, *[ect.InvalidError] for a token of another issuer, and those of [Recording].
func (s Statements) Bring(ctx context.Context, compact string, issuer ect.Identity, holder string) (ect.Verified, error) {
	v, err := s.service.Verify(ctx, compact, ect.Check{Purpose: ect.Parent})
	if err != nil {
		return v, err
	}
	if v.Issuer() != issuer {
		return v, &ect.InvalidError{Reason: ect.ReasonIssuerMismatch, ID: v.ID()}
	}
	if err := s.service.deps.Recorder.Keep(ctx, v, ect.Filing{Holder: holder, ByIssuer: true}); err != nil {
		return v, Recording(err)
	}
	return v, nil
}

// filing makes those members of the statement's workflow whom it is for.
func (s Statements) filing(audience []string, holder string) ect.Filing {
	return ect.Filing{
		Holder:  cmp.Or(holder, limit.Identity(string(s.service.self()))),
		Members: s.service.deps.Members.Own(audience, ""),
	}
}

// Intent is what a caller without a token wants to have done.
type Intent struct {
	Subject Subject
	Lineage Lineage
	Input   string // hash of the message as it came
	Work    Work
}

// Work is what a caller without a token wants of which agent.
type Work struct {
	Name  string // of the tool or skill; empty: it is not known
	Agent string // its identity, or how tokens name it in audiences; empty: it is not known
}

// maxWork bounds the name of a tool or skill in an intent, in bytes.
const maxWork = 128

// say adds the work to the token that wants it. A name that is too long is left out: it would be another one.
func (w Work) say(ext ect.Ext) {
	if w.Name != "" && len(w.Name) <= maxWork {
		ext.SetString(ect.ExtWork, w.Name)
	}
	if w.Agent != "" {
		ext.SetString(ect.ExtWorkAgent, w.Agent)
	}
}

// Intent signs and records the aepb:intent of a caller that brought no token (R28), and returns its id. Its
// errors are those of [Recording], and [ect.ErrUnsignable].
func (s Statements) Intent(ctx context.Context, in Intent) (ect.ID, error) {
	service := s.service
	ext := service.ext(in.Subject)
	ext.SetString(ect.ExtGatewayID, string(service.self()))
	ext.SetBool(ect.ExtSourceUnattested, true)
	in.Work.say(ext)
	audience := []string{string(in.Subject.Caller.ID), string(service.self())}
	token, _, err := service.sign(ctx, ect.DialectSeed, ect.Claims{
		Act: ect.ActIntent, Audience: audience, Workflow: in.Lineage.Workflow, Parents: in.Lineage.Parents, InputHash: in.Input, Ext: ext,
	}, in.Subject.Permit, service.filing(in.Subject, audience))
	return token.ID(), err
}

// Answered is what an agent answered to a message of the gateway's own. It goes on to no caller: nothing is
// translated, and both hashes are of the same bytes.
type Answered struct {
	Subject Subject
	Lineage Lineage
	Pair    Pair
	Hash    string
}

// Answered signs and records that an agent answered, and returns the id of the token. Its errors are those of
// [Recording], and [ect.ErrUnsignable].
func (s Statements) Answered(ctx context.Context, a Answered) (ect.ID, error) {
	service := s.service
	audience := []string{string(service.self())}
	tr := Translation{Subject: a.Subject, Direction: Reply, Pair: a.Pair}
	token, _, err := service.sign(ctx, ect.DialectSeed, ect.Claims{
		Act: ect.ActTranslate, Audience: audience, Workflow: a.Lineage.Workflow, Parents: a.Lineage.Parents, InputHash: a.Hash, OutputHash: a.Hash,
		Ext: service.translationExt(Begin(), wordsOf(transport.Native), ect.DialectSeed, &tr, nil),
	}, a.Subject.Permit, service.filing(a.Subject, audience))
	return token.ID(), err
}
