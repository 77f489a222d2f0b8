// Package webhook posts to addresses that callers named. callbacks.go keeps who is told what
// humans decide in a workflow, what was decided, and tells it.
package webhook
