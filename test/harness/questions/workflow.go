package questions

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/audit"
)

// Workflow are the records of a workflow, in the order of [audit.Ordered].
type Workflow []audit.Record

// Read verifies the tokens of a workflow, and says what is wrong with it: what an auditor finds, and a number of
// beginnings that is not one.
func Read(ctx context.Context, verifier audit.Verifier, tokens []string) (w Workflow, wrong []string) {
	w = audit.Ordered(audit.Verify(ctx, verifier, tokens))
	for _, finding := range audit.Judge(w, "is not there") {
		wrong = append(wrong, fmt.Sprintf("record %d %s", finding.Record, finding.Text))
	}
	roots := 0
	for _, r := range w {
		if len(r.Claims.Parents) == 0 {
			roots++
		}
	}
	if roots != 1 {
		wrong = append(wrong, fmt.Sprintf("%d records have no parent, expected the one that began the workflow", roots))
	}
	return w, wrong
}

// Answers reports whether a request of a gateway has a reply of it as parent, as one with an answer has the reply with
// the question.
func (w Workflow) Answers(gateway ect.Identity) bool {
	replies := map[ect.ID]bool{}
	for _, r := range w {
		replies[r.Claims.ID] = r.Claims.Issuer == gateway && direction(r) == "reply"
	}
	return slices.ContainsFunc(w, func(r audit.Record) bool {
		return r.Claims.Issuer == gateway && direction(r) == "request" &&
			slices.ContainsFunc(r.Claims.Parents, func(id ect.ID) bool { return replies[id] })
	})
}

// String lists the records, one a line.
func (w Workflow) String() string {
	var b strings.Builder
	for i, r := range w {
		fmt.Fprintln(&b, i+1, r.Claims.ID, r.Claims.Issuer, r.Claims.Act, direction(r), r.Claims.Parents)
	}
	return b.String()
}

func direction(r audit.Record) string {
	text, _ := r.Claims.Ext.String(ect.ExtLeg)
	return text
}
