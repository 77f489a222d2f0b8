package consensus

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/client"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/policy/consensus"
	"github.com/aepb/aepb-gateway/policy/consensus/signed"
)

// voting is what a vote is made of.
type voting struct {
	client.Trust

	decision        consensus.Decision
	rationale, keep string
	noWait          bool
}

func voteCommand(d Deps) *cobra.Command {
	var v voting
	cmd := &cobra.Command{
		Use: "vote ROUND approve|reject|abstain", Short: "Vote on the proposal of a round", Args: cobra.ExactArgs(2),
		Long: "Vote on the proposal of a round, after its signature was verified. That the proposal was received is acknowledged\n" +
			"first. In a round whose votes are committed to, the vote is kept in the new file that --keep names, its hash is\n" +
			"sent, and the vote once the timeout of the proposal is over. With --no-wait the same command, with the same file,\n" +
			"sends it then. A second vote that says something else makes both void, and is not sent.",
		PreRunE: func(_ *cobra.Command, args []string) error {
			v.decision = consensus.Decision(args[1])
			switch {
			case v.decision != consensus.Approve && v.decision != consensus.Reject && v.decision != consensus.Abstain:
				return fmt.Errorf("a vote is approve, reject or abstain, not %q", args[1])
			case v.decision == consensus.Reject && v.rationale == "":
				return errors.New("--rationale is required of a vote that rejects")
			}
			return v.Trust.Check()
		},
		RunE: func(cmd *cobra.Command, args []string) error { return d.vote(cmd, args[0], v) },
	}
	cmd.Flags().StringVar(&v.rationale, "rationale", "", "why: one line of at most 1024 bytes, required of reject")
	cmd.Flags().StringVar(&v.keep, "keep", "", "file for a vote that is committed to")
	cmd.Flags().BoolVar(&v.noWait, "no-wait", false, "do not wait until a vote that is committed to can be sent")
	v.Trust.Add(cmd)
	return cmd
}

// ballot is a round, and us in it.
type ballot struct {
	d     Deps
	flags voting

	round    roundView
	proposal consensus.Proposal
	signer   *ect.Signer
	self     ect.Identity
	own      own
}

// own are our messages that the gateway has.
type own struct {
	votes []signed.Message[consensus.Vote]
	acks  []signed.Message[consensus.Ack]
}

func (o own) has(kind consensus.AckKind) bool {
	return slices.ContainsFunc(o.acks, func(m signed.Message[consensus.Ack]) bool { return m.Content.Kind == kind })
}

// ownMessages are our messages in a round.
func (d Deps) ownMessages(ctx context.Context, id string, self ect.Identity) (o own, err error) {
	_, all, err := d.messages(ctx, id)
	if err != nil {
		return o, err
	}
	for _, e := range all {
		if e.Kind == "vote" {
			m, err := signed.Parse[consensus.Vote](e.Message)
			if err != nil {
				return o, err
			}
			if m.Content.Voter == self {
				o.votes = append(o.votes, m)
			}
			continue
		}
		m, err := signed.Parse[consensus.Ack](e.Message)
		if err != nil {
			return o, err
		}
		if m.Content.Participant == self {
			o.acks = append(o.acks, m)
		}
	}
	return o, nil
}

func (d Deps) vote(cmd *cobra.Command, id string, flags voting) error {
	ctx := cmd.Context()
	v, _, err := d.round(ctx, id)
	if err != nil {
		return err
	}
	m, err := d.proposal(ctx, flags.Trust, v)
	if err != nil {
		return err
	}
	b := &ballot{d: d, flags: flags, round: v, proposal: m.Content}
	if b.signer, b.self, err = d.Signer(); err != nil {
		return err
	}
	if err := b.may(); err != nil {
		return err
	}
	if b.own, err = d.ownMessages(ctx, id, b.self); err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "proposal of %s: %s: %s\n", terminal.Word(string(b.proposal.Proposer)), terminal.Line(b.proposal.Subject), terminal.Line(string(b.proposal.Action)))
	if done, err := b.before(); done.Hash != "" || err != nil {
		return b.report(cmd, done, err)
	}
	if !b.own.has(consensus.Received) {
		if err := b.acknowledge(ctx, consensus.Received, ""); err != nil {
			return err
		}
	}
	done, err := b.submit(cmd)
	return b.report(cmd, done, err)
}

func (b *ballot) report(cmd *cobra.Command, done sent, err error) error {
	if err != nil {
		return err
	}
	return b.d.Show(cmd, done, done.print)
}

// may finds what keeps us from voting.
func (b *ballot) may() error {
	switch {
	case b.round.Phase != consensus.Voting:
		return fmt.Errorf("the round is %s: votes are not received any more", b.round.Phase)
	case !slices.Contains(b.proposal.Participants, b.self) && b.round.Rules.Leader != b.self:
		return fmt.Errorf("%s is not a participant of this round: name another certificate with --cert and --key", b.self)
	case !b.proposal.Terms.RevealBy.IsZero() && b.flags.keep == "":
		return b.d.Misuse(errors.New("--keep is required: votes of this round are committed to first, and the vote has to be kept in a file until it can be sent"))
	}
	return nil
}

// before is our vote that the gateway has already.
func (b *ballot) before() (sent, error) {
	if len(b.own.votes) == 0 {
		return sent{}, nil
	}
	m := b.own.votes[0]
	if m.Content.Decision != b.flags.decision {
		return sent{}, fmt.Errorf("a vote of ours to %s is with the gateway: a second vote would make both void", m.Content.Decision)
	}
	return sent{b.round.Round, "vote", m.Hash, "it was there before, and no second one was sent"}, nil
}

func (b *ballot) acknowledge(ctx context.Context, kind consensus.AckKind, vote string) error {
	m, err := signed.Sign(b.signer, consensus.Ack{
		Proposal: b.proposal.ID, Round: b.proposal.Round, Participant: b.self, Kind: kind, Vote: vote, Timestamp: b.d.Now(),
	})
	if err != nil {
		return err
	}
	return deliver(ctx, b.d, roundPath(b.round.Round)+"/ack", m)
}

// submit sends the vote, or commits to it first.
func (b *ballot) submit(cmd *cobra.Command) (sent, error) {
	ctx, done := cmd.Context(), sent{Round: b.round.Round, Kind: "vote"}
	m, err := b.sign()
	if err != nil {
		return done, err
	}
	done.Hash = m.Hash
	if !b.proposal.Terms.RevealBy.IsZero() {
		over, err := b.commit(ctx, m)
		if err != nil {
			return done, err
		}
		if !over && b.flags.noWait {
			done.Kind, done.Note = string(consensus.Sealed), "send the vote between "+stamp(b.proposal.Timeout.Time)+" and "+stamp(b.proposal.Terms.RevealBy.Time)+" with the same command"
			return done, nil
		}
		if !over {
			if err := b.await(cmd); err != nil {
				return done, err
			}
		}
	}
	if err := deliver(ctx, b.d, roundPath(b.round.Round)+"/votes", m); err != nil {
		return done, fmt.Errorf("%w; the same command sends the vote again, and no second one", err)
	}
	return done, nil
}

// sign signs the vote, or takes the one that was kept: another signature would be another vote.
func (b *ballot) sign() (signed.Message[consensus.Vote], error) {
	vote := consensus.Vote{
		Proposal: b.proposal.ID, Round: b.proposal.Round, Voter: b.self, Decision: b.flags.decision, Rationale: b.flags.rationale,
		Timestamp: b.d.Now(), Weights: b.proposal.Terms.Weights,
	}
	if b.flags.keep != "" {
		m, err := readKept[consensus.Vote](b.flags.keep)
		switch c := m.Content; {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return m, err
		case c.Proposal != vote.Proposal || c.Round != vote.Round || c.Voter != vote.Voter:
			return m, fmt.Errorf("%s holds a vote of %s on round %s: name another file with --keep", b.flags.keep, c.Voter, c.Round)
		case c.Decision != vote.Decision:
			return m, fmt.Errorf("%s holds a vote to %s: repeat that, or remove the file if it was not committed to", b.flags.keep, c.Decision)
		default:
			return m, nil
		}
	}
	m, err := signed.Sign(b.signer, vote)
	if err == nil && b.flags.keep != "" {
		err = keep(b.flags.keep, m)
	}
	return m, err
}

// commit sends the hash of the vote, unless the gateway has it, and says whether the vote can be sent.
func (b *ballot) commit(ctx context.Context, m signed.Message[consensus.Vote]) (over bool, err error) {
	for _, a := range b.own.acks {
		if a.Content.Kind == consensus.Sealed && a.Content.Vote != m.Hash {
			return false, fmt.Errorf("the hash of another vote is with the gateway: name its file with --keep; a second hash would make both void (%s holds a vote with hash %s)", b.flags.keep, m.Hash)
		}
	}
	over = b.d.Now().After(b.ready())
	switch {
	case b.own.has(consensus.Sealed):
		return over, nil
	case b.d.Now().After(b.proposal.Timeout.Time):
		return false, fmt.Errorf("votes of this round were committed to until %s: it is too late", stamp(b.proposal.Timeout.Time))
	}
	return over, b.acknowledge(ctx, consensus.Sealed, m.Hash)
}

// ready is when a vote that is committed to can be sent: a little after the timeout, since clocks differ.
func (b *ballot) ready() time.Time {
	at := b.proposal.Timeout.Add(consensus.Grace)
	if !at.Before(b.proposal.Terms.RevealBy.Time) {
		at = b.proposal.Timeout.Time
	}
	return at
}

func (b *ballot) await(cmd *cobra.Command) error {
	until := b.ready().Add(time.Millisecond)
	fmt.Fprintf(cmd.ErrOrStderr(), "the vote is committed to, kept in %s, and sent at %s\n", terminal.Word(b.flags.keep), stamp(until))
	if err := b.d.Wait(cmd.Context(), until); err != nil {
		return fmt.Errorf("the vote was not sent: the same command sends it until %s: %w", stamp(b.proposal.Terms.RevealBy.Time), err)
	}
	return nil
}

// exists reports whether a file is there.
func exists(file string) bool {
	_, err := os.Lstat(file)
	return err == nil
}
