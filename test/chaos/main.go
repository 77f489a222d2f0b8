package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/test/harness/fleet"
	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

var (
	errUsage = errors.New("chaos: usage")
	errLies  = errors.New("chaos: somebody was told a lie")
)

// shortest act: a gateway must die in it more than once.
const shortest = 15 * time.Second

// options are the flags.
type options struct {
	time time.Duration
	act  string
	log  bool
}

func main() {
	os.Exit(fleet.Main(errUsage, func(ctx context.Context, args []string) error {
		return run(ctx, args, os.Stdout, os.Stderr)
	}))
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.DurationVar(&o.time, "time", 5*time.Minute, "how long the load of each act lasts")
	flags.StringVar(&o.act, "act", "", "play only this one: replicas, redis, cluster, rolling, approvals, rollbacks or consensus")
	flags.BoolVar(&o.log, "log", false, "print every call that did not end right, and what the gateways say")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return o, err
		}
		return o, fmt.Errorf("%w: %w", errUsage, err)
	}
	known := o.act == "" || slices.ContainsFunc(acts(), func(a act) bool { return a.name == o.act })
	if o.time < shortest || !known || flags.NArg() > 0 {
		return o, fmt.Errorf("%w: --time is at least %s, --act one of those there are, and there are no arguments", errUsage, shortest)
	}
	return o, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "aepb-chaos-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	programs, err := devgateway.BuildAll(ctx, dir)
	if err != nil {
		return err
	}
	binary := filepath.Join(programs, "aepb-gateway")
	var errs []error
	for _, a := range acts() {
		if o.act == "" || o.act == a.name {
			errs = append(errs, perform(ctx, a, binary, filepath.Join(dir, a.name), o, stdout))
		}
	}
	return errors.Join(errs...)
}

// perform plays an act and says what came of it.
func perform(ctx context.Context, a act, binary, dir string, o options, stdout io.Writer) error {
	rep, err := play(ctx, a, binary, dir, o.time)
	switch {
	case err != nil:
		rep.Error = err.Error()
	case len(rep.Lies) > 0:
		err = fmt.Errorf("%w: %s", errLies, rep.told())
	default:
		rep.Honest = true
	}
	line, wrong := json.Marshal(rep)
	shown := rep.table(stdout)
	fmt.Fprintf(stdout, "%s\n", line)
	if o.log {
		rep.details(stdout)
	}
	return errors.Join(err, shown, wrong)
}
