// Package watch has the tests of the alerts, recording rules and dashboards in
// deploy/helm/aepb-gateway/files.
package watch

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"

	"github.com/aepb/aepb-gateway/gateway/problem"
)

const (
	root      = "../../../"
	rulesFile = root + "deploy/helm/aepb-gateway/files/rules.yaml"
	runbook   = "docs/operate.md"
)

// rule is a recording rule or an alert.
type rule struct {
	Record      string            `json:"record"`
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

func (r rule) name() string { return r.Record + r.Alert }

func readYAML(t *testing.T, file string, into any) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err == nil {
		err = yaml.UnmarshalStrict(data, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

func readRules(t *testing.T) (all []rule) {
	t.Helper()
	var file struct {
		Groups []struct {
			Name     string `json:"name"`
			Interval string `json:"interval"`
			Rules    []rule `json:"rules"`
		} `json:"groups"`
	}
	readYAML(t, rulesFile, &file)
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) == 0 {
		t.Fatalf("%s has no rules", rulesFile)
	}
	return all
}

// ruleTest is one test of a file for promtool.
type ruleTest struct {
	Name        string `json:"name"`
	Interval    string `json:"interval"`
	InputSeries []struct {
		Series string `json:"series"`
		Values string `json:"values"`
	} `json:"input_series"`
	Expressions []struct {
		Expr       string `json:"expr"`
		EvalTime   string `json:"eval_time"`
		ExpSamples []struct {
			Labels string  `json:"labels"`
			Value  float64 `json:"value"`
		} `json:"exp_samples"`
	} `json:"promql_expr_test"`
}

func testFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests of rules in testdata: %v", err)
	}
	return files
}

func readRuleTests(t *testing.T) (all []ruleTest) {
	t.Helper()
	for _, name := range testFiles(t) {
		var file struct {
			RuleFiles []string   `json:"rule_files"`
			Interval  string     `json:"evaluation_interval"`
			Tests     []ruleTest `json:"tests"`
		}
		readYAML(t, name, &file)
		all = append(all, file.Tests...)
	}
	return all
}

func promtool(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "promtool", args...).CombinedOutput()
	if err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestRules_PromtoolAcceptsThem(t *testing.T) {
	t.Parallel()
	promtool(t, "check", "rules", rulesFile)
}

func TestRules_PromtoolTestsPass(t *testing.T) {
	t.Parallel()
	for _, file := range testFiles(t) {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			t.Parallel()
			promtool(t, "test", "rules", file)
		})
	}
}

// alertOf is the alert that an expression selects; empty: it selects none.
func alertOf(t *testing.T, expr string) (alert string) {
	t.Helper()
	parser.Inspect(parse(t, expr), func(node parser.Node, _ []parser.Node) error {
		if v, ok := node.(*parser.VectorSelector); ok && v.Name == "ALERTS" {
			for _, m := range v.LabelMatchers {
				if m.Name == "alertname" && m.Type == labels.MatchEqual {
					alert = m.Value
				}
			}
		}
		return nil
	})
	return alert
}

// The name of a case begins with its alert. "ALERT is silent ..." expects nothing of it; any other
// expects it to fire, with the severity of the rule and with the labels that its annotations use.
func TestAlerts_HaveFiringAndSilentCases(t *testing.T) {
	t.Parallel()
	fires, silent := map[string][]labels.Labels{}, map[string]bool{}
	for _, test := range readRuleTests(t) {
		subject, what, _ := strings.Cut(test.Name, " ")
		for _, e := range test.Expressions {
			alert := alertOf(t, e.Expr)
			if alert == "" {
				continue
			}
			if alert != subject {
				t.Errorf("%q expects something of %s", test.Name, alert)
			}
			if strings.HasPrefix(what, "is silent") {
				silent[alert] = true
				if len(e.ExpSamples) > 0 {
					t.Errorf("%q expects %s", test.Name, e.ExpSamples[0].Labels)
				}
				continue
			}
			for _, s := range e.ExpSamples {
				if !strings.HasPrefix(s.Labels, "ALERTS{") {
					continue
				}
				l, err := parser.NewParser(parser.Options{}).ParseMetric(s.Labels)
				if err != nil {
					t.Errorf("%q: %v", test.Name, err)
				}
				if l.Get("alertstate") == "firing" {
					fires[alert] = append(fires[alert], l)
				}
			}
		}
	}
	for _, r := range readRules(t) {
		if r.Alert == "" {
			continue
		}
		if len(fires[r.Alert]) == 0 || !silent[r.Alert] {
			t.Errorf("%s has a firing case: %t, a silent case: %t; expected both", r.Alert, len(fires[r.Alert]) > 0, silent[r.Alert])
		}
		for _, l := range fires[r.Alert] {
			if got, want := l.Get("severity"), r.Labels["severity"]; got != want {
				t.Errorf("%s fires with severity %q, and the rule has %q", r.Alert, got, want)
			}
			for _, used := range templateLabel.FindAllStringSubmatch(r.Annotations["summary"]+r.Annotations["description"], -1) {
				if !l.Has(used[1]) {
					t.Errorf("%s: its annotations use the label %s, which it does not have: %s", r.Alert, used[1], l)
				}
			}
		}
		delete(fires, r.Alert)
	}
	for alert := range fires {
		t.Errorf("%s is tested, and there is no such alert", alert)
	}
}

var templateLabel = regexp.MustCompile(`\$labels\.(\w+)`)

// anchors are those of the headings of a Markdown file, as GitHub makes them.
func anchors(t *testing.T, file string) (out []string) {
	t.Helper()
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(string(page), -1) {
		anchor := strings.ReplaceAll(strings.ToLower(heading[1]), " ", "-")
		out = append(out, regexp.MustCompile(`[^\w-]`).ReplaceAllString(anchor, ""))
	}
	return out
}

func TestAlerts_SayWhatIsWrongAndWhatToDo(t *testing.T) {
	t.Parallel()
	sections, seen := anchors(t, root+runbook), map[string]bool{}
	for _, r := range readRules(t) {
		if r.Alert == "" {
			continue
		}
		if seen[r.Alert] {
			t.Errorf("%s is there twice", r.Alert)
		}
		seen[r.Alert] = true
		if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) || len(r.Labels) != 1 {
			t.Errorf("%s: labels %v, expected a severity of critical, warning or info", r.Alert, r.Labels)
		}
		if r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s lacks a summary or a description", r.Alert)
		}
		anchor := strings.ToLower(r.Alert)
		if want := "https://github.com/aepb/aepb-gateway/blob/main/" + runbook + "#" + anchor; r.Annotations["runbook_url"] != want {
			t.Errorf("%s: runbook_url %q, expected %q", r.Alert, r.Annotations["runbook_url"], want)
		}
		if !slices.Contains(sections, anchor) {
			t.Errorf("%s has no section #%s", runbook, anchor)
		}
	}
	for _, s := range sections {
		if strings.HasPrefix(s, "aepb") && !slices.ContainsFunc(readRules(t), func(r rule) bool { return strings.ToLower(r.Alert) == s }) {
			t.Errorf("%s has a section #%s, and there is no such alert", runbook, s)
		}
	}
}

// The lists of the rules name every code that is a failure of an agent or of the gateway.
func TestRules_FailuresAreNotTheCallersFault(t *testing.T) {
	t.Parallel()
	failures := []string{
		problem.CodeBadReply, problem.CodeCircuitOpen, problem.CodeInternal, problem.CodeTimeout, problem.CodeUnavailable, problem.CodeUnreachable,
	}
	// What the caller or an operator can change: the message, a right, a rate, the configuration.
	others := []string{
		problem.CodeNoPath, problem.CodeSemanticLoss, problem.CodePolicyViolation, problem.CodeMalformed, problem.CodeIdentityInvalid,
		problem.CodeUnauthenticated, problem.CodeForbidden, problem.CodeECTRequired, problem.CodeECTInvalid, problem.CodeUnknownAgent,
		problem.CodeNoMethod, problem.CodeNotAllowed, problem.CodeNotFound, problem.CodeConflict, problem.CodeInProgress,
		problem.CodeMediaType, problem.CodeTooLarge, problem.CodeRateLimited, problem.CodeDraining, problem.CodeRetired,
		problem.CodeApprovalRequired, problem.CodeApprovalRefused, problem.CodePaused, problem.CodeStopped,
	}
	if got := slices.Sorted(slices.Values(slices.Concat(failures, others))); !slices.Equal(got, problem.Codes()) {
		t.Errorf("judged codes %v, and there are %v", got, problem.Codes())
	}
	lists := 0
	for _, r := range readRules(t) {
		for _, v := range selectors(t, r.Expr) {
			for _, m := range v.LabelMatchers {
				if v.Name != "aepb_translations_total" || m.Name != "result" {
					continue
				}
				lists++
				if want := strings.Join(failures, "|"); m.Value != want {
					t.Errorf("%s counts as failures %s, expected %s", r.name(), m.Value, want)
				}
			}
		}
	}
	if lists != 3 {
		t.Errorf("%d lists of failures, expected 3", lists)
	}
}
