// Command aepb-gateway is the translation gateway.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/trial"
	"github.com/aepb/aepb-gateway/cmd/release"
	"github.com/aepb/aepb-gateway/gateway/server"
	"github.com/aepb/aepb-gateway/gateway/state/redis"
	"github.com/aepb/aepb-gateway/gateway/transport/stdio"
)

// version stands in the gateway's capability document and in every ECT that it signs.
func version() string { return release.Current().Version }

// program is this one.
func program() server.Program {
	return server.Program{Version: version(), Commit: release.Current().Commit}
}

// Exit codes other than 0.
const (
	exitFailed = 1
	exitUsage  = 2
)

// sameSignal is how long after a signal another one counts as the same.
const sameSignal = 500 * time.Millisecond

func main() {
	if len(os.Args) > 1 && os.Args[1] == superviseCommand {
		os.Exit(stdio.Supervise(os.Args[2:]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	// A second signal ends the process at once, but not one that comes with the first: timeout(1) sends two.
	context.AfterFunc(ctx, func() { time.AfterFunc(sameSignal, stop) })
	redis.Quiet()
	started := false
	used, err := command(&started).ExecuteContextC(ctx)
	stop()
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "aepb-gateway:", err)
	if !started {
		fmt.Fprintf(os.Stderr, "usage: %s\nsee %s --help\n", used.UseLine(), used.CommandPath())
		os.Exit(exitUsage)
	}
	os.Exit(exitFailed)
}

// superviseCommand is the role of this program in which it runs another one for the
// gateway. It is for the gateway alone.
const superviseCommand = "supervise-program"

// supervisor is the command of that role.
func supervisor() ([]string, error) {
	path, err := os.Executable()
	return []string{path, superviseCommand}, err
}

// command builds the tree. started becomes true when a command begins its work:
// what fails before is misuse.
func command(started *bool) *cobra.Command {
	root := &cobra.Command{
		Use:           "aepb-gateway",
		Short:         "Translate between agent protocols and leave signed proof of every translation",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		// Without it, cobra takes the name of a command that does not exist for
		// a question.
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	release.Flag(root)
	release.Manual(root)
	root.AddCommand(serveCommand(), checkConfigCommand(), trial.Command(shellWord), devCommand(), demoCommand(), versionCommand())
	for _, cmd := range root.Commands() {
		work := cmd.RunE
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			*started = true
			return work(cmd, args)
		}
	}
	return root
}

func versionCommand() *cobra.Command {
	output := "text"
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version, the commit and the version of Go",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			build := release.Current()
			text := build.Text("aepb-gateway")
			switch output {
			case "text":
			case "json":
				text = build.JSON()
			default:
				return fmt.Errorf("-o is text or json, not %q", output)
			}
			_, err := io.WriteString(cmd.OutOrStdout(), text)
			return err
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", output, "text or json")
	return cmd
}
