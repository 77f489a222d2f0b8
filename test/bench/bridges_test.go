package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// answered is the upstream's text: no caller sends it.
var answered = strings.ReplaceAll(echoed, "lazy dog", "busy cat")

// changing is the agents of the bench, on the certificate of a peer, with another text in their answers.
func changing(t *testing.T, trust *devgateway.Trust) string {
	t.Helper()
	agents, _ := script{Seed: make([]byte, 32)}.agents()
	conf, err := trust.PeerTLS("upstream")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var got httptest.ResponseRecorder
		got.Body = new(bytes.Buffer)
		agents.ServeHTTP(&got, r)
		setJSON(w.Header())
		w.WriteHeader(got.Code)
		_, _ = io.WriteString(w, strings.ReplaceAll(got.Body.String(), "lazy dog", "busy cat"))
	}))
	server.TLS = conf
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL
}

// textOf is the text of an answer: of a message or task of A2A, or of a result of MCP.
func textOf(body []byte) string {
	var o object
	if json.Unmarshal(body, &o) != nil {
		return ""
	}
	for _, path := range [][]any{
		{"result", "message", "parts", 0, "text"}, {"result", "task", "artifacts", 0, "parts", 0, "text"}, {"result", "content", 0, "text"},
	} {
		if text, ok := dig(o, path...).(string); ok {
			return text
		}
	}
	return ""
}

// TestBridges_AnswerWithTheTextOfTheUpstream: so do the bridge and the gateway, in both directions.
func TestBridges_AnswerWithTheTextOfTheUpstream(t *testing.T) {
	t.Parallel()
	o, err := parse([]string{"--cases", bridgeName, "--procs", "1"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	binary, err := devgateway.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range directions() {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			c, dir := &cast{binary: binary}, t.TempDir()
			t.Cleanup(func() {
				if err := c.stop(t.Context()); err != nil {
					t.Error(err)
				}
			})
			if err := c.found(t.Context(), dir, true); err != nil {
				t.Fatal(err)
			}
			if err := c.bridges(t.Context(), dir, d, o.sides(), changing(t, c.trust)); err != nil {
				t.Fatal(err)
			}
			pids := map[int]bool{}
			for _, s := range c.subjects {
				resp := post(t, s, one(t, s))
				body, err := io.ReadAll(resp.Body)
				if err != nil || resp.StatusCode != http.StatusOK || textOf(body) != answered {
					t.Errorf("%s answered %s: %.500s, %v", s.name, resp.Status, body, err)
				}
				if signed := resp.Header.Get("Execution-Context") != ""; signed == strings.HasPrefix(s.name, bridgeName) {
					t.Errorf("%s: its answer has an ECT: %t", s.name, signed)
				}
				pids[s.process.pid] = true
			}
			if len(c.subjects) != 5 || len(pids) != 5 {
				t.Errorf("%d cases, %d processes", len(c.subjects), len(pids))
			}
		})
	}
}

// TestBridgeTables_RatiosOfEachRound: ratios are formed within a round, and the median is
// that of the ratios, not the ratio of the medians.
func TestBridgeTables_RatiosOfEachRound(t *testing.T) {
	t.Parallel()
	var runs []result
	for round, cpu := range []struct{ gateway, again, bridge, eager float64 }{{30, 33, 60, 20}, {80, 80, 100, 50}, {50, 40, 500, 50}} {
		for name, v := range map[string]float64{"gateway": cpu.gateway, againName: cpu.again, bridgeName: cpu.bridge, eagerName: cpu.eager} {
			runs = append(runs, result{Name: "mcp to a2a", Case: name, Concurrency: 8, Round: round + 1, CPU: v, RPS: 2 * v, P99: 3 * v, RSS: int(v)})
		}
	}
	var out bytes.Buffer
	if err := bridgeTables(&out, runs); err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for line := range strings.Lines(out.String()) {
		name, figures, ok := strings.Cut(line, " / ")
		if fields := strings.Fields(figures); ok && strings.HasPrefix(strings.TrimSpace(name), "8 ") {
			at := len(fields) - len(columns())
			pair := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(name), "8")) + " / " + strings.Join(fields[:at], " ")
			got[pair] = []string{fields[at], fields[at+2], fields[at+3], fields[at+5]}
		}
	}
	want := map[string][]string{}
	for pair, ratio := range map[string]string{
		"gateway / bridge": "0.50", "gateway / bridge 225": "1.50", "gateway again / gateway": "1.00", "bridge 225 / bridge": "0.33",
	} {
		want[pair] = []string{ratio, ratio, ratio, ratio}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s\n%s", diff, out.String())
	}
	if strings.Contains(out.String(), "a2a to mcp") || !strings.Contains(out.String(), "mcp to a2a: medians\n") {
		t.Errorf("the other direction was not measured:\n%s", out.String())
	}
}

func TestParse_CasesOfTheBridge(t *testing.T) {
	t.Parallel()
	o, err := parse([]string{"--cases", bridgeName, "--procs", "1,8", "--against", "former-binary"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	var names, environment []string
	for _, one := range o.sides() {
		names, environment = append(names, one.name), append(environment, one.env...)
	}
	want := []string{"gateway", againName, bridgeName, eagerName, "gateway procs 1", "gateway procs 8", formerName}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"GOGC=100", "GOGC=225", "GOMAXPROCS=1", "GOMAXPROCS=8"}, environment); diff != "" {
		t.Error(diff)
	}
	if raised := raises(o.only); len(raised) != 1 || raised[0].Name != bridgeName {
		t.Errorf("raised: %+v", raised)
	}
	if o, err := parse(nil, io.Discard); err != nil || slices.Contains(o.cases, bridgeName) || slices.Contains(names, o.only) {
		t.Errorf("without flags: %+v, %v", o, err)
	}
}
