// Package chart has the tests of the Helm chart in deploy/helm/aepb-gateway and of
// the manifests in deploy/kubernetes, which are rendered from it. Helm is used as a
// library, without a cluster.
//
// Each testdata/NAME.yaml is a set of values, and testdata/NAME.golden.yaml what the
// chart makes of it. go test ./chart -update writes the renderings anew.
package chart
