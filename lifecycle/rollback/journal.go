package rollback

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/ect"
)

// Version is that of the schema of a journal.
const Version = 1

// MaxTries is how often the request of a step is sent, if no answer comes.
const MaxTries = 10

// cascadedSize bounds atd.cascaded, in bytes.
const cascadedSize = 2500

// StepState is how far a step is.
type StepState string

// The states of a step. The last four are its end.
const (
	StepWaiting   StepState = "waiting"
	StepSent      StepState = "sent" // its request is signed, and was perhaps sent
	StepCompleted StepState = "completed"
	StepFailed    StepState = "failed"
	StepEscalated StepState = "escalated" // a human deals with it
	StepSkipped   StepState = "skipped"   // there is nothing to undo
)

// ended reports whether a step changes no more.
func (s StepState) ended() bool { return s != StepWaiting && s != StepSent }

// Progress is a step with its state.
type Progress struct {
	Step

	State    StepState `json:"state"`
	Tries    int       `json:"tries,omitempty"`    // how often its request was sent, or is to be sent now
	Request  string    `json:"request,omitempty"`  // compact token of the request; once it is there, it stays
	Restored string    `json:"restored,omitempty"` // out_hash of the answer
	Reason   string    `json:"reason,omitempty"`   // why it failed or was escalated; at most 512 bytes
}

// Review is how far a human's look at a rollback is, before its first step. Empty: it needs none.
type Review string

// The states of a review.
const (
	ReviewWanted   Review = "wanted"
	ReviewPaused   Review = "paused" // the workflow is paused, and a human looks
	ReviewReleased Review = "released"
	ReviewDeclined Review = "declined" // a human stopped the workflow instead
)

// open reports whether a human is still to look.
func (r Review) open() bool { return r == ReviewWanted || r == ReviewPaused }

// Status is how a rollback ended (ATD, Basic Rollback).
type Status string

// The four statuses.
const (
	StatusCompleted Status = "completed"
	StatusPartial   Status = "partial"
	StatusEscalated Status = "escalated"
	StatusFailed    Status = "failed"
)

// Journal is a rollback under way, or one that has ended. It is immutable: [Journal.Next] makes the next one.
type Journal struct {
	Term       uint64       `json:"term"` // grows by one with each change
	Workflow   string       `json:"workflow"`
	From       ect.ID       `json:"from"`
	Cascade    bool         `json:"cascade,omitempty"`
	Issuer     ect.Identity `json:"issuer"`  // of the rollback request
	Request    ect.ID       `json:"request"` // its jti
	Accepted   time.Time    `json:"accepted"`
	By         time.Time    `json:"by"`
	Runner     string       `json:"runner"` // who goes on with it
	Review     Review       `json:"review,omitempty"`
	Steps      []Progress   `json:"steps"`
	Error      string       `json:"error,omitempty"`      // compact token of the atd:error: the time was over
	Escalation string       `json:"escalation,omitempty"` // compact token of the atd:escalate: a human has to look
	Result     string       `json:"result,omitempty"`     // compact token of the atd:rollback_result
	Status     Status       `json:"status,omitempty"`     // empty: it has not ended
	Ended      time.Time    `json:"ended,omitzero"`
}

// Begin makes the journal of a plan that was accepted. Steps with nothing to undo are skipped, and those that cannot be
// undone are escalated. issuer and request name the rollback request, runner who carries it out.
func Begin(p Plan, workflow string, issuer ect.Identity, request ect.ID, runner string) Journal {
	j := Journal{
		Term: 1, Workflow: workflow, From: p.From, Cascade: p.Cascade, Issuer: issuer, Request: request,
		Accepted: instant(p.At), By: instant(p.By), Runner: runner, Steps: make([]Progress, len(p.Steps)),
	}
	if len(p.Review) > 0 {
		j.Review = ReviewWanted
	}
	for i, s := range p.Steps {
		j.Steps[i] = Progress{Step: s, State: StepWaiting}
		switch s.How {
		case Nothing:
			j.Steps[i].State = StepSkipped
		case Never:
			j.Steps[i].State, j.Steps[i].Reason = StepEscalated, reasonNever
		default:
		}
	}
	return j
}

// EffectKind says what is to be done.
type EffectKind string

// The effects, each with the events that tell the journal about it.
const (
	Hold     EffectKind = "hold"     // pause the workflow, so that a human looks first; Paused or Declined
	Await    EffectKind = "await"    // look whether the human has let the workflow go on; Released or Declined
	Sign     EffectKind = "sign"     // sign the request of a step; Sent
	Send     EffectKind = "send"     // send the request of a step; Undone, Failed or Unanswered
	Report   EffectKind = "report"   // the time is over: sign the atd:error; Overdue
	Escalate EffectKind = "escalate" // sign the atd:escalate; Escalated
	End      EffectKind = "end"      // sign the atd:rollback_result; Ended
	Done     EffectKind = "done"     // nothing: the rollback has ended
)

// Effect is what is to be done now.
type Effect struct {
	Kind EffectKind
	Step int // of Sign and Send: its place in Steps
}

// Due says what is to be done at a time.
func (j Journal) Due(now time.Time) Effect {
	at, open := j.current()
	switch {
	case j.Status != "":
		return Effect{Kind: Done}
	case open && !now.Before(j.By):
		return Effect{Kind: Report}
	case open && j.Review == ReviewWanted:
		return Effect{Kind: Hold}
	case open && j.Review == ReviewPaused:
		return Effect{Kind: Await}
	case open && j.Steps[at].State == StepSent:
		return Effect{Kind: Send, Step: at}
	case open:
		return Effect{Kind: Sign, Step: at}
	case j.needsHuman() && j.Escalation == "":
		return Effect{Kind: Escalate}
	default:
		return Effect{Kind: End}
	}
}

// current is the step that is undone now; false: there is none, since all have ended or one failed.
func (j Journal) current() (at int, open bool) {
	if j.has(StepFailed) {
		return 0, false
	}
	at = slices.IndexFunc(j.Steps, func(p Progress) bool { return !p.State.ended() })
	return max(at, 0), at >= 0
}

// needsHuman reports whether a step is for a human.
func (j Journal) needsHuman() bool { return j.has(StepEscalated) }

// has reports whether a step is in one of the states.
func (j Journal) has(states ...StepState) bool {
	return slices.ContainsFunc(j.Steps, func(p Progress) bool { return slices.Contains(states, p.State) })
}

// Outcome is the status that the steps have together now: completed if nothing is left to undo, partial if something
// was undone and something was not, failed if a step failed, else escalated.
func (j Journal) Outcome() Status {
	switch {
	case !j.has(StepWaiting, StepSent, StepFailed, StepEscalated):
		return StatusCompleted
	case j.has(StepCompleted):
		return StatusPartial
	case j.has(StepFailed) || !j.has(StepEscalated):
		return StatusFailed
	default:
		return StatusEscalated
	}
}

// status is the status of a step in atd.cascaded.
func (s StepState) status() Status {
	switch s {
	case StepCompleted, StepSkipped:
		return StatusCompleted
	case StepEscalated:
		return StatusEscalated
	default:
		return StatusFailed
	}
}

// AgentStatus is an entry of atd.cascaded.
type AgentStatus struct {
	Agent  string `json:"agent"`
	Status Status `json:"status"`
}

// Ext is the ext claim of the atd:rollback_result (ATD, Basic Rollback). atd.cascaded has the steps other than that of
// From, as many as fit 2,500 bytes; atd.cascaded_omitted counts the others.
func (j Journal) Ext() ect.Ext {
	ext := ect.Ext{}
	ext.SetString(ect.ExtStatus, string(j.Outcome()))
	ext.SetString(ect.ExtCheckpointID, string(j.From))
	list, omitted := []byte{'['}, 0
	for _, p := range j.Steps {
		if p.Checkpoint == j.From {
			continue
		}
		entry, err := json.Marshal(AgentStatus{p.Agent, p.State.status()})
		if err != nil || omitted > 0 || len(list)+len(entry)+len(",]") > cascadedSize {
			omitted++
			continue
		}
		if len(list) > 1 {
			list = append(list, ',')
		}
		list = append(list, entry...)
	}
	ext[ect.ExtCascaded] = append(list, ']')
	if omitted > 0 {
		ext.SetInt(ect.ExtCascaded+"_omitted", int64(omitted))
	}
	return ext
}

// OutHash is the out_hash of the atd:rollback_result: what the step of From restored. If From has no step of its own
// that was completed, it is the hash over "CHECKPOINT RESTORED\n" of each completed step, in their order; empty if no
// step was completed.
func (j Journal) OutHash() string {
	var lines strings.Builder
	for _, p := range j.Steps {
		if p.State != StepCompleted {
			continue
		}
		if p.Checkpoint == j.From {
			return p.Restored
		}
		lines.WriteString(string(p.Checkpoint) + " " + p.Restored + "\n")
	}
	if lines.Len() == 0 {
		return ""
	}
	return ect.Hash([]byte(lines.String()))
}
