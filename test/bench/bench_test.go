package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
	"github.com/aepb/aepb-gateway/test/bench/slimnode"
	"github.com/aepb/aepb-gateway/test/harness/fleet"
	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// TestMain is also the children's main: a benchmark runs its own binary.
func TestMain(m *testing.M) {
	if role := os.Getenv(childVariable); role != "" {
		os.Exit(fleet.ExitCode(serveChild(role, os.Stdin, os.Stdout), errUsage))
	}
	goleak.VerifyTestMain(m)
}

func TestRun_WithoutTheGateway(t *testing.T) {
	t.Parallel()
	var out, progress bytes.Buffer
	args := []string{"--json", "--only", "exchange", "--seconds", "0.1", "--rounds", "2", "--cases", "direct,proxy,floor"}
	if err := run(t.Context(), args, &out, &progress); err != nil {
		t.Fatal(err)
	}
	var got document
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if want := 3 * len(concurrencies()) * 2; len(got.Runs) != want {
		t.Fatalf("%d runs, want %d", len(got.Runs), want)
	}
	if len(got.Idle) != 3 || got.Idle[0].RSS <= 0 {
		t.Errorf("at idle: %+v", got.Idle)
	}
	for _, r := range got.Runs {
		if r.Name != exchangeName || r.RPS <= 0 || r.P50 <= 0 || r.P99 < r.P50 || r.CPU < 0 || r.RSS <= 0 || r.Allocs == nil {
			t.Errorf("run %+v", r)
		}
	}
}

func TestUsage_Errors(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"--only", "nonesuch"},
		{"--cases", "direct,nonesuch"},
		{"--seconds", "0"},
		{"--rounds", "-1"},
		{"extra"},
		{"--nonesuch"},
		{"--cases", "bridge", "--only", "pairs"},
		{"--cases", "bridge,floor"},
		{"--cases", "bridge", "extra"},
		{"--procs", "2"},
		{"--cases", "bridge", "--procs", "0"},
		{"--cases", "bridge", "--procs", "2,2"},
		{"--cases", "bridge", "--profile", "x"},
	} {
		if err := run(t.Context(), args, io.Discard, io.Discard); fleet.ExitCode(err, errUsage) != 2 {
			t.Errorf("%v: %v", args, err)
		}
	}
}

// assembled starts direct, proxy and floor.
func assembled(t *testing.T) map[string]*subject {
	t.Helper()
	c, err := assemble(t.Context(), t.TempDir(), options{cases: []string{"direct", "proxy", "floor"}})
	t.Cleanup(func() {
		if err := c.stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*subject{}
	for _, s := range c.subjects {
		all[s.name] = s
	}
	return all
}

func TestServers_AnswerAsTheirProtocols(t *testing.T) {
	t.Parallel()
	all := assembled(t)
	t.Run("an MCP client accepts the server", func(t *testing.T) {
		got, err := peers.MCPCall(t.Context(), all["direct"].client, all["direct"].url, false, "echo", json.RawMessage(`{"message":"hello"}`))
		if err != nil || got.Version != modernMCP || got.Text() != "hello" || len(got.Tools) != 1 {
			t.Errorf("%+v, %v", got, err)
		}
	})
	t.Run("an A2A client would accept the floor's task", func(t *testing.T) {
		resp := post(t, all["floor"], one(t, all["floor"]))
		var answer struct {
			Result struct {
				Task struct {
					ID, ContextID string
					Status        struct{ State string }
					Artifacts     []struct{ Parts []struct{ Text string } }
				}
			}
		}
		if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
			t.Fatal(err)
		}
		task := answer.Result.Task
		if task.ID == "" || task.ContextID == "" || task.Status.State != "TASK_STATE_COMPLETED" || task.Artifacts[0].Parts[0].Text != echoed {
			t.Errorf("task %+v", task)
		}
		if n := len(resp.Header.Values("Execution-Context")); n != 2 {
			t.Errorf("%d ECTs", n)
		}
	})
	for name, spoil := range map[string]func(*call){
		"no ECT":           func(c *call) { c.token = "" },
		"another body":     func(c *call) { c.body = strings.Replace(c.body, "fox", "cat", 1) },
		"a spoilt payload": func(c *call) { c.token = strings.Replace(c.token, ".", ".e30", 1) },
	} {
		t.Run("the floor refuses "+name, func(t *testing.T) {
			c := one(t, all["floor"])
			spoil(&c)
			if resp := post(t, all["floor"], c); resp.StatusCode == http.StatusOK {
				t.Error("accepted")
			}
		})
	}
}

func one(t *testing.T, s *subject) call {
	t.Helper()
	calls, err := s.calls.prepare(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	return calls[0]
}

func post(t *testing.T, s *subject, c call) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url, strings.NewReader(c.body))
	if err != nil {
		t.Fatal(err)
	}
	s.headers(req.Header)
	req.Header.Set("Execution-Context", c.token)
	resp, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func TestLoad_WrongAnswerEndsTheRun(t *testing.T) {
	t.Parallel()
	s := assembled(t)["floor"]
	calls := []call{one(t, s), {body: a2aBody("x"), token: "not.a.token"}}
	if _, err := s.load(t.Context(), calls, 1, time.Minute); err == nil {
		t.Error("a refused call was counted")
	}
}

func TestCalls_AreAllDifferent(t *testing.T) {
	t.Parallel()
	calls, err := (callMaker{body: mcpBody}).prepare(t.Context(), 50)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, c := range calls {
		seen[c.body] = true
	}
	if len(seen) != len(calls) {
		t.Errorf("%d different of %d", len(seen), len(calls))
	}
}

func TestParse_CPUMallocsAndMemory(t *testing.T) {
	t.Parallel()
	cpu, err := parseCPUTime([]byte("7 (a) name) S 1 1 1 0 -1 4194304 9 0 0 0 120 30 0 0 20 0 1 0\n"))
	if err != nil || cpu != 1500*time.Millisecond {
		t.Errorf("CPU %v, %v", cpu, err)
	}
	if _, err := parseCPUTime([]byte("7 (x) S 1")); !errors.Is(err, errProc) {
		t.Errorf("short stat: %v", err)
	}
	n, err := parseMallocs("# HELP go_memstats_mallocs_total x\ngo_memstats_mallocs_total 1.5e+06\n")
	if err != nil || n != 1_500_000 {
		t.Errorf("mallocs %d, %v", n, err)
	}
	if memory, err := resident(os.Getpid()); err != nil || memory < 1000 {
		t.Errorf("resident %d, %v", memory, err)
	}
}

func TestTable_MediansAndRatios(t *testing.T) {
	t.Parallel()
	var runs []result
	for round, rps := range []struct{ floor, gateway float64 }{{100, 50}, {200, 150}, {400, 40}} {
		runs = append(runs,
			result{Name: exchangeName, Case: "floor", Concurrency: 8, Round: round + 1, RPS: rps.floor},
			result{Name: exchangeName, Case: "gateway", Concurrency: 8, Round: round + 1, RPS: rps.gateway})
	}
	rps := columns()[0]
	got := [2]float64{}
	got[0], _ = medianOf(runs, "gateway", 8, rps)
	got[1], _ = medianRatio(runs, "gateway", 8, rps)
	if diff := cmp.Diff([2]float64{50, 0.5}, got); diff != "" {
		t.Error(diff)
	}
	var out bytes.Buffer
	d := document{Idle: []idle{{"gateway", 4711}}, Runs: runs}
	if err := table(&out, d); err != nil || !strings.Contains(out.String(), "n/a") || !strings.Contains(out.String(), "gateway 4711") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// TestTable_SaysWhatIsRaised: each measurement has a line with the limits that its
// gateway's configuration raises.
func TestTable_SaysWhatIsRaised(t *testing.T) {
	t.Parallel()
	for only, lines := range map[string]int{"": len(names()), exchangeName: 1, "streams": 1} {
		var out bytes.Buffer
		if err := table(&out, document{Raised: raises(only)}); err != nil {
			t.Fatal(err)
		}
		shown := strings.Count(out.String(), ": limits: {rate: 1000000, ")
		if streams := strings.Contains(out.String(), "share: 1"); shown != lines || streams != (only != exchangeName) {
			t.Errorf("--only %q: %d lines, want %d, with those of streams %t:\n%s", only, shown, lines, streams, out.String())
		}
	}
}

// TestLimit_IsFarMoreThanTheLoad: of the exchange two minutes, and of the pairs, of which
// those with SLIM have three sides, more than six.
func TestLimit_IsFarMoreThanTheLoad(t *testing.T) {
	t.Parallel()
	o, err := parse(nil, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if got := o.limit(); got < 30*time.Minute {
		t.Errorf("a run has %v", got)
	}
}

func TestObservation_Quantiles(t *testing.T) {
	t.Parallel()
	o := observation{}
	for i := range 101 {
		o.took = append(o.took, time.Duration(i)*time.Microsecond)
	}
	if o.quantile(0.5) != 50 || o.quantile(0.99) != 99 || (observation{}).quantile(0.5) != 0 {
		t.Errorf("p50 %v p99 %v", o.quantile(0.5), o.quantile(0.99))
	}
}

const installLimit = 5 * time.Minute

// install runs npm ci for the SLIM node unless it has been run, under the lock
// of all who do that.
func install(t *testing.T) {
	t.Helper()
	dir, err := slimnode.Folder(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	lock, err := os.Open(filepath.Join(dir, "package-lock.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }() // closing releases the lock
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if slimnode.Installed(dir) == nil {
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), installLimit)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts")
	npm.Dir = dir
	if out, err := npm.CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
}

// begun is a stage without a gateway.
func begun(t *testing.T, s *stage) *stage {
	t.Helper()
	s.cast = &cast{}
	t.Cleanup(func() {
		if err := s.stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
	if err := s.begin(t.Context(), t.TempDir(), false); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestPairs_FloorAndBridge: every pair's floor carries a call there and back, and refuses one
// whose ECT is another's; with SLIM, over a real node, the bridge carries both.
func TestPairs_FloorAndBridge(t *testing.T) {
	t.Parallel()
	install(t)
	s := begun(t, new(stage))
	if want := (len(bindings()) + 1) * len(bindings()); len(s.duels) != want || len(s.lacks) != 0 {
		t.Fatalf("%d pairs, want %d; not measured: %+v", len(s.duels), want, s.lacks)
	}
	for _, d := range s.duels {
		slim := d.from == slimBinding || d.to == slimBinding
		if slim != (len(d.sides) == 2) {
			t.Errorf("%s to %s: %d sides", d.from, d.to, len(d.sides))
		}
		for i, side := range d.sides {
			calls, err := side.calls.prepare(t.Context(), 2)
			if err != nil {
				t.Fatal(err)
			}
			if err := side.send(t.Context(), calls[0]); err != nil {
				t.Errorf("%s to %s: %v", d.from, d.to, err)
			}
			spoilt := calls[1]
			spoilt.body = strings.Replace(spoilt.body, "dog", "cat", 1)
			err = side.send(t.Context(), spoilt) // what comes back is quoted
			carried := err != nil && strings.Contains(err.Error(), "lazy cat")
			if want := i == 1 && d.from != "ainp-v1"; err == nil || carried != want { // AINP is signed as a whole
				t.Errorf("%s to %s, side %d: another text: %v", d.from, d.to, i, err)
			}
		}
	}
}

// TestPairs_WithoutANodeAreNamed: the rows that cannot be measured are named.
func TestPairs_WithoutANodeAreNamed(t *testing.T) {
	t.Parallel()
	s := begun(t, &stage{slim: place{dir: t.TempDir()}, with: slimBinding})
	if len(s.duels) != 0 || len(s.lacks) != 2*len(bindings()) {
		t.Fatalf("%d pairs, %d not measured", len(s.duels), len(s.lacks))
	}
	var out bytes.Buffer
	if err := pairTable(&out, s.lacks); err != nil {
		t.Fatal(err)
	}
	for _, other := range bindings() {
		for _, row := range []string{other + " to slim-v1", "slim-v1 to " + other} {
			if !strings.Contains(out.String(), row+" is not measured: "+slimnode.ErrMissing.Error()) {
				t.Errorf("nothing about %s:\n%s", row, out.String())
			}
		}
	}
}

func TestPairTable_Ratios(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	row := func(to string, floor, gateway, bridge float64) pair {
		return pair{From: "a2a-v1", To: to, Floor: floor, Gateway: gateway, Bridge: bridge}
	}
	err := pairTable(&out, []pair{row("mcp-v1", 100, 50, 0), row("mcp-v1", 100, 70, 0), row("mcp-v1", 10, 9, 0), row("slim-v1", 100, 90, 120)})
	if err != nil || !strings.Contains(out.String(), "0.70        n/a  below 0.8") || !strings.Contains(out.String(), "0.90       0.75") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// TestPairTable_Against: with another build a second table has the ratio of each build
// to the floor and the median of the rounds' ratios, which is not that of the medians.
func TestPairTable_Against(t *testing.T) {
	t.Parallel()
	row := func(floor, gateway, former float64) pair {
		return pair{From: "a2a-v1", To: "mcp-v1", Floor: floor, Gateway: gateway, Former: former}
	}
	var out bytes.Buffer
	err := pairTable(&out, []pair{row(100, 90, 45), row(200, 20, 80), row(50, 40, 32)})
	if err != nil || !strings.Contains(out.String(), "gateway/former") || !strings.Contains(out.String(), "0.80          0.45           1.250") {
		t.Errorf("%v\n%s", err, out.String())
	}
	out.Reset()
	if err := pairTable(&out, []pair{row(100, 90, 0)}); err != nil || strings.Contains(out.String(), formerName) {
		t.Errorf("without another build: %v\n%s", err, out.String())
	}
}

// TestDuel_BothBuildsTakeTurns: each side, of which those of SLIM are four, has its own
// figure; here each takes twice the time of the one before.
func TestDuel_BothBuildsTakeTurns(t *testing.T) {
	t.Parallel()
	builds := []running{{&devgateway.Process{}, slimGateway, ""}, {&devgateway.Process{}, slimFormer, ""}}
	s := &stage{cast: &cast{}, floor: &child{}, bridge: &child{}, gateways: builds}
	for _, slim := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			d := duel{}
			for _, r := range s.roads(slim) {
				took := time.Millisecond << len(d.sides)
				d.spaces = append(d.spaces, r.space)
				d.sides = append(d.sides, &subject{rate: map[int]float64{}, calls: callMaker{body: mcpBody}, via: func(context.Context, call) error {
					time.Sleep(took)
					return nil
				}})
			}
			p, err := d.round(t.Context(), 0, time.Second)
			got := []float64{p.Floor / p.Gateway, p.Gateway / p.Former, p.Former / max(p.Bridge, 1)}
			if !slim {
				got = got[:2]
			}
			for i, ratio := range got {
				if err != nil || math.Abs(ratio-2) > 0.1 || slim != (p.Bridge > 0) {
					t.Errorf("with SLIM %t: ratio %d is %v, want 2: %+v, %v", slim, i, ratio, p, err)
				}
			}
		})
	}
}
