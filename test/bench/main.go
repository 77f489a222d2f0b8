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
	"strconv"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/test/bench/lasting"
	"github.com/aepb/aepb-gateway/test/harness/fleet"
	"github.com/aepb/aepb-gateway/test/harness/profile"
)

// childVariable holds the role of a process that the benchmark started itself.
const childVariable = "AEPB_BENCH_CHILD"

// exchangeName is the one exchange that is measured.
const exchangeName = "exchange"

// options are the flags.
type options struct {
	json    bool
	only    string
	seconds float64
	rounds  int
	cases   []string
	with    string
	against string
	profile string
	http2   bool
	procs   []int // GOMAXPROCS of more gateways beside the bridge
}

func main() {
	if role := os.Getenv(childVariable); role != "" {
		if err := profile.Watch(); err != nil {
			say(os.Stderr, err.Error())
		}
		os.Exit(fleet.ExitCode(serveChild(role, os.Stdin, os.Stdout), errUsage))
	}
	os.Exit(fleet.Main(errUsage, func(ctx context.Context, args []string) error { return run(ctx, args, os.Stdout, os.Stderr) }))
}

// say tells a human something; if nobody can be told, nobody is.
func say(w io.Writer, text string) { _, _ = io.WriteString(w, text+"\n") }

var errUsage = errors.New("bench: usage")

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	var cases, procs string
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.BoolVar(&o.json, "json", false, "print the runs as one JSON document")
	flags.StringVar(&o.only, "only", "", "measure only this: "+strings.Join(names(), ", "))
	flags.Float64Var(&o.seconds, "seconds", 10, "seconds per case and concurrency, over all rounds")
	flags.IntVar(&o.rounds, "rounds", 7, "rounds; fewer than 7 compare nothing")
	flags.StringVar(&cases, "cases", strings.Join(caseNames(), ","), "cases of the exchange to run; "+bridgeName+" alone: the gateway beside a bridge of the official SDKs")
	flags.StringVar(&procs, "procs", "", "with --cases "+bridgeName+": GOMAXPROCS of more gateways, such as 1,2,8")
	flags.StringVar(&o.with, "with", "", "of the pairs, only those with this protocol, such as "+slimBinding)
	flags.StringVar(&o.against, "against", "", "binary of another build of the gateway, which takes turns with this one in the exchange and the pairs")
	flags.BoolVar(&o.http2, "http2", false, "callers of the exchange speak HTTP/2, also to the other cases")
	flags.StringVar(&o.profile, "profile", "", "folder for profiles of each case of the exchange: CPU, allocations, locks")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return o, err
		}
		return o, fmt.Errorf("%w: %w", errUsage, err)
	}
	if o.cases = strings.Split(cases, ","); cases == bridgeName {
		return o, o.besideBridge(procs, flags.NArg())
	}
	if procs != "" {
		return o, fmt.Errorf("%w: --procs is for --cases %s", errUsage, bridgeName)
	}
	for _, name := range o.cases {
		if name == bridgeName {
			return o, fmt.Errorf("%w: %s is measured alone, without other --cases", errUsage, bridgeName)
		}
		if !slices.Contains(caseNames(), name) {
			return o, fmt.Errorf("%w: no case %q", errUsage, name)
		}
	}
	if o.against != "" {
		o.cases = append(o.cases, formerName)
	}
	if o.only != "" && !slices.Contains(names(), o.only) {
		return o, fmt.Errorf("%w: no measurement %q; there are %q", errUsage, o.only, names())
	}
	if o.with != "" && o.with != slimBinding && !slices.Contains(bindings(), o.with) {
		return o, fmt.Errorf("%w: no protocol %q", errUsage, o.with)
	}
	return o, o.positive(flags.NArg())
}

func (o *options) positive(arguments int) error {
	if o.seconds <= 0 || o.rounds < 1 || arguments > 0 {
		return fmt.Errorf("%w: --seconds and --rounds must be positive, and there are no arguments", errUsage)
	}
	return nil
}

// besideBridge reads the flags of the comparison with the bridge, which is measured alone.
func (o *options) besideBridge(procs string, arguments int) error {
	if o.only != "" && o.only != exchangeName || o.with != "" || o.profile != "" {
		return fmt.Errorf("%w: --cases %s goes without --only, --with and --profile", errUsage, bridgeName)
	}
	o.only = bridgeName
	for _, text := range strings.FieldsFunc(procs, func(r rune) bool { return r == ',' }) {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || slices.Contains(o.procs, n) {
			return fmt.Errorf("%w: --procs lists different numbers of at least 1, not %q", errUsage, procs)
		}
		o.procs = append(o.procs, n)
	}
	return o.positive(arguments)
}

// names are all measurements.
func names() []string {
	return append([]string{exchangeName, lasting.BreakerName, refusalName, pairsName}, lasting.Names()...)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, o.limit())
	defer cancel()
	var d document
	if o.only == "" || o.only == exchangeName {
		if d, err = measure(ctx, o, stderr); err != nil {
			return err
		}
	}
	if o.only == "" || o.only == refusalName {
		if d.Refusals, err = measureRefusal(ctx, o, stderr); err != nil {
			return err
		}
	}
	if o.only == "" || o.only == pairsName {
		if d.Pairs, err = measurePairs(ctx, o, stderr); err != nil {
			return err
		}
	}
	if o.only == bridgeName {
		if d.Bridges, err = measureBridges(ctx, o, stderr); err != nil {
			return err
		}
	}
	chosen := slices.DeleteFunc(lasting.Names(), func(name string) bool { return o.only != "" && o.only != name })
	if d.Lasting, err = lasting.Run(ctx, chosen, lasting.Full()); err != nil {
		return err
	}
	if o.only == "" || o.only == lasting.BreakerName {
		figures, err := lasting.Breaker(ctx)
		if err != nil {
			return err
		}
		d.Lasting = append(figures, d.Lasting...)
	}
	d.Raised = raises(o.only)
	if o.json {
		return json.NewEncoder(stdout).Encode(d)
	}
	if err := table(stdout, d); err != nil || o.against == "" || len(d.Runs) == 0 {
		return err
	}
	return block(stdout, "medians of the per-round ratios to "+formerName, "%.3f", d.Runs, ratioTo(formerName))
}

// limit is far more than a run can need: minting ECTs takes about as long as
// using them, building the gateway a minute at most.
func (o options) limit() time.Duration {
	protocols := len(bindings()) + 1 // and that of SLIM
	loaded := o.seconds * float64(max(len(o.cases), len(directions())*len(o.sides()))*len(concurrencies()))
	loaded += min(pairSpan, o.seconds/float64(o.rounds)) * float64(4*pairSlices*o.rounds*protocols*(protocols-1))
	return 10*time.Minute + time.Duration(4*loaded*float64(time.Second))
}

func measurePairs(ctx context.Context, o options, progress io.Writer) (all []pair, err error) {
	dir, err := os.MkdirTemp("", "aepb-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	return pairRounds(ctx, dir, o, progress)
}

func measure(ctx context.Context, o options, progress io.Writer) (d document, err error) {
	dir, err := os.MkdirTemp("", "aepb-bench-")
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if o.profile != "" {
		if err := os.MkdirAll(o.profile, 0o700); err != nil {
			return d, err
		}
	}
	c, err := assemble(ctx, dir, o)
	defer func() { err = errors.Join(err, c.stop(ctx)) }()
	if err != nil {
		return d, err
	}
	if d.Idle, err = c.idle(); err != nil {
		return d, err
	}
	if d.Runs, err = c.rounds(ctx, o, progress); err == nil && o.profile != "" {
		err = c.collect(ctx, o.profile)
	}
	return d, err
}
