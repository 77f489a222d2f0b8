// Package program runs aepbctl: it builds the tree of its commands, and turns how a command ends into an exit code.
package program

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/client"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/cmd/release"
)

// The exit codes of the contract.
const (
	ExitOK = iota
	ExitFailed
	ExitUsage
)

// ErrRefused: the answer was printed, and it was a no.
var ErrRefused = errors.New("refused")

// usageError is misuse that a command finds after its work has begun.
type usageError struct{ error }

// Misuse marks an error as misuse of a command.
func Misuse(err error) error { return &usageError{err} }

// Run runs the command that args name, of those that groups make, and returns its exit code.
func Run(ctx context.Context, groups func(*client.Client) []*cobra.Command, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	started := false
	root := tree(groups, &started)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	used, err := root.ExecuteContextC(ctx)
	switch {
	case err == nil:
		return ExitOK
	case errors.Is(err, ErrRefused):
		return ExitFailed
	case !started, errors.As(err, new(*usageError)):
		terminal.Complain(stderr, err)
		fmt.Fprintf(stderr, "usage: %s\nsee %s --help\n", used.UseLine(), used.CommandPath())
		return ExitUsage
	default:
		terminal.Complain(stderr, err)
		return ExitFailed
	}
}

// tree builds the tree. started becomes true when a command begins its work: what fails before is misuse.
func tree(groups func(*client.Client) []*cobra.Command, started *bool) *cobra.Command {
	var c client.Client
	root := Group("aepbctl", "Operate an AEPB gateway, send through it, and check what it proves", groups(&c)...)
	root.SilenceUsage, root.SilenceErrors = true, true
	root.PersistentPreRunE = func(*cobra.Command, []string) error {
		if c.Output != "text" && c.Output != "json" {
			return fmt.Errorf("-o is text or json, not %q", c.Output)
		}
		return nil
	}
	release.Flag(root)
	release.Manual(root)
	c.Add(root.PersistentFlags())
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

// Group is a command that only holds others. It prints its help: without that, cobra takes the name of a command
// that does not exist for a question.
func Group(use, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(commands...)
	return cmd
}
