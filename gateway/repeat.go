package gateway

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/stream"
)

// stored is an answer as it is kept for a repetition (R6). Its ECTs are on
// record anyway, so their ids suffice.
type stored struct {
	wire     translators.Wire
	evidence []ect.ID
	rare     rare
}

// rare is what most answers do not have.
type rare struct {
	Status  int              `json:",omitempty"`
	Problem *problem.Problem `json:",omitempty"`
}

func (r rare) none() bool { return r.Status == 0 && r.Problem == nil }

var errUnreadable = errors.New("gateway: a stored answer is unreadable")

// pack writes what unpack reads: texts with their lengths, then the body.
func (s *stored) pack() ([]byte, error) {
	var seldom []byte
	if !s.rare.none() {
		var err error
		if seldom, err = json.Marshal(s.rare); err != nil {
			return nil, err
		}
	}
	b := make([]byte, 0, 128+len(seldom)+len(s.evidence)*64+len(s.wire.Body))
	b = appendTexts(b, string(s.wire.Binding), s.wire.Version, s.wire.Form, s.wire.Media, string(seldom))
	b = binary.AppendUvarint(b, uint64(len(s.evidence)))
	for _, id := range s.evidence {
		b = appendTexts(b, string(id))
	}
	lines := 0
	for _, values := range s.wire.Header {
		lines += len(values)
	}
	b = binary.AppendUvarint(b, uint64(lines))
	for name, values := range s.wire.Header {
		for _, value := range values {
			b = appendTexts(b, name, value)
		}
	}
	return append(b, s.wire.Body...), nil
}

func unpack(blob []byte) (s stored, err error) {
	var binding, seldom, name, value string
	blob, whole := readTexts(blob, &binding, &s.wire.Version, &s.wire.Form, &s.wire.Media, &seldom)
	blob, count := readCount(blob)
	for ; count > 0; count-- {
		blob, whole = readTexts(blob, &name)
		s.evidence = append(s.evidence, ect.ID(name))
	}
	blob, count = readCount(blob)
	for ; count > 0; count-- {
		blob, whole = readTexts(blob, &name, &value)
		if s.wire.Header == nil {
			s.wire.Header = http.Header{}
		}
		s.wire.Header[name] = append(s.wire.Header[name], value)
	}
	if !whole || count < 0 || seldom != "" && json.Unmarshal([]byte(seldom), &s.rare) != nil {
		return stored{}, errUnreadable
	}
	s.wire.Binding, s.wire.Status, s.wire.Body = canonical.Binding(binding), s.rare.Status, blob
	return s, nil
}

// readCount reads how many items follow, each of an octet at least; negative:
// there cannot be as many.
func readCount(b []byte) (rest []byte, count int) {
	size, n := binary.Uvarint(b)
	if n <= 0 || size > uint64(len(b)-n) { //nolint:gosec // n is at most len(b)
		return nil, -1
	}
	return b[n:], int(size) //nolint:gosec // at most len(b)
}

// appendTexts writes each text behind its length.
func appendTexts(b []byte, texts ...string) []byte {
	for _, text := range texts {
		b = binary.AppendUvarint(b, uint64(len(text)))
		b = append(b, text...)
	}
	return b
}

// readTexts reads what appendTexts wrote, and returns what is behind it; false:
// there is not as much.
func readTexts(b []byte, into ...*string) (rest []byte, whole bool) {
	for _, to := range into {
		size, n := binary.Uvarint(b)
		if n <= 0 || size > maxText || int(size) > len(b)-n {
			return nil, false
		}
		*to, b = string(b[n:n+int(size)]), b[n+int(size):]
	}
	return b, true
}

// store keeps an answer, or how the message failed, under the key of each source that
// was used up.
func (g *Gateway) store(ctx context.Context, x *exchange, answer transport.Answer, cause error) {
	if len(x.used) == 0 {
		return
	}
	s := stored{wire: answer.Wire, evidence: x.issuedIDs, rare: rare{Status: answer.Wire.Status}}
	if cause != nil {
		p := problem.From(cause)
		p.Request = transport.RequestID(ctx)
		s.rare.Problem = &p
	}
	blob, err := s.pack()
	if err != nil {
		return
	}
	for _, v := range x.used {
		key := ect.ReplayKey{Issuer: v.Issuer(), Workflow: v.Workflow(), ID: v.ID()}
		g.Answers.Finish(ctx, key, blob, time.Unix(v.Expires(), 0))
	}
}

// repeat answers a byte-identical repetition: with the same octets and the
// same ECTs, or with the same refusal.
func (g *Gateway) repeat(ctx context.Context, key ect.ReplayKey) (transport.Answer, bool, error) {
	blob, ok := g.Answers.Load(ctx, key)
	if !ok {
		return transport.Answer{}, true, &problem.InProgressError{}
	}
	s, err := unpack(blob)
	if err != nil {
		return transport.Answer{}, true, err
	}
	answer := transport.Answer{Wire: s.wire}
	for _, id := range s.evidence {
		records, err := g.named(ctx, ect.Ref{ID: id})
		if err != nil || len(records) == 0 {
			return transport.Answer{}, true, &problem.RecordingError{Err: err}
		}
		answer.Evidence = append(answer.Evidence, records[0].Compact)
	}
	if s.rare.Problem != nil {
		return answer, true, &problem.StoredError{Problem: *s.rare.Problem}
	}
	return answer, true, nil
}

// replyLife is how long a task that was answered with its end can be asked for.
const replyLife = 10 * time.Minute

// maxText bounds, in octets, one text of what is kept.
const maxText = 1 << 30

// again is the same caller's exchange with the same agent, about to say
// something else.
func (x *exchange) again() *exchange {
	return &exchange{
		call: x.call, settings: x.settings, began: x.began, source: x.source, dest: x.dest, evidence: x.evidence, agent: x.agent,
		endpoint: x.endpoint, via: x.via, described: x.described, permit: x.permit, message: x.message, wireID: x.wireID, workflow: x.workflow,
		stands: x.stands, spoken: x.spoken, renamed: x.renamed, renamedCall: x.renamedCall,
		parents: x.parents, attested: x.attested, admitted: x.admitted, kept: x.kept, record: x.record, leave: func() {}, legs: x.legs, holder: x.holder,
	}
}

// keepReply keeps what was answered, if its caller may ask for it again. Most
// tasks end with the answer to the message that began them: they are kept like
// answers, which costs next to nothing. One that goes on is put on record, before
// its caller hears of it: else it could never be asked about. heard is the hash of
// what the agent said.
func (g *Gateway) keepReply(ctx context.Context, x *exchange, m *canonical.Message, wire translators.Wire, heard string) error {
	result, ok := m.Body.(*canonical.Result)
	if !ok || x.call.Agent == "" {
		return nil
	}
	task := taskOfReply(x, m, result)
	if task == nil || len(task.ID) > maxTaskID || x.record.answered() {
		return nil
	}
	rec := g.recordOf(x, task)
	rec.Last, rec.Heard = x.replyID, heard
	if x.callerStreams() == translators.StreamsTask && rec.Source == x.source.Info().Binding { // else it was begun at another door
		rec.Said, rec.Re = saidIn(x.message.Origin.Version, x.call.Wire.Form, wire), x.message.Op
	} else {
		rec.Task, rec.Said = *inFull(task, result), nil
	}
	if rec.Said != nil && x.record == nil && task.Status.State.Terminal() && x.webhook == nil {
		return g.keepEnd(ctx, rec)
	}
	if rec.Waits = waitsNot; result.Task != nil && stream.Settled(task.Status.State) && !task.Status.State.Terminal() {
		rec.Waits, rec.Task.Inputs = waitsTask, result.Task.Inputs // by which its answers are understood
	}
	if x.record == nil {
		old, err := g.load(ctx, rec.key)
		switch {
		case err != nil || old == nil:
		case old.Task.Status.State.Terminal() && !task.Status.State.Terminal():
			return x.sameID()
		default:
			rec.revision = old.revision
		}
	}
	save := g.save
	if x.prior != nil { // what comes of an answer is heard once, and only here
		save = func(ctx context.Context, rec *record) (bool, error) { return g.outlast(ctx, rec, rec.Round) }
	}
	saved, err := save(ctx, rec)
	if err != nil {
		if x.record != nil && task.Status.State.Terminal() {
			g.insist(ctx, *rec, &x.record.Task)
		}
		return err
	}
	if saved && x.record != nil && rec.Follower == "" && !x.record.Task.Status.State.Terminal() { // no other exchange posts it
		g.postChange(ctx, x.record, rec)
	}
	if !saved && x.webhook != nil && !x.hooked {
		return conflict()
	}
	if err := g.registerNew(ctx, x, rec); err != nil {
		return err
	}
	if saved && rec.Pushes {
		g.attend(ctx, x, rec)
	}
	return nil
}

// sameID refuses a task that goes on under the id of one that has ended: who asks
// about the one would be told of the other (A2A 1.0, 3.4.2).
func (x *exchange) sameID() error {
	return &transport.BadReplyError{Agent: x.agent.Name, Reason: "its task has the id of one that has ended: each task needs an id of its own"}
}

// outlast writes rec over what others have written since the question of a round was
// answered; false: the work was ended, or asks again, so another request has newer news.
func (g *Gateway) outlast(ctx context.Context, rec *record, round int) (bool, error) {
	for range 8 {
		if ok, err := g.save(ctx, rec); err != nil || ok {
			return ok, err
		}
		now, err := g.load(ctx, rec.key)
		if err != nil || now == nil || now.Task.Status.State.Terminal() || now.Waits != waitsNot || now.Round != round {
			return false, err
		}
		rec.revision, rec.Pushes, rec.Follower = now.revision, rec.Pushes || now.Pushes, now.Follower
	}
	return false, conflict()
}

// postChange posts what is different in a task between two of its records, if the
// task has push notification configurations.
func (g *Gateway) postChange(ctx context.Context, before, after *record) {
	if !after.Pushes {
		return
	}
	known, err := g.present(before)
	var task *canonical.Task
	if err == nil {
		task, err = g.present(after)
	}
	if err != nil {
		g.Logger.WarnContext(ctx, "a change of a task is not posted", slog.String("task", after.Task.ID), slog.Any("error", err))
		return
	}
	g.pushes(ctx, after, stream.Diff(known, task))
}

// unsaid is why an answer cannot be given. One that does not fit the caller's
// protocol is kept for those in which it does: work is its caller's, whatever door it
// is asked about at (R2).
func (g *Gateway) unsaid(ctx context.Context, x *exchange, m *canonical.Message, err error) error {
	if !errors.Is(err, translators.ErrTooLarge) {
		return err
	}
	refusal := &problem.AnswerTooLargeError{Err: err}
	result, ok := m.Body.(*canonical.Result)
	switch {
	case x.record != nil: // it is kept already
		refusal.Task = x.record.Task.ID
		return refusal
	case !ok || x.call.Agent == "":
		return refusal
	}
	task := taskOfReply(x, m, result)
	if task == nil || task.ID == "" || len(task.ID) > maxTaskID {
		return refusal
	}
	rec := g.recordOf(x, task)
	rec.Task, rec.Last = *inFull(task, result), x.requestID
	if saved, err := g.save(ctx, rec); saved && err == nil {
		refusal.Task = task.ID
	}
	return refusal
}

// inFull is a task with what came of it: the same for each caller and each way to ask.
func inFull(task *canonical.Task, result *canonical.Result) *canonical.Task {
	if result.Task != nil || result.Output == nil {
		return task
	}
	whole := stream.TaskOf(task.ID, task.ContextID, result)
	whole.Output = result.Output
	return whole
}

// keepEnd keeps a task that was answered with its end.
func (g *Gateway) keepEnd(ctx context.Context, rec *record) error {
	key, reply, until := replyKey(rec.key), rec.appendReply(nil), g.Now().Add(replyLife)
	if shared, ok := g.Answers.(Confirmer); ok {
		if err := shared.Confirm(ctx, key, reply, until); err != nil {
			return &problem.RecordingError{Err: err}
		}
	} else {
		g.Answers.Finish(ctx, key, reply, until)
	}
	g.listEnd(ctx, rec)
	return nil
}

// recordOf is the record of a task that was answered. What only its run knows
// stays as it is.
func (g *Gateway) recordOf(x *exchange, task *canonical.Task) *record {
	brief := canonical.Task{ID: task.ID, ContextID: task.ContextID, Status: canonical.Status{State: task.Status.State}}
	if x.record != nil {
		rec := *x.record
		rec.Task, rec.Workflow, rec.Legs = brief, x.workflow, x.requestLegs()
		rec.Task.ID, rec.Task.ContextID = x.record.Task.ID, x.record.Task.ContextID
		return &rec
	}
	rec := g.newRecord(x, &brief)
	if task.ID != "" && (x.relay() || x.agentStreams() == translators.StreamsTask) {
		rec.TaskID = task.ID
		if task.ContextID == x.spoken.first || task.ContextID == x.spoken.last { // else it is the caller's name for it
			rec.Context = task.ContextID
		}
	}
	return rec
}

// taskOfReply is the task that a caller may ask about after this reply; nil: none.
func taskOfReply(x *exchange, m *canonical.Message, result *canonical.Result) *canonical.Task {
	asks := x.callerStreams() == translators.StreamsTask
	switch {
	case result.Task != nil && (asks || !result.Task.Status.State.Terminal() || x.record != nil):
		return result.Task
	case result.Output != nil && asks && !x.relay():
		state := canonical.StateCompleted
		if result.Output.Failed {
			state = canonical.StateFailed
		}
		return &canonical.Task{ID: m.Conversation.TaskID, ContextID: m.Conversation.ContextID, Status: canonical.Status{State: state}}
	default:
		return nil
	}
}

// replyKey is where a reply is kept among the answers: no issuer of tokens has
// such a name.
func replyKey(task EntryKey) ect.ReplayKey {
	return ect.ReplayKey{Issuer: ect.Identity("task\x00" + task.Group), ID: ect.ID(task.ID)}
}

// appendReply writes what loadReply reads.
func (r *record) appendReply(b []byte) []byte {
	return appendTexts(slices.Grow(b, 384+len(r.Said.Body)),
		string(r.Binding), string(r.Source), r.TaskID, r.Context, r.Task.ContextID, string(r.Task.Status.State), r.Workflow,
		string(r.Last), r.Said.Version, r.Said.Form, string(r.Said.Body), r.Said.Media)
}

// loadReply finds a task that was answered with its end; nil: there is none.
func (g *Gateway) loadReply(ctx context.Context, key EntryKey) *record {
	blob, ok := g.Answers.Load(ctx, replyKey(key))
	if !ok {
		return nil
	}
	rec := &record{Form: recordForm, Said: &said{}, key: key}
	var binding, source, state, last, body string
	rest, whole := readTexts(blob,
		&binding, &source, &rec.TaskID, &rec.Context, &rec.Task.ContextID, &state, &rec.Workflow,
		&last, &rec.Said.Version, &rec.Said.Form, &body,
	)
	if !whole {
		return nil
	}
	_, _ = readTexts(rest, &rec.Said.Media) // which was not kept always
	rec.Binding, rec.Source, rec.Last = canonical.Binding(binding), canonical.Binding(source), ect.ID(last)
	rec.Task.ID, rec.Task.Status.State, rec.Said.Body = key.ID, canonical.State(state), []byte(body)
	return rec
}
