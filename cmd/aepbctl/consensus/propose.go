package consensus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/policy/consensus"
	"github.com/aepb/aepb-gateway/policy/consensus/signed"
)

// proposing are the flags of a proposal.
type proposing struct {
	group, subject, action, mechanism, resource, again, wid, keep string
	timeout, reveal                                               time.Duration
	quorum                                                        int64
	urgency                                                       int
	reversible                                                    bool
}

func proposeCommand(d Deps) *cobra.Command {
	var p proposing
	cmd := &cobra.Command{
		Use: "propose --group NAME --subject TEXT --action JSON", Short: "Propose an action to a group, and print the id of its round", Args: cobra.NoArgs,
		Long: "Propose an action to a group. The gateway is asked first who takes part, with which weights, and how small\n" +
			"a quorum may be; then the proposal is signed and a round begins. A proposal that failed is submitted again with\n" +
			"--again and its id. Where the group breaks deadlocks by a draw, --keep names a new file for the nonce of a\n" +
			"proposal about a resource: aepbctl consensus ack ROUND nonce --keep FILE opens it.",
		Example: "  aepbctl consensus propose --group ops --subject 'restart the east cluster' --action '{\"restart\": \"east\"}'\n" +
			"  aepbctl consensus propose --group ops --subject 'buy discs' --action @order.json --mechanism weighted --reveal 5m",
		PreRunE: func(*cobra.Command, []string) error { return p.check() },
		RunE:    func(cmd *cobra.Command, _ []string) error { return d.propose(cmd, p) },
	}
	f := cmd.Flags()
	f.StringVar(&p.group, "group", "", "the group that votes")
	f.StringVar(&p.subject, "subject", "", "what it is about: one line of at most 1024 bytes")
	f.StringVar(&p.action, "action", "", "the action, a JSON object, or @FILE that holds it")
	f.StringVar(&p.mechanism, "mechanism", string(consensus.Majority), "majority, weighted, leader or optimistic")
	f.DurationVar(&p.timeout, "timeout", 10*time.Minute, "for how long votes are received, with --reveal hashes of votes")
	f.DurationVar(&p.reveal, "reveal", 0, "votes are committed to first, and sent within this time after the timeout")
	f.Int64Var(&p.quorum, "quorum", 0, "a larger quorum than the smallest one: votes, under weighted weight in hundredths")
	f.StringVar(&p.resource, "resource", "", "what it is about, for competing proposals: at most one about the same is accepted")
	f.IntVar(&p.urgency, "urgency", 0, "0 to 3")
	f.BoolVar(&p.reversible, "reversible", false, "the action can be undone")
	f.StringVar(&p.again, "again", "", "submit the proposal with this id once more")
	f.StringVar(&p.wid, "wid", "", "the workflow in which the round stands")
	f.StringVar(&p.keep, "keep", "", "a new file for the nonce of a draw")
	return cmd
}

func (p *proposing) check() error {
	switch {
	case p.group == "" || p.subject == "" || p.action == "":
		return errors.New("--group, --subject and --action are required: who votes, about what, and what is done then")
	case !slices.Contains(consensus.Mechanisms(), consensus.Mechanism(p.mechanism)):
		return fmt.Errorf("--mechanism is majority, weighted, leader or optimistic, not %q", p.mechanism)
	case p.timeout < time.Second:
		return errors.New("--timeout is at least 1s")
	case p.reveal != 0 && p.reveal < time.Second:
		return errors.New("--reveal is at least 1s, after the timeout")
	case p.reveal != 0 && p.mechanism == string(consensus.Leader):
		return errors.New("--reveal does not go with --mechanism leader: a leader decides with the votes before it")
	case p.urgency < 0 || p.urgency > consensus.MaxUrgency:
		return fmt.Errorf("--urgency is 0 to %d", consensus.MaxUrgency)
	case p.quorum < 0:
		return errors.New("--quorum is not negative")
	}
	return nil
}

// actionOf is the action, from the flag or its file.
func (p *proposing) actionOf() (json.RawMessage, error) {
	text := []byte(p.action)
	if name, ok := strings.CutPrefix(p.action, "@"); ok {
		var err error
		if text, err = os.ReadFile(name); err != nil {
			return nil, err
		}
	}
	var object map[string]json.RawMessage
	if decode(text, &object) != nil || object == nil {
		return nil, errors.New("--action is a JSON object, in which no name stands twice")
	}
	return text, nil
}

// check finds what contradicts itself in what the gateway says of a group.
func (g groupView) check(name string) error {
	ids := make([]ect.Identity, len(g.Weights))
	for i, m := range g.Weights {
		ids[i] = m.ID
	}
	switch {
	case g.Group != name:
		return fmt.Errorf("the gateway answered with group %q, expected %q: tell its operator", g.Group, name)
	case !slices.Equal(slices.Sorted(slices.Values(ids)), slices.Sorted(slices.Values(g.Participants))):
		return errors.New("the gateway's table of weights is not one of the participants: tell its operator")
	case g.WeightsHash != consensus.WeightsHash(g.Weights):
		return errors.New("the gateway's hash of weights is not that of its table: tell its operator")
	}
	return nil
}

// proposal makes a proposal to a group.
func (p *proposing) proposal(g groupView, now time.Time) (consensus.Proposal, error) {
	m := consensus.Mechanism(p.mechanism)
	action, err := p.actionOf()
	if err != nil {
		return consensus.Proposal{}, err
	}
	out := consensus.Proposal{
		ID: p.again, Round: string(ect.NewID()), Mechanism: m, Subject: p.subject, Action: action, Timeout: consensus.At(now.Add(p.timeout)),
		Quorum: g.Quorum[m], Participants: g.Participants,
		Terms: consensus.Terms{Group: p.group, Resource: p.resource, Urgency: p.urgency, Reversible: p.reversible, Workflow: p.wid, Timestamp: now},
	}
	if out.ID == "" {
		out.ID = string(ect.NewID())
	}
	if p.reveal > 0 {
		out.Terms.RevealBy = consensus.At(now.Add(p.timeout + p.reveal))
	}
	if m == consensus.Weighted {
		out.Terms.Weights = g.WeightsHash
	}
	switch {
	case !slices.Contains(g.Mechanisms, m):
		return out, fmt.Errorf("the group does not decide by %s, expected --mechanism as one of %v", m, g.Mechanisms)
	case p.quorum != 0 && p.quorum < out.Quorum:
		return out, fmt.Errorf("--quorum is %d, expected at least %d", p.quorum, out.Quorum)
	case p.quorum != 0:
		out.Quorum = p.quorum
	}
	return out, nil
}

func (d Deps) propose(cmd *cobra.Command, flags proposing) error {
	ctx := cmd.Context()
	var g groupView
	if err := d.read(ctx, "/consensus/groups/"+url.PathEscape(flags.group), &g); err != nil {
		return err
	}
	if err := g.check(flags.group); err != nil {
		return err
	}
	p, err := flags.proposal(g, d.Now())
	if err != nil {
		return d.Misuse(err)
	}
	signer, self, err := d.Signer()
	if err != nil {
		return err
	}
	p.Proposer = self
	if g.Deadlock == consensus.Random && p.Terms.Resource != "" {
		if flags.keep == "" {
			return d.Misuse(errors.New("--keep is required: the group breaks deadlocks by a draw, and the nonce of this proposal has to be kept in a new file"))
		}
		nonce := string(ect.NewID())
		p.Terms.Nonce = ect.Hash([]byte(nonce))
		if err := d.keepNonce(signer, p, nonce, flags.keep); err != nil {
			return err
		}
	}
	m, err := signed.Sign(signer, p)
	if err != nil {
		return err
	}
	v, body, err := d.submit(ctx, m)
	if err != nil {
		return fmt.Errorf("%w; where the gateway took the proposal and its answer was lost, aepbctl consensus show %s shows the round", err, p.Round)
	}
	return d.Show(cmd, json.RawMessage(body), func(w io.Writer) error {
		_, err := fmt.Fprintln(w, terminal.Word(v.Round))
		return err
	})
}

func (d Deps) submit(ctx context.Context, m signed.Message[consensus.Proposal]) (v roundView, body []byte, err error) {
	text, err := json.Marshal(m)
	if err != nil {
		return v, nil, err
	}
	if body, err = d.Public(ctx, http.MethodPost, rounds, text, http.StatusCreated); err != nil {
		return v, nil, err
	}
	if err = decode(body, &v); err == nil && v.Round != m.Content.Round {
		err = fmt.Errorf("the gateway opened round %s, expected %s: tell its operator", v.Round, m.Content.Round)
	}
	return v, body, err
}

// keepNonce keeps the nonce of a proposal as the acknowledgement that opens it.
func (d Deps) keepNonce(signer *ect.Signer, p consensus.Proposal, nonce, file string) error {
	m, err := signed.Sign(signer, consensus.Ack{
		Proposal: p.ID, Round: p.Round, Participant: p.Proposer, Kind: consensus.NonceOpen, Nonce: nonce, Timestamp: d.Now(),
	})
	if err != nil {
		return err
	}
	return keep(file, m)
}

// keep writes a signed message into a new file that only we may read.
func keep[M signed.Content](file string, m signed.Message[M]) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is there: --keep names a new file", file)
	}
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	return errors.Join(err, f.Sync(), f.Close())
}

// readKept reads a message that was kept.
func readKept[M signed.Content](file string) (signed.Message[M], error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return signed.Message[M]{}, err
	}
	m, err := signed.Parse[M](text)
	if err != nil {
		return m, fmt.Errorf("%s does not hold what was kept: %w", file, err)
	}
	return m, nil
}
