package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// stopTime bounds how long the end of the whole cluster takes.
const stopTime = time.Minute

var errUsage = errors.New("usage: cluster [--config FILE] | cluster setup DIR | cluster agent DIR NAME HOST:PORT")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	switch {
	case len(args) == 2 && args[0] == "setup":
		return setup(args[1], "https://gateway:8443", "https://gateway:9443")
	case len(args) == 4 && args[0] == "agent":
		running, err := startAgent(ctx, args[1], args[2], args[3])
		if err != nil {
			return err
		}
		<-ctx.Done()
		return ended(ctx, running.Stop)
	}
	flags := flag.NewFlagSet("cluster", flag.ContinueOnError)
	file := flags.String("config", "deploy/compose/gateway.yaml", "configuration of the replicas")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return errUsage
	}
	return up(ctx, *file, out)
}

// up runs the cluster until ctx ends.
func up(ctx context.Context, file string, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "aepb-cluster-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	c, err := start(ctx, plan{dir: dir, root: ".", config: text})
	defer func() { err = errors.Join(err, ended(ctx, c.close)) }()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "callers     %s\n", c.public)
	for _, r := range c.replicas {
		fmt.Fprintf(out, "%-11s %s  metrics http://%s/metrics\n", r.name, r.process.Public, r.metrics)
	}
	if c.prometheus == "" {
		fmt.Fprintln(out, "Prometheus  is not installed: make tools")
	} else {
		fmt.Fprintf(out, "Prometheus  %s\n", c.prometheus)
	}
	fmt.Fprintf(out, "\ngo run ./cmd/aepbctl --dir %s send calculator --tool add --args '{\"a\": 1, \"b\": 2}'\n", filepath.Join(dir, "client"))
	<-ctx.Done()
	return nil
}

// ended ends something after ctx has.
func ended(ctx context.Context, stop func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	return stop(ctx)
}
