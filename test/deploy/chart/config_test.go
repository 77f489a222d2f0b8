package chart

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"

	"github.com/aepb/aepb-gateway/gateway/config"
)

// gatewayConfig is the gateway.yaml of a rendering.
func gatewayConfig(t *testing.T, objects []object) string {
	t.Helper()
	for _, m := range of[*core.ConfigMap](objects) {
		if text, ok := m.Data["gateway.yaml"]; ok {
			return text
		}
	}
	t.Fatal("no ConfigMap has gateway.yaml")
	return ""
}

// checkConfig is what check-config does without reading the files that the configuration names.
func checkConfig(text string) (config.Config, error) {
	c, err := config.Parse([]byte(text))
	if !config.Readable(c) {
		return c, err
	}
	return c, config.Place(c, err, c.Serve())
}

// TestConfig_Gateway gives each rendered gateway.yaml to the gateway.
func TestConfig_Gateway(t *testing.T) {
	for _, name := range valueSets(t) {
		t.Run(name, func(t *testing.T) {
			out := renderSet(t, name)
			text := gatewayConfig(t, decodeAll(t, out))
			if _, err := checkConfig(text); err != nil {
				t.Errorf("the gateway refuses its configuration: %v", err)
			}
			if got := toMap(t, text); !reflect.DeepEqual(got, out.values["config"]) {
				t.Errorf("gateway.yaml is\n%v\nexpected values.config as it is:\n%v", got, out.values["config"])
			}
		})
	}
}

// TestConfig_SameAsCompose: test/cluster runs the rendering of cluster.yaml, so it runs what
// deploy/compose runs.
func TestConfig_SameAsCompose(t *testing.T) {
	compose := readValues(t, "../../../deploy/compose/gateway.yaml")
	if values := readValues(t, "testdata/cluster.yaml"); !reflect.DeepEqual(values["config"], any(compose)) {
		t.Errorf("config of cluster.yaml:\n%v\nwant that of deploy/compose/gateway.yaml:\n%v", values["config"], compose)
	}
}

func TestConfig_Mistake(t *testing.T) {
	values := readValues(t, "testdata/single.yaml")
	values["config"].(map[string]any)["limitz"] = map[string]any{}
	out, err := render(loadChart(t), values, "gw", "agents")
	if err != nil {
		t.Fatal(err)
	}
	_, err = checkConfig(gatewayConfig(t, decodeAll(t, out)))
	if err == nil || !strings.Contains(err.Error(), "limitz") {
		t.Errorf("%v, expected the unknown key limitz", err)
	}
}

// TestConfig_LargeNumbers: Helm keeps numbers as floating point, and writes 1e+06 where a
// template is careless.
func TestConfig_LargeNumbers(t *testing.T) {
	out := renderSet(t, "stateful")
	c, err := checkConfig(gatewayConfig(t, decodeAll(t, out)))
	if err != nil || c.State.Records != 1_000_000 {
		t.Errorf("state.records is %d, %v, expected 1000000", c.State.Records, err)
	}
	if strings.Contains(strings.Join(out.manifests(), ""), "e+0") {
		t.Error("a number is rendered with an exponent")
	}
}

// TestConfig_EveryFileIsChecked compares the files that the chart looks for in config with the
// keys that the gateway documents as files.
func TestConfig_EveryFileIsChecked(t *testing.T) {
	data, err := os.ReadFile("../../../docs/configuration.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(data, &schema); err != nil {
		t.Fatal(err)
	}
	values := readValues(t, "testdata/single.yaml")
	c := values["config"].(map[string]any)
	var keys []string
	for _, at := range fileKeys(schema, nil) {
		setFile(c, at)
		keys = append(keys, "config."+strings.ReplaceAll(strings.Join(at, "."), ".[0]", "[0]"))
	}
	if len(keys) < 20 {
		t.Fatalf("the documentation of the gateway names %d files, expected at least 20", len(keys))
	}
	_, err = render(loadChart(t), values, "gw", "agents")
	if err == nil {
		t.Fatal("files that are not mounted are rendered")
	}
	for _, key := range keys {
		if !strings.Contains(err.Error(), "\n- "+key+": /lost is not in a mounted volume") {
			t.Errorf("the chart does not check the file of %s", key)
		}
	}
}

// fileKeys are the paths of the keys whose description begins with File, or with Files for
// files by name. An item of a list is [0], and a name that the operator chooses NAME.
func fileKeys(schema map[string]any, at []string) (out [][]string) {
	switch description, _ := schema["description"].(string); {
	case strings.HasPrefix(description, "File "):
		return [][]string{at}
	case strings.HasPrefix(description, "Files "):
		return [][]string{extend(at, "NAME")}
	}
	if further, ok := schema["additionalProperties"].(map[string]any); ok {
		out = append(out, fileKeys(further, extend(at, "NAME"))...)
	}
	if items, ok := schema["items"].(map[string]any); ok {
		out = append(out, fileKeys(items, extend(at, "[0]"))...)
	}
	properties, _ := schema["properties"].(map[string]any)
	for name, property := range properties {
		out = append(out, fileKeys(property.(map[string]any), extend(at, name))...)
	}
	return out
}

func extend(at []string, step string) []string { return append(slices.Clone(at), step) }

// setFile sets the key at a path to a file that is not mounted.
func setFile(in any, at []string) any {
	switch {
	case len(at) == 0:
		return "/lost"
	case at[0] == "[0]":
		list, _ := in.([]any)
		if len(list) == 0 {
			list = []any{nil}
		}
		list[0] = setFile(list[0], at[1:])
		return list
	default:
		section, _ := in.(map[string]any)
		if section == nil {
			section = map[string]any{}
		}
		section[at[0]] = setFile(section[at[0]], at[1:])
		return section
	}
}
