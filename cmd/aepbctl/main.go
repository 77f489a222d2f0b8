// Command aepbctl is the tool of operators and agent developers.
package main

import (
	"context"
	"io"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/agents"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/approvals"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/client"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/consensus"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/doctor"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/evidence"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/keys"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/lifecycle"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/program"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/reference"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/rollback"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/send"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/workflow"
	"github.com/aepb/aepb-gateway/cmd/release"
	"github.com/aepb/aepb-gateway/policy/consensus/signed"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	_ = stop // a second signal, as timeout(1) sends it, does not change how a command ended that the first one ended
	os.Exit(program.Run(ctx, commands, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// commands are those of all groups.
func commands(c *client.Client) []*cobra.Command {
	return slices.Concat(agents.Commands(c), approvals.Commands(c), doctor.Commands(c), evidence.Commands(c), keys.Commands(c), lifecycle.Commands(c), reference.Commands(c),
		rollback.Commands(c), send.Commands(c), workflow.Commands(c), []*cobra.Command{consensus.Command(consensusOf(c)), versionCommand(c)})
}

func versionCommand(c *client.Client) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version, the commit and the version of Go", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := release.Current()
			return c.Show(cmd, b, func(w io.Writer) error {
				_, err := io.WriteString(w, b.Text("aepbctl"))
				return err
			})
		},
	}
}

// consensusOf is what the commands of consensus rounds use of this program.
func consensusOf(c *client.Client) consensus.Deps {
	return consensus.Deps{
		Public: c.Public, Stream: c.Stream, Signer: c.Signer,
		Operator: func(ctx context.Context, path string) ([]byte, error) {
			got, err := c.Operate(ctx, http.MethodGet, path, nil, http.StatusOK)
			return got.Body, err
		},
		Verifier: func(file, domain string) (signed.Verifier, error) {
			bundle, err := c.Anchors(file, domain)
			if err != nil {
				return nil, err
			}
			return client.Verifier(bundle)
		},
		Show: c.Show, Misuse: program.Misuse, Refused: program.ErrRefused, Now: time.Now, Wait: terminal.WaitUntil,
	}
}
