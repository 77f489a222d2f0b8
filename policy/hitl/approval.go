package hitl

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/ect"
)

// State says how an approval stands.
type State string

// The states. Stored records hold their text.
const (
	Pending  State = "pending"  // humans have to decide
	Granted  State = "granted"  // the call may be sent once
	Denied   State = "denied"   // it is not sent
	Expired  State = "expired"  // the time was over before it was decided or, once granted, sent
	Canceled State = "canceled" // its caller does not want it any more, or the rules are others by now
	Consumed State = "consumed" // the call was released: it was sent, or its gateway ended while it sent it
)

// States lists them all.
func States() []State { return []State{Pending, Granted, Denied, Expired, Canceled, Consumed} }

// Over reports whether nothing can follow.
func (s State) Over() bool { return len(transitions[s]) == 0 }

// Kind is what can happen to an approval.
type Kind string

// The kinds of events.
const (
	Grant   Kind = "grant"
	Deny    Kind = "deny"
	Expire  Kind = "expire"
	Proceed Kind = "proceed" // the time is over, and the rules say that the call goes on without a human
	Raise   Kind = "raise"   // the time is over, and the rules say that operators are told once more
	Cancel  Kind = "cancel"
	Consume Kind = "consume"
)

// transitions says which event leads where. A grant leads there once as many approvers as are demanded have
// granted it.
var transitions = map[State]map[Kind]State{
	Pending: {Grant: Granted, Deny: Denied, Expire: Expired, Proceed: Granted, Raise: Pending, Cancel: Canceled},
	Granted: {Deny: Denied, Expire: Expired, Cancel: Canceled, Consume: Consumed},
}

// Call is one exact call.
type Call struct {
	Caller    ect.Identity `json:"caller"`
	Address   string       `json:"address,omitempty"` // of a caller without an identity
	Agent     string       `json:"agent"`             // its name in the directory
	Operation string       `json:"operation"`
	Tool      string       `json:"tool,omitempty"` // as the agent names it; empty: the agent has no tools, or the call names none
	Digest    string       `json:"digest"`         // hash of what the call says, whatever its message is named and numbered
}

// Owner names the owner of the call's work: callers without an identity differ by address.
func (c Call) Owner() string {
	if c.Address != "" {
		return string(c.Caller) + "@" + c.Address
	}
	return string(c.Caller)
}

// Decision is what one approver decided.
type Decision struct {
	Approver Approver  `json:"approver"`
	Granted  bool      `json:"granted"`
	Reason   string    `json:"reason,omitempty"`
	Shown    string    `json:"shown"` // hash of the text that the approver was shown
	At       time.Time `json:"at"`
	Token    ect.ID    `json:"token,omitempty"` // of the ECT that says so
}

// Approver is a human, or a program in place of one, as the gateway knows it.
type Approver struct {
	ID   ect.Identity `json:"id,omitempty"`   // empty: known by a name alone
	Name string       `json:"name,omitempty"` // in admin.operators; empty: not listed
}

// same reports whether two approvers may be one.
func (a Approver) same(b Approver) bool {
	return a.ID != "" && a.ID == b.ID || a.Name != "" && a.Name == b.Name
}

// Origin is where an approval comes from.
type Origin struct {
	Workflow string `json:"wid"`
	Gated    ect.ID `json:"gated"`              // the ECT of the call: its source, or the intent that the gateway signed for it
	Input    string `json:"inp_hash"`           // hash of the message as it came first: that of the gated ECT
	Attested bool   `json:"attested,omitempty"` // Gated is the source
	Before   string `json:"before,omitempty"`   // the approval of the same call before this one
}

// End is how an approval ended where no approver decided.
type End struct {
	Why     string `json:"why,omitempty"`
	Replica string `json:"replica,omitempty"` // that consumed it
}

// Approval is a call that waits for humans, or did. It does not change: Next makes the next one.
type Approval struct {
	Form      int        `json:"form"`
	ID        string     `json:"id"`
	Term      uint64     `json:"term"` // grows with each change
	State     State      `json:"state"`
	Call      Call       `json:"call"`
	Demand    Demand     `json:"demand"`
	Origin    Origin     `json:"origin"`
	Shown     string     `json:"shown"` // hash of the text that approvers are shown
	Whole     bool       `json:"whole"` // the text shows all of the call; otherwise it can be denied alone
	Opened    time.Time  `json:"opened"`
	Until     time.Time  `json:"until"` // when it expires; it is granted for Demand.Wait from then
	Changed   time.Time  `json:"changed"`
	Decisions []Decision `json:"decisions,omitempty"`
	Task      string     `json:"task,omitempty"` // the caller's task that waits; empty: its caller sends the same call again
	End       End        `json:"end,omitzero"`
	Token     string     `json:"token,omitempty"` // what the gateway signed of it last
}

// Form is the version of the JSON of stored approvals.
const Form = 1

// Event is what happens to an approval.
type Event struct {
	Kind     Kind
	At       time.Time
	Approver Approver // with Grant and Deny
	Roles    []string // that the approver has
	Reason   string
	Shown    string // hash of what the approver was shown
	Token    ect.ID // of the approver's own ECT
	Replica  string // with Consume
	Call     Call   // with Consume: what is to be sent
	Rules    string // with Consume: Demand.Hash of the rules in force; empty: no rule demands an approval any more
}

// StateError reports an event that does not follow.
type StateError struct {
	State State
	Kind  Kind
}

func (e *StateError) Error() string {
	return fmt.Sprintf("approval: it is %s, so there is nothing to %s", e.State, e.Kind)
}

// RefusedError reports a decision, a release or a lifting that is not allowed.
type RefusedError struct {
	About  string // empty: an approval
	Reason string
}

func (e *RefusedError) Error() string { return cmp.Or(e.About, "approval") + ": " + e.Reason }

// Next is the approval after an event. Its errors are *[StateError] and *[RefusedError]; the approval stays as
// it is then. The same decision of the same approver once more changes nothing, and is no error.
func (a Approval) Next(e Event) (Approval, error) {
	if e.Kind == Grant && a.decided(e.Approver, true) || e.Kind == Deny && a.State == Denied && a.decided(e.Approver, false) {
		return a, nil
	}
	to, ok := transitions[a.State][e.Kind]
	if !ok {
		return a, &StateError{a.State, e.Kind}
	}
	if err := a.judge(e); err != nil {
		return a, err
	}
	return a.after(e, to), nil
}

// after is the approval once an event that is allowed has happened.
func (a Approval) after(e Event, to State) Approval {
	next := a
	switch e.Kind {
	case Grant, Deny:
		next.Decisions = append(slices.Clip(a.Decisions), Decision{e.Approver, e.Kind == Grant, e.Reason, e.Shown, e.At, e.Token})
	case Raise: // once
		next.Until, next.Demand.Unreachable = e.At.Add(a.Demand.Wait), DenyCall
	case Consume:
		next.End.Replica = e.Replica
	case Proceed, Expire, Cancel:
		next.End.Why = cmp.Or(e.Reason, a.End.Why)
	}
	if e.Kind == Grant && next.grants() < a.Demand.Approvers {
		to = Pending
	}
	if to == Granted {
		next.Until = e.At.Add(a.Demand.Wait)
	}
	next.State, next.Changed = to, e.At
	next.Term++
	return next
}

// judge says why an event is not allowed; nil: it is.
func (a Approval) judge(e Event) error {
	over := !e.At.Before(a.Until)
	switch e.Kind {
	case Grant, Deny:
		return a.judgeDecision(e, over)
	case Consume:
		switch {
		case over:
			return &RefusedError{Reason: "its time is over: ask again"}
		case e.Call != a.Call:
			return &RefusedError{Reason: "it is for another call"}
		case e.Rules != "" && e.Rules != a.Demand.Hash:
			return &RefusedError{Reason: "the rules have changed since: ask again"}
		}
	case Expire, Proceed, Raise:
		return a.judgeOverdue(e, over)
	case Cancel:
	}
	return nil
}

// judgeOverdue says why an event that follows from the end of the time is not allowed.
func (a Approval) judgeOverdue(e Event, over bool) error {
	switch {
	case !over:
		return &RefusedError{Reason: "its time is not over"}
	case e.Kind == Proceed && a.Demand.Unreachable != Continue:
		return &RefusedError{Reason: "the rules do not let it go on without a human"}
	case e.Kind == Proceed && !a.Whole:
		return &RefusedError{Reason: "the call cannot be shown whole, so it does not go on without a human"}
	case e.Kind == Raise && a.Demand.Unreachable != Escalate:
		return &RefusedError{Reason: "the rules do not let it wait once more"}
	}
	return nil
}

func (a Approval) judgeDecision(e Event, over bool) error {
	missing := slices.IndexFunc(a.Demand.Roles, func(role string) bool { return !slices.Contains(e.Roles, role) })
	switch {
	case over:
		return &RefusedError{Reason: "its time is over"}
	case e.Approver == (Approver{}):
		return &RefusedError{Reason: "a decision is of an approver with an identity"}
	case e.Approver.ID != "" && e.Approver.ID == a.Call.Caller:
		return &RefusedError{Reason: "who asks for an approval does not decide about it"}
	case len(a.Demand.Roles) == 0:
		return &RefusedError{Reason: "no role decides about it"}
	case missing >= 0:
		return &RefusedError{Reason: "the role " + a.Demand.Roles[missing] + " is required to decide about it"}
	case e.Kind == Grant && !a.Whole:
		return &RefusedError{Reason: "the call cannot be shown whole, so it can be denied alone"}
	case e.Shown != a.Shown:
		return &RefusedError{Reason: "the decision is about another text than the one that is shown: look at the approval again"}
	case e.Kind == Grant && slices.ContainsFunc(a.Decisions, func(d Decision) bool { return d.Approver.same(e.Approver) }):
		return &RefusedError{Reason: "another approver has to grant it, too"}
	}
	return nil
}

// decided reports whether the last decision of an approver was that.
func (a Approval) decided(who Approver, granted bool) bool {
	for _, d := range slices.Backward(a.Decisions) {
		if d.Approver == who {
			return d.Granted == granted
		}
	}
	return false
}

// grants counts the approvers that have granted it.
func (a Approval) grants() (n int) {
	for _, d := range a.Decisions {
		if d.Granted {
			n++
		}
	}
	return n
}
