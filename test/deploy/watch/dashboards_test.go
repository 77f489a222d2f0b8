package watch

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const dashboardsFolder = root + "deploy/helm/aepb-gateway/files/dashboards"

var update = flag.Bool("update", false, "write the dashboards instead of comparing them")

func made(t *testing.T, name string) []byte {
	t.Helper()
	out, err := json.MarshalIndent(dashboardOf(name, pages[name]), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	plain := strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(string(out))
	return append([]byte(plain), '\n')
}

func readDashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	files, err := filepath.Glob(dashboardsFolder + "/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no dashboards in %s: %v", dashboardsFolder, err)
	}
	out := map[string]dashboard{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var d dashboard
		if err := json.Unmarshal(data, &d); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		out[strings.TrimSuffix(filepath.Base(file), ".json")] = d
	}
	return out
}

func TestDashboards_AreThoseOfTheTable(t *testing.T) {
	t.Parallel()
	for name := range pages {
		file := filepath.Join(dashboardsFolder, name+".json")
		want := made(t, name)
		if *update {
			if err := os.WriteFile(file, want, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != string(want) {
			t.Errorf("%s is not that of the table (%v): run go test ./watch -update", file, err)
		}
	}
	for name := range readDashboards(t) {
		if _, ok := pages[name]; !ok {
			t.Errorf("the table does not make %s.json", name)
		}
	}
}

func TestDashboards_AreComplete(t *testing.T) {
	t.Parallel()
	uids := map[string]bool{}
	for name, d := range readDashboards(t) {
		if uids[d.UID] || d.UID == "" || d.Title == "" || d.Description == "" {
			t.Errorf("%s: uid %q, title %q and description %q: expected all, and a uid of its own", name, d.UID, d.Title, d.Description)
		}
		uids[d.UID] = true
		if d.SchemaVersion < 39 {
			t.Errorf("%s: schemaVersion %d, expected 39 or later", name, d.SchemaVersion)
		}
		if !strings.HasPrefix(d.Time.From, "now-") || d.Time.To != "now" {
			t.Errorf("%s: the time is %v, expected a span that ends now", name, d.Time)
		}
		var variables []string
		for _, v := range d.Templating.List {
			variables = append(variables, v.Name)
		}
		if !slices.Contains(variables, "datasource") || !slices.Contains(variables, "job") {
			t.Errorf("%s has the variables %v, expected datasource and job", name, variables)
		}
		checkPanels(t, name, d.Panels, variables)
	}
}

func checkPanels(t *testing.T, name string, panels []grafanaPanel, variables []string) {
	t.Helper()
	ids, titles := map[int]bool{}, map[string]bool{}
	used := regexp.MustCompile(`\$(\w+)`)
	for i, p := range panels {
		if ids[p.ID] || p.ID == 0 || titles[p.Title] || p.Title == "" {
			t.Errorf("%s: panel %d has the id %d and the title %q, expected unique ones", name, i, p.ID, p.Title)
		}
		ids[p.ID], titles[p.Title] = true, true
		if p.Description == "" || p.FieldConfig.Defaults.Unit == "" || len(p.Targets) == 0 {
			t.Errorf("%s: %q lacks a description, a unit or a query", name, p.Title)
		}
		if p.Datasource.UID != "${datasource}" {
			t.Errorf("%s: %q asks the data source %q, expected the variable", name, p.Title, p.Datasource.UID)
		}
		for _, other := range panels[:i] {
			if a, b := p.GridPos, other.GridPos; a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
				t.Errorf("%s: %q covers %q", name, p.Title, other.Title)
			}
		}
		refs := map[string]bool{}
		for _, q := range p.Targets {
			if refs[q.RefID] || q.RefID == "" || q.Legend == "" {
				t.Errorf("%s: %q has the query %q with the legend %q, expected both, and unique", name, p.Title, q.RefID, q.Legend)
			}
			refs[q.RefID] = true
			for _, v := range selectors(t, q.Expr) {
				if !slices.ContainsFunc(v.LabelMatchers, jobMatcher) {
					t.Errorf("%s: %q: %s is not of the chosen jobs", name, p.Title, v.Name)
				}
			}
			for _, v := range used.FindAllStringSubmatch(q.Expr, -1) {
				if !strings.HasPrefix(v[1], "__") && !slices.Contains(variables, v[1]) {
					t.Errorf("%s: %q: there is no variable $%s", name, p.Title, v[1])
				}
			}
		}
	}
}
