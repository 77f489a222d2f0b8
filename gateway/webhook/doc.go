// Package webhook posts to addresses that callers named, in the background. hooks.go keeps the
// webhooks of tasks and posts their changes, in order; callbacks.go keeps who is told what
// humans decide in a workflow, what was decided, and tells it.
package webhook
