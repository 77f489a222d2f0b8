package execution

import (
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/gateway/outbound"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/worker"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/stream"
)

// maxInputs bounds the questions that an agent has open in one stream.
const maxInputs = 16

// MaxAgain is how often a question is asked again because its answer does not fit.
const MaxAgain = 3

// ErrCanceled: the caller wants the work ended.
var ErrCanceled = &problem.CanceledError{}

// ErrStopped: this process ends.
var ErrStopped = &problem.StoppedError{}

// errUndelivered: replicas have given up delivering answers, and clients do not send them again.
var errUndelivered = &canonical.Error{
	Code: canonical.CodeUnavailable, Message: "the answer could not be delivered in time; whether the agent has finished is not known",
}

// inputs are the questions of the agent.
type inputs struct {
	ask     *canonical.Ask      // what the agent's open stream waits for
	asks    []*canonical.Ask    // and what it asks beside that
	round   int                 // how many questions were answered
	history []canonical.Content // of the task, for a caller who asks for it
	misfits map[string]string   // by the key of a question: why its last answer does not fit
}

// Pending is the questions of one round while the execution waits for answers.
type Pending struct {
	Refused *canonical.Error // why what the caller gave is no answer; nil: it is one

	inputs  []store.Input
	misfits map[string]string   // by the key of a question: why its answer does not fit; it is to be asked again
	again   map[string]int      // how often a question was asked again
	since   map[string]int      // the round of that; an answer to it as it was asked before counts for nothing
	turns   []canonical.Content // the messages with the answers, for the task's history
	until   time.Time
	round   int
	session bool // the caller is asked in its session: its client does not say an answer twice
}

// NewPending makes the questions that are asked after so many rounds.
func NewPending(inputs []canonical.Input, round int) *Pending {
	p := &Pending{round: round, misfits: map[string]string{}, again: map[string]int{}, since: map[string]int{}}
	for _, in := range inputs {
		p.inputs, p.since[in.Key] = append(p.inputs, store.Input{Input: in}), round
	}
	return p
}

// pose makes a round of the questions that are open now.
func (e *Execution) pose(session bool) *Pending {
	p := NewPending(e.openInputs(), e.round)
	p.until, p.session = e.now().Add(e.req.Limits.Answers), session
	return p
}

// Take takes answers; the first one that fits counts. An error that a client sends is not an answer:
// it ends the wait. Values that do not fit leave their question open.
func (p *Pending) Take(answers []store.AnswerForRound) {
	for _, one := range answers {
		at := slices.IndexFunc(p.inputs, func(in store.Input) bool { return in.Key == one.Key })
		if unknown := at < 0; unknown || p.inputs[at].State == store.InputAnswered || p.outdated(one) {
			continue
		}
		refused, _ := errors.AsType[*canonical.Error](p.inputs[at].Take(one))
		if refused != nil && !p.misfit(p.inputs[at].Input, one, refused) {
			p.Refused = refused
			return
		}
		if refused == nil && one.Turn != nil {
			p.turns = append(p.turns, *one.Turn)
		}
	}
}

// outdated reports whether an answer is to its question as it was asked before, or to no round yet.
// An answer to what is asked now names the round p.round+1; 0 stands for any round.
func (p *Pending) outdated(one store.AnswerForRound) bool {
	return one.Round != 0 && (one.Round <= p.since[one.Key] || one.Round > p.round+1)
}

// misfit leaves a question open whose answer has values that do not fit. False: it is not such an
// answer, or the question was asked again MaxAgain times.
func (p *Pending) misfit(in canonical.Input, one store.AnswerForRound, why *canonical.Error) bool {
	if one.Failure != nil || !IsMisfit(in, one.Answer) || p.again[in.Key] == MaxAgain {
		return false
	}
	p.misfits[in.Key] = why.Message
	return true
}

// IsMisfit reports whether an answer that was refused has values which its caller can mend.
func IsMisfit(in canonical.Input, one canonical.Answer) bool {
	return one.Action == canonical.Accept && (in.Mode == canonical.ModeForm || in.Mode == canonical.ModeText)
}

// poseAgain begins another round for the questions whose answers do not fit, and returns them. The
// others wait as they did, and none waits for longer.
func (i *inputs) poseAgain(p *Pending) (again []canonical.Input) {
	i.round++
	p.round, i.misfits, p.misfits = i.round, p.misfits, map[string]string{}
	for _, in := range p.questions() {
		if why, ok := i.misfits[in.Key]; ok {
			p.again[in.Key]++
			p.since[in.Key] = p.round
			again = append(again, explained(in, why))
		}
	}
	return again
}

// explain has the questions of a task say why their last answers do not fit.
func (i *inputs) explain(task *canonical.Task) *canonical.Task {
	if len(i.misfits) == 0 {
		return task
	}
	again := *task
	again.Inputs = Explain(task.Inputs, i.misfits)
	return &again
}

// Explain returns questions that say why their last answers did not fit; misfits has that by their keys.
func Explain(inputs []canonical.Input, misfits map[string]string) []canonical.Input {
	again := slices.Clone(inputs)
	for n, in := range again {
		if why, ok := misfits[in.Key]; ok {
			again[n] = explained(in, why)
		}
	}
	return again
}

// explained returns a question that begins with why its last answer did not fit.
func explained(in canonical.Input, why string) canonical.Input {
	prompt := slices.Clone(in.Prompt)
	if len(prompt) == 0 || prompt[0].Kind != canonical.KindText {
		prompt = slices.Insert(prompt, 0, canonical.Part{Kind: canonical.KindText})
	}
	prompt[0].Text = strings.TrimSpace(why + ".\n\n" + prompt[0].Text)
	in.Prompt = prompt
	return in
}

// misses reports whether a question has to be asked again.
func (p *Pending) misses() bool { return p.Refused == nil && len(p.misfits) > 0 }

// waits reports whether an answer is still expected.
func (p *Pending) waits() bool { return p.Refused == nil && len(p.misfits) == 0 && !p.answered() }

// answered reports whether every question is answered.
func (p *Pending) answered() bool {
	return !slices.ContainsFunc(p.inputs, func(in store.Input) bool { return in.State != store.InputAnswered })
}

// All ends the round, and returns one answer for each question.
func (p *Pending) All() []canonical.Answer {
	answers := make([]canonical.Answer, len(p.inputs))
	for i := range p.inputs {
		p.inputs[i].Expire()
		answers[i] = p.inputs[i].Answer
	}
	return answers
}

// questions returns the questions of the round.
func (p *Pending) questions() []canonical.Input {
	list := make([]canonical.Input, len(p.inputs))
	for i := range p.inputs {
		list[i] = p.inputs[i].Input
	}
	return list
}

// queueInput takes a question of the agent's open stream. They are asked one by one.
func (e *Execution) queueInput(ask *canonical.Ask) error {
	if e.ask == nil {
		e.ask = ask
		return nil
	}
	if len(e.asks) >= maxInputs-1 {
		return e.badReply("it asks too much at once")
	}
	e.asks = append(e.asks, ask)
	return nil
}

// dropInputs drops the questions of the stream, since the agent waits for no answer there any more.
// Later questions belong to another round.
func (e *Execution) dropInputs() {
	if e.ask == nil {
		return
	}
	e.misfits = nil
	if e.ask, e.asks = nil, nil; !e.complete() || e.waitsForAnswer() {
		e.round++
	}
}

// openInputs are the questions that are open.
func (e *Execution) openInputs() []canonical.Input {
	switch {
	case e.ask != nil:
		return []canonical.Input{e.ask.Input}
	case e.result != nil && e.result.Pending != nil:
		return e.result.Pending.Inputs
	default:
		return stream.Inputs(e.snapshot())
	}
}

// waitForAnswers waits until the questions are answered, have to be asked again, or time out: true.
// If the agent sends an update meanwhile, it returns that, and false. The update may end the work.
func (e *Execution) waitForAnswers(ctx context.Context, p *Pending) (update, bool, error) {
	timer := time.NewTimer(p.until.Sub(e.now()))
	defer timer.Stop()
	var agent <-chan outbound.Incoming
	if e.ask != nil {
		agent = e.source.Out()
	}
	var disrupted, stopped <-chan struct{}
	if p.session {
		disrupted = e.control.Disrupted().Done()
	}
	if e.stopped != nil {
		stopped = e.stopped.Done()
	}
	for p.waits() {
		select {
		case answers := <-e.control.Answers():
			p.Take(answers)
		case in, ok := <-agent:
			u, err := e.updateMeanwhile(ctx, in, ok)
			return u, false, err
		case <-e.control.Canceled().Done():
			return update{}, false, ErrCanceled
		case <-disrupted:
			return update{}, false, errUndelivered
		case <-e.deps.Workers.Context().Done():
			return update{}, false, ErrStopped
		case <-timer.C:
			return update{}, true, nil
		case <-ctx.Done():
			return update{}, false, ctx.Err()
		case <-stopped:
			if ctx.Err() != nil {
				return update{}, false, ctx.Err()
			}
			return update{}, false, ErrCanceled
		}
	}
	return update{}, true, nil
}

// updateMeanwhile takes one thing that came while the agent waits for an answer. If that was the
// end of its stream, the question has ended with it.
func (e *Execution) updateMeanwhile(ctx context.Context, in outbound.Incoming, ok bool) (update, error) {
	err := in.Err
	if !ok {
		err = io.EOF
	}
	if err == nil {
		u, _, err := e.receive(ctx, in)
		return u, err
	}
	if err := e.follow(ctx, err); err != nil {
		return update{}, err
	}
	e.dropInputs()
	return update{}, nil
}

// stale reports whether the agent no longer waits for answers of this round.
func (e *Execution) stale(p *Pending) bool { return !e.waitsForAnswer() || e.round != p.round }

// waitAndAnswer waits for the answers to what is asked, and gives them to the agent. False: the
// work has ended in failure.
func (e *Execution) waitAndAnswer(ctx context.Context, work *worker.Evictable) bool {
	p := e.pose(false)
	letEvict(e, work)
	defer e.evictor.Remove(e.req.Holder, work)
	for !e.stale(p) {
		u, done, err := e.waitForAnswers(ctx, p)
		if err == nil && done && p.misses() { // who asks, asks again
			e.poseAgain(p)
			e.trySave(ctx)
			continue
		}
		if err == nil && done {
			e.evictor.Remove(e.req.Holder, work)
			err = e.closeInput(ctx, p)
		}
		if err != nil {
			e.ended(ctx, err)
			return false
		}
		if done {
			e.trySave(ctx)
			return true
		}
		e.addLosses(u)
		e.saveIfChanged(ctx, u)
	}
	return true
}

// closeInput sends the agent the answers, or that there are none.
func (e *Execution) closeInput(ctx context.Context, p *Pending) error {
	e.misfits = nil
	e.history = Newest(append(append(e.history, Question(e.callerNames.TaskID, e.round, p.questions())), p.turns...))
	switch {
	case p.Refused != nil:
		return e.refuse(ctx, p.Refused)
	case e.answersAreWords() && !p.answered():
		// The agent takes answers only as words of the user, and the user said nothing.
		return &canonical.Error{Code: canonical.CodeTimeout, Message: "the question was not answered within " + e.req.Limits.Answers.String()}
	default:
		return e.sendAnswers(ctx, p.All())
	}
}

// answersAreWords reports whether the agent takes answers only as a message of the user.
func (e *Execution) answersAreWords() bool {
	return e.ask == nil && (e.result == nil || e.result.Pending == nil) &&
		(e.agentNames.TaskID == "" || e.req.Mode.AgentStreams == translators.StreamsTask)
}

// refuse sends the agent an error in place of an answer, if the question was a request of the
// agent. Otherwise the question stays open, and the call ends with the error.
func (e *Execution) refuse(ctx context.Context, cause *canonical.Error) error {
	if e.ask == nil {
		return cause
	}
	e.round++
	return e.answerAsk(ctx, &canonical.Reply{ID: e.ask.ID, Failure: cause})
}

// toAgent is a message of ours that goes on with the request.
func (e *Execution) toAgent(op canonical.Op, body canonical.Body) *canonical.Message {
	m := e.req.Message
	return &canonical.Message{Op: op, Phase: canonical.PhaseRequest, To: m.To, Trace: m.Trace, Preferences: m.Preferences, Body: body}
}

// answerAsk answers a request of the agent's.
func (e *Execution) answerAsk(ctx context.Context, reply *canonical.Reply) error {
	sealed, err := e.req.Agent.Seal(ctx, e.toAgent(canonical.OpAnswer, reply))
	if err != nil {
		return err
	}
	if e.ask = nil; len(e.asks) > 0 { // they are asked one by one
		e.ask, e.asks = e.asks[0], e.asks[1:]
	}
	event := Answered
	if reply.Failure != nil {
		event = AnswerRefused
	}
	e.on(event)
	taken, err := e.req.Agent.Send(ctx, sealed, e.req.Limits.Timeout)
	outbound.CloseReply(taken)
	return err
}

// sendAnswers gives answers to the agent, and goes on reading what it says.
func (e *Execution) sendAnswers(ctx context.Context, answers []canonical.Answer) error {
	if e.answersAreWords() && slices.ContainsFunc(answers, IsCancel) {
		return ErrCanceled // it is no word of the user's
	}
	e.round++
	m := e.toAgent(canonical.OpInvoke, nil)
	switch {
	case e.ask != nil:
		reply := &canonical.Reply{ID: e.ask.ID}
		if len(answers) > 0 {
			reply.Answer = answers[0]
		}
		return e.answerAsk(ctx, reply)
	case e.result != nil && e.result.Pending != nil:
		request := e.req.Message
		m.Op, m.Origin, m.Conversation = request.Op, request.Origin, request.Conversation
		m.Body = repeated(request.Body, answers, e.result.Pending.State)
	case e.agentNames.TaskID != "" && e.req.Mode.AgentStreams != translators.StreamsTask:
		return e.updateTask(ctx, answers)
	default:
		m.Body = &canonical.Invoke{Turn: stream.Turn(answers), Answers: Spoken(stream.Inputs(e.snapshot()), answers)}
		m.Conversation = e.agentNames
	}
	m.Correlation.MessageID = e.deps.NewID()
	if invoke, ok := m.Body.(*canonical.Invoke); ok && invoke.Turn.ID == "" {
		invoke.Turn.ID = m.Correlation.MessageID
	}
	sealed, err := e.req.Agent.Seal(ctx, m)
	if err != nil {
		return err
	}
	if e.machine.State() == Input { // else it wants the call again
		e.machine.On(Answered, 0)
	}
	e.reopen()
	e.send(ctx, sealed)
	return nil
}

// updateTask gives answers to an agent's task that takes them apart from calls, and goes on with it.
func (e *Execution) updateTask(ctx context.Context, answers []canonical.Answer) error {
	if _, _, _, err := e.inquire(ctx, canonical.OpTaskAnswer, answers); err != nil {
		return err
	}
	e.reopen()
	e.machine.On(Answered, e.facts()&CanSubscribe|AnswersApart)
	return e.pollOrSubscribe(ctx)
}

// dismiss ends the work of an agent whose protocol cannot say that the user dismissed a question.
func (e *Execution) dismiss(ctx context.Context) error {
	task := e.canceledTask()
	e.stop()
	if e.agentNames.TaskID != "" && e.req.Mode.KeepsTasks {
		if _, _, _, err := e.inquire(ctx, canonical.OpTaskCancel, nil); err != nil {
			return err
		}
	}
	e.resultIs(&canonical.Result{Task: task})
	e.on(Outcome)
	return nil
}

// repeated is a request that is made again, with the answers to what the agent asked about it.
func repeated(request canonical.Body, answers []canonical.Answer, state string) canonical.Body {
	switch body := request.(type) {
	case *canonical.Invoke:
		again := *body
		again.Answers, again.State = answers, state
		return &again
	case *canonical.Native:
		again := *body
		again.Answers, again.State = answers, state
		return &again
	default:
		return request
	}
}

// IsCancel reports whether an answer cancels.
func IsCancel(a canonical.Answer) bool { return a.Action == canonical.Cancel }

// Spoken are the answers that an agent takes as such: one that only talks is told in the turn, and
// nowhere else.
func Spoken(inputs []canonical.Input, answers []canonical.Answer) []canonical.Answer {
	if len(inputs) == 1 && stream.Talk(inputs[0]) {
		return nil
	}
	return answers
}

// StateOf is what an answer to the question of a round must bring back: a question is answered
// once, so that the answer to an earlier one is not taken for its own.
func StateOf(round int, task string) string { return strconv.Itoa(round) + ":" + task }

// ReadState reads what StateOf wrote; "": this gateway did not write it.
func ReadState(state string) (round int, task string) {
	number, task, ok := strings.Cut(state, ":")
	round, err := strconv.Atoi(number)
	if !ok || err != nil {
		return 0, ""
	}
	return round, task
}
