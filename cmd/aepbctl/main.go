// Command aepbctl is the tool of operators and agent developers.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/consensus"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/cmd/release"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/policy/consensus/signed"
)

// The exit codes of the contract.
const (
	exitOK = iota
	exitFailed
	exitUsage
)

// errRefused: the answer was printed, and it was a no.
var errRefused = errors.New("refused")

// usageError is misuse that a command finds after its work has begun.
type usageError struct{ error }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	_ = stop // a second signal, as timeout(1) sends it, does not change how a command ended that the first one ended
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	started := false
	root := command(&started) //nolint:contextcheck // cobra hands the context to the commands
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	used, err := root.ExecuteContextC(ctx)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errRefused):
		return exitFailed
	case !started, errors.As(err, new(*usageError)):
		terminal.Complain(stderr, err)
		fmt.Fprintf(stderr, "usage: %s\nsee %s --help\n", used.UseLine(), used.CommandPath())
		return exitUsage
	default:
		terminal.Complain(stderr, err)
		return exitFailed
	}
}

// command builds the tree. started becomes true when a command begins its work:
// what fails before is misuse.
func command(started *bool) *cobra.Command {
	var t target
	root := &cobra.Command{
		Use:           "aepbctl",
		Short:         "Operate an AEPB gateway, send through it, and check what it proves",
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			if t.output != "text" && t.output != "json" {
				return fmt.Errorf("-o is text or json, not %q", t.output)
			}
			return nil
		},
		Args: cobra.NoArgs,
		RunE: help,
	}
	release.Flag(root)
	release.Manual(root)
	flags := root.PersistentFlags()
	flags.StringVar(&t.dir, "dir", ".aepb", "folder of a development gateway")
	flags.StringVar(&t.gateway, "gateway", "", "public URL of the gateway (default: the one in --dir)")
	flags.StringVar(&t.admin, "admin", "", "admin URL of the gateway (default: the one in --dir)")
	flags.StringVar(&t.cert, "cert", "", "our certificate chain, PEM (default: client.pem in --dir)")
	flags.StringVar(&t.key, "key", "", "our private key, PEM (default: client-key.pem in --dir)")
	flags.StringVar(&t.ca, "ca", "", "trust anchors, PEM (default: ca.pem in --dir)")
	flags.StringVarP(&t.output, "output", "o", "text", "text or json")
	root.AddCommand(agentsCommand(&t), processesCommand(&t), negotiateCommand(&t), sendCommand(&t), translateCommand(&t), ectCommand(&t), evidenceCommand(&t), dagCommand(&t), workflowCommand(&t), bindingsCommand(&t), healthzCommand(&t), doctorCommand(&t), breakersCommand(&t), lifecycleCommand(&t), approvalsCommand(&t), checkpointsCommand(&t), rollbackCommand(&t), consensus.Command(consensusOf(&t)),
		lossesCommand(&t), versionCommand(&t))
	mark(root, started)
	return root
}

// mark has every command below cmd tell when it begins its work. PreRunE and
// the flag rules of cobra come before that, PersistentPreRunE before those.
func mark(cmd *cobra.Command, started *bool) {
	for _, sub := range cmd.Commands() {
		mark(sub, started)
	}
	if work := cmd.RunE; work != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			*started = true
			return work(cmd, args)
		}
	}
}

// help is what a command does that only holds others. Without it, cobra takes
// the name of a command that does not exist for a question.
func help(cmd *cobra.Command, _ []string) error { return cmd.Help() }

func versionCommand(t *target) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version, the commit and the version of Go", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := release.Current()
			return t.show(cmd, b, func(w io.Writer) error {
				_, err := io.WriteString(w, b.Text("aepbctl"))
				return err
			})
		},
	}
}

// consensusOf is what the commands of consensus rounds use of this program.
func consensusOf(t *target) consensus.Deps {
	return consensus.Deps{
		Public: func(ctx context.Context, method, path string, body []byte, want int) ([]byte, error) {
			return publicOf(ctx, t, method, path, body, want)
		},
		Operator: func(ctx context.Context, path string) ([]byte, error) {
			got, err := t.operate(ctx, http.MethodGet, path, nil, http.StatusOK)
			return got.body, err
		},
		Stream: func(ctx context.Context, path string) (io.ReadCloser, error) { return streamOf(ctx, t, path) },
		Signer: func() (*ect.Signer, ect.Identity, error) {
			svid, err := t.svid()
			if err != nil {
				return nil, "", err
			}
			signer, err := t.signer()
			return signer, svid.ID, err
		},
		Verifier: func(file, domain string) (signed.Verifier, error) {
			bundle, err := t.anchors(file, domain)
			if err != nil {
				return nil, err
			}
			return verifierOf(bundle)
		},
		Show: t.show, Misuse: func(err error) error { return &usageError{err} }, Refused: errRefused,
		Word: terminal.Word[string], Line: terminal.Line, Span: terminal.Duration, Now: time.Now, Wait: waitUntil,
	}
}

// waitUntil returns at a moment, or earlier with the error of the context.
func waitUntil(ctx context.Context, at time.Time) error {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
