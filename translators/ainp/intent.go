package ainp

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/envelope"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// The intents that are more than a typed call here.
const (
	intentNote    = "FreeformNote"
	intentService = "RequestService"
	intentNotice  = "NOTIFICATION"
)

// chats are the intents of the reference code that carry a message.
func chats() []string { return []string{"MESSAGE", "EMAIL_MESSAGE", "CHAT_MESSAGE"} }

// calls are the intents of the draft whose semantics are arguments.
func calls() []string {
	return []string{"RequestMeeting", intentApproval, "SubmitInfo", "Invoice"}
}

const typeMember = "@type"

// What an intent of ours says about itself where the draft demands it.
const (
	contextNote    = "https://ainp.dev/contexts/freeform/v1"
	contextService = "https://ainp.dev/contexts/request-service/v1"
	contextOther   = "https://ainp.dev/contexts/intent/v1"
	payloadVersion = "1.0.0"

	contextApproval = "https://ainp.dev/contexts/approval-request/v1"
	contextWork     = "urn:aepb:ainp:task:1"
)

func (l wireMessage) intent(m *canonical.Message) error {
	p := rawjson.Parse(l.payloadOrEmpty(), "/payload")
	kind := p.PeekText(typeMember)
	if kind == intentNotice {
		l.notice(m)
		return p.Err()
	}
	if slices.Contains([]string{intentQuery, intentCancel, intentAnswer}, kind) {
		return l.work(m, kind, p)
	}
	if kind == intentRollback {
		return rollback(m, p)
	}
	m.Op = canonical.OpInvoke
	if l.socket {
		m.Preferences.Stream, m.Correlation.Progress = true, rawjson.Quote(l.id)
	}
	body := &canonical.Invoke{}
	m.Body = body
	m.Deadline = l.budgeted(p.Peek("budget"))
	var err error
	switch {
	case kind == "":
		return refuse(canonical.CodeBadParams, "the intent has no type")
	case kind == intentNote:
		err = readNote(m, body, p, "body", "thread_id")
	case slices.Contains(chats(), kind):
		err = readNote(m, body, p, "content", "conversation_id")
	case kind == intentService:
		err = readService(body, p)
	default:
		body.Call = &canonical.Call{Name: kind, Args: p.RawObject("semantics")}
	}
	if err == nil && p.Err() != nil {
		err = badParams()
	}
	body.Extensions = extended(nil, p.Rest())
	return err
}

func badParams() error {
	return refuse(canonical.CodeBadParams, "the payload does not match its type")
}

// readNote reads a message in words: the text, then the attachments.
func readNote(m *canonical.Message, body *canonical.Invoke, p *rawjson.Object, words, thread string) error {
	body.Turn.Role = canonical.RoleCaller
	raw := p.RawObject("semantics")
	if raw == nil {
		return nil
	}
	o := rawjson.Parse(raw, "/payload/semantics")
	if text, ok := o.String(words); ok {
		part := canonical.Part{Kind: canonical.KindText, Text: text}
		if words == "content" {
			part.Media = o.TakeText("content_type")
		}
		body.Turn.Parts = append(body.Turn.Parts, part)
	}
	attachments, _ := o.Array("attachments")
	for _, element := range attachments {
		part, ok := readAttachment(element)
		if !ok {
			return badParams()
		}
		body.Turn.Parts = append(body.Turn.Parts, part)
	}
	m.Conversation.ContextID = o.TakeText(thread)
	if o.Err() != nil {
		return badParams()
	}
	rest := rawjson.OrEmpty(o.Rest())
	if attachments != nil && len(attachments) == 0 {
		rest = rawjson.NewBuilder().Merge(rest).Array("attachments", nil).Bytes()
	}
	body.Turn.Extensions = extended(nil, rest)
	return nil
}

func readAttachment(raw json.RawMessage) (p canonical.Part, ok bool) {
	o := rawjson.Parse(raw, "")
	p.Kind = canonical.KindRef
	p.URI = o.Required("url")
	p.Media = o.TakeText("mime_type")
	p.Name = o.TakeText("filename")
	p.Size = o.Take("size_bytes")
	ok = o.Err() == nil && p.URI != ""
	p.Extensions = extended(nil, o.Rest())
	return p, ok
}

func writeAttachment(p *canonical.Part) json.RawMessage {
	return rawjson.NewBuilder().String("url", p.URI).Optional("mime_type", p.Media).Optional("filename", p.Name).
		Raw("size_bytes", p.Size).Merge(rawjson.Without(p.Extensions[Binding], "url", "mime_type", "filename", "size_bytes")).Bytes()
}

func readService(body *canonical.Invoke, p *rawjson.Object) error {
	semantics := p.Object("semantics")
	if semantics == nil {
		return badParams()
	}
	body.Call = &canonical.Call{Name: semantics.Required("service_type"), Args: semantics.RawObject("details")}
	if semantics.Err() != nil || body.Call.Name == "" {
		return badParams()
	}
	p.PutSet("semantics", semantics.Rest())
	return nil
}

// intent writes an invocation: as a call if it is one, else as a note.
func (e *encoder) intent(body *canonical.Invoke) (json.RawMessage, error) {
	left := rawjson.Open(body.Extensions[Binding])
	kind := left.PeekText(typeMember)
	left.Take(envelope.Key)
	switch {
	case body.Call != nil:
		return e.call(body.Call, left, kind)
	case len(body.Turn.Parts) == 0 && !e.home():
		return nil, refuse(canonical.CodeBadParams, "the message is empty")
	default:
		return e.note(body, left, kind), nil
	}
}

func (e *encoder) call(call *canonical.Call, left *rawjson.Object, kind string) (json.RawMessage, error) {
	name := call.Name
	if e.capability != nil && e.capability.ID != "" {
		name = e.capability.ID
	}
	if name == "" || (call.Args != nil && (len(call.Args) == 0 || call.Args[0] != '{')) {
		return nil, refuse(canonical.CodeBadParams, "a call needs a name, and arguments that are an object")
	}
	semantics := left.Take("semantics")
	direct := kind == name && kind != intentService || kind == "" && slices.Contains(calls(), name)
	if direct {
		return e.payload(left, name, contextOther, call.Args), nil
	}
	b := rawjson.NewBuilder().String("service_type", name).Raw("details", call.Args)
	b.Merge(rawjson.Without(semantics, "service_type", "details"))
	return e.payload(left, intentService, contextService, b.Bytes()), nil
}

func (e *encoder) note(body *canonical.Invoke, left *rawjson.Object, kind string) json.RawMessage {
	words, thread := "body", "thread_id"
	if slices.Contains(chats(), kind) {
		words, thread = "content", "conversation_id"
	} else {
		kind = intentNote
	}
	b := rawjson.NewBuilder()
	var texts []string
	var attachments []json.RawMessage
	media := ""
	for i := range body.Turn.Parts {
		switch p := &body.Turn.Parts[i]; {
		case p.Kind == canonical.KindText:
			texts, media = append(texts, p.Text), p.Media
		case p.Kind == canonical.KindRef && p.URI != "":
			attachments = append(attachments, writeAttachment(p))
		}
	}
	if len(texts) > 0 {
		b.String(words, strings.Join(texts, "\n\n"))
		if words == "content" {
			b.Optional("content_type", media)
		}
	}
	if len(attachments) > 0 {
		b.Array("attachments", attachments)
	}
	b.Optional(thread, e.m.Conversation.ContextID).Over(rawjson.Without(body.Turn.Extensions[Binding], words), thread, "content_type", "attachments")
	if e.home() && b.Empty() && body.Turn.Extensions[Binding] == nil {
		return e.payload(left, kind, contextNote, nil)
	}
	return e.payload(left, kind, contextNote, b.Bytes())
}

// payload writes an intent's payload around its semantics.
func (e *encoder) payload(left *rawjson.Object, kind, about string, semantics json.RawMessage) json.RawMessage {
	b := rawjson.NewBuilder()
	if !e.home() && !left.Has("@context") {
		b.String("@context", about)
	}
	b.String(typeMember, kind)
	if !e.home() && !left.Has("version") {
		b.String("version", payloadVersion)
	}
	b.Raw("semantics", semantics)
	if left.Peek("budget") == nil {
		b.Raw("budget", e.budget())
	}
	left.Take(typeMember)
	left.Take("semantics")
	return b.Rest(left).Bytes()
}

// budget says a deadline as what is left of it.
func (e *encoder) budget() json.RawMessage {
	if e.m.Deadline.IsZero() || e.stamp.At.IsZero() {
		return nil
	}
	return rawjson.NewBuilder().Raw("timeout_ms", json.RawMessage(strconv.FormatInt(e.remaining(), 10))).Bytes()
}

// remaining is the time until the deadline in milliseconds, at least one.
func (e *encoder) remaining() int64 {
	return max(1, e.m.Deadline.Sub(e.stamp.At).Round(time.Millisecond).Milliseconds())
}
