package chart

import (
	"errors"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// clusterSPIFFEID is what the chart may use of spire.spiffe.io/v1alpha1.
type clusterSPIFFEID struct {
	meta.TypeMeta   `json:",inline"`
	meta.ObjectMeta `json:"metadata"`

	Spec struct {
		SPIFFEIDTemplate  string              `json:"spiffeIDTemplate"`
		TTL               meta.Duration       `json:"ttl"`
		DNSNameTemplates  []string            `json:"dnsNameTemplates"`
		FederatesWith     []string            `json:"federatesWith"`
		NamespaceSelector *meta.LabelSelector `json:"namespaceSelector"`
		PodSelector       *meta.LabelSelector `json:"podSelector"`
		ClassName         string              `json:"className"`
		Hint              string              `json:"hint"`
	} `json:"spec"`
}

// object is one rendered document.
type object struct {
	kind, name string
	text       string
	value      meta.Object // a pointer to its type
}

// newValue makes an empty value of the type that a document has.
func newValue(version, kind string) meta.Object {
	switch version + " " + kind {
	case "v1 ConfigMap":
		return &core.ConfigMap{}
	case "v1 Service":
		return &core.Service{}
	case "v1 ServiceAccount":
		return &core.ServiceAccount{}
	case "apps/v1 Deployment":
		return &apps.Deployment{}
	case "apps/v1 StatefulSet":
		return &apps.StatefulSet{}
	case "policy/v1 PodDisruptionBudget":
		return &policy.PodDisruptionBudget{}
	case "autoscaling/v2 HorizontalPodAutoscaler":
		return &autoscaling.HorizontalPodAutoscaler{}
	case "networking.k8s.io/v1 NetworkPolicy":
		return &networking.NetworkPolicy{}
	case "monitoring.coreos.com/v1 ServiceMonitor":
		return &monitoring.ServiceMonitor{}
	case "monitoring.coreos.com/v1 PrometheusRule":
		return &monitoring.PrometheusRule{}
	case "gateway.networking.k8s.io/v1 TLSRoute":
		return &gateway.TLSRoute{}
	case "spire.spiffe.io/v1alpha1 ClusterSPIFFEID":
		return &clusterSPIFFEID{}
	default:
		return nil
	}
}

// decode reads a document into its type. An unknown or repeated field is an error.
func decode(t *testing.T, document string) object {
	t.Helper()
	var head meta.TypeMeta
	if err := yaml.Unmarshal([]byte(document), &head); err != nil {
		t.Fatalf("%v in\n%s", err, document)
	}
	value := newValue(head.APIVersion, head.Kind)
	if value == nil {
		t.Fatalf("%s %s is of no kind that the chart renders", head.APIVersion, head.Kind)
	}
	if err := unmarshalStrict(document, value); err != nil {
		t.Fatalf("%s: %v in\n%s", head.Kind, err, document)
	}
	return object{kind: head.Kind, name: value.GetName(), text: document, value: value}
}

// unmarshalStrict reads YAML as the API server does with strict validation: the case of names
// counts, which encoding/json ignores.
func unmarshalStrict(document string, value any) error {
	data, err := yaml.YAMLToJSONStrict([]byte(document))
	if err != nil {
		return err
	}
	strict, err := json.UnmarshalStrict(data, value)
	return errors.Join(append(strict, err)...)
}

func decodeAll(t *testing.T, r rendering) []object {
	t.Helper()
	return decodeText(t, strings.Join(r.manifests(), "---\n"))
}

// of are the objects of one type.
func of[T any](objects []object) (out []T) {
	for _, o := range objects {
		if value, ok := o.value.(T); ok {
			out = append(out, value)
		}
	}
	return out
}

func TestDecode_Strict(t *testing.T) {
	for document, want := range map[string]string{
		"spec: {clusterIp: None}":                 "spec.clusterIp",
		"spec: {selectors: {}}":                   "spec.selectors",
		"spec: {type: ClusterIP, type: NodePort}": "type",
		"spec: {ports: [{port: https}]}":          "port",
		"{spec: {ports: [{port: 1, name: [a]}]}}": "name",
	} {
		if err := unmarshalStrict(document, &core.Service{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, expected an error about %s", document, err, want)
		}
	}
}
