// Package consensus has the commands of aepbctl for consensus rounds (draft-nennemann-agent-consensus-00, "Consensus
// Protocols"; R24, R25): propose, vote, acknowledge, read, watch and verify.
//
// A participant does not believe the gateway where it can check: a vote is signed for a proposal whose signature was
// verified, an execution is acknowledged for an outcome that was computed anew from the signed messages, and a second vote,
// which would make both void, is not sent.
//
// Texts of the gateway and of other participants are escaped before they are printed as text.
package consensus

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/program"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/policy/consensus/signed"
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
	Now     func() time.Time
	Wait    func(ctx context.Context, until time.Time) error
}

// Command makes the commands.
func Command(d Deps) *cobra.Command {
	return program.Group("consensus", "Decide together with other agents: propose, vote, acknowledge, and verify outcomes",
		groupCommand(d), proposeCommand(d), voteCommand(d), ackCommand(d), listCommand(d), showCommand(d), watchCommand(d), verifyCommand(d))
}
