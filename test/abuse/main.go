package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/test/abuse/crowd"
	"github.com/aepb/aepb-gateway/test/abuse/shares"
	"github.com/aepb/aepb-gateway/test/harness/fleet"
	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

var (
	errUsage      = errors.New("abuse: usage")
	errViolations = errors.New("abuse: a good caller was harmed")
)

// The parts that run in a process of their own.
const (
	partAttack = "attack"
	partBurn   = "burn"
	partCrowd  = "crowd"
	partShares = "shares"
)

const (
	shortest    = 10 * time.Second // the attack with the slowest pace is made several times
	long        = time.Minute      // runs of at least that are judged by their latency too
	controlTime = 30 * time.Second
	shortTime   = 5 * time.Second  // in which the CPU time of the good calls is measured
	graceTime   = 20 * time.Second // for a process that should have ended
)

// options are the flags.
type options struct {
	time     time.Duration
	backend  string
	gateway  string // a program to attack; empty: what is built from this module
	evidence int    // MiB
	rss      int    // MiB
	shares   string // the identities of that act, by name
	log      bool
}

func main() {
	os.Exit(fleet.Main(errUsage, func(ctx context.Context, args []string) error {
		return run(ctx, args, os.Stdin, os.Stdout, os.Stderr)
	}))
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("abuse", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.DurationVar(&o.time, "time", 2*time.Minute, "how long each backend is attacked")
	flags.StringVar(&o.backend, "backend", "", "attack only this one: "+strings.Join(backends(), ", ")+"; or make one act alone, of the strangers who stay or of shares: "+partCrowd+", "+partShares)
	flags.StringVar(&o.gateway, "gateway", "", "the gateway's program, to see an older one fail; empty: what is built from this module")
	flags.IntVar(&o.evidence, "evidence", 0, "state.evidence_mib of the gateways; half of it is one caller's share; 0: a share that the attackers of this time overfill")
	flags.IntVar(&o.rss, "rss", 0, "the most MiB that one gateway may have resident; 0: what its configuration says, as in check-config")
	flags.StringVar(&o.shares, "identities", strings.Join(shares.Names(), ","), "which of them attack in the act of shares")
	flags.BoolVar(&o.log, "log", false, "print every call that was lost, and what the gateways say")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return o, err
		}
		return o, fmt.Errorf("%w: %w", errUsage, err)
	}
	if o.time < shortest || o.backend != "" && !slices.Contains(append(backends(), partCrowd, partShares), o.backend) || flags.NArg() > 0 || o.rss < 0 || o.evidence < 0 {
		return o, fmt.Errorf("%w: --time is at least %s, --backend one of those there are, and there are no arguments", errUsage, shortest)
	}
	known := shares.Names()
	if slices.ContainsFunc(strings.Split(o.shares, ","), func(name string) bool { return !slices.Contains(known, name) }) {
		return o, fmt.Errorf("%w: --identities %q: expected some of %s", errUsage, o.shares, strings.Join(known, ","))
	}
	if o.evidence == 0 {
		o.evidence = defaultEvidence(o.time)
	}
	return o, nil
}

// defaultEvidence is how many MiB of evidence the gateways keep: two shares. The good
// calls need half a MiB of their share a second in Redis, bookkeeping included, and a
// third of one elsewhere; the attackers send 1.4 MiB a second and so overfill theirs.
func defaultEvidence(d time.Duration) int { return 2 * int(math.Ceil(0.75*d.Seconds())+1) }

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) (err error) {
	if len(args) == 1 && args[0] == partAttack {
		return runAttack(ctx, stdin, stdout)
	}
	if len(args) == 1 && args[0] == partCrowd {
		return crowd.Attack(ctx, stdin, stdout)
	}
	if len(args) == 1 && args[0] == partShares {
		return shares.Attack(ctx, stdin, stdout)
	}
	if len(args) == 1 && args[0] == partBurn {
		var b burning
		if err := json.NewDecoder(stdin).Decode(&b); err != nil {
			return err
		}
		burn(ctx, b)
		return nil
	}
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "aepb-abuse-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	binary := o.gateway
	if binary == "" {
		if binary, err = devgateway.Build(ctx, dir); err != nil {
			return err
		}
	}
	var errs []error
	if o.backend == "" || o.backend == partCrowd {
		errs = append(errs, crowded(ctx, o, binary, dir, stdout))
	}
	for _, backend := range backends() {
		if o.backend == "" || o.backend == backend {
			errs = append(errs, perform(ctx, o, everything(ctx, o, binary, filepath.Join(dir, backend), backend), stdout))
		}
		if o.backend == "" || o.backend == backend || o.backend == partShares {
			a, err := overShares(ctx, o, binary, filepath.Join(dir, partShares+backend), backend)
			errs = append(errs, err, perform(ctx, o, a, stdout), a.release())
		}
	}
	return errors.Join(errs...)
}

// act is what is done to one backend, and how it is judged.
type act struct {
	name    string
	length  time.Duration
	begin   func(part string) (*rig, error) // for the attack, and for the control
	attack  func(ctx context.Context, r *rig, seen *observed) error
	judge   func(observed) []string
	kinds   []string // of good calls
	names   []string // of attacks
	limit   string   // of the gateway's memory, beside its bound
	release func() error
}

// everything is the act of all attacks on a gateway of a large container.
func everything(ctx context.Context, o options, binary, dir, backend string) act {
	return act{
		name: backend, length: o.time, kinds: kinds(), names: names(), judge: judge, limit: "none",
		begin: func(part string) (*rig, error) {
			return assemble(ctx, o, binary, filepath.Join(dir, part), backend, "")
		},
		attack: func(ctx context.Context, r *rig, seen *observed) error { return r.attacked(ctx, o, seen) },
	}
}

// overShares is the act of the identities that try to have more than their share.
func overShares(ctx context.Context, o options, binary, dir, backend string) (act, error) {
	a := act{
		name: "shares over " + backend, length: o.time, kinds: kinds(), names: strings.Split(o.shares, ","), judge: judgeShares,
		limit: "none", release: func() error { return nil },
	}
	if a.length < long {
		a.length = max(shortest, a.length*3/5)
	}
	var err error
	if backend == backends()[0] {
		binary, a.limit, a.release, err = contained(binary, dir)
	}
	a.begin = func(part string) (*rig, error) {
		r := &rig{limits: fmt.Sprintf("rate: %d, burst: %d", sharesRate, 2*sharesRate), members: a.names}
		return r, r.assemble(ctx, binary, filepath.Join(dir, part), backend, fmt.Sprintf("evidence_mib: %d", sharesEvidence), sharesEvidence)
	}
	a.attack = func(ctx context.Context, r *rig, seen *observed) error { return r.shared(ctx, a.length, seen) }
	return a, err
}

// The limits of the gateways of this act that are not the defaults, and the default of evidence.
const (
	sharesRate     = 1000
	sharesEvidence = 36 // MiB
)

// perform makes an act and says what came of it.
func perform(ctx context.Context, o options, a act, stdout io.Writer) error {
	backend := a.name
	seen, log, err := observe(ctx, o, a)
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", backend, err, log)
	}
	found := a.judge(seen)
	if err := table(stdout, backend, seen, found); err != nil {
		return err
	}
	if o.log || seen.ended > 0 {
		details(stdout, seen)
		fmt.Fprintln(stdout, log)
	}
	if len(found) > 0 {
		return fmt.Errorf("%w: %d violations on %s\n  %s", errViolations, len(found), backend, strings.Join(found, "\n  "))
	}
	return nil
}

// crowded makes the act of the strangers who stay, each round at a gateway of its own.
func crowded(ctx context.Context, o options, binary, dir string, stdout io.Writer) error {
	var errs []error
	for i, round := range crowd.Rounds() {
		seen, log, err := crowdedOnce(ctx, o, binary, filepath.Join(dir, partCrowd+strconv.Itoa(i)), round)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w\n%s", round.Name, err, log))
			continue
		}
		found := crowd.Judge(seen)
		errs = append(errs, crowd.Table(stdout, seen, found))
		if o.log {
			fmt.Fprintln(stdout, log)
		}
		if len(found) > 0 {
			errs = append(errs, fmt.Errorf("%w: %d violations\n  %s", errViolations, len(found), strings.Join(found, "\n  ")))
		}
	}
	return errors.Join(errs...)
}

// crowdedOnce makes one round of it.
func crowdedOnce(ctx context.Context, o options, binary, dir string, round crowd.Round) (seen crowd.Observed, log string, err error) {
	seen = crowd.Observed{Round: round, Length: crowd.Length(o.time)}
	r, err := assemble(ctx, o, binary, dir, backendMemory, round.Limits)
	defer func() { err = errors.Join(err, r.stop()) }()
	if err != nil {
		return seen, r.output(), err
	}
	c, err := newCaller(r)
	if err != nil {
		return seen, r.output(), err
	}
	defer c.http.CloseIdleConnections()
	if err := c.ready(ctx); err != nil {
		return seen, r.output(), err
	}
	honest := crowd.Deps{
		TLS: c.http.Transport.(*http.Transport).TLSClientConfig, Public: r.gateways[0].Public, Admin: r.gateways[0].Admin, Metrics: "http://" + r.metrics[0],
		Call: func(ctx context.Context, via *http.Client) error {
			return (&caller{rig: r, http: via, minter: c.minter}).once(ctx, kindTools).lost
		},
	}
	told := crowd.Order{Seconds: seen.Length.Seconds(), Addresses: round.Addresses, Public: r.public[0], Metrics: r.metrics[0], Roots: r.trust.RootsPEM()}
	limited, cancel := context.WithTimeout(ctx, crowd.Stretch*seen.Length+graceTime)
	defer cancel()
	during, enough := context.WithCancel(limited)
	defer enough()
	began := time.Now()
	// The strangers are not behind: on a busy machine they would be too few.
	most, ended, err := whilePeak(ctx, r.pids(), func() error {
		_, err := both(func() { seen.Visits = crowd.Visits(during, honest) }, func() (time.Duration, error) {
			defer enough()
			return child(limited, beside, partCrowd, told, &seen.Counts)
		})
		return err
	})
	seen.Length, seen.Peak, seen.Ended = time.Since(began), most, ended > 0
	return seen, r.output(), err
}

// observe runs the attack, and in long runs the control beside it.
func observe(ctx context.Context, o options, a act) (seen observed, log string, err error) {
	seen = observed{seconds: a.length.Seconds(), evidence: o.evidence, bound: o.rss, kinds: a.kinds, names: a.names, limit: a.limit}
	r, err := a.begin("attacked")
	defer func() { err = errors.Join(err, r.stop()) }()
	if err != nil {
		return seen, r.output(), err
	}
	if seen.bound == 0 {
		seen.bound = r.bound
	}
	seen.peak, seen.ended, err = whilePeak(ctx, r.pids(), func() error { return a.attack(ctx, r, &seen) })
	if err != nil {
		return seen, r.output(), err
	}
	if a.length >= long {
		err = control(ctx, a, &seen)
	}
	return seen, r.output(), err
}

// attacked lets the attackers and the good caller loose at the same time, and asks
// about everything afterwards.
func (r *rig) attacked(ctx context.Context, o options, seen *observed) error {
	c, err := newCaller(r)
	if err != nil {
		return err
	}
	defer c.http.CloseIdleConnections()
	if err := c.ready(ctx); err != nil {
		return err
	}
	read, err := c.place(ctx)
	if err != nil {
		return err
	}
	decided, err := c.place(ctx)
	if err != nil {
		return err
	}
	if err := c.hook(ctx, decided.Workflow); err != nil {
		return err
	}
	told, err := r.order(o, read, decided)
	if err != nil {
		return err
	}
	if err := c.beside(ctx, o.time, partAttack, told, seen); err != nil {
		return err
	}
	c.verify(ctx, seen.calls)
	seen.fetches, seen.rollbacks = r.agents.fetches.Load(), r.agents.rollbacks.Load()
	return nil
}

// beside makes the good calls while a process attacks.
func (c *caller) beside(ctx context.Context, length time.Duration, part string, input any, seen *observed) (err error) {
	limited, cancel := context.WithTimeout(ctx, length+graceTime)
	defer cancel()
	during, enough := context.WithTimeout(ctx, length)
	defer enough()
	seen.busy[0], err = whileBusy(func() (err error) {
		seen.used, err = both(func() { seen.calls = c.load(during) }, func() (time.Duration, error) { return child(limited, behind, part, input, &seen.attacks) })
		return err
	})
	return err
}

// shared lets the identities and the good caller loose at the same time.
func (r *rig) shared(ctx context.Context, length time.Duration, seen *observed) error {
	c, err := newCaller(r)
	if err != nil {
		return err
	}
	defer c.http.CloseIdleConnections()
	if err := c.ready(ctx); err != nil {
		return err
	}
	order := shares.Order{
		Seconds: length.Seconds(), Public: r.public, Gateway: r.trust.GatewayID(), Tool: toolAgent, Worker: skillAgent, Skill: work,
		Roots: r.trust.RootsPEM(), Identities: map[string]shares.Identity{},
	}
	for _, name := range seen.names {
		svid, err := r.trust.SVID(name)
		if err == nil {
			order.Identities[name], err = shares.IdentityOf(svid)
		}
		if err != nil {
			return err
		}
	}
	return c.beside(ctx, length, partShares, order, seen)
}

// control makes the same calls with a fresh gateway, beside processes that only burn
// CPU: one as much as the attackers, and one as much as the attacks cost the gateway and
// its agents, so that the machine is as busy as it was under attack.
func control(ctx context.Context, a act, seen *observed) (err error) {
	r, err := a.begin("control")
	defer func() { err = errors.Join(err, r.stop()) }()
	if err != nil {
		return err
	}
	c, err := newCaller(r)
	if err != nil {
		return err
	}
	defer c.http.CloseIdleConnections()
	if err := c.ready(ctx); err != nil {
		return err
	}
	alone, err := whileBusy(func() error {
		short, enough := context.WithTimeout(ctx, shortTime)
		defer enough()
		c.load(short)
		return nil
	})
	if err != nil {
		return err
	}
	attackers := seen.used.Seconds() / seen.seconds
	others := max(seen.busy[0]-attackers-alone, 0)
	_, reached, err := besideBurning(ctx, c, shortTime, attackers, others)
	if err != nil {
		return err
	}
	others = max(others+seen.busy[0]-reached, 0) // the calls use more CPU beside others than alone
	seen.control, seen.busy[1], err = besideBurning(ctx, c, controlTime, attackers, others)
	return err
}

// besideBurning makes the good calls while other processes burn so many CPUs: one in
// place of the attackers, and one in place of what they cost the gateway. It returns how
// many CPUs the machine had in use.
func besideBurning(ctx context.Context, c *caller, length time.Duration, attackers, others float64) (calls []call, busy float64, err error) {
	limited, cancel := context.WithTimeout(ctx, length+graceTime)
	defer cancel()
	during, enough := context.WithTimeout(ctx, length)
	defer enough()
	burn := func(niceness string, cpus float64) func() (time.Duration, error) {
		return func() (time.Duration, error) {
			return child(limited, niceness, partBurn, burning{Seconds: length.Seconds(), CPUs: cpus}, nil)
		}
	}
	busy, err = whileBusy(func() error {
		var failed error
		_, err := both(func() {
			_, failed = both(func() { calls = c.load(during) }, burn(behind, attackers))
		}, burn(beside, others))
		return errors.Join(err, failed)
	})
	return calls, busy, err
}
