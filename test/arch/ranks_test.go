package arch_test

import (
	"fmt"
	"strings"
)

// ranks are the folders of gateway/ in their order, each with what lies below it unless that
// has a row of its own. A package imports lower ranks, and in its own rank only what lies
// below itself. Those of the pipeline see protocols as interfaces alone.
var ranks = []struct {
	rank    int
	folders []string
}{
	{1, []string{"gateway/worker", "gateway/state", "gateway/transport", "gateway/transport/egress", "gateway/transport/sse"}},
	{2, []string{"gateway/directory"}},
	{3, []string{"gateway/problem"}},
	{4, []string{"gateway/telemetry", "gateway/sample"}},
	{6, []string{"gateway/attest", "gateway/outbound", "gateway/idempotency", "gateway/conversation"}},
	{7, []string{"gateway/record"}},
	{8, []string{"gateway/checkpoint", "gateway/descriptor", "gateway/destination", "gateway/breakers", "gateway/lifecycle", "gateway/listing", "gateway/schedule", "gateway/workflow"}},
	{9, []string{"gateway/admission"}},
	{10, []string{"gateway/routing"}},
	{11, []string{"gateway/task/store"}},
	{12, []string{"gateway/task/execution"}},
	{13, []string{"gateway/task"}},
	{14, []string{"gateway/approval", "gateway/webhook", "gateway/mcpbridge", "gateway/rollback"}},
	{15, []string{"gateway/consensus"}},
	{16, []string{"gateway"}},
}

// firstOfPipeline is the lowest rank that the law judges.
const firstOfPipeline = 6

// rankOf is the rank of a folder; 0: it has none, as protocols, which packages of the
// pipeline do not import.
func rankOf(dir string) (rank int, folder string) {
	for _, row := range ranks {
		for _, f := range row.folders {
			exact := f == "gateway" || f == "gateway/transport"
			if (dir == f || !exact && under(dir, f)) && len(f) > len(folder) {
				rank, folder = row.rank, f
			}
		}
	}
	return rank, folder
}

// rankLaw: data moves forward only, so the steps of the pipeline import what comes before
// them.
func rankLaw(t tree) []string {
	var failures []string
	for _, s := range t.sources {
		own, folder := rankOf(s.dir)
		if s.test || own < firstOfPipeline {
			continue
		}
		for _, spec := range s.tree.Imports {
			target, ours := strings.CutPrefix(importPath(spec), module+"/")
			if !ours || !under(target, "gateway") {
				continue
			}
			rank, at := rankOf(target)
			if rank == 0 || rank > own || rank == own && at != folder {
				failures = append(failures, fmt.Sprintf("%s: %s (rank %d) imports %s (rank %d): a package imports lower ranks, declare an interface", s.at(spec), folder, own, target, rank))
			}
		}
	}
	return failures
}
