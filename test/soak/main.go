package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/aepb/aepb-gateway/test/harness/fleet"
)

var (
	errUsage   = errors.New("soak: usage")
	errNotFlat = errors.New("soak: not flat")
)

// shortest run: below it the warm-up would eat the samples.
const shortest = 30 * time.Second

// The parts of a run.
const (
	partStreams  = "streams"
	partMixed    = "mixed"
	partEvidence = "evidence"
)

// options are the flags.
type options struct {
	time    time.Duration
	pace    time.Duration
	streams int    // per second
	rate    int    // calls per second of the one caller of the part evidence
	part    string // empty: streams and mixed
}

func main() {
	os.Exit(fleet.Main(errUsage, func(ctx context.Context, args []string) error {
		_, err := run(ctx, args, os.Stdout, os.Stderr)
		return err
	}))
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("soak", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.DurationVar(&o.time, "time", time.Hour, "how long the load lasts")
	flags.DurationVar(&o.pace, "pace", 200*time.Millisecond, "between two calls of one caller")
	flags.IntVar(&o.streams, "streams", 600, "streams per second, of all callers together")
	flags.IntVar(&o.rate, "rate", 50, "calls per second of the one caller of "+partEvidence)
	flags.StringVar(&o.part, "part", "", partStreams+", "+partMixed+" or "+partEvidence+"; default: the first two")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return o, err
		}
		return o, fmt.Errorf("%w: %w", errUsage, err)
	}
	if o.time < shortest || o.pace <= 0 || o.streams <= 0 || o.rate <= 0 || !slices.Contains([]string{"", partStreams, partMixed, partEvidence}, o.part) || flags.NArg() > 0 {
		return o, fmt.Errorf("%w: --time is at least %s, --pace, --streams and --rate positive, --part one of those there are, and there are no arguments", errUsage, shortest)
	}
	return o, nil
}

// warm is how much of the beginning is not judged: time for connections, caches
// and everything with a bound to be full.
func (o options) warm() time.Duration { return max(min(o.time/3, 10*time.Minute), shortest/2) }

// every is the distance of samples.
func (o options) every() time.Duration { return min(5*time.Second, o.time/100) }

// lifetime of ECTs: what is kept until they end is full well within the warm-up.
func (o options) lifetime() time.Duration { return max(10*time.Second, o.warm()/4) }

// summary is the line that a machine reads.
type summary struct {
	Seconds   float64          `json:"seconds"`
	Turns     map[string]int64 `json:"turns"`
	Samples   int              `json:"samples"`
	Resources []finding        `json:"resources"`
	Flat      bool             `json:"flat"`
	Error     string           `json:"error,omitempty"`
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (summary, error) {
	o, err := parse(args, stderr)
	if err != nil {
		return summary{}, err
	}
	if o.part == partEvidence {
		return summary{}, lasting(ctx, o, stdout)
	}
	if o.part != partMixed {
		if err := streams(ctx, o, stdout); err != nil || o.part == partStreams {
			return summary{}, err
		}
	}
	s, err := soak(ctx, o)
	if err != nil {
		s.Error = err.Error()
	}
	line, wrong := json.Marshal(s)
	fmt.Fprintf(stdout, "%s\n", line)
	return s, errors.Join(table(stdout, s.Resources), err, wrong)
}

func soak(ctx context.Context, o options) (s summary, err error) {
	dir, err := os.MkdirTemp("", "aepb-soak-")
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	r, err := assemble(ctx, dir, o.lifetime())
	defer func() { err = errors.Join(err, r.stop(ctx)) }()
	if err != nil {
		return s, err
	}
	samples, counts, err := r.endure(ctx, o)
	s = summary{Seconds: o.time.Seconds(), Turns: map[string]int64{}, Samples: len(samples)}
	for name, count := range counts {
		s.Turns[name] = count.Load()
		if s.Turns[name] == 0 && err == nil {
			err = fmt.Errorf("soak: %s never happened", name)
		}
	}
	if err != nil {
		return s, err
	}
	if s.Resources, err = judge(samples, o.warm()); err != nil {
		return s, err
	}
	s.Flat = true
	for _, f := range s.Resources {
		s.Flat = s.Flat && f.Flat
	}
	if !s.Flat {
		err = errNotFlat
	}
	return s, errors.Join(err, r.reloaded(ctx))
}

// endure loads and samples at the same time.
func (r *rig) endure(ctx context.Context, o options) (samples []sample, counts tally, err error) {
	loading, enough := context.WithCancel(ctx)
	defer enough()
	group, loading := errgroup.WithContext(loading)
	group.Go(func() (err error) {
		counts, err = load(loading, r.parts(o.pace, o.time/20))
		return err
	})
	group.Go(func() (err error) {
		defer enough()
		samples, err = r.measure(loading, o.every(), o.time)
		return err
	})
	err = group.Wait()
	return samples, counts, errors.Join(err, ctx.Err())
}
