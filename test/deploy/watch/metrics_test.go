package watch

import (
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/aepb/aepb-gateway/gateway/telemetry"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// metric is a metric with its labels.
type metric struct {
	kind   string // counter, gauge, histogram, or foreign
	labels []string
}

// targetLabels are those that Prometheus adds.
var targetLabels = []string{"namespace", "job", "instance"}

// foreign are metrics that gateway/telemetry does not define.
var foreign = []string{
	"up",
	"go_goroutines", "go_memstats_heap_inuse_bytes",
	"process_cpu_seconds_total", "process_open_fds", "process_resident_memory_bytes",
}

// knownMetrics are those of the reference, which gateway/telemetry compares with its definitions,
// and those that rules record.
func knownMetrics(t *testing.T) map[string]metric {
	t.Helper()
	page, err := os.ReadFile(root + "gateway/telemetry/README.md")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]metric{}
	word := regexp.MustCompile(`\w+`)
	for _, row := range regexp.MustCompile("(?m)^\\| `(aepb_\\w+)` \\| (\\w+) \\| ([^|]*) \\|").FindAllStringSubmatch(string(page), -1) {
		own := word.FindAllString(row[3], -1)
		if row[2] != "histogram" {
			out[row[1]] = metric{row[2], own}
			continue
		}
		out[row[1]+"_bucket"] = metric{"counter", append(own, "le")}
		out[row[1]+"_sum"], out[row[1]+"_count"] = metric{"counter", own}, metric{"counter", own}
	}
	if len(out) == 0 {
		t.Fatal("the reference of metrics has no table")
	}
	for _, name := range foreign {
		out[name] = metric{kind: "foreign"}
	}
	for _, r := range readRules(t) {
		if r.Record == "" {
			continue
		}
		var grouped *parser.AggregateExpr // the first one: all of a rule have the same labels
		parser.Inspect(parse(t, r.Expr), func(node parser.Node, _ []parser.Node) error {
			if e, ok := node.(*parser.AggregateExpr); ok && grouped == nil {
				grouped = e
			}
			return nil
		})
		if grouped == nil {
			t.Fatalf("%s: no aggregation says which labels it has", r.Record)
		}
		out[r.Record] = metric{"gauge", grouped.Grouping}
	}
	return out
}

// variables stand for those of Grafana in an expression.
var variables = strings.NewReplacer("$__rate_interval", "5m", "$__range", "1h")

func parse(t *testing.T, expr string) parser.Expr {
	t.Helper()
	e, err := parser.NewParser(parser.Options{}).ParseExpr(variables.Replace(expr))
	if err != nil {
		t.Fatalf("%v: %s", err, expr)
	}
	return e
}

// selectors are those of an expression; one of several names is one for each.
func selectors(t *testing.T, expr string) (out []*parser.VectorSelector) {
	t.Helper()
	parser.Inspect(parse(t, expr), func(node parser.Node, _ []parser.Node) error {
		v, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		names := v.Name
		for _, m := range v.LabelMatchers {
			if m.Name == "__name__" {
				names = m.Value
			}
		}
		for name := range strings.SplitSeq(names, "|") {
			one := *v
			one.Name = name
			out = append(out, &one)
		}
		return nil
	})
	return out
}

// expressions are those of rules and dashboards, by where they are.
func expressions(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for _, r := range readRules(t) {
		out[r.name()] = append(out[r.name()], r.Expr)
	}
	for name, d := range readDashboards(t) {
		for _, p := range d.Panels {
			for _, q := range p.Targets {
				out[name+": "+p.Title] = append(out[name+": "+p.Title], q.Expr)
			}
		}
		for _, v := range d.Templating.List {
			if v.Type != "query" {
				continue
			}
			values := regexp.MustCompile(`^label_values\((.+), (\w+)\)$`).FindStringSubmatch(v.Query)
			if values == nil {
				t.Fatalf("%s: variable %s asks %q, expected label_values(METRIC, LABEL)", name, v.Name, v.Query)
			}
			out[name+": variable "+v.Name] = []string{"sum by (" + values[2] + ") (" + values[1] + ")"}
		}
	}
	return out
}

func TestExpressions_UseMetricsThatExist(t *testing.T) {
	t.Parallel()
	known := knownMetrics(t)
	all := expressions(t)
	for _, test := range readRuleTests(t) {
		for _, s := range test.InputSeries {
			all[test.Name] = append(all[test.Name], s.Series)
		}
	}
	for where, list := range all {
		for _, expr := range list {
			for _, v := range selectors(t, expr) {
				m, ok := known[v.Name]
				if !ok {
					t.Errorf("%s: there is no metric %q", where, v.Name)
				}
				for _, l := range v.LabelMatchers {
					if l.Name != "__name__" && m.kind != "foreign" && !slices.Contains(m.labels, l.Name) && !slices.Contains(targetLabels, l.Name) {
						t.Errorf("%s: %s has no label %s", where, v.Name, l.Name)
					}
				}
			}
		}
	}
}

// A label by which series are summed, or that joins two sides, is one of every metric below it.
func TestExpressions_GroupByLabelsThatExist(t *testing.T) {
	t.Parallel()
	known := knownMetrics(t)
	check := func(where string, names []string, below parser.Node) {
		for _, v := range selectors(t, below.String()) {
			for _, name := range names {
				if !slices.Contains(known[v.Name].labels, name) && !slices.Contains(targetLabels, name) {
					t.Errorf("%s: %s has no label %s", where, v.Name, name)
				}
			}
		}
	}
	for where, list := range expressions(t) {
		for _, expr := range list {
			parser.Inspect(parse(t, expr), func(node parser.Node, _ []parser.Node) error {
				switch e := node.(type) {
				case *parser.AggregateExpr:
					check(where, e.Grouping, e.Expr)
				case *parser.BinaryExpr:
					if e.VectorMatching != nil {
						check(where, e.VectorMatching.MatchingLabels, e)
					}
				}
				return nil
			})
		}
	}
}

func TestExpressions_RatesAreOfCounters(t *testing.T) {
	t.Parallel()
	known := knownMetrics(t)
	for where, list := range expressions(t) {
		for _, expr := range list {
			parser.Inspect(parse(t, expr), func(node parser.Node, _ []parser.Node) error {
				call, ok := node.(*parser.Call)
				if !ok || call.Func.Name != "rate" && call.Func.Name != "increase" {
					return nil
				}
				for _, v := range selectors(t, call.Args[0].String()) {
					if known[v.Name].kind != "counter" && !strings.HasSuffix(v.Name, "_total") {
						t.Errorf("%s: %s is a %s, and %s is for counters", where, v.Name, known[v.Name].kind, call.Func.Name)
					}
				}
				return nil
			})
		}
	}
}

// counted gives metrics a label value in the way that the gateway does: a value that is on no
// list is scraped as another one.
var counted = map[string]func(*telemetry.Metrics, string){
	"aepb_translations_total result": func(m *telemetry.Metrics, v string) { m.Translated("a2a-v1", "mcp-v1", v, 0) },
	"aepb_translation_duration_seconds stage": func(m *telemetry.Metrics, v string) {
		m.Took("a2a-v1", "mcp-v1", telemetry.Stage(v), time.Second)
	},
	"aepb_ects_verified_total result": func(m *telemetry.Metrics, v string) { m.Verified(1, v) },
	"aepb_rate_limited_total scope":   func(m *telemetry.Metrics, v string) { m.RateLimited(limit.Scope(v)) },
	"aepb_config_reloads_total result": func(m *telemetry.Metrics, _ string) {
		m.Reloaded(true)
		m.Reloaded(false)
	},
	"aepb_state_usage_ratio kind": func(m *telemetry.Metrics, v string) {
		m.Uses(func() map[string]telemetry.Use { return map[string]telemetry.Use{v: {}} })
	},
	"aepb_approvals_total state":          func(m *telemetry.Metrics, v string) { m.Approvals().Changed(v) },
	"aepb_rollbacks_total status":         func(m *telemetry.Metrics, v string) { m.Undo().RolledBack(v) },
	"aepb_consensus_anomalies_total kind": func(m *telemetry.Metrics, v string) { m.Consensus().Anomaly(v) },
	"aepb_state_evicted_total scope":      func(*telemetry.Metrics, string) {},
}

// scraped is what a gateway shows of a metric that was given a label value.
func scraped(t *testing.T, count func(*telemetry.Metrics, string), value string) string {
	t.Helper()
	m, err := telemetry.New(telemetry.Deps{
		Bindings: []canonical.Binding{"a2a-v1", "mcp-v1"},
		Evicted:  func() map[string]float64 { return map[string]float64{"own": 0, "others": 0} }, // as cmd/aepb-gateway has it
	})
	if err != nil {
		t.Fatal(err)
	}
	count(m, value)
	answer := httptest.NewRecorder()
	m.Handler().ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	return answer.Body.String()
}

func TestExpressions_UseLabelValuesThatExist(t *testing.T) {
	t.Parallel()
	for where, list := range expressions(t) {
		for _, expr := range list {
			for _, v := range selectors(t, expr) {
				name := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(v.Name, "")
				for _, l := range v.LabelMatchers {
					if !strings.HasPrefix(v.Name, "aepb_") || l.Name == "__name__" || strings.HasPrefix(l.Value, "$") {
						continue
					}
					count, ok := counted[name+" "+l.Name]
					if !ok {
						t.Errorf("%s: no test knows the values of %s{%s}", where, name, l.Name)
						continue
					}
					for value := range strings.SplitSeq(l.Value, "|") {
						shown := regexp.MustCompile(`(?m)^` + name + `(_count)?\{(.*,)?` + l.Name + `="` + regexp.QuoteMeta(value) + `"`)
						if !shown.MatchString(scraped(t, count, value)) {
							t.Errorf("%s: %s has no %s %q", where, name, l.Name, value)
						}
					}
				}
			}
		}
	}
}

// A recording rule earns its place by two uses.
func TestRules_RecordsAreUsedTwice(t *testing.T) {
	t.Parallel()
	uses := map[string]int{}
	for _, list := range expressions(t) {
		for _, expr := range list {
			for _, v := range selectors(t, expr) {
				uses[v.Name]++
			}
		}
	}
	for _, r := range readRules(t) {
		if r.Record != "" && uses[r.Record] < 2 {
			t.Errorf("%s is used %d times, expected twice at least", r.Record, uses[r.Record])
		}
	}
}
