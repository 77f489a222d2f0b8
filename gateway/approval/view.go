package approval

import (
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/policy/hitl"
)

// View is an approval as approvers are shown it.
type View struct {
	hitl.Approval

	Text      string   // what is shown: hitl.Approval.Shown is its hash
	Callbacks []string // URIs that are told the decision, registered in its workflow in any binding
}

// Query says which approvals are wanted.
type Query struct {
	State hitl.State // empty: any
	After string     // the id behind which the page begins; empty: from the start
	Limit int        // at most so many, 1 to MaxPage; 0: MaxPage
}

// MaxPage bounds the approvals of one page.
const MaxPage = 100

// Page is a part of the approvals, in the order of their ids.
type Page struct {
	Approvals []hitl.Approval
	Next      string // for Query.After; empty: there are no more
}

// Decision is what an approver wants.
type Decision struct {
	Grant    bool
	Approver hitl.Approver
	Roles    []string // that the approver has
	Reason   string   // at most MaxReason bytes, without control characters
	Shown    string   // hash of the text that the approver was shown
	Token    ect.ID   // of the approver's own ECT that says so; empty: the gateway signs that it was decided
}

// MaxReason bounds the reason of a decision, in bytes.
const MaxReason = 512
