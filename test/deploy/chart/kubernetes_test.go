package chart

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const renderedBy = "# Rendered from deploy/helm/aepb-gateway and values.yaml by go test ./chart -update in test/deploy.\n"

// kustomization is what deploy/kubernetes uses of kustomize.
type kustomization struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Resources  []string `json:"resources"`
}

func readKustomization(t *testing.T) (k kustomization) {
	t.Helper()
	if err := unmarshalStrict(string(read(t, filepath.Join(kubernetesDir, "kustomization.yaml"))), &k); err != nil {
		t.Fatal(err)
	}
	return k
}

// TestKubernetes_Rendered: the manifests are what the chart makes of the values beside them,
// and all of it.
func TestKubernetes_Rendered(t *testing.T) {
	out, err := render(loadShippedChart(t), readValues(t, filepath.Join(kubernetesDir, "values.yaml")), "aepb-gateway", "aepb")
	if err != nil {
		t.Fatal(err)
	}
	delete(out.files, "NOTES.txt")
	for name, text := range out.files {
		compareGolden(t, filepath.Join(kubernetesDir, name), renderedBy+strings.Join(documents(text), "---\n"))
	}

	k := readKustomization(t)
	if k.APIVersion != "kustomize.config.k8s.io/v1beta1" || k.Kind != "Kustomization" {
		t.Errorf("kustomization.yaml is a %s of %s", k.Kind, k.APIVersion)
	}
	want := slices.Sorted(maps.Keys(out.files))
	if !slices.Equal(k.Resources, want) {
		t.Errorf("kustomization.yaml has the resources %q, expected %q", k.Resources, want)
	}
	entries, err := os.ReadDir(kubernetesDir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, entry := range entries {
		if name := entry.Name(); name != "kustomization.yaml" && name != "values.yaml" {
			got = append(got, name)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the folder has the manifests %q, expected %q", got, want)
	}
}

// TestKubernetes_Rules holds the manifests as they are in the folder to all rules.
func TestKubernetes_Rules(t *testing.T) {
	var text []string
	for _, name := range readKustomization(t).Resources {
		text = append(text, string(read(t, filepath.Join(kubernetesDir, name))))
	}
	objects := decodeText(t, strings.Join(text, "---\n"))
	c, err := checkConfig(gatewayConfig(t, objects))
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range judge(objects, c) {
		t.Error(problem)
	}
	if c.State.Redis.Replicas != 3 || c.Identity.WorkloadAPI == "" || len(c.Agents) == 0 {
		t.Errorf("the configuration is not that of three replicas with SPIRE and an agent: %+v", c.State.Redis)
	}
}
