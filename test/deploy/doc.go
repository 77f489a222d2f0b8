// Package deploy has the tests of the folder deploy/. It is a module of its own,
// because Helm, the types of Kubernetes, Compose and PromQL bring hundreds of
// modules that the gateway does not need.
package deploy
