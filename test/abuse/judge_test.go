package main

import (
	"errors"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// harmless is a run of 10 seconds in which no attack worked: each was made and
// refused, and every good call was answered and has its evidence.
func harmless() observed {
	o := observed{seconds: 10, kinds: kinds(), names: names(), limit: "none", attacks: counts{}, bound: 100, peak: 100, busy: [2]float64{1.5, 0.25}}
	for i := range 500 {
		kind := kindTools
		if i%2 == 1 {
			kind = kindWorker
		}
		c := call{kind: kind, key: strconv.Itoa(i), tokens: []string{"a", "b"}, took: time.Duration(1+i) * time.Millisecond}
		o.calls, o.control = append(o.calls, c), append(o.control, c)
	}
	for _, kind := range kinds()[2:] {
		o.calls = append(o.calls, call{kind: kind, took: time.Hour})
	}
	for _, name := range names() {
		o.attacks[name] = map[string]int{classRefused: 3, classMany: 2, classBroken: 1}
	}
	// What is taken of these harms no caller by itself.
	for _, name := range []string{attackEvidence, attackQuestions, attackForgedMember} {
		o.attacks[name][classTaken] = 1
	}
	return o
}

func TestJudge_HarmlessRunHasNoViolation(t *testing.T) {
	t.Parallel()
	if found := judge(harmless()); len(found) > 0 {
		t.Errorf("violations %q", found)
	}
}

// TestJudge_PlantedViolations: each violation, planted alone, is found and is the only one.
func TestJudge_PlantedViolations(t *testing.T) {
	t.Parallel()
	slower := func(o *observed, factor int) {
		o.calls = slices.Clone(o.calls)
		for i := range o.calls {
			o.calls[i].took *= time.Duration(factor)
		}
	}
	for name, tc := range map[string]struct {
		plant func(*observed)
		want  string
	}{
		"a lost call":                   {func(o *observed) { o.calls[7].lost = errors.New("refused") }, "mcp > a2a agent: 1 of 250 calls were lost, the first: refused"},
		"a lost probe":                  {func(o *observed) { o.calls[len(o.calls)-1].lost = errors.New("429") }, "ainp socket: 1 of 1 calls were lost"},
		"lost evidence":                 {func(o *observed) { o.calls[6].missing = []string{"token 1"} }, "a2a > mcp agent: the evidence of 1 of 250 calls is gone, the first: token 1"},
		"too few calls":                 {func(o *observed) { o.seconds = 20 }, "only 500 of the good calls were made, want 900"},
		"a kind that was never called":  {func(o *observed) { o.calls = o.calls[:len(o.calls)-1] }, "ainp socket: no call was made"},
		"an attack that was never made": {func(o *observed) { delete(o.attacks, attackReaders) }, "attack readers: it was never made"},
		"an attack without a try":       {func(o *observed) { o.attacks[attackIdle] = map[string]int{} }, "attack idle: it was never made"},
		"evidence that is all refused":  {func(o *observed) { delete(o.attacks[attackEvidence], classTaken) }, "attack evidence: none was taken"},
		"a token that never ends":       {func(o *observed) { o.attacks[attackEndless][classTaken] = 1 }, "attack endless: 1 were taken"},
		"a forged reading":              {func(o *observed) { o.attacks[attackForgedRead][classTaken] = 2 }, "attack forged read: 2 were taken"},
		"a forged hook":                 {func(o *observed) { o.attacks[attackForgedHook][classTaken] = 1 }, "attack forged hook: 1 were taken"},
		"a forged decision":             {func(o *observed) { o.attacks[attackForgedDecision][classTaken] = 1 }, "attack forged decision: 1 were taken"},
		"a forged rollback":             {func(o *observed) { o.attacks[attackForgedRollback][classTaken] = 1 }, "attack forged rollback: 1 were taken"},
		"a rollback that reached an agent, although its answer was an error": {
			func(o *observed) { o.rollbacks = 1 }, "attack forged rollback: an agent was asked 1 times",
		},
		"a fetch for a stranger":     {func(o *observed) { o.fetches = 4 }, "attack did:web: strangers made the gateway fetch 4 times"},
		"a gateway that ended":       {func(o *observed) { o.ended = 1 }, "1 gateways have ended"},
		"too much memory":            {func(o *observed) { o.peak = 101 }, "a gateway had 101 MiB resident, the bound is 100"},
		"a call that is lost anyway": {func(o *observed) { o.control[0].lost = errors.New("refused") }, "a2a > mcp agent: a call was lost without attackers, too: refused"},
		"calls that take longer":     {func(o *observed) { slower(o, 4) }, "p99 is 1.98s, more than 3 times the 495ms beside an idle load"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := harmless()
			tc.plant(&o)
			if found := judge(o); len(found) != 1 || !strings.HasPrefix(found[0], tc.want) {
				t.Errorf("violations %q, want %q alone", found, tc.want)
			}
		})
	}
}

// TestJudge_Shares: one of 100 good calls may be lost beside those who want more than their
// share, and neither a gateway nor its memory.
func TestJudge_Shares(t *testing.T) {
	t.Parallel()
	lose := func(n int) func(*observed) {
		return func(o *observed) {
			for i := range n {
				o.calls[i].lost = errors.New("429")
			}
		}
	}
	for name, tc := range map[string]struct {
		plant func(*observed)
		want  string // empty: no violation
	}{
		"nothing":                       {func(*observed) {}, ""},
		"a call of 100":                 {lose(5), ""},
		"two calls of 100":              {lose(10), "10 of 504 good calls were lost, the first: 429"},
		"lost evidence":                 {func(o *observed) { o.calls[6].missing = []string{"token 1"} }, ""},
		"an attack that was never made": {func(o *observed) { delete(o.attacks, attackReaders) }, "attack readers: it was never made"},
		"too much memory":               {func(o *observed) { o.peak = 101 }, "a gateway had 101 MiB resident, the bound is 100"},
		"a gateway that ended":          {func(o *observed) { o.ended = 1 }, "1 gateways have ended"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := harmless()
			tc.plant(&o)
			found := judgeShares(o)
			if tc.want == "" && len(found) > 0 || tc.want != "" && (len(found) != 1 || !strings.HasPrefix(found[0], tc.want)) {
				t.Errorf("violations %q, want %q alone", found, tc.want)
			}
		})
	}
}

// TestContained_CgroupOrSoftLimit: the program runs with its arguments, in a cgroup or with a soft limit, and the table
// says which.
func TestContained_CgroupOrSoftLimit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program, limit, release, err := contained("/bin/sh", dir)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), program, "-c", `echo "$0 $GOMEMLIMIT"`, "x y").CombinedOutput()
	want := "x y 720MiB"
	if strings.HasPrefix(limit, "memory cgroup") {
		want = "x y"
	}
	if err != nil || strings.TrimSpace(string(out)) != want {
		t.Errorf("%v: %s, want %s (%s)", err, out, want, limit)
	}
	if err := release(); err != nil {
		t.Error(err)
	}
	if bounded(dir) {
		t.Error("a folder is taken for a memory cgroup")
	}
}

// TestJudge_LatencyNeedsAControl: three times as slow is allowed, and without a control
// nothing is said about latency.
func TestJudge_LatencyNeedsAControl(t *testing.T) {
	t.Parallel()
	o := harmless()
	for i := range o.calls {
		o.calls[i].took *= mostSlower
	}
	if found := judge(o); len(found) > 0 {
		t.Errorf("three times as slow: %q", found)
	}
	for i := range o.calls {
		o.calls[i].took *= 100
	}
	o.control = nil
	if found := judge(o); len(found) > 0 {
		t.Errorf("without a control: %q", found)
	}
}

func TestTable_NamesEverything(t *testing.T) {
	t.Parallel()
	o := harmless()
	o.calls[0].lost, o.calls[2].missing = errors.New("refused"), []string{"token 1"}
	var out strings.Builder
	if err := table(&out, "redis", o, judge(o)); err != nil {
		t.Fatal(err)
	}
	for _, name := range append(kinds(), names()...) {
		if !strings.Contains(out.String(), name) {
			t.Errorf("%s is not in the table", name)
		}
	}
	for _, want := range []string{"250    249  1     248          1", "100 MiB at most, bound 100 MiB, limit none", "of which 1.50 were in use under attack", "with 0.25 CPUs in use", "429 2, 4xx 3, broken 1", "2 violations"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, out.String())
		}
	}
}

func TestFlags_Parse(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--time", "1s"}, {"--backend", "paper"}, {"more"}, {"--rss", "-1"}, {"--identities", "answers,ann"}, {"--nothing"}} {
		if _, err := parse(args, &strings.Builder{}); !errors.Is(err, errUsage) {
			t.Errorf("%q: %v", args, err)
		}
	}
	o, err := parse([]string{"--time", "20s", "--evidence", "32"}, &strings.Builder{})
	if err != nil || o.evidence != 32 || o.rss != 0 {
		t.Errorf("%+v %v", o, err)
	}
	o, err = parse([]string{"--backend", "crowd", "--gateway", "old"}, &strings.Builder{})
	if err != nil || o.backend != partCrowd || o.gateway != "old" {
		t.Errorf("%+v %v", o, err)
	}
	o, err = parse([]string{"--backend", "shares", "--identities", "tokens"}, &strings.Builder{})
	if err != nil || o.backend != partShares || o.shares != "tokens" {
		t.Errorf("%+v %v", o, err)
	}
}
