package telemetry_test

import (
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/gateway/telemetry"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// metricsEnv has the reference written instead of compared.
const metricsEnv = "AEPB_UPDATE_METRICS"

const referenceHead = `# Metrics

<!-- made by TestReference_IsThatOfTheDefinitions from metrics.go; AEPB_UPDATE_METRICS=1 renews it -->

Scrape ` + "`/metrics`" + ` at ` + "`listen.metrics`" + ` (plain HTTP, without credentials) or at the admin listener (TLS).
No label takes a value that a caller can invent: what is on no list is ` + "`other`" + `, what is not there is ` + "`none`" + `.
Counters are since the start of the process. The metrics of the Go runtime, of the process and of
scraping itself (` + "`go_*`, `process_*`, `promhttp_*`" + `) are those of every Go program.

| metric | type | labels | meaning | what to do |
|---|---|---|---|---|
`

// full is metrics that were told of everything a gateway can tell of.
func full(t *testing.T) *telemetry.Metrics {
	t.Helper()
	m, err := telemetry.New(telemetry.Deps{
		Bindings: []canonical.Binding{"a2a-v1", "mcp-v1"}, Version: "1.2.3", Commit: "0123456789ab",
		Backend: "redis", BackendUp: func() bool { return true },
		Connections: func() map[string]float64 { return map[string]float64{"fresh": 1} }, Ignored: func() uint64 { return 0 }, Refused: func() uint64 { return 0 },
		Evicted: func() map[string]float64 { return map[string]float64{"own": 1} },
		Identity: &telemetry.Identity{
			Expiry: func() map[string]time.Time {
				return map[string]time.Time{"svid": time.Unix(1893456000, 0), "bundle": {}}
			},
			Bundles:  func() map[string]time.Time { return map[string]time.Time{"example.org": {}} },
			Failures: func() uint64 { return 7 },
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestReference_IsThatOfTheDefinitions(t *testing.T) {
	t.Parallel()
	var page strings.Builder
	page.WriteString(referenceHead)
	for _, d := range full(t).Definitions() {
		labels := ""
		if len(d.Labels) > 0 {
			labels = "`" + strings.Join(d.Labels, "`, `") + "`"
		}
		page.WriteString("| `" + d.Name + "` | " + d.Type + " | " + labels + " | " + d.Help + " | " + d.Action + " |\n")
	}
	if os.Getenv(metricsEnv) != "" {
		if err := os.WriteFile("README.md", []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	stored, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(page.String(), string(stored)); diff != "" {
		t.Errorf("README.md is not that of the definitions, run with %s=1 (-want +got):\n%s", metricsEnv, diff)
	}
}

// scraped is what a page tells of its metrics, by name.
func scraped(page string) map[string]telemetry.Definition {
	out := map[string]telemetry.Definition{}
	comment := regexp.MustCompile(`(?m)^# (HELP|TYPE) (\w+) ?(.*)$`)
	for _, line := range comment.FindAllStringSubmatch(page, -1) {
		d := out[line[2]]
		d.Name = line[2]
		if line[1] == "HELP" {
			d.Help = line[3]
		} else {
			d.Type = line[3]
		}
		out[d.Name] = d
	}
	label := regexp.MustCompile(`(\w+)="`)
	for name, d := range out {
		sample := regexp.MustCompile(`(?m)^` + name + `(?:_bucket|_sum|_count)?\{(.*)\} `).FindString(page)
		for _, found := range label.FindAllStringSubmatch(sample, -1) {
			if found[1] != "le" {
				d.Labels = append(d.Labels, found[1])
			}
		}
		out[name] = d
	}
	return out
}

// Every metric that is scraped is defined with the same type, labels and meaning, and
// every defined one is scraped once it was used.
func TestReference_DefinesEveryMetricThatIsScraped(t *testing.T) {
	t.Parallel()
	m := full(t)
	touch(m)
	m.Uses(func() map[string]telemetry.Use { return map[string]telemetry.Use{"streams": {}} })
	m.Queried("served")
	m.DescriptionChanged("echo")
	m.Reloaded(true)
	m.Consensus().Ended("majority", "commit", time.Second)
	m.Agents().Waits.Uses(func() map[string]float64 { return map[string]float64{"echo": 1} })
	m.Agents().Waits.Waited("low", time.Second)
	m.Agents().Waits.NoPlace("echo", "queue")
	if _, err := telemetry.NewRefusals("public", m, slog.New(slog.DiscardHandler), time.Now); err != nil {
		t.Fatal(err)
	}
	found := scraped(scrape(t, m))
	ofProgram := regexp.MustCompile(`^(go|process|promhttp)_`)
	for name, d := range found {
		if d.Help == "" || d.Type == "" {
			t.Errorf("%s has the help text %q and the type %q", name, d.Help, d.Type)
		}
		if ofProgram.MatchString(name) {
			delete(found, name)
		}
	}
	for _, d := range m.Definitions() {
		got, ok := found[d.Name]
		if !ok {
			t.Errorf("%s is defined and not scraped", d.Name)
		}
		delete(found, d.Name)
		if d.Action == "" || strings.ContainsAny(d.Help+d.Action, "|\n") {
			t.Errorf("%s: a meaning and an action are texts of one line: %q, %q", d.Name, d.Help, d.Action)
		}
		d.Action, d.Labels = "", slices.Sorted(slices.Values(d.Labels))
		if diff := cmp.Diff(d, got); diff != "" {
			t.Errorf("%s (-defined +scraped):\n%s", d.Name, diff)
		}
	}
	for name := range found {
		t.Errorf("%s is scraped and not defined", name)
	}
}

func TestBuildInfo_SaysWhatRuns(t *testing.T) {
	t.Parallel()
	if want := `aepb_build_info{commit="0123456789ab",version="1.2.3"} 1`; !strings.Contains(scrape(t, full(t)), want) {
		t.Errorf("missing: %s", want)
	}
	if strings.Contains(scrape(t, newMetrics(t)), "aepb_build_info") {
		t.Error("without a version there is one")
	}
}

func TestIdentity_TellsEndsAsUnixTime(t *testing.T) {
	t.Parallel()
	page := scrape(t, full(t))
	for _, want := range []string{
		"aepb_identity_expiry_timestamp_seconds{kind=\"bundle\"} 0\n", "aepb_identity_expiry_timestamp_seconds{kind=\"svid\"} 1.893456e+09\n",
		"aepb_bundle_expiry_timestamp_seconds{trust_domain=\"example.org\"} 0\n", "\naepb_identity_watch_errors_total 7\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("missing: %s", want)
		}
	}
}
