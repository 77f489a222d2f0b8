package apiserver

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	goldenFiles     = "../deploy/chart/testdata/*.golden.yaml"
	kubernetesFiles = "../../deploy/kubernetes/*.yaml"
)

// prepared is what a value set names and its cluster already has.
var prepared = map[string][]*unstructured.Unstructured{
	"everything": {{Object: map[string]any{
		"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
		"metadata": map[string]any{"name": "agents-critical"}, "value": int64(1),
	}}},
	"registry": {newObject("v1", "ServiceAccount", "gateway")},
}

// TestServer_TakesTheChart applies what the chart renders to a real API server whose namespaces
// enforce the restricted Pod Security Standard: the server neither refuses nor warns, and admits
// the pods.
func TestServer_TakesTheChart(t *testing.T) {
	s := startServer(t)
	sets := manifests(t)
	for _, name := range slices.Sorted(maps.Keys(sets)) {
		objects := sets[name]
		t.Run(name, func(t *testing.T) {
			s.namespace(t, name)
			workloads := 0
			for _, object := range slices.Concat(prepared[name], objects) {
				if object.GetKind() != "PriorityClass" {
					object.SetNamespace(name)
				}
				s.accepts(t, object, s.apply(t, object))
			}
			for _, object := range objects {
				if kind := object.GetKind(); kind == "Deployment" || kind == "StatefulSet" {
					workloads++
					s.admits(t, object)
				}
			}
			if workloads != 1 {
				t.Errorf("there are %d workloads, expected 1", workloads)
			}
		})
	}
	t.Run("refused", func(t *testing.T) {
		s.refuses(t, sets["single"])
	})
}

// manifests reads the value sets of the chart's tests and the rendered manifests. Without are
// ClusterSPIFFEIDs, whose definition the server does not have.
func manifests(t *testing.T) map[string][]*unstructured.Unstructured {
	t.Helper()
	sets := map[string][]*unstructured.Unstructured{}
	add := func(name, file string) {
		for _, object := range readObjects(t, file) {
			if object.GetKind() != "ClusterSPIFFEID" {
				sets[name] = append(sets[name], object)
			}
		}
	}
	goldens, err := filepath.Glob(goldenFiles)
	if err != nil || len(goldens) < 10 {
		t.Fatalf("%s has %d files, expected 10 or more: %v", goldenFiles, len(goldens), err)
	}
	for _, file := range goldens {
		add(strings.TrimSuffix(filepath.Base(file), ".golden.yaml"), file)
	}
	files, err := filepath.Glob(kubernetesFiles)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if name := filepath.Base(file); name != "kustomization.yaml" && name != "values.yaml" {
			add("kubernetes", file)
		}
	}
	return sets
}

// namespace makes a namespace for pods that are restricted.
func (s *server) namespace(t *testing.T, name string) {
	t.Helper()
	namespace := newObject("v1", "Namespace", name)
	namespace.SetLabels(map[string]string{
		"pod-security.kubernetes.io/enforce": "restricted",
		"pod-security.kubernetes.io/warn":    "restricted",
		"pod-security.kubernetes.io/audit":   "restricted",
	})
	s.accepts(t, namespace, s.apply(t, namespace))
}

// accepts reports an error or a warning of the server about an object.
func (s *server) accepts(t *testing.T, object *unstructured.Unstructured, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%s %s: %v", object.GetKind(), object.GetName(), err)
	}
	for _, warning := range s.warnings.take() {
		t.Errorf("%s %s: warning: %s", object.GetKind(), object.GetName(), warning)
	}
}

// admits creates, as a dry run, a pod and the claims of a workload, as its controller does.
func (s *server) admits(t *testing.T, workload *unstructured.Unstructured) {
	t.Helper()
	pod := podOf(t, workload)
	s.accepts(t, pod, s.create(t, pod))
	for _, claim := range list(t, workload, "spec", "volumeClaimTemplates") {
		object := newObject("v1", "PersistentVolumeClaim", workload.GetName())
		object.SetNamespace(workload.GetNamespace())
		object.Object["spec"] = claim.(map[string]any)["spec"]
		s.accepts(t, object, s.create(t, object))
	}
}

// podOf returns the first pod of a workload.
func podOf(t *testing.T, workload *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	template, found, err := unstructured.NestedMap(workload.Object, "spec", "template")
	if err != nil || !found {
		t.Fatalf("%s %s has no pod template: %v", workload.GetKind(), workload.GetName(), err)
	}
	pod := &unstructured.Unstructured{Object: template}
	pod.SetAPIVersion("v1")
	pod.SetKind("Pod")
	pod.SetName(workload.GetName() + "-0")
	pod.SetNamespace(workload.GetNamespace())
	volumes := list(t, pod, "spec", "volumes")
	for _, claim := range list(t, workload, "spec", "volumeClaimTemplates") {
		name, _, _ := unstructured.NestedString(claim.(map[string]any), "metadata", "name")
		volumes = append(volumes, map[string]any{
			"name":                  name,
			"persistentVolumeClaim": map[string]any{"claimName": name + "-" + pod.GetName()},
		})
	}
	if err := unstructured.SetNestedSlice(pod.Object, volumes, "spec", "volumes"); err != nil {
		t.Fatal(err)
	}
	return pod
}

// list returns the list at a place of an object, or nothing.
func list(t *testing.T, object *unstructured.Unstructured, place ...string) []any {
	t.Helper()
	items, _, err := unstructured.NestedSlice(object.Object, place...)
	if err != nil {
		t.Fatal(err)
	}
	return items
}

func newObject(version, kind, name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetAPIVersion(version)
	object.SetKind(kind)
	object.SetName(name)
	return object
}

// faults are what the server must refuse, or warn of, in a Deployment that it otherwise takes.
var faults = []struct {
	name  string
	plant func(deployment *unstructured.Unstructured) error
	pod   bool // the pod is judged, not the Deployment
	want  string
}{
	{
		name: "a privileged container",
		plant: func(d *unstructured.Unstructured) error {
			return setContainer(d, map[string]any{"privileged": true}, "securityContext")
		},
		pod:  true,
		want: `violates PodSecurity "restricted:latest": privileged`,
	},
	{
		name: "a template with a container that may run as root",
		plant: func(d *unstructured.Unstructured) error {
			return setContainer(d, int64(0), "securityContext", "runAsUser")
		},
		want: `would violate PodSecurity "restricted:latest": runAsUser=0`,
	},
	{
		name: "an unknown field",
		plant: func(d *unstructured.Unstructured) error {
			return setContainer(d, "/", "workDir")
		},
		want: `workDir: field not declared in schema`,
	},
	{
		name: "a value out of range",
		plant: func(d *unstructured.Unstructured) error {
			return setContainer(d, int64(-1), "livenessProbe", "periodSeconds")
		},
		want: `livenessProbe.periodSeconds: Invalid value: -1`,
	},
}

// setContainer changes a field of the first container of a workload.
func setContainer(workload *unstructured.Unstructured, value any, place ...string) error {
	containers, _, err := unstructured.NestedSlice(workload.Object, "spec", "template", "spec", "containers")
	if err != nil {
		return err
	}
	if err := unstructured.SetNestedField(containers[0].(map[string]any), value, place...); err != nil {
		return err
	}
	return unstructured.SetNestedSlice(workload.Object, containers, "spec", "template", "spec", "containers")
}

// refuses plants each fault in a copy of the Deployment among objects.
func (s *server) refuses(t *testing.T, objects []*unstructured.Unstructured) {
	t.Helper()
	index := slices.IndexFunc(objects, func(object *unstructured.Unstructured) bool { return object.GetKind() == "Deployment" })
	for _, fault := range faults {
		deployment := objects[index].DeepCopy()
		if err := fault.plant(deployment); err != nil {
			t.Fatal(err)
		}
		var err error
		if fault.pod {
			err = s.create(t, podOf(t, deployment))
		} else {
			err = s.apply(t, deployment)
		}
		answer := s.warnings.take()
		if err != nil {
			answer = append(answer, err.Error())
		}
		if text := strings.Join(answer, "\n"); !strings.Contains(text, fault.want) {
			t.Errorf("%s: the server says %q, expected %q", fault.name, text, fault.want)
		}
	}
}
