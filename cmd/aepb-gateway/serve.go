package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/spf13/cobra"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/httpapi"
	"github.com/aepb/aepb-gateway/gateway/server"
	"github.com/aepb/aepb-gateway/gateway/telemetry"
	"github.com/aepb/aepb-gateway/lifecycle"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
	"github.com/aepb/aepb-gateway/translators/slim"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

func serveCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "serve --config FILE",
		Short: "Run a gateway in production",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serve(cmd.Context(), file, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration file (YAML)")
	if err := cmd.MarkFlagRequired("config"); err != nil {
		cmd.RunE = func(*cobra.Command, []string) error { return err }
	}
	return cmd
}

func checkConfigCommand() *cobra.Command {
	var before string
	cmd := &cobra.Command{
		Use:   "check-config FILE",
		Short: "Say what is wrong with a configuration, or that nothing is",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := checked(args[0])
			c := s.Settings
			if err == nil && before != "" {
				err = mayFollow(before, c)
			}
			if err != nil {
				return err
			}
			for _, warning := range server.Warnings(s) {
				fmt.Fprintf(cmd.OutOrStdout(), "warning: %s\n", warning)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "ok\nmemory: at most %d MiB with these bounds\n", c.MemoryBound()>>20)
			return err
		},
	}
	cmd.Flags().StringVar(&before, "before", "", "the configuration that is in force: a protocol that FILE takes from callers needs a higher major version")
	return cmd
}

// checked reads a configuration for serve, and finds every mistake in it and in the files
// that it names.
func checked(file string) (server.Config, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return server.Config{}, err
	}
	c, err := config.Parse(data)
	if !config.Readable(c) {
		return server.Config{}, fmt.Errorf("%s: %w", file, err)
	}
	s, beyond := server.Production(c, nil, slog.New(slog.DiscardHandler))
	if err = config.Place(c, err, beyond); err != nil {
		return s, fmt.Errorf("%s: %w", file, err)
	}
	return s, nil
}

// mayFollow says whether a configuration may come after another one (AEPB, Versioning).
func mayFollow(file string, after config.Config) error {
	before, err := server.ReadFile(file)
	if err != nil {
		return err
	}
	if err := lifecycle.CheckVersion(described(before.Config), described(after)); err != nil {
		return fmt.Errorf("version: %w", err)
	}
	return nil
}

// described is what the capability document of a gateway with this configuration offers.
func described(c config.Config) lifecycle.Description {
	d := lifecycle.Description{Version: cmp.Or(c.Version, version()), Protocols: []string{string(a2a.Binding), string(mcp.Binding)}, Level: int(ect.L2)}
	for protocol, spoken := range map[canonical.Binding]bool{
		a2a.Binding + " over gRPC": c.Listen.GRPC != "", uacp.Binding: c.Listen.UACP != "", ainp.Binding: c.AINP.Key != "", slim.Binding: len(c.SLIM.Nodes) > 0,
	} {
		if spoken {
			d.Protocols = append(d.Protocols, string(protocol))
		}
	}
	slices.Sort(d.Protocols) // for the error
	return d
}

func serve(ctx context.Context, file string, stdout, stderr io.Writer) (err error) {
	hangup, deaf := hangups()
	defer deaf()
	httpapi.Quiet()
	from, err := server.ReadFile(file)
	if err != nil {
		_, err = checked(file) // which finds the other mistakes too
		return err
	}
	c := from.Config
	logger := telemetry.NewLogger(stderr, c.LogLevel())
	server.LimitMemory(ctx, c, memlimit.FromCgroup, logger)
	workload, err := server.OpenWorkload(ctx, c.Identity, logger)
	if err != nil {
		return err
	}
	if workload != nil {
		defer func() { err = errors.Join(err, workload.Close()) }()
	}
	s, err := server.Production(c, workload, logger)
	if err != nil {
		return err
	}
	if s.Sockets, err = server.Listen(c.Listen.WithDefaults()); err != nil {
		return err
	}
	gateway, err := build(s)
	if err != nil {
		return err
	}
	ready(stdout, s.Sockets)
	announceGRPC(stdout, s.Sockets)
	gateway.Follow(from, hangup)
	gateway.LogStart(ctx)
	for _, warning := range server.Warnings(s) {
		logger.WarnContext(ctx, "the configuration is probably not as it is meant", slog.String("found", warning.Found), slog.String("do", warning.Remedy))
	}
	return gateway.Run(ctx)
}

// build makes a gateway of this program. On an error its sockets are closed.
func build(s server.Config) (*server.Server, error) {
	s.Program = program()
	var err error
	if s.Program.Supervisor, err = supervisor(); err != nil {
		return nil, errors.Join(err, s.Sockets.Close())
	}
	gateway, err := server.Build(s)
	if err != nil {
		return nil, errors.Join(err, s.Sockets.Close())
	}
	return gateway, nil
}

// ready says where a gateway listens.
func ready(w io.Writer, s server.Sockets) {
	a := s.Addresses()
	fmt.Fprintf(w, "ready public %s\nready admin %s\n", a.Public, a.Admin)
	if a.UACP != "" {
		fmt.Fprintf(w, "ready uacp %s\n", a.UACP)
	}
	if a.Metrics != "" {
		fmt.Fprintf(w, "ready metrics %s\n", a.Metrics)
	}
}

func announceGRPC(w io.Writer, s server.Sockets) {
	if s.GRPC != nil {
		fmt.Fprintf(w, "ready grpc %s\n", s.GRPC.Addr())
	}
}

// hangups hears SIGHUP from now on, and keeps one until the gateway follows its file. It belongs
// before anything that takes time: without it, SIGHUP ends the process.
func hangups() (signals <-chan os.Signal, stop func()) {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	return hangup, func() { signal.Stop(hangup) }
}
