package main

import (
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// observed is everything that is judged.
type observed struct {
	seconds   float64  // of the attack
	kinds     []string // of the good calls
	names     []string // of the attacks
	limit     string   // of the gateways' memory, beside the bound
	evidence  int      // MiB that the gateways keep
	calls     []call
	control   []call // without attackers; none: latency is not judged
	attacks   counts
	used      time.Duration // CPU of the attackers
	busy      [2]float64    // CPUs that the machine had in use for anything, under attack and in the control
	peak      int           // MiB of the gateway that had the most
	bound     int
	ended     int   // gateways that are no more
	fetches   int64 // that strangers made the gateway send
	rollbacks int64 // that the gateway asked an agent for
}

const (
	mostSlower  = 3    // times the control's p99
	leastOK     = 0.99 // of the good calls, beside those who want more than their share
	leastCalls  = 0.9  // of the calls that the pace makes
	shownDetail = 20
)

// complaint is a violation that was found.
type complaint func(format string, args ...any)

// judge finds the violations.
func judge(o observed) []string {
	var found []string
	say := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	o.proved(say)
	for _, kind := range o.kinds {
		s := o.summary(kind)
		if s.lost > 0 {
			say("%s: %d of %d calls were lost, the first: %v", kind, s.lost, s.made, s.firstLost)
		}
		if s.missing > 0 {
			say("%s: the evidence of %d of %d calls is gone, the first: %s", kind, s.missing, s.asked, s.firstMissing)
		}
	}
	if s := o.attacks[attackEvidence]; len(s) > 0 && s[classTaken]+s[classError] == 0 {
		say("attack %s: none was taken: no evidence was pushed out", attackEvidence)
	}
	for _, name := range []string{attackEndless, attackForgedRead, attackForgedHook, attackForgedRollback, attackForgedDecision} {
		if n := o.attacks[name][classTaken]; n > 0 {
			say("attack %s: %d were taken", name, n)
		}
	}
	if o.rollbacks > 0 {
		say("attack %s: an agent was asked %d times to undo the good caller's work", attackForgedRollback, o.rollbacks)
	}
	if o.fetches > 0 {
		say("attack %s: strangers made the gateway fetch %d times from an agent", attackDIDWeb, o.fetches)
	}
	o.standing(say)
	return found
}

// judgeShares finds the violations where identities want more than their share.
func judgeShares(o observed) []string {
	var found []string
	say := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	o.proved(say)
	var all summary
	for _, kind := range kinds() {
		s := o.summary(kind)
		all.made, all.lost = all.made+s.made, all.lost+s.lost
		if all.firstLost == nil {
			all.firstLost = s.firstLost
		}
	}
	if float64(all.made-all.lost) < leastOK*float64(all.made) {
		say("%d of %d good calls were lost, the first: %v", all.lost, all.made, all.firstLost)
	}
	o.standing(say)
	return found
}

// proved complains of calls and attacks that were not made.
func (o observed) proved(say complaint) {
	if want := leastCalls * o.seconds / callEvery.Seconds(); float64(o.paced()) < want {
		say("only %d of the good calls were made, want %.0f: nothing was proved", o.paced(), want)
	}
	for _, kind := range o.kinds {
		if o.summary(kind).made == 0 {
			say("%s: no call was made: nothing was proved", kind)
		}
	}
	for _, name := range o.names {
		tries := 0
		for _, n := range o.attacks[name] {
			tries += n
		}
		if tries == 0 {
			say("attack %s: it was never made: nothing was proved", name)
		}
	}
}

// standing complains of what the gateways are in the end, and of how slow they were.
func (o observed) standing(say complaint) {
	if o.ended > 0 {
		say("%d gateways have ended", o.ended)
	}
	if o.peak > o.bound {
		say("a gateway had %d MiB resident, the bound is %d", o.peak, o.bound)
	}
	for _, c := range o.control {
		if c.lost != nil {
			say("%s: a call was lost without attackers, too: %v", c.kind, c.lost)
			break
		}
	}
	if len(o.control) > 0 {
		p99, least := quantile(o.calls, 0.99), quantile(o.control, 0.99)
		if p99 > mostSlower*least {
			say("p99 is %s, more than %d times the %s beside an idle load", p99, mostSlower, least)
		}
	}
}

// names are those of all attacks.
func names() []string {
	return []string{
		attackEvidence, attackEndless, attackLineage, attackQuestions, attackSessions, attackReaders, attackBodies, attackAnswers, attackContexts,
		attackTasks, attackWebhooks, attackForgedMember, attackForgedRead, attackForgedHook, attackForgedRollback, attackForgedDecision,
		attackUnnamed, attackDIDWeb, attackIdle, attackUACP, attackSocket,
	}
}

// paced counts the calls that are made at 50 a second.
func (o observed) paced() int { return o.summary(kindTools).made + o.summary(kindWorker).made }

// summary is how the calls of one kind went.
type summary struct {
	made, lost     int
	asked, missing int // about evidence, by call
	firstLost      error
	firstMissing   string
}

func (o observed) summary(kind string) (s summary) {
	for _, c := range o.calls {
		if c.kind != kind {
			continue
		}
		s.made++
		if c.lost != nil {
			if s.lost++; s.firstLost == nil {
				s.firstLost = c.lost
			}
			continue
		}
		if len(c.tokens) > 0 {
			s.asked++
		}
		if len(c.missing) > 0 {
			if s.missing++; s.firstMissing == "" {
				s.firstMissing = c.missing[0]
			}
		}
	}
	return s
}

// written are the bytes of all tokens of the good calls.
func (o observed) written() (n int) {
	for _, c := range o.calls {
		for _, token := range c.tokens {
			n += len(token)
		}
	}
	return n
}

// quantile is the latency of the calls made at 50 a second, the lost ones too; zero:
// there are none.
func quantile(calls []call, q float64) time.Duration {
	var all []time.Duration
	for _, c := range calls {
		if c.kind == kindTools || c.kind == kindWorker {
			all = append(all, c.took)
		}
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[int(q*float64(len(all)-1))].Round(10 * time.Microsecond)
}

// table prints what came of one backend.
func table(w io.Writer, backend string, o observed, found []string) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(out, "%s\tcalls\tok\tlost\tevidence ok\tevidence lost\n", backend)
	for _, kind := range o.kinds {
		s := o.summary(kind)
		fmt.Fprintf(out, "%s\t%d\t%d\t%d\t%d\t%d\n", kind, s.made, s.made-s.lost, s.lost, s.asked-s.missing, s.missing)
	}
	fmt.Fprintf(out, "evidence\t%d KiB of the good calls, the store has %d MiB\n", o.written()>>10, o.evidence)
	fmt.Fprintf(out, "RSS\t%d MiB at most, bound %d MiB, limit %s\n", o.peak, o.bound, o.limit)
	fmt.Fprintf(out, "latency\tp50 %s, p99 %s\n", quantile(o.calls, 0.5), quantile(o.calls, 0.99))
	if len(o.control) > 0 {
		fmt.Fprintf(out, "control\tp50 %s, p99 %s, with %.2f CPUs in use\n", quantile(o.control, 0.5), quantile(o.control, 0.99), o.busy[1])
	}
	fmt.Fprintf(out, "machine\t%d CPUs, of which %.2f were in use under attack\n", runtime.NumCPU(), o.busy[0])
	fmt.Fprintf(out, "attackers\t%s of CPU in %.0f s\n", o.used.Round(10*time.Millisecond), o.seconds)
	for _, name := range o.names {
		var classes []string
		for _, class := range slices.Sorted(maps.Keys(o.attacks[name])) {
			classes = append(classes, fmt.Sprintf("%s %d", class, o.attacks[name][class]))
		}
		fmt.Fprintf(out, "attack %s\t%s\n", name, strings.Join(classes, ", "))
	}
	err := out.Flush()
	fmt.Fprintf(w, "%d violations\n\n", len(found))
	return err
}

// details tell of the calls that went wrong.
func details(w io.Writer, o observed) {
	shown := 0
	for _, c := range o.calls {
		if (c.lost != nil || len(c.missing) > 0) && shown < shownDetail {
			shown++
			fmt.Fprintf(w, "%s %s after %s: %v %v\n", c.kind, c.key, c.took, c.lost, c.missing)
		}
	}
}
