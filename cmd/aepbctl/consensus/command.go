package consensus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	json2 "github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/policy/consensus"
	"github.com/aepb/aepb-gateway/policy/consensus/signed"
)

const (
	maxPages = 1000
	rounds   = "/consensus/rounds"
)

// Deps is what the commands use of the program.
type Deps struct {
	// Public calls the public listener, which answers with the status want or refuses. A nil body is not sent.
	Public func(ctx context.Context, method, path string, body []byte, want int) ([]byte, error)
	// Operator reads from the operators' listener, below /api.
	Operator func(ctx context.Context, path string) ([]byte, error)
	// Stream reads events from the public listener.
	Stream func(ctx context.Context, path string) (io.ReadCloser, error)
	// Signer is our key, and who we are.
	Signer func() (*ect.Signer, ect.Identity, error)
	// Verifier verifies signatures with the trust anchors of a bundle and its trust domain; both empty: those of the CA file.
	Verifier func(bundle, domain string) (signed.Verifier, error)

	Show    func(cmd *cobra.Command, value any, text func(io.Writer) error) error
	Misuse  func(error) error // marks an error as misuse of a command
	Refused error             // what was printed is a no
	Word    func(string) string
	Line    func(string) string
	Span    func(time.Duration) string
	Now     func() time.Time
	Wait    func(ctx context.Context, until time.Time) error
}

// trust are the flags that name trust anchors.
type trust struct{ bundle, domain string }

func (t *trust) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&t.bundle, "bundle", "", "a SPIFFE bundle (JSON) in place of the CA file; needs --trust-domain")
	cmd.Flags().StringVar(&t.domain, "trust-domain", "", "the trust domain of the trust anchors (default: the one that their certificates name, else that of --cert)")
}

func (t *trust) check() error {
	if t.bundle != "" && t.domain == "" {
		return errors.New("--bundle needs the name of its trust domain: add --trust-domain")
	}
	return nil
}

// Command makes the commands.
func Command(d Deps) *cobra.Command {
	cmd := &cobra.Command{
		Use: "consensus", Short: "Decide together with other agents: propose, vote, acknowledge, and verify outcomes", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(groupCommand(d), proposeCommand(d), voteCommand(d), ackCommand(d), listCommand(d), showCommand(d), watchCommand(d), verifyCommand(d))
	return cmd
}

func roundPath(id string) string { return rounds + "/" + url.PathEscape(id) }

// decode reads JSON of a gateway: names are exact and none stands twice.
func decode(text []byte, into any) error {
	if err := json2.Unmarshal(text, into); err != nil {
		return fmt.Errorf("the gateway's answer cannot be read: %w", err)
	}
	return nil
}

// read asks the public listener for a value.
func (d Deps) read(ctx context.Context, path string, into any) error {
	body, err := d.Public(ctx, http.MethodGet, path, nil, http.StatusOK)
	if err != nil {
		return err
	}
	return decode(body, into)
}

// round reads a round, which has to be the one that was asked for.
func (d Deps) round(ctx context.Context, id string) (v roundView, body []byte, err error) {
	if body, err = d.Public(ctx, http.MethodGet, roundPath(id), nil, http.StatusOK); err != nil {
		return v, nil, err
	}
	if err = decode(body, &v); err == nil && v.Round != id {
		err = fmt.Errorf("the gateway answered with round %s, expected %s: tell its operator", v.Round, id)
	}
	return v, body, err
}

// messages are the pages of messages of a round as they came, and what is in them.
func (d Deps) messages(ctx context.Context, id string) (bodies [][]byte, all []entry, err error) {
	path := roundPath(id) + "/votes"
	for range maxPages {
		body, err := d.Public(ctx, http.MethodGet, path, nil, http.StatusOK)
		if err != nil {
			return nil, nil, err
		}
		var p messagePage
		if err := decode(body, &p); err != nil {
			return nil, nil, err
		}
		bodies, all = append(bodies, body), append(all, p.Messages...)
		if p.Next == "" {
			return bodies, all, nil
		}
		path = roundPath(id) + "/votes?" + url.Values{"after": {p.Next}}.Encode()
	}
	return nil, nil, fmt.Errorf("the gateway lists more than %d pages of messages: tell its operator", maxPages)
}

// proposal is the proposal of a round, whose signature is verified.
func (d Deps) proposal(ctx context.Context, t trust, v roundView) (signed.Message[consensus.Proposal], error) {
	m, err := signed.Parse[consensus.Proposal](v.Proposal)
	if err != nil {
		return m, err
	}
	if m.Content.Round != v.Round {
		return m, fmt.Errorf("the proposal is that of round %s, expected %s: tell the gateway's operator, and do not vote", m.Content.Round, v.Round)
	}
	verifier, err := d.Verifier(t.bundle, t.domain)
	if err != nil {
		return m, err
	}
	if err := m.Verify(ctx, verifier); err != nil {
		return m, fmt.Errorf("the proposal is not verified as one of %s: %w: name its trust anchors with --bundle and --trust-domain, or do not vote", m.Content.Proposer, err)
	}
	return m, nil
}

// sent is the answer to a message that was taken.
type sent struct {
	Round string `json:"round"`
	Kind  string `json:"kind"` // vote, or the kind of acknowledgement
	Hash  string `json:"hash"`
	Note  string `json:"note,omitempty"` // what else there is to do
}

func (s sent) print(d Deps) func(io.Writer) error {
	return func(w io.Writer) error {
		note := ""
		if s.Note != "" {
			note = ": " + d.Line(s.Note)
		}
		_, err := fmt.Fprintf(w, "%s of round %s is with the gateway, hash %s%s\n", d.Word(s.Kind), d.Word(s.Round), d.Word(s.Hash), note)
		return err
	}
}

// deliver sends a signed message, which the gateway has to name by the same hash.
func deliver[M signed.Content](ctx context.Context, d Deps, path string, m signed.Message[M]) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	body, err := d.Public(ctx, http.MethodPost, path, text, http.StatusAccepted)
	if err != nil {
		return err
	}
	var got struct {
		Hash string `json:"hash"`
	}
	if err := decode(body, &got); err != nil {
		return err
	}
	if got.Hash != m.Hash {
		return fmt.Errorf("the gateway took a message with hash %s, expected %s: tell its operator", got.Hash, m.Hash)
	}
	return nil
}
