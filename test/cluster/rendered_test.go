package main

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
)

// chart is what the chart renders for three replicas.
type chart struct {
	config         []byte // of the gateway
	preStop, grace time.Duration
}

// manifest is what the test needs of a Kubernetes object.
type manifest struct {
	Kind string
	Data map[string]string
	Spec struct {
		Replicas int
		Template struct {
			Spec struct {
				Grace      int `yaml:"terminationGracePeriodSeconds"`
				Containers []struct {
					Lifecycle struct {
						PreStop struct{ Sleep struct{ Seconds int } } `yaml:"preStop"`
					}
				}
			}
		}
	}
}

// rendered reads what the tests of the chart render from cluster.yaml.
func rendered(t *testing.T) chart {
	t.Helper()
	var out chart
	decoder := yaml.NewDecoder(bytes.NewReader(read(t, "test", "deploy", "chart", "testdata", "cluster.golden.yaml")))
	for {
		var m manifest
		err := decoder.Decode(&m)
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		switch m.Kind {
		case "ConfigMap":
			out.config = []byte(m.Data["gateway.yaml"])
		case "Deployment":
			pod := m.Spec.Template.Spec
			if m.Spec.Replicas != replicaCount || len(pod.Containers) != 1 {
				t.Fatalf("%d replicas of %d containers", m.Spec.Replicas, len(pod.Containers))
			}
			out.preStop = time.Duration(pod.Containers[0].Lifecycle.PreStop.Sleep.Seconds) * time.Second
			out.grace = time.Duration(pod.Grace) * time.Second
		}
	}
	if out.config == nil || out.preStop == 0 || out.grace <= out.preStop {
		t.Fatalf("the chart renders no configuration, or times that cannot be: %+v", out)
	}
	return out
}
