package consensus

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/client"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/policy/consensus"
	"github.com/aepb/aepb-gateway/policy/consensus/signed"
)

// acking is what an acknowledgement is made of.
type acking struct {
	client.Trust

	kind                                consensus.AckKind
	rationale, keep, other, coordinator string
}

func ackCommand(d Deps) *cobra.Command {
	var a acking
	cmd := &cobra.Command{
		Use: "ack ROUND received|executed|refuses|disputed|nonce", Short: "Acknowledge something in a round, signed", Args: cobra.ExactArgs(2),
		Long: "Acknowledge something in a round:\n\n" +
			"  received  the proposal was received (vote does that by itself)\n" +
			"  executed  what was agreed is done; the outcome is verified first, as aepbctl consensus verify does\n" +
			"  refuses   the outcome is not accepted, for the reason in --rationale\n" +
			"  disputed  there is another outcome of this round, in the folder that --other names\n" +
			"  nonce     open the nonce of a proposal of ours, in the file that --keep names",
		PreRunE: func(_ *cobra.Command, args []string) error {
			a.kind = consensus.AckKind(args[1])
			return a.check()
		},
		RunE: func(cmd *cobra.Command, args []string) error { return d.ack(cmd, args[0], a) },
	}
	cmd.Flags().StringVar(&a.rationale, "rationale", "", "why the outcome is refused: one line of at most 1024 bytes")
	cmd.Flags().StringVar(&a.keep, "keep", "", "the file in which propose kept the nonce")
	cmd.Flags().StringVar(&a.other, "other", "", "folder of show --save with the other outcome")
	cmd.Flags().StringVar(&a.coordinator, "coordinator", "", "who has to have signed the outcome")
	a.Trust.Add(cmd)
	return cmd
}

func (a *acking) check() error {
	known := []consensus.AckKind{consensus.Received, consensus.Executed, consensus.Refuses, consensus.Disputed, consensus.NonceOpen}
	switch {
	case !slices.Contains(known, a.kind):
		return fmt.Errorf("an acknowledgement is received, executed, refuses, disputed or nonce, not %q", a.kind)
	case a.kind == consensus.Refuses && a.rationale == "":
		return errors.New("--rationale is required of refuses")
	case a.kind == consensus.Disputed && a.other == "":
		return errors.New("--other is required of disputed: the folder with the other outcome")
	case a.kind == consensus.NonceOpen && a.keep == "":
		return errors.New("--keep is required of nonce: the file in which propose kept it")
	}
	return a.Trust.Check()
}

func (d Deps) ack(cmd *cobra.Command, id string, flags acking) error {
	ctx := cmd.Context()
	v, body, err := d.round(ctx, id)
	if err != nil {
		return err
	}
	p, err := d.proposal(ctx, flags.Trust, v)
	if err != nil {
		return err
	}
	signer, self, err := d.Signer()
	if err != nil {
		return err
	}
	out := consensus.Ack{
		Proposal: p.Content.ID, Round: p.Content.Round, Participant: self, Kind: flags.kind, Rationale: flags.rationale, Timestamp: d.Now(),
	}
	if err := d.complete(ctx, &out, v, body, flags); err != nil {
		return err
	}
	m, err := signed.Sign(signer, out)
	if err != nil {
		return err
	}
	if err := deliver(ctx, d, roundPath(id)+"/ack", m); err != nil {
		return err
	}
	done := sent{Round: id, Kind: string(flags.kind), Hash: m.Hash}
	return d.Show(cmd, done, done.print)
}

// complete adds what the kind of an acknowledgement demands.
func (d Deps) complete(ctx context.Context, a *consensus.Ack, v roundView, body []byte, flags acking) error {
	if a.Kind == consensus.Received {
		return nil
	}
	if a.Kind == consensus.NonceOpen {
		return d.openNonce(a, v, flags.keep)
	}
	if !v.decided() {
		return fmt.Errorf("the round is %s and has no outcome: there is nothing to acknowledge as %s", v.Phase, a.Kind)
	}
	o, err := d.outcome(ctx, v, flags)
	if err != nil {
		return err
	}
	a.Outcomes = []string{o.Compact}
	switch {
	case a.Kind == consensus.Disputed:
		return d.dispute(ctx, a, flags)
	case a.Kind == consensus.Executed && o.Content.Result != consensus.Commit:
		return errors.New("the outcome is an abort: what was proposed is not to be done")
	case a.Kind == consensus.Executed:
		return d.sound(ctx, v.Round, body, flags)
	}
	return nil
}

// outcome is the outcome of a round, whose signature is verified: what is not signed is evidence of nothing.
func (d Deps) outcome(ctx context.Context, v roundView, flags acking) (signed.Message[consensus.Outcome], error) {
	m, err := signed.Parse[consensus.Outcome](v.Outcome)
	if err != nil {
		return m, err
	}
	verifier, err := d.Verifier(flags.Bundle, flags.Domain)
	if err != nil {
		return m, err
	}
	if err := m.Verify(ctx, verifier); err != nil {
		return m, fmt.Errorf("the outcome is not verified as one of %s: %w", m.Content.Coordinator, err)
	}
	return m, nil
}

// sound verifies an outcome before it is acknowledged.
func (d Deps) sound(ctx context.Context, id string, body []byte, flags acking) error {
	pages, _, err := d.messages(ctx, id)
	if err != nil {
		return err
	}
	verifier, err := d.Verifier(flags.Bundle, flags.Domain)
	if err != nil {
		return err
	}
	a := audit{verifier: verifier, coordinator: ect.Identity(flags.coordinator)}
	a.run(ctx, body, pages)
	if i := slices.IndexFunc(a.findings, func(f finding) bool { return f.Status == statusFailed }); i >= 0 {
		return fmt.Errorf("the outcome does not hold (%s: %s): look at it with show --save and verify, and answer with ack %s refuses", a.findings[i].Check, a.findings[i].Found, id)
	}
	return nil
}

// dispute adds the other outcome, which has to be signed too and to say something else.
func (d Deps) dispute(ctx context.Context, a *consensus.Ack, flags acking) error {
	text, err := os.ReadFile(filepath.Join(flags.other, roundFile))
	if err != nil {
		return err
	}
	var v roundView
	if err := decode(text, &v); err != nil {
		return err
	}
	if !v.decided() {
		return fmt.Errorf("%s has no outcome", flags.other)
	}
	other, err := d.outcome(ctx, v, flags)
	if err != nil {
		return err
	}
	if other.Content.Round != a.Round {
		return fmt.Errorf("%s has the outcome of round %s, expected %s", flags.other, other.Content.Round, a.Round)
	}
	_, err = signed.Accept(other.Compact, a.Outcomes[0])
	if _, two := errors.AsType[*signed.EquivocationError](err); !two {
		return errors.Join(errors.New("both outcomes say the same: there is nothing to dispute"), err)
	}
	a.Outcomes = []string{other.Compact, a.Outcomes[0]}
	return nil
}

// openNonce takes the nonce that was kept.
func (d Deps) openNonce(a *consensus.Ack, v roundView, file string) error {
	m, err := readKept[consensus.Ack](file)
	if err != nil {
		return err
	}
	hash := ect.Hash([]byte(m.Content.Nonce))
	ours := func(c consensus.Candidate) bool { return c.Proposer == a.Participant && c.Nonce == hash }
	switch {
	case v.Phase != consensus.Drawing:
		return fmt.Errorf("the round is %s: nonces are opened while it is %s, and kept secret before", v.Phase, consensus.Drawing)
	case m.Content.Kind != consensus.NonceOpen || !slices.ContainsFunc(v.Deadlock.Candidates, ours):
		return fmt.Errorf("%s does not hold the nonce of a proposal of ours in this draw", file)
	}
	a.Nonce = m.Content.Nonce
	return nil
}
