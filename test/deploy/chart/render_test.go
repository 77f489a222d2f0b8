package chart

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/yaml"
)

const (
	chartDir      = "../../../deploy/helm/aepb-gateway"
	kubernetesDir = "../../../deploy/kubernetes"
)

var update = flag.Bool("update", false, "write the renderings anew")

// rendering is what the chart makes of values.
type rendering struct {
	values map[string]any    // with the defaults of the chart
	files  map[string]string // by the name of the template, without empty ones
}

// loadChart reads the chart. Alerts and dashboards are replaced by those of testdata/files, so
// that renderings do not change with them.
func loadChart(t *testing.T) *chartv2.Chart {
	t.Helper()
	chart := loadShippedChart(t)
	chart.Files = slices.DeleteFunc(chart.Files, func(f *common.File) bool { return strings.HasPrefix(f.Name, "files/") })
	for _, name := range []string{"files/rules.yaml", "files/dashboards/gateway.json"} {
		chart.Files = append(chart.Files, &common.File{Name: name, Data: read(t, filepath.Join("testdata", name))})
	}
	return chart
}

// loadShippedChart reads the chart as it is shipped.
func loadShippedChart(t *testing.T) *chartv2.Chart {
	t.Helper()
	chart, err := loader.LoadDir(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	if err := chart.Validate(); err != nil {
		t.Fatal(err)
	}
	return chart
}

// render checks the values by the schema of the chart and renders them.
func render(chart *chartv2.Chart, values map[string]any, release, namespace string) (rendering, error) {
	options := common.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true}
	all, err := util.ToRenderValues(chart, values, options, common.DefaultCapabilities)
	if err != nil {
		return rendering{}, err
	}
	files, err := engine.Render(chart, all)
	if err != nil {
		return rendering{}, err
	}
	out := rendering{values: all["Values"].(common.Values), files: map[string]string{}}
	for name, text := range files {
		if strings.TrimSpace(text) != "" {
			out.files[strings.TrimPrefix(name, chart.Name()+"/templates/")] = text
		}
	}
	return out, nil
}

// valueSets are the names of testdata/NAME.yaml.
func valueSets(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, path := range paths {
		if name := strings.TrimSuffix(filepath.Base(path), ".yaml"); !strings.HasSuffix(name, ".golden") {
			names = append(names, name)
		}
	}
	if len(names) < 12 {
		t.Fatalf("%d sets of values in testdata, expected at least 12", len(names))
	}
	return names
}

// renderSet renders testdata/NAME.yaml.
func renderSet(t *testing.T, name string) rendering {
	t.Helper()
	out, err := render(loadChart(t), readValues(t, filepath.Join("testdata", name+".yaml")), "gw", "agents")
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func readValues(t *testing.T, path string) map[string]any {
	t.Helper()
	values, err := loader.LoadValues(bytes.NewReader(read(t, path)))
	if err != nil {
		t.Fatal(err)
	}
	return values
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// manifests are the rendered objects in the order of their templates, each with a final newline.
func (r rendering) manifests() []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(r.files)) {
		if filepath.Ext(name) == ".yaml" {
			out = append(out, documents(r.files[name])...)
		}
	}
	return out
}

// documents are the YAML documents of a text that are not empty.
func documents(text string) []string {
	var out []string
	for document := range strings.SplitSeq("\n"+text, "\n---\n") {
		if document = strings.TrimSpace(document); document != "" {
			out = append(out, document+"\n")
		}
	}
	return out
}

// compareGolden compares a text with a file, or writes it with -update.
func compareGolden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want := string(read(t, path)); got != want {
		t.Errorf("%s differs from what the chart renders: %s\nif this is meant, write it anew with -update", path, firstDifference(want, got))
	}
}

// firstDifference shows the first line in which two texts differ.
func firstDifference(want, got string) string {
	wants, gots := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(wants), len(gots)) {
		if wants[i] != gots[i] {
			out, _ := json.Marshal(map[string]any{"line": i + 1, "want": wants[i], "got": gots[i]})
			return string(out)
		}
	}
	return "one of them ends earlier"
}

// publicURL is config.public_url of a set of values.
func publicURL(t *testing.T, name string) string {
	t.Helper()
	config, _ := readValues(t, filepath.Join("testdata", name+".yaml"))["config"].(map[string]any)
	text, _ := config["public_url"].(string)
	if text == "" {
		t.Fatalf("%s has no public_url", name)
	}
	return text
}

func TestChart_Golden(t *testing.T) {
	for _, name := range valueSets(t) {
		t.Run(name, func(t *testing.T) {
			out := renderSet(t, name)
			compareGolden(t, filepath.Join("testdata", name+".golden.yaml"), strings.Join(out.manifests(), "---\n"))
			if notes := out.files["NOTES.txt"]; !strings.Contains(notes, publicURL(t, name)) || strings.Contains(notes, "<no value>") {
				t.Errorf("NOTES.txt does not name public_url: %s", notes)
			}
		})
	}
}

// TestChart_ShippedFiles renders the alerts and dashboards of the chart, which have tests of their own.
func TestChart_ShippedFiles(t *testing.T) {
	chart := loadShippedChart(t)
	out, err := render(chart, readValues(t, "testdata/monitoring.yaml"), "gw", "agents")
	if err != nil {
		t.Fatal(err)
	}
	var rules, dashboards bool
	for _, file := range chart.Files {
		rules = rules || file.Name == "files/rules.yaml"
		dashboards = dashboards || strings.HasPrefix(file.Name, "files/dashboards/")
	}
	kinds := map[string]int{}
	for _, object := range decodeAll(t, out) {
		kinds[object.kind]++
	}
	want := map[string]int{"PrometheusRule": 0, "ConfigMap": 1}
	if rules {
		want["PrometheusRule"]++
	}
	if dashboards {
		want["ConfigMap"]++
	}
	for kind, n := range want {
		if kinds[kind] != n {
			t.Errorf("%d objects of kind %s, expected %d", kinds[kind], kind, n)
		}
	}
}

// TestChart_NoFiles renders a chart without alerts and dashboards: no object is empty.
func TestChart_NoFiles(t *testing.T) {
	chart := loadChart(t)
	chart.Files = nil
	out, err := render(chart, readValues(t, "testdata/monitoring.yaml"), "gw", "agents")
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range decodeAll(t, out) {
		if object.kind == "PrometheusRule" || strings.HasSuffix(object.name, "-dashboards") {
			t.Errorf("%s %s is rendered without files", object.kind, object.name)
		}
	}
}

// TestChart_Readme renders the example of the README.
func TestChart_Readme(t *testing.T) {
	_, rest, _ := strings.Cut(string(read(t, chartDir+"/README.md")), "```yaml\n")
	example, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("the README has no example")
	}
	out, err := render(loadShippedChart(t), toMap(t, example), "gw", "agents")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := checkConfig(gatewayConfig(t, decodeAll(t, out))); err != nil {
		t.Error(err)
	}
}

func toMap(t *testing.T, text string) map[string]any {
	t.Helper()
	var out map[string]any
	if err := yaml.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}
