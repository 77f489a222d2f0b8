package server

import (
	"strings"
	"testing"
)

// TestRun_WithoutSockets: a program that forgot the sockets reads what to set.
func TestRun_WithoutSockets(t *testing.T) {
	t.Parallel()
	if err := (&Server{}).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "set Sockets.Public and Sockets.Admin") {
		t.Errorf("got %v", err)
	}
}
