package interop

import (
	"crypto/tls"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// run is one caller at one callee.
type run struct {
	g    *gw
	who  caller
	tape *tape
	at   *callee
	job  string // names the work of this run
	from string // what the caller speaks

	silent bool // nothing may have come back
}

// scenario is something that a callee does and its caller must see.
type scenario struct {
	name string
	do   func(*testing.T, *run)
}

const (
	modernMCP = "2026-07-28"
	legacyMCP = "2025-11-25"
)

// fidelityRuns are all of them, by what the caller speaks.
func fidelityRuns() map[string]func(at *callee) []scenario {
	all := map[string]func(*callee) []scenario{}
	for _, way := range []string{"A2A 1.0", "A2A 1.0 HTTP", "A2A 0.3"} {
		all[way] = func(at *callee) []scenario { return a2aScenarios(way, at) }
	}
	for _, version := range []string{modernMCP, legacyMCP, "2025-06-18"} {
		all["MCP "+version] = func(at *callee) []scenario { return mcpScenarios(version, at) }
	}
	return all
}

func a2aScenarios(way string, at *callee) []scenario {
	var list []scenario
	if at.mcp {
		list = append(
			list, scenario{"prompts as skills", byA2A(way, a2aPrompts)}, scenario{"resources as skills", byA2A(way, a2aResources)},
			scenario{"content that is not there", byA2A(way, a2aNoContent)},
		)
	}
	for name, do := range map[string]func(*testing.T, *a2aRun){
		"streaming":                    a2aStreaming,
		"long task with polling":       a2aPolling,
		"long task, subscribed to":     a2aSubscribing,
		"cancel in flight":             a2aCanceling,
		"input required, and answered": a2aAnswering,
		"input required, and declined": a2aDeclining,
		"file out":                     a2aFilesOut,
		"file in":                      a2aFilesIn,
		"several artifacts":            a2aMany,
		"failure of the work":          a2aFailure,
		"failure of the callee":        a2aBreaking,
		"rejected":                     a2aRefusal,
	} {
		list = append(list, scenario{name, byA2A(way, do)})
	}
	return list
}

func mcpScenarios(version string, at *callee) []scenario {
	list := []scenario{
		{"input required, and answered", byMCP(version, fill("four"), mcpAnswering)},
		{"input required, and declined", byMCP(version, decline, mcpDeclining)},
	}
	if at.mcp {
		list = append(list, scenario{"input required, nobody to ask", byMCP(version, nil, mcpCannot)})
	} else {
		list = append(
			list, scenario{"input required, answered by calling again", byMCP(version, nil, mcpUnasked)},
			scenario{"artifacts as resources", byMCP(version, nil, mcpResources)},
		)
	}
	if !at.mcp && version != "2025-06-18" {
		list = append(
			list, scenario{"long task with polling", byTasks(version, tasksPolling)}, scenario{"task canceled", byTasks(version, tasksCanceling)},
			scenario{"task that fails", byTasks(version, tasksFailing)},
		)
		if version == modernMCP {
			list = append(list, scenario{"task that asks", byTasks(version, tasksAnswering)})
		}
	}
	for name, do := range map[string]func(*testing.T, *mcpRun){
		"streaming":             mcpStreaming,
		"cancel in flight":      mcpCanceling,
		"file out":              mcpFilesOut,
		"file in":               mcpFilesIn,
		"several artifacts":     mcpMany,
		"failure of the work":   mcpFailure,
		"failure of the callee": mcpBreaking,
		"rejected":              mcpRefusal,
	} {
		list = append(list, scenario{name, byMCP(version, nil, do)})
	}
	return list
}

// TestFidelity_CallerSeesWhatTheCalleeDoes: what a callee does, its caller sees in its own protocol, and the
// evidence tells the same. It logs a table of what was run.
func TestFidelity_CallerSeesWhatTheCalleeDoes(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	var table []string
	n := 0
	for to, at := range map[string]*callee{
		"MCP " + modernMCP: g.workshop(t, "shop-modern", true),
		"MCP " + legacyMCP: g.workshop(t, "shop-legacy", false),
		"A2A 1.0":          g.worker(t, "worker", "1.0"),
		"A2A 0.3":          g.worker(t, "worker-old", "0.3"),
	} {
		for from, scenarios := range fidelityRuns() {
			for _, s := range scenarios(at) {
				n++
				job := "job-" + strconv.Itoa(n)
				passed := t.Run(from+" to "+to+"/"+s.name, func(t *testing.T) {
					r := g.fidelityRun(t, at)
					r.job, r.from = job, from
					s.do(t, r)
					r.audit(t)
				})
				table = append(table, strings.Join([]string{s.name, from, to, map[bool]string{true: "holds", false: "FAILS"}[passed]}, "\t"))
			}
		}
	}
	slices.Sort(table)
	t.Logf("scenario\tcaller\tcallee\t\n%s", strings.Join(table, "\n"))
}

// fidelityRun has a caller of its own, whose connections end with the run.
func (g *gw) fidelityRun(t *testing.T, at *callee) *run {
	t.Helper()
	svid := g.ClientSVID()
	client := g.Client([]tls.Certificate{svid}...)
	client.Timeout = 10 * time.Second
	tape := &tape{next: client.Transport}
	client.Transport = tape
	t.Cleanup(client.CloseIdleConnections)
	return &run{g: g, who: caller{client: client, id: svid.Leaf.URIs[0].String()}, tape: tape, at: at}
}

// audit checks all evidence of the run.
func (r *run) audit(t *testing.T) {
	t.Helper()
	takes := r.tape.takes()
	if len(takes) == 0 && !r.silent && !t.Failed() {
		t.Error("nothing was recorded")
	}
	for _, take := range takes {
		if err := r.g.auditor().proven(take, r.who.id, r.at); err != nil {
			t.Errorf("%s %.300s\n%.500s\n%v", take.method, take.request, take.body, err)
		}
	}
}

// await waits for something that must happen.
func await(t *testing.T, happened <-chan struct{}) {
	t.Helper()
	select {
	case <-happened:
	case <-time.After(10 * time.Second):
		t.Fatal("it did not happen in 10 s")
	}
}

// until asks again and again, as one who polls does.
func until(t *testing.T, done func() bool) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	late := time.After(10 * time.Second)
	for !done() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("it did not happen in 10 s")
		}
	}
}
