package uacp

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/envelope"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// The members of an aepb object that make its message an event of a stream.
const (
	memberEvent  = "event"  // which kind; what it says is said as of a result
	memberAppend = "append" // of an artifact: its parts come after those that are there
	memberLast   = "last"   // of an artifact: nothing more comes to it
	memberFinal  = "final"  // no event comes before the caller acts
)

// The kinds of event.
const (
	eventTask     = "task"
	eventTurn     = "turn"
	eventStatus   = "status"
	eventArtifact = "artifact"
)

// Mark is a frame that says nothing but how an observation stands.
type Mark int

// The marks: the reply to an OBSERVE is ACCEPTED when it is taken, and
// NO_CONTENT when nothing more comes. Whatever else replies to it is its only
// answer, or its error.
const (
	MarkNone Mark = iota
	MarkOpen
	MarkEnd
)

// MarkOf reads a mark.
func MarkOf(body []byte) Mark {
	o, err := Open(body)
	f, w := o.frame, o.in
	if err != nil || f.Verb != Observe || w == nil && len(f.Payload) > 0 {
		return MarkNone
	}
	if w != nil && (w.body != nil || envelope.Strip(w.object) != nil) {
		return MarkNone
	}
	switch f.Code {
	case codeAccepted:
		return MarkOpen
	case codeNoContent:
		return MarkEnd
	default:
		return MarkNone
	}
}

// Marker writes a mark about the OBSERVE of this id, with a place for evidence in
// the enveloped form.
func Marker(mark Mark, form string, request Frame) Frame {
	f := Frame{Verb: Observe, QoS: request.QoS, Code: codeAccepted, ID: request.ID}
	if mark == MarkEnd {
		f.Code = codeNoContent
	}
	f.Options = request.followed()
	if form == FormEnveloped {
		f.Options = append(f.Options, Option{OptContentType, quad(contentJSON)})
		f.Payload = rawjson.NewBuilder().Raw(envelope.Key, json.RawMessage("{}")).Bytes()
	}
	return f
}

// followed are the options by which a frame belongs to a request.
func (f Frame) followed() (options []Option) {
	if id := f.Option(OptConversation); id != nil {
		options = append(options, Option{OptConversation, id})
	}
	return append(options, Option{OptCorrelation, quad(f.ID)})
}

// settled reports whether no event comes before the caller acts.
func settled(s canonical.State) bool {
	return s.Terminal() || s == canonical.StateInputRequired || s == canonical.StateAuthRequired
}

func final(e *canonical.Event) bool {
	switch {
	case e.Task != nil:
		return settled(e.Task.Status.State)
	case e.Status != nil:
		return settled(e.Status.State)
	default:
		return e.Turn != nil
	}
}

// observes reports whether the message is written as an OBSERVE.
func (e *encoder) observes() bool {
	return (e.stream || e.home() && e.m.Preferences.Stream) && e.is(canonical.OpInvoke, canonical.PhaseRequest)
}

// simple reports whether the event is one of µACP that no gateway has written.
func (e *encoder) simple() bool { return e.home() && string(e.left.Peek(leftEvent)) != "true" }

// compared is what envelope.Write is to compare: of an event, the result that
// says as much, and that as whom a peer reads it.
func (e *encoder) compared(b built, view *canonical.Message) (message, seen *canonical.Message) {
	body, ok := e.m.Body.(*canonical.Event)
	if !ok {
		return e.m, view
	}
	r, kind := asResult(body)
	message, seen = new(canonical.Message), new(canonical.Message)
	*message, *seen = *e.m, *view
	message.Body, seen.Body = r, plain(b.c)
	read, readAs := asResult(view.Body.(*canonical.Event)) //nolint:forcetypeassert // what an event is read as
	if e.simple() {
		seen.Body = read
		return message, seen
	}
	if e.form == FormBare && kind != readAs {
		e.losses = append(e.losses, canonical.Loss{Code: canonical.LossStatusUpdates, Path: "/body/" + kind, Fate: canonical.Dropped})
	}
	if e.form == FormBare && r.Task != nil && !final(body) {
		parts, _ := envelope.Words(plain(b.c))
		seen.Body = &canonical.Result{Task: &canonical.Task{
			Status: canonical.Status{State: canonical.StateWorking}, Artifacts: []canonical.Artifact{{Parts: parts}},
		}}
	}
	return message, seen
}

// ofEvent gives the losses of an event their places in it.
func ofEvent(m *canonical.Message, losses []canonical.Loss) []canonical.Loss {
	body, ok := m.Body.(*canonical.Event)
	if !ok || body.Status == nil && body.Artifact == nil {
		return losses
	}
	for i := range losses {
		path := losses[i].Path
		for _, place := range [...][2]string{
			{"/body/task/status", "/body/status"}, {"/body/task/artifacts", "/body/artifact"}, {"/body/task", "/body"},
		} {
			if rest, ok := strings.CutPrefix(path, place[0]); ok {
				losses[i].Path = place[1] + rest
				break
			}
		}
	}
	return losses
}

// asResult is an event as the result that says as much; nil: µACP has no such event.
func asResult(e *canonical.Event) (*canonical.Result, string) {
	r := &canonical.Result{Extensions: e.Extensions}
	switch {
	case e.Task != nil:
		r.Task = e.Task
		return r, eventTask
	case e.Turn != nil:
		r.Turn = e.Turn
		return r, eventTurn
	case e.Status != nil:
		r.Task = &canonical.Task{Status: *e.Status, Inputs: e.Inputs}
		return r, eventStatus
	case e.Artifact != nil:
		r.Task = &canonical.Task{Artifacts: []canonical.Artifact{e.Artifact.Artifact}}
		return r, eventArtifact
	default:
		return nil, ""
	}
}

// asEvent undoes asResult; nil: no event of that kind says this.
func asEvent(r *canonical.Result, kind string) *canonical.Event {
	e := &canonical.Event{Extensions: r.Extensions}
	switch {
	case kind == eventTurn && r.Turn != nil:
		e.Turn = r.Turn
	case r.Task == nil:
		return nil
	case kind == eventTask:
		e.Task = r.Task
	case kind == eventStatus && len(r.Task.Artifacts) == 0:
		status := r.Task.Status
		e.Status, e.Inputs = &status, r.Task.Inputs
	case kind == eventArtifact && len(r.Task.Artifacts) == 1:
		e.Artifact = &canonical.ArtifactUpdate{Artifact: r.Task.Artifacts[0]}
	default:
		return nil
	}
	return e
}

// event reads a frame of an observation. A TELL that says no more is a thing of
// its own that has come; a reply to the OBSERVE ends it.
func (t *Translator) event(f Frame, c content, m *canonical.Message, left *rawjson.Builder) error {
	m.Phase = canonical.PhaseEvent
	f.concerns(m, left)
	if f.Verb == Observe {
		left.Raw(leftVerb, number(uint32(Observe)))
	}
	switch {
	case f.Verb == Observe && f.Code >= codeErrors:
		t.failed(f, c, m)
		return nil
	case f.Verb == Observe:
		if f.Code != codeOK {
			left.Raw(leftCode, number(uint32(f.Code)))
		}
		status := &canonical.Status{State: canonical.StateCompleted}
		if parts := c.parts(); len(parts) > 0 {
			status.Message = &canonical.Content{Role: canonical.RoleAgent, Parts: parts}
		}
		m.Body = &canonical.Event{Status: status}
		return nil
	case f.Verb != Tell || f.Code != codeOK:
		return refuse(canonical.CodeInvalidRequest, "not an event of an observation")
	}
	m.Body = &canonical.Event{Artifact: &canonical.ArtifactUpdate{
		Artifact: canonical.Artifact{ID: "tell-" + strconv.FormatUint(uint64(f.ID), 10), Parts: c.parts()}, Last: true,
	}}
	return nil
}

// eventOf lays what a gateway said of an event over what its frame says; false:
// it says something else.
func (t *Translator) eventOf(f Frame, c content, m *canonical.Message) (rest json.RawMessage, ok bool) {
	o := rawjson.Parse(c.aepb, "")
	kind, _ := o.String(memberEvent)
	flags := map[string]bool{}
	for _, name := range []string{memberAppend, memberLast, memberFinal} {
		flags[name] = string(o.Take(name)) == "true"
	}
	if f.Verb != Tell || o.Err() != nil {
		return nil, false
	}
	m.Body = plain(c)
	if rest, ok = t.beside.Read(o.Rest(), m); !ok && o.Rest() != nil {
		return nil, false
	}
	e := asEvent(m.Body.(*canonical.Result), kind) //nolint:forcetypeassert // Read keeps its type
	if e == nil || final(e) != flags[memberFinal] || e.Artifact == nil && (flags[memberAppend] || flags[memberLast]) {
		return nil, false
	}
	if e.Artifact != nil {
		e.Artifact.Append, e.Artifact.Last = flags[memberAppend], flags[memberLast]
	}
	m.Body = e
	return rest, true
}

// plain is what a payload says, of a result.
func plain(c content) *canonical.Result { return &canonical.Result{Output: c.output(false)} }

func (c *content) output(failed bool) *canonical.Output {
	if c.kind == contentJSON && !c.empty {
		return &canonical.Output{Structured: c.json, Failed: failed}
	}
	return &canonical.Output{Parts: c.parts(), Failed: failed}
}

// sayEvent says an event as a TELL; toward a bare peer what settles the work is
// the reply that ends the observation, because nothing else would.
func (e *encoder) sayEvent(b *built, body *canonical.Event) error {
	r, kind := asResult(body)
	if r == nil {
		return refuse(canonical.CodeUnsupportedOp, "µACP has no such event")
	}
	parts, state := envelope.Words(r)
	b.f.Verb = Tell
	if e.simple() && e.form != FormBare {
		b.c, _ = say(parts, false)
		return nil
	}
	if e.form == FormBare {
		return e.sayBareEvent(b, body, parts, state)
	}
	members := rawjson.NewBuilder().String(memberEvent, kind)
	if u := body.Artifact; u != nil {
		flag(members, memberAppend, u.Append)
		flag(members, memberLast, u.Last)
	}
	flag(members, memberFinal, final(body))
	b.c, _ = say(parts, false)
	b.c.aepb = members.Bytes()
	return nil
}

func flag(b *rawjson.Builder, name string, set bool) {
	if set {
		b.Bool(name, true)
	}
}

func (e *encoder) sayBareEvent(b *built, body *canonical.Event, parts []canonical.Part, state canonical.State) error {
	switch ends := final(body); {
	case ends && body.Turn == nil && !state.Terminal():
		return refuse(canonical.CodeCapabilityRequired, "a bare µACP peer takes no input request")
	case ends && body.Turn == nil && state != canonical.StateCompleted:
		return refuse(canonical.CodeInternal, "the task failed: a bare µACP reply holds no details")
	case ends:
		b.f.Verb = Observe
		if len(parts) == 0 && !e.home() {
			b.f.Code = codeNoContent
		}
	case len(parts) == 0 && !e.home():
		return refuse(canonical.CodeUnsupportedOp, "a bare µACP peer takes content only")
	}
	var ok bool
	if b.c, ok = say(parts, true); !ok {
		return refuse(canonical.CodeUnsupportedMedia, "a bare µACP payload holds one text, one value or one file")
	}
	return nil
}

// ReplyTo is an event's frame as one of those that an OBSERVE is answered with: with
// its topic and its id, which say nothing of what is hashed. id is the frame's own.
func (f Frame) ReplyTo(request Frame, id uint32) Frame {
	out := f
	out.ID, out.QoS, out.Options = id&maxID, request.QoS, nil
	for _, o := range f.Options {
		if o.Type != OptCorrelation && o.Type != OptTopic {
			out.Options = append(out.Options, o)
		}
	}
	out.Options = append(out.Options, Option{OptCorrelation, quad(request.ID)})
	if topic := request.Option(OptTopic); topic != nil && f.Verb == Tell {
		out.Options = append(out.Options, Option{OptTopic, topic})
	}
	return out
}

// Follows reports whether a frame belongs to the observation that a request of
// this id and topic began. One that names no request is known by the topic.
func (f Frame) Follows(request Frame) bool {
	if _, named := f.Correlation(); named || f.Verb != Tell {
		return f.Answers(request.ID) != MatchNone
	}
	return f.Answers(request.ID) != MatchNone || f.Topic() == request.Topic()
}

// Cancels reports whether a frame ends the observation that a request began: a
// TELL of the same conversation or correlation whose payload says so.
func (f Frame) Cancels(request Frame) bool {
	if f.Verb != Tell || f.Code != codeOK || string(trimmed(f.Payload)) != cancelPayload {
		return false
	}
	if id, named := f.Correlation(); named {
		return id == request.ID
	}
	conversation := request.Option(OptConversation)
	return conversation != nil && string(f.Option(OptConversation)) == string(conversation)
}

const cancelPayload = `{"cancel":true}`

// Cancel is the frame that ends an observation.
func Cancel(request Frame) Frame {
	f := Frame{Verb: Tell, ID: (request.ID + 1) & maxID, Payload: []byte(cancelPayload)}
	f.Options = request.followed()
	if topic := request.Option(OptTopic); topic != nil {
		f.Options = append(f.Options, Option{OptTopic, topic})
	}
	f.Options = append(f.Options, Option{OptContentType, quad(contentJSON)})
	return f
}

// Ack says that a TELL with quality of service 1 has come.
func Ack(f Frame) Frame { return Frame{Verb: Tell, QoS: f.QoS, Code: codeAccepted, ID: f.ID} }

// IsAck reports whether a frame says that of another.
func (f Frame) IsAck() bool { return f.Verb == Tell && f.Code != codeOK }
