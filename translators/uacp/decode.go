package uacp

import (
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/envelope"
	"github.com/aepb/aepb-gateway/translators/internal/jsonrpc"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// The message-level leftovers of a frame.
const (
	leftOptions   = "options"   // the options as they stood there, in hex
	leftQoS       = "qos"       // other than 1
	leftVerb      = "verb"      // other than the usual one
	leftCode      = "code"      // other than the usual one
	leftID        = "id"        // a reply's own, other than its request's
	leftEnveloped = "enveloped" // the payload was an envelope
	leftEvent     = "event"     // a gateway said what kind of event it is
	leftStreaming = "streaming" // an ASK said that it wants a stream, which is an OBSERVE's
	leftFrame     = "frame"     // a whole frame, in hex: of a notice
)

// Decode reads one frame: a request, or with Wire.Re the answer to one. When
// the frame could be read, a refusal comes with a message that holds the wire id.
func (t *Translator) Decode(w translators.Wire) (*canonical.Message, error) {
	f, err := t.parse(w.Body)
	if err != nil {
		return nil, err
	}
	m, err := t.message(f, w.Re, w.Event)
	if err != nil {
		m = &canonical.Message{Origin: canonical.Origin{Binding: Binding, Version: Profile}}
		m.Correlation.WireID = number(f.ID)
	}
	m.Origin.Raw = w.Body
	return m, err
}

func (t *Translator) parse(body []byte) (Frame, error) {
	if len(body) > t.cfg.BodyLimit {
		return Frame{}, &translators.MalformedError{Reason: "longer than " + strconv.Itoa(t.cfg.BodyLimit) + " bytes", Large: true}
	}
	return ParseFrame(body)
}

// message is the whole reading: what µACP says itself, and over it what a
// gateway said beside, if it fits.
func (t *Translator) message(f Frame, re canonical.Op, event bool) (*canonical.Message, error) {
	c, err := t.readContent(f)
	if err != nil {
		return nil, err
	}
	m, err := t.native(f, c, re, event)
	if err != nil || c.aepb == nil || m.Op == canonical.OpNotice || m.Op == canonical.OpPing {
		return m, err
	}
	known := m.Correlation.WireID
	var rest json.RawMessage
	var ok bool
	if _, happened := m.Body.(*canonical.Event); happened {
		rest, ok = t.eventOf(f, c, m)
	} else {
		rest, ok = t.beside.Read(c.aepb, m)
	}
	streaming := re == "" && f.Verb == Ask && m.Preferences.Stream
	if streaming {
		m.Preferences.Stream = false // one answer is all that an ASK gets
	}
	if ok {
		// A hop may have given the frame another id than the alias of the original.
		if refer(m.Correlation.WireID).id != refer(known).id {
			m.Correlation.WireID = known
		}
		e := &encoder{t: t, m: m, form: FormEnveloped}
		again, err := e.frame()
		ok = err == nil && again.f.Verb == f.Verb && again.f.Code == f.Code &&
			(event || again.f.Topic() == f.Topic()) && rawjson.Equal(again.c.value(), c.value())
	}
	if !ok {
		if m, err = t.native(f, c, re, event); err != nil {
			return nil, err
		}
		rest = c.aepb
	}
	left := rawjson.NewBuilder().Merge(m.Extensions[Binding]).Raw(envelope.Key, rest)
	if _, happened := m.Body.(*canonical.Event); happened && ok {
		left.Bool(leftEvent, true)
	}
	if ok && streaming {
		left.Bool(leftStreaming, true)
	}
	m.Extensions = m.Extensions.With(Binding, left.Object())
	return m, nil
}

// number writes an id.
func number(n uint32) json.RawMessage { return json.RawMessage(strconv.FormatUint(uint64(n), 10)) }

// native reads what the frame itself says.
func (t *Translator) native(f Frame, c content, re canonical.Op, event bool) (*canonical.Message, error) {
	m := &canonical.Message{
		Origin:      canonical.Origin{Binding: Binding, Version: Profile},
		Correlation: canonical.Correlation{WireID: number(f.ID)},
		Phase:       canonical.PhaseRequest,
	}
	if f.QoS > 1 {
		return m, refuse(canonical.CodeUnsupportedOp, "QoS 2 (exactly once) is not supported: use 0 or 1")
	}
	m.Conversation.ContextID = conversation(f.Option(OptConversation))
	left := rawjson.NewBuilder()
	options := f.Options
	if re == "" { // the gateway's, like the members of an envelope that are evidence
		options = slices.DeleteFunc(slices.Clone(options), func(o Option) bool { return o.Type == OptParent && len(o.Value) == uuidSize })
	}
	if len(options) > 0 {
		left.String(leftOptions, hexOptions(options))
	}
	if f.QoS != 1 {
		left.Raw(leftQoS, number(uint32(f.QoS)))
	}
	if c.enveloped {
		left.Bool(leftEnveloped, true)
	}
	var err error
	switch {
	case event:
		if m.Op = canonical.OpInvoke; re == canonical.OpTaskSubscribe {
			m.Op = re
		}
		err = t.event(f, c, m, left)
	case re == "":
		m.Callback = c.callback
		err = t.request(f, c, m, left)
	default:
		err = t.reply(f, c, m, re, left)
	}
	if raw := left.Object(); raw != nil {
		m.Extensions = canonical.Extensions{Binding: raw}
	}
	return m, err
}

func hexOptions(options []Option) string {
	var raw []byte
	for _, o := range options {
		raw = append(append(raw, o.Type, size(o)), o.Value...)
	}
	return hex.EncodeToString(raw)
}

// conversation reads a Conversation-ID: text as it is, other bytes in hex.
func conversation(value []byte) string {
	if len(value) == 0 || (utf8.Valid(value) && !strings.HasPrefix(string(value), hexPrefix)) {
		return string(value)
	}
	return hexPrefix + hex.EncodeToString(value)
}

const hexPrefix = "0x"

func (t *Translator) request(f Frame, c content, m *canonical.Message, left *rawjson.Builder) error {
	switch {
	case f.Code != 0:
		return refuse(canonical.CodeInvalidRequest, "a reply, expected a request")
	case f.Verb == Ping:
		m.Op = canonical.OpPing
		left.Raw(leftFrame, payloadHex(f))
		return nil
	case f.Verb == Tell:
		if approval, ok := about(f.Topic()); ok {
			return decision(f, c, m, approval, left)
		}
		raw, err := f.Bytes()
		m.Op, m.Correlation.WireID = canonical.OpNotice, nil
		left.String(leftFrame, hex.EncodeToString(raw))
		return err
	}
	topic := f.Topic()
	if f.Verb == Observe {
		if strings.HasPrefix(topic, TopicTask) {
			return subscription(c, m, topic)
		}
		m.Preferences.Stream = true
		if topic != TopicCall && reservedTopic(topic) && topic != TopicSend {
			return refuse(canonical.CodeNoMethod, "this topic cannot be observed")
		}
	}
	switch topic {
	case "":
		return refuse(canonical.CodeInvalidRequest, "the topic is missing")
	case TopicCall:
		return t.call(c, m)
	case TopicList:
		return t.list(c, m)
	case TopicDescribe:
		m.Op = canonical.OpDescribe
		m.Body = &canonical.DescribeRequest{Extensions: extensionsOf(c)}
		return nil
	case TopicTaskList:
		return filter(c, m)
	case TopicRollback:
		return signal(c, m, canonical.OpRollback, "")
	}
	if approval, ok := about(topic); ok {
		return signal(c, m, canonical.OpDecision, approval)
	}
	if op, ok := taskOp(topic); ok {
		return query(c, m, op)
	}
	if !utf8.ValidString(topic) {
		return refuse(canonical.CodeInvalidRequest, "the topic is not UTF-8")
	}
	if topic != TopicSend {
		if reservedTopic(topic) {
			return refuse(canonical.CodeNoMethod, "this topic is not served here")
		}
		m.To.Skill = topic
	}
	m.Op = canonical.OpInvoke
	m.Body = &canonical.Invoke{Turn: canonical.Content{Role: canonical.RoleCaller, Parts: c.parts()}}
	return nil
}

func reservedTopic(topic string) bool {
	return slices.ContainsFunc(reserved(), func(prefix string) bool { return strings.HasPrefix(topic, prefix) })
}

func payloadHex(f Frame) json.RawMessage {
	if len(f.Payload) == 0 {
		return nil
	}
	return rawjson.Quote(hex.EncodeToString(f.Payload))
}

// extensionsOf keeps a payload that no canonical member holds.
func extensionsOf(c content) canonical.Extensions {
	if v := c.value(); v != nil {
		return canonical.Extensions{Binding: rawjson.NewBuilder().Raw(bodyMember, v).Bytes()}
	}
	return nil
}

// rpcID is the wire id of a JSON-RPC message in a frame: both ids.
func rpcID(id uint32, rpc json.RawMessage) json.RawMessage {
	return rawjson.ArrayOf([]json.RawMessage{number(id), rpc})
}

func (t *Translator) rpcRequest(c content, m *canonical.Message, method string) (*rawjson.Object, error) {
	env, ok := t.rpc(&c)
	if !ok || env.Method != method || env.ID == nil {
		return nil, refuse(canonical.CodeInvalidRequest, "the payload is not the JSON-RPC request of this topic")
	}
	m.Correlation.WireID = rawjson.ArrayOf([]json.RawMessage{m.Correlation.WireID, env.ID})
	if env.Params == nil {
		return rawjson.Parse([]byte("{}"), "/params"), nil
	}
	return rawjson.Parse(env.Params, "/params"), nil
}

func own(raw json.RawMessage) canonical.Extensions {
	return canonical.Extensions(nil).With(Binding, raw)
}

func (t *Translator) call(c content, m *canonical.Message) error {
	p, err := t.rpcRequest(c, m, methodCall)
	if err != nil {
		return err
	}
	m.Op = canonical.OpInvoke
	call := &canonical.Call{Name: p.Required("name"), Args: p.RawObject("arguments")}
	m.Body = &canonical.Invoke{Call: call, Extensions: own(p.Rest())}
	if p.Err() != nil || call.Name == "" {
		return refuse(canonical.CodeBadParams, "a call needs a name, and arguments that are an object")
	}
	return nil
}

func (t *Translator) list(c content, m *canonical.Message) error {
	m.Op = canonical.OpCapabilities
	if c.empty {
		m.Body = &canonical.Page{}
		return nil
	}
	env, _ := t.rpc(&c)
	p, err := t.rpcRequest(c, m, methodList)
	if err != nil {
		return err
	}
	page := &canonical.Page{Cursor: p.TakeText("cursor")}
	left := p.Rest()
	if left == nil && env.Params != nil {
		left = json.RawMessage("{}")
	}
	page.Extensions = own(left)
	m.Body = page
	if p.Err() != nil {
		return refuse(canonical.CodeBadParams, "the payload has no parameters of a list")
	}
	return nil
}

const (
	methodCall = "tools/call"
	methodList = "tools/list"
)

func (t *Translator) reply(f Frame, c content, m *canonical.Message, re canonical.Op, left *rawjson.Builder) error {
	m.Op, m.Phase = re, canonical.PhaseResponse
	f.concerns(m, left)
	if usual := verbOf(re); f.Verb != usual {
		if f.Verb != Tell && (f.Verb != Observe || re != canonical.OpInvoke) { // one reference demo answers an ASK with a TELL
			return refuse(canonical.CodeInvalidRequest, "a reply to a request with another verb")
		}
		left.Raw(leftVerb, number(uint32(f.Verb)))
	}
	if f.Code >= codeErrors && !envelope.HasKind(c.aepb) {
		t.failed(f, c, m)
		return nil
	}
	if f.Code != codeOK {
		left.Raw(leftCode, number(uint32(f.Code)))
	}
	switch re {
	case canonical.OpPing:
		left.Raw(leftFrame, payloadHex(f))
		return nil
	case canonical.OpInvoke:
		return t.result(f, c, m)
	case canonical.OpCapabilities:
		return t.listed(c, m)
	case canonical.OpDescribe:
		return t.described(c, m)
	case canonical.OpRollback, canonical.OpDecision:
		return signalled(c, m, re)
	case canonical.OpTaskGet, canonical.OpTaskCancel, canonical.OpTaskSubscribe:
		stands(f, c, m, re)
		return nil
	case canonical.OpTaskList:
		return tasks(f, c, m)
	default:
		return refuse(canonical.CodeInvalidRequest, "not an answer to that request")
	}
}

// concerns reads which request a frame is about.
func (f Frame) concerns(m *canonical.Message, left *rawjson.Builder) {
	if to, ok := f.Correlation(); ok {
		m.Correlation.WireID = number(to)
		if f.ID != to {
			left.Raw(leftID, number(f.ID))
		}
	}
}

func verbOf(op canonical.Op) Verb {
	switch op {
	case canonical.OpPing:
		return Ping
	case canonical.OpTaskSubscribe:
		return Observe
	default:
		return Ask
	}
}

// failed reads a status that is an error, and the words beside it.
func (t *Translator) failed(f Frame, c content, m *canonical.Message) {
	m.Phase = canonical.PhaseError
	e := &canonical.Error{Code: codeOf(f.Code), Native: &canonical.NativeError{Binding: Binding, Code: int64(f.Code)}}
	m.Body = e
	if env, ok := t.rpc(&c); ok && env.Error != nil && env.ID != nil {
		m.Correlation.WireID = rawjson.ArrayOf([]json.RawMessage{m.Correlation.WireID, env.ID})
		e.Message = env.Error.Message
		e.Extensions = own(rawjson.NewBuilder().Raw("code", json.RawMessage(strconv.FormatInt(env.Error.Code, 10))).
			Raw("data", env.Error.Data).Merge(env.Error.Rest).Bytes())
		return
	}
	switch {
	case c.empty:
	case c.kind == contentText && c.text != "":
		e.Message = c.text
	case c.value() != nil:
		e.Extensions = extensionsOf(c)
	default:
		e.Extensions = own(rawjson.NewBuilder().String(leftFrame, hex.EncodeToString(c.data)).Bytes())
	}
}

func (t *Translator) result(f Frame, c content, m *canonical.Message) error {
	body := &canonical.Result{}
	m.Body = body
	if env, ok := t.rpc(&c); ok && env.ID != nil {
		m.Correlation.WireID = rawjson.ArrayOf([]json.RawMessage{m.Correlation.WireID, env.ID})
		return rpcResult(env, body)
	}
	if f.Code == codeAccepted {
		body.Task = envelope.TaskOf(c.parts(), canonical.StateWorking)
		return nil
	}
	body.Output = c.output(f.Code >= codeErrors)
	return nil
}

// rpcResult reads a CallToolResult as the bridge passes it on: texts as texts,
// any other block as it is.
func rpcResult(env jsonrpc.Message, body *canonical.Result) error {
	if env.Error != nil {
		return refuse(canonical.CodeInvalidRequest, "an error with a status of success")
	}
	if len(env.Result) == 0 || env.Result[0] != '{' {
		return &translators.MalformedError{Path: "/result", Reason: "not an object"}
	}
	o := rawjson.Parse(env.Result, "/result")
	out := &canonical.Output{Structured: o.Take("structuredContent")}
	blocks, has := o.Array("content")
	for _, block := range blocks {
		out.Parts = append(out.Parts, readBlock(block))
	}
	if string(o.Peek("isError")) == "true" {
		o.Take("isError")
		out.Failed = true
	}
	body.Output = out
	left := o.Rest()
	if has && len(blocks) == 0 {
		left = rawjson.NewBuilder().Merge(left).Array("content", nil).Bytes()
	}
	body.Extensions = own(left)
	return o.Err()
}

func readBlock(raw json.RawMessage) canonical.Part {
	if len(raw) > 0 && raw[0] == '{' {
		o := rawjson.Parse(raw, "")
		kind, _ := o.String("type")
		text, ok := o.String("text")
		if kind == "text" && ok && o.Err() == nil && len(o.Members()) == 0 {
			return canonical.Part{Kind: canonical.KindText, Text: text}
		}
	}
	return canonical.Part{Kind: canonical.KindData, Data: raw}
}
