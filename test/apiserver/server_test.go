package apiserver

import (
	"context"
	"encoding/json"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/prometheus-operator/prometheus-operator/pkg/versionutil" // its module has definitions
	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app/testing"
	_ "sigs.k8s.io/gateway-api/pkg/consts" // its module has definitions
	"sigs.k8s.io/yaml"
)

// definitions are the files with the kinds that the chart uses and Kubernetes lacks, by module.
// ClusterSPIFFEID has no module that a proxy serves.
var definitions = map[string][]string{
	"sigs.k8s.io/gateway-api": {"config/crd/standard/gateway.networking.k8s.io_tlsroutes.yaml"},
	"github.com/prometheus-operator/prometheus-operator": {
		"example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
		"example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",
	},
}

// server is a client of an API server that has the definitions.
type server struct {
	client   dynamic.Interface
	kinds    *restmapper.DeferredDiscoveryRESTMapper
	warnings *warnings
}

// startServer starts etcd and an API server in this process, on loopback.
func startServer(t *testing.T) *server {
	t.Helper()
	running := apiserver.StartTestServerOrDie(t, nil, []string{"--allow-privileged"}, startEtcd(t))
	t.Cleanup(running.TearDownFn)

	s := &server{warnings: &warnings{}}
	config := running.ClientConfig
	config.WarningHandler = s.warnings
	var err error
	if s.client, err = dynamic.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	kinds, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	s.kinds = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(kinds))
	for module, files := range definitions {
		dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
		if err != nil {
			t.Fatalf("where is the module %s: %v", module, err)
		}
		for _, file := range files {
			s.define(t, filepath.Join(strings.TrimSpace(string(dir)), file))
		}
	}
	return s
}

// startEtcd starts etcd with an empty folder and says how to reach it.
func startEtcd(t *testing.T) *storagebackend.Config {
	t.Helper()
	config := embed.NewConfig()
	config.Dir = t.TempDir()
	config.LogLevel = "error"
	config.UnsafeNoFsync = true
	loopback := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	config.ListenClientUrls, config.AdvertiseClientUrls = loopback, loopback
	config.ListenPeerUrls, config.AdvertisePeerUrls = loopback, loopback
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(etcd.Close)
	select {
	case <-etcd.Server.ReadyNotify():
	case err := <-etcd.Err():
		t.Fatal(err)
	case <-time.After(time.Minute):
		t.Fatal("etcd is not ready after a minute")
	}
	storage := storagebackend.NewDefaultConfig("registry", nil)
	storage.Transport.ServerList = []string{"http://" + etcd.Clients[0].Addr().String()}
	return storage
}

// define installs a CustomResourceDefinition and waits until its kind is served.
func (s *server) define(t *testing.T, file string) {
	t.Helper()
	objects := readObjects(t, file)
	if len(objects) != 1 {
		t.Fatalf("%s has %d documents, expected 1", file, len(objects))
	}
	if err := s.apply(t, objects[0]); err != nil {
		t.Fatal(err)
	}
	group, _, _ := unstructured.NestedString(objects[0].Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(objects[0].Object, "spec", "names", "kind")
	list := &unstructured.Unstructured{}
	list.SetAPIVersion(group + "/v1")
	list.SetKind(kind)
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		s.kinds.Reset()
		resource, err := s.resource(list)
		if err != nil {
			return false, nil //nolint:nilerr // not yet
		}
		_, err = resource.List(ctx, metav1.ListOptions{})
		return err == nil, nil
	})
	if err != nil {
		t.Fatalf("%s is not served after 30 s: %v", kind, err)
	}
}

// resource is where the server keeps objects of the kind and namespace that object has.
func (s *server) resource(object *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	kind := object.GroupVersionKind()
	mapping, err := s.kinds.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return s.client.Resource(mapping.Resource), nil
	}
	return s.client.Resource(mapping.Resource).Namespace(object.GetNamespace()), nil
}

// apply is what `kubectl apply --server-side` does.
func (s *server) apply(t *testing.T, object *unstructured.Unstructured) error {
	t.Helper()
	resource, err := s.resource(object)
	if err != nil {
		return err
	}
	data, err := json.Marshal(object)
	if err != nil {
		return err
	}
	_, err = resource.Patch(t.Context(), object.GetName(), types.ApplyPatchType, data,
		metav1.PatchOptions{FieldManager: "test", FieldValidation: metav1.FieldValidationStrict})
	return err
}

// create asks the server whether it would create an object.
func (s *server) create(t *testing.T, object *unstructured.Unstructured) error {
	t.Helper()
	resource, err := s.resource(object)
	if err != nil {
		return err
	}
	_, err = resource.Create(t.Context(), object,
		metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict, DryRun: []string{metav1.DryRunAll}})
	return err
}

// warnings collects what the server warns of.
type warnings struct {
	mu   sync.Mutex
	list []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = append(w.list, text)
}

// take returns the warnings since the last call.
func (w *warnings) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.list
	w.list = nil
	return list
}

// readObjects reads the documents of a file of YAML.
func readObjects(t *testing.T, file string) (objects []*unstructured.Unstructured) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq("\n"+string(text), "\n---\n") {
		var fields map[string]any
		if err := yaml.UnmarshalStrict([]byte(document), &fields); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if len(fields) > 0 {
			objects = append(objects, &unstructured.Unstructured{Object: fields})
		}
	}
	return objects
}
