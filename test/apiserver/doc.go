// Package apiserver has a test that applies the manifests of deploy/ to a real API server of
// Kubernetes. It is a module of its own: the server takes minutes to compile.
package apiserver
