package store

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/consent"
	"github.com/aepb/aepb-gateway/translators/stream"
)

// InputState is how a question of an agent's stands.
type InputState uint8

// The states.
const (
	InputOpen     InputState = iota // it waits for an answer
	InputClaimed                    // one message answers it, and no other can
	InputAnswered                   // there is an answer
	InputReopened                   // the answer did not reach the agent: it waits for another one
	InputExpired                    // no answer came in time, or another message was first
)

// inputNext says which state follows which. A question is answered once, and one that is reopened is a
// new one for the next message.
var inputNext = map[InputState][]InputState{
	InputOpen:    {InputClaimed, InputAnswered, InputExpired},
	InputClaimed: {InputReopened},
}

// Input is a question of an agent's: its key and its form, how it stands, and the answer.
type Input struct {
	canonical.Input

	State  InputState
	Answer canonical.Answer // with InputAnswered and InputExpired
}

// to moves the question to another state; false: that does not follow.
func (s *InputState) to(next InputState) bool {
	ok := slices.Contains(inputNext[*s], next)
	if ok {
		*s = next
	}
	return ok
}

// Take takes an answer. Its error is a client's in place of an answer, or says which value does not
// fit. Of a question that is not open it does nothing: the first answer counts.
func (in *Input) Take(one AnswerForRound) error {
	if in.State != InputOpen {
		return nil
	}
	if one.Failure != nil {
		return &canonical.Error{Code: one.Failure.Code, Message: "the client answered the question with an error: " + one.Failure.Message}
	}
	answer, err := consent.Fit(in.Input, one.Answer)
	if err == nil && in.State.to(InputAnswered) {
		in.Answer = answer
	}
	return err
}

// Expire answers a question that was not answered in time with a cancellation: the user did not say
// anything.
func (in *Input) Expire() {
	if in.State.to(InputExpired) {
		in.Answer = canonical.Answer{Key: in.Key, Action: canonical.Cancel}
	}
}

// ResumeKind says what it takes to go on with work that waits for its caller.
type ResumeKind string

// The kinds. Records hold their text.
const (
	ResumeNone   ResumeKind = ""
	ResumeTask   ResumeKind = "task"  // a message to the agent's task
	ResumeState  ResumeKind = "state" // the call again, with the answers
	ResumeStream ResumeKind = "open"  // the answers, to the replica that has the agent's stream
	ResumeArgs   ResumeKind = "args"  // arguments that the caller did not give (profile P3)
	ResumeTool   ResumeKind = "tool"  // the name of the tool that the caller means

	// ResumeApproval: humans decide about the call, whose approval State names. Its caller can only cancel it.
	ResumeApproval ResumeKind = "approval"
)

// OpenInput is what the work waits for.
type OpenInput struct {
	Resume ResumeKind    `json:"Waits,omitempty"`
	Round  int           `json:",omitempty"` // how many questions were answered
	Again  int           `json:",omitempty"` // how often what is asked was asked again, because an answer did not fit
	State  string        `json:",omitempty"` // with ResumeState: the agent's; with ResumeApproval: the approval
	Call   *SavedMessage `json:",omitempty"` // the request, to be sent again
}

// Inputs are what the record asks, as the agent asked it.
func (r *Record) Inputs() []canonical.Input {
	if r.Resume == ResumeTask {
		return stream.Plain(stream.Inputs(&r.Task))
	}
	return stream.Inputs(&r.Task)
}

// AnswerForRound is an answer to a question of one round. An agent may ask again under
// the same name: an answer that comes too late for the first question does not answer the
// second.
type AnswerForRound struct {
	canonical.Answer

	Round   int                `json:",omitempty"` // counted from 1; 0: of any
	Failure *canonical.Error   `json:",omitempty"` // of the client, in place of an answer
	Turn    *canonical.Content `json:",omitempty"` // the message with the answer, for the task's history; nil: it has none
}

// ForRound are answers to what the record asks now.
func (r *Record) ForRound(answers []canonical.Answer) []AnswerForRound {
	list := make([]AnswerForRound, len(answers))
	for i, answer := range answers {
		list[i] = AnswerForRound{Answer: answer, Round: r.Round + 1}
	}
	return list
}

// Claim is the questions of one round on record, as one message answers them. One goroutine uses it. A
// nil Claim is that of a message that answers nothing.
type Claim struct {
	Prior Record // the record with the questions

	state InputState
	rec   *Record // of the work
}

// NewClaim is the claim of a message that answers what the record asks.
func NewClaim(rec *Record) *Claim { return &Claim{rec: rec, Prior: *rec} }

// Holds reports whether the message answers the questions, or is about to.
func (c *Claim) Holds() bool { return c != nil && c.state != InputExpired }

// Record is that of the work, as the message changes it.
func (c *Claim) Record() *Record { return c.rec }

// Posted says that changes of the work are posted from now on, which is on record.
func (c *Claim) Posted() {
	if !c.Holds() {
		return
	}
	c.Prior.Pushes = true
	if rec := c.rec; rec.Resume == ResumeNone && rec.Round == c.Prior.Round+1 && !rec.Task.Status.State.Terminal() {
		c.Prior.Revision = rec.Revision
	}
}

// CountAgain counts on record that what is asked is asked again, because an answer did not fit. Its
// errors are those of Save, and a *[problem.ConflictError] if it is not asked any more.
func (s *Store) CountAgain(ctx context.Context, rec *Record) error {
	rec.Again++
	ok, err := s.UpdateRecord(ctx, rec, func(now *Record) (bool, error) {
		if now == nil || now.Resume != rec.Resume || now.Round != rec.Round {
			return false, nil
		}
		*rec = *now
		rec.Again++
		return true, nil
	})
	if err == nil && !ok {
		err = Conflict()
	}
	return err
}

// Claim takes the questions that a message answers off the record: the message that comes second
// answers nothing. It is done last, so that an answer that cannot be said leaves them open. request is
// the ECT of the message. Its errors are *[problem.ConflictError] and those of Save.
func (s *Store) Claim(ctx context.Context, c *Claim, request ect.ID) error {
	rec := c.rec
	rec.Resume, rec.State, rec.Task.Inputs, rec.Saved, rec.Last = ResumeNone, "", nil, nil, request
	rec.Round, rec.Again = rec.Round+1, 0
	rec.Task.Status, rec.Writer = canonical.Status{State: canonical.StateWorking}, s.deps.Replica
	ok, err := s.Save(ctx, rec)
	if err == nil && !ok {
		err = &problem.ConflictError{Reason: "another message answered the question first"}
	}
	if err != nil {
		c.state.to(InputExpired) // they are not ours to put back
		return err
	}
	c.state.to(InputClaimed)
	c.Prior.Revision = rec.Revision
	return nil
}

// Reopen puts questions back that were answered in vain; false: they were not claimed, or something has
// come of the answer since. Its errors are those of SaveIfCurrent.
func (s *Store) Reopen(ctx context.Context, c *Claim) (bool, error) {
	if c == nil || c.state != InputClaimed || c.Prior.Revision != c.rec.Revision {
		return false, nil
	}
	ok, err := s.SaveIfCurrent(ctx, &c.Prior, c.rec.Round)
	if ok {
		c.state.to(InputReopened)
	}
	return ok, err
}

// openQuestion is what is kept of a question that a caller was asked in a session.
type openQuestion struct {
	Box      EntryKey
	Key      string
	Round    int  `json:",omitempty"` // of the answer
	Answered bool `json:",omitempty"` // it is kept only to be known as ours
}

// QuestionKey names a question in a session.
func QuestionKey(session, id, owner string) EntryKey {
	return EntryKey{Kind: KindQuestion, Group: session, ID: id, Owner: owner}
}

// Ask keeps a question about a record's work, by the key of what is asked, until wait is
// over. Its error is a *[problem.RecordingError].
func (s *Store) Ask(ctx context.Context, question EntryKey, rec *Record, key string, wait time.Duration) error {
	return s.saveQuestion(ctx, question, 0, openQuestion{Box: rec.ControlKey(), Key: key, Round: rec.Round + 1}, wait)
}

func (s *Store) saveQuestion(ctx context.Context, key EntryKey, revision uint64, open openQuestion, wait time.Duration) error {
	value, err := json.Marshal(open)
	if err != nil {
		return ErrUnreadable
	}
	if _, _, err := s.deps.Entries.Swap(ctx, key, revision, value, s.deps.Now().Add(wait)); err != nil {
		return &problem.RecordingError{Err: err}
	}
	return nil
}

// Answer gives the answer of a session's client to the replica that asked; false: the
// question is none of this gateway. Its errors are *[problem.RecordingError],
// [ErrUnreadable] and those of [Store.Send].
func (s *Store) Answer(ctx context.Context, question EntryKey, reply *canonical.Reply, wait time.Duration) (bool, error) {
	entry, ok, err := s.deps.Entries.Get(ctx, question)
	if err != nil {
		return false, &problem.RecordingError{Err: err}
	}
	if !ok {
		return false, nil
	}
	var open openQuestion
	if json.Unmarshal(entry.Value, &open) != nil {
		return false, ErrUnreadable
	}
	if open.Answered { // the second answer counts for nothing
		return true, nil
	}
	answer := AnswerForRound{Answer: reply.Answer, Round: open.Round, Failure: reply.Failure}
	answer.Key = open.Key
	// It is delivered before it is put away: what fails in between is done again.
	if err := s.Send(ctx, open.Box, ControlMessage{Answers: []AnswerForRound{answer}, Questions: []string{question.ID}}); err != nil {
		return false, err
	}
	return true, s.saveQuestion(ctx, question, entry.Revision, openQuestion{Answered: true}, wait)
}
