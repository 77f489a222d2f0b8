package uacp

import (
	"cmp"
	"encoding/hex"
	"encoding/json"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/envelope"
	"github.com/aepb/aepb-gateway/translators/internal/jsonrpc"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// say writes what the message says into the frame, and names its topic.
func (e *encoder) say(b *built, ref reference) (topic string, err error) {
	b.f.Verb = verbOf(e.m.Op)
	switch body := e.m.Body.(type) {
	case *canonical.Invoke:
		if e.is(canonical.OpInvoke, canonical.PhaseRequest) {
			return e.invoke(b, body, ref)
		}
	case *canonical.Page:
		if e.is(canonical.OpCapabilities, canonical.PhaseRequest) {
			e.page(b, body, ref)
			return TopicList, nil
		}
	case *canonical.DescribeRequest:
		if e.is(canonical.OpDescribe, canonical.PhaseRequest) {
			b.c = contentOf(body.Extensions)
			return TopicDescribe, nil
		}
	case *canonical.Result:
		if e.is(canonical.OpInvoke, canonical.PhaseResponse) || aboutTask(e.m.Op) && e.m.Phase == canonical.PhaseResponse && body.Task != nil {
			return "", e.result(b, body, ref)
		}
	case *canonical.TaskQuery:
		if e.m.Phase == canonical.PhaseRequest {
			return e.sayQuery(b, body)
		}
	case *canonical.TaskFilter:
		if e.is(canonical.OpTaskList, canonical.PhaseRequest) {
			e.sayFilter(b, body)
			return TopicTaskList, nil
		}
	case *canonical.TaskList:
		if e.is(canonical.OpTaskList, canonical.PhaseResponse) {
			e.sayTasks(b, body)
			return "", nil
		}
	case *canonical.CapabilityList:
		if e.is(canonical.OpCapabilities, canonical.PhaseResponse) {
			e.listed(b, body, ref)
			return "", nil
		}
	case *canonical.Description:
		if e.is(canonical.OpDescribe, canonical.PhaseResponse) {
			e.described(b, body)
			return "", nil
		}
	case *canonical.Event:
		if e.is(canonical.OpInvoke, canonical.PhaseEvent) || e.is(canonical.OpTaskSubscribe, canonical.PhaseEvent) {
			return "", e.sayEvent(b, body)
		}
	case *canonical.Signal:
		if e.m.Phase == canonical.PhaseRequest || e.is(canonical.OpRollback, canonical.PhaseResponse) {
			return e.saySignal(b, body)
		}
	case *canonical.Done:
		switch {
		case e.is(canonical.OpDecision, canonical.PhaseResponse):
			b.c = contentOf(body.Extensions)
			return "", nil
		case e.is(canonical.OpTaskCancel, canonical.PhaseResponse):
			b.f.Code, b.c = codeNoContent, content{kind: contentNone, empty: true}
			return "", nil
		}
	case *canonical.Error:
		if e.m.Phase == canonical.PhaseError {
			e.failed(b, body, ref)
			return "", nil
		}
	default:
		if e.m.Op == canonical.OpPing && e.m.Phase != canonical.PhaseError {
			return "", e.ping(b)
		}
	}
	return "", refuse(canonical.CodeUnsupportedOp, "µACP has no such message")
}

func (e *encoder) is(op canonical.Op, phase canonical.Phase) bool {
	return e.m.Op == op && e.m.Phase == phase
}

// ping writes a PING. An answer holds a text, as in the C++ reference.
func (e *encoder) ping(b *built) error {
	b.f.Verb = Ping
	text, has := rawjson.Unquote(e.left.Peek(leftFrame))
	data, err := hex.DecodeString(text)
	if err != nil {
		return refuse(canonical.CodeInternal, "not a ping")
	}
	if !has && !e.home() && e.m.Phase == canonical.PhaseResponse {
		data = []byte("pong")
	}
	b.c = content{kind: contentNone, data: data, empty: len(data) == 0}
	return nil
}

// contentOf is a payload that no canonical member held.
func contentOf(ext canonical.Extensions) content {
	raw := ext[Binding]
	if len(raw) == 0 || raw[0] != '{' {
		return content{kind: contentNone, empty: true}
	}
	o := rawjson.Parse(raw, "")
	if v := o.Peek(bodyMember); v != nil {
		return valueOf(v)
	}
	data, err := hex.DecodeString(o.PeekText(leftFrame))
	return content{kind: contentNone, data: data, empty: err != nil || len(data) == 0}
}

func valueOf(v json.RawMessage) content {
	if text, ok := rawjson.Unquote(v); ok {
		return content{kind: contentText, text: text}
	}
	return content{kind: contentJSON, json: v}
}

func (e *encoder) invoke(b *built, body *canonical.Invoke, ref reference) (string, error) {
	if e.observes() {
		b.f.Verb = Observe
	}
	if body.Call != nil {
		return TopicCall, e.call(b, body, ref)
	}
	c, ok := say(body.Turn.Parts, e.form == FormBare)
	if !ok {
		return "", refuse(canonical.CodeUnsupportedMedia, "a bare µACP payload holds one text, one value or one file")
	}
	if len(body.Turn.Parts) == 0 && !e.home() {
		return "", refuse(canonical.CodeBadParams, "the message is empty")
	}
	b.c = c
	return e.topic(), nil
}

// topic is where a turn goes: an agent's own topic, if one was chosen.
func (e *encoder) topic() string {
	skill := e.m.To.Skill
	if e.capability != nil && e.capability.ID != "" {
		skill = e.capability.ID
	}
	if skill == "" || (e.form != FormBare && !e.home()) {
		return TopicSend
	}
	return skill
}

func (e *encoder) rpcID(ref reference) json.RawMessage {
	if ref.rpc != nil {
		return ref.rpc
	}
	return number(ref.id)
}

func (e *encoder) call(b *built, body *canonical.Invoke, ref reference) error {
	name := body.Call.Name
	if e.capability != nil && e.capability.ID != "" {
		name = e.capability.ID
	}
	args := body.Call.Args
	if name == "" || (args != nil && (len(args) == 0 || args[0] != '{')) {
		return refuse(canonical.CodeBadParams, "a call needs a name, and arguments that are an object")
	}
	params := rawjson.NewBuilder().String("name", name).Raw("arguments", args).
		Merge(rawjson.Without(body.Extensions[Binding], "name", "arguments")).Bytes()
	b.c = content{kind: contentJSON, json: jsonrpc.Request(e.rpcID(ref), methodCall, params)}
	return nil
}

func (e *encoder) page(b *built, body *canonical.Page, ref reference) {
	if e.home() && ref.rpc == nil && body.Cursor == "" {
		b.c = content{kind: contentNone, empty: true}
		return
	}
	params := rawjson.NewBuilder().Optional("cursor", body.Cursor).Merge(rawjson.Without(body.Extensions[Binding], "cursor")).Object()
	if params == nil && body.Extensions[Binding] != nil {
		params = json.RawMessage("{}")
	}
	b.c = content{kind: contentJSON, json: jsonrpc.Request(e.rpcID(ref), methodList, params)}
}

func (e *encoder) result(b *built, r *canonical.Result, ref reference) error {
	if r.Task == nil && r.Turn == nil && r.Output == nil && r.Pending == nil {
		return refuse(canonical.CodeInternal, "the result is empty")
	}
	parts, state := envelope.Words(r)
	if ref.rpc != nil {
		e.rpcResult(b, r, parts, state, ref)
		return nil
	}
	bare := e.form == FormBare
	switch {
	case bare && (r.Pending != nil || settled(state) && !state.Terminal()):
		return refuse(canonical.CodeCapabilityRequired, "a bare µACP peer takes no input request")
	case state == canonical.StateCompleted, e.m.Op == canonical.OpTaskCancel && state == canonical.StateCanceled:
	case state.Terminal() && bare:
		// It would arrive as an error and no longer as an answer.
		return refuse(canonical.CodeInternal, "the task failed: a bare µACP reply holds no details")
	case state.Terminal():
		b.f.Code = codeInternal
		b.c.aepb = rawjson.NewBuilder().String("kind", envelope.KindOf(r)).Bytes()
	default:
		b.f.Code = codeAccepted
	}
	object := b.c.aepb
	if r.Output != nil && r.Output.Structured != nil && (len(parts) == 1 || !bare) {
		b.c = content{kind: contentJSON, json: trimmed(r.Output.Structured)}
	} else {
		var ok bool
		if b.c, ok = say(parts, bare); !ok {
			return refuse(canonical.CodeUnsupportedMedia, "a bare µACP payload holds one text, one value or one file")
		}
	}
	b.c.aepb = object
	return nil
}

// rpcResult answers a call of the bridge with a JSON-RPC result.
func (e *encoder) rpcResult(b *built, r *canonical.Result, parts []canonical.Part, state canonical.State, ref reference) {
	var structured json.RawMessage
	if r.Output != nil {
		structured = r.Output.Structured
		parts = r.Output.Parts
	}
	var blocks []json.RawMessage
	for i := range parts {
		if block := writeBlock(&parts[i]); block != nil {
			blocks = append(blocks, block)
		}
	}
	o := rawjson.NewBuilder()
	if len(blocks) > 0 || !e.home() {
		o.Array("content", blocks)
	}
	o.Raw("structuredContent", structured)
	flag(o, "isError", state != canonical.StateCompleted)
	o.Over(rawjson.Without(r.Extensions[Binding], "structuredContent"), "content", "isError")
	b.c = content{kind: contentJSON, json: jsonrpc.Result(ref.rpc, o.Bytes())}
}

// writeBlock writes a content block; a value that is no block is shown as text.
func writeBlock(p *canonical.Part) json.RawMessage {
	text := p.Text
	switch {
	case p.Kind == canonical.KindText:
	case p.Kind == canonical.KindData && isBlock(p.Data):
		return p.Data
	case p.Kind == canonical.KindData && len(p.Data) > 0:
		text = string(p.Data)
	case p.Kind == canonical.KindRef:
		text = p.URI
	default:
		return nil
	}
	return rawjson.NewBuilder().String("type", "text").String("text", text).Bytes()
}

func isBlock(raw json.RawMessage) bool {
	_, ok := rawjson.Unquote(rawjson.Open(raw).Peek("type"))
	return ok
}

func (e *encoder) listed(b *built, body *canonical.CapabilityList, ref reference) {
	tools := make([]json.RawMessage, len(body.Capabilities))
	for i := range body.Capabilities {
		c := &body.Capabilities[i]
		names := []string{"name"}
		for name, set := range map[string]bool{
			"title": c.Title != "", "description": c.Description != "", "inputSchema": c.InputSchema != nil,
			"outputSchema": c.OutputSchema != nil, "annotations": c.Annotations != nil,
		} {
			if set {
				names = append(names, name)
			}
		}
		tools[i] = rawjson.NewBuilder().String("name", c.ID).Optional("title", c.Title).Optional("description", c.Description).
			Raw("inputSchema", object(c.InputSchema)).Raw("outputSchema", object(c.OutputSchema)).Raw("annotations", object(c.Annotations)).
			Merge(rawjson.Without(c.Extensions[Binding], names...)).Bytes()
	}
	o := rawjson.NewBuilder().Array("tools", tools).Optional("nextCursor", body.Next).Over(rawjson.Without(body.Extensions[Binding], "tools"), "nextCursor")
	b.c = content{kind: contentJSON, json: jsonrpc.Result(e.rpcID(ref), o.Bytes())}
}

// object is a value that is one; a schema may also be a boolean, which the
// bridge does not know.
func object(raw json.RawMessage) json.RawMessage {
	if !rawjson.IsObject(raw) {
		return nil
	}
	return raw
}

func (e *encoder) described(b *built, d *canonical.Description) {
	o := rawjson.NewBuilder().Optional("name", d.Name).Optional("version", d.Version).Optional("description", d.Description)
	flag(o, memberStreams, d.Streams)
	b.c = content{kind: contentJSON, json: o.Over(d.Extensions[Binding], "name", "version", "description", memberStreams).Bytes()}
}

func (e *encoder) failed(b *built, body *canonical.Error, ref reference) {
	b.f.Verb = verbOf(e.m.Op)
	if b.f.Code = cmp.Or(nativeCodes[body.Code], codeInternal); tooLarge(body) {
		b.f.Code = codeTooLarge
	}
	if n := body.Native; n != nil && n.Binding == Binding && n.Code >= codeErrors && n.Code <= 255 && codeOf(uint8(n.Code)) == body.Code {
		b.f.Code = uint8(n.Code)
	}
	switch {
	case ref.rpc != nil:
		left := object(body.Extensions[Binding])
		code := json.RawMessage("-32603")
		if left != nil {
			if n := rawjson.Parse(left, "").Peek("code"); len(n) > 0 && len(n) < 19 && isRPCID(n) && n[0] != '"' {
				code = n
			}
		}
		inner := rawjson.NewBuilder().Raw("code", code).String("message", body.Message).Merge(rawjson.Without(left, "code", "message")).Bytes()
		b.c = content{kind: contentJSON, json: rawjson.NewBuilder().String("jsonrpc", "2.0").Raw("id", ref.rpc).Raw("error", inner).Bytes()}
	case body.Message != "":
		b.c = content{kind: contentText, text: body.Message}
	default:
		b.c = contentOf(body.Extensions)
	}
}
