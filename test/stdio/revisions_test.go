package stdio

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/translators/mcp"
)

// TestPrograms_EveryRevision: a program that the configuration names is spoken to in the
// revision that is pinned, the one without sessions too.
func TestPrograms_EveryRevision(t *testing.T) {
	t.Parallel()
	var agents strings.Builder
	agents.WriteString("agents:\n")
	name := func(revision string) string { return "in-" + revision }
	for _, revision := range mcp.Revisions() {
		fmt.Fprintf(&agents, "  %s:\n    revision: %s\n    endpoints: [{binding: mcp-v1, program: {command: [%q, %s]}}]\n", name(revision), revision, os.Args[0], wildServer)
	}
	g := startGateway(t, agents.String())
	for _, revision := range mcp.Revisions() {
		t.Run(revision, func(t *testing.T) {
			t.Parallel()
			for _, word := range []string{"one", "two"} {
				reply, err := call(t.Context(), g, name(revision), "echo", `{"text": "`+word+`"}`)
				if err != nil || reply.Text() != word {
					t.Errorf("%s: %v", reply.Text(), err)
				}
			}
		})
	}
}
