package a2a

import (
	"cmp"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/jsonrpc"
	"github.com/aepb/aepb-gateway/translators/internal/profile"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// Decode reads a request, or with Wire.Re the reply to one. Where the envelope
// could be read, an error comes with a message that has the id, so that an endpoint
// can answer it.
func (t *Translator) Decode(w translators.Wire) (*canonical.Message, error) {
	if len(w.Body) <= t.cfg.BodyLimit && w.Re == canonical.OpDescribe && !isEnvelope(w.Body) {
		return t.decodeCard(w)
	}
	env, err := t.envelope(w)
	malformed, _ := errors.AsType[*translators.MalformedError](err)
	if malformed != nil && (malformed.Syntax || env.ID == nil) {
		return nil, err
	}
	m := arrived(w)
	m.Correlation.WireID = env.ID
	if malformed != nil && malformed.Path == "/params" && env.Method != "" {
		err = badParams(err) // no object; the request itself can be read
	}
	version, misspoken := spoken(w, env)
	m.Origin.Version = version
	if err = cmp.Or(err, misspoken); err != nil {
		return m, err
	}
	switch {
	case env.Method != "":
		m.Phase = canonical.PhaseRequest
		err = decodeRequest(m, w, env)
	case w.Re == "":
		err = &translators.MalformedError{Reason: "a reply without a known request"}
	case env.Error != nil:
		m.Phase, m.Op = canonical.PhaseError, w.Re
		decodeError(m, env.Error, statusOf(w))
		if !rawjson.Equal(sayFailure(w.Form, env.ID, *env.Error), w.Body) {
			m.Losses = []canonical.Loss{{Code: canonical.LossBytes, Path: "/body", Fate: canonical.Dropped}} // id or message was absent
		}
	default:
		m.Phase, m.Op = canonical.PhaseResponse, w.Re
		err = decodeAnswer(m, w, env.Result)
	}
	m.Losses = append(m.Losses, env.Losses...)
	return m, err
}

// isEnvelope tells a JSON-RPC reply from a bare card.
func isEnvelope(body []byte) bool {
	return rawjson.Check(body, len(body), translators.DefaultDepth) == nil && rawjson.Parse(body, "").Has("jsonrpc")
}

func arrived(w translators.Wire) *canonical.Message {
	m := &canonical.Message{Origin: canonical.Origin{Binding: Binding, Version: Version, Raw: w.Body}}
	for _, f := range traceFields(&m.Trace) {
		*f.at = joined(w.Header, f.name)
	}
	return m
}

func decodeRequest(m *canonical.Message, w translators.Wire, env jsonrpc.Message) error {
	method := operationOf(env.Method, m.Origin.Version)
	if method == nil && w.Form == FormHTTP && env.Method == methodList03 {
		method = operationOf(methodList, Version)
	}
	if method == nil {
		return &canonical.Error{Code: canonical.CodeNoMethod, Message: "no such method" + hintFor(env.Method)}
	}
	if env.ID == nil && !unpaired(w.Form) {
		return &canonical.Error{Code: canonical.CodeInvalidRequest, Message: "a request needs an id"}
	}
	m.Op, m.Preferences.Stream = method.op, method.stream
	params := env.Params
	if params == nil {
		if method.op != canonical.OpNative && method.op != canonical.OpTaskList {
			return badParams(&translators.MalformedError{Path: "/params", Reason: "required"})
		}
		params = json.RawMessage("{}")
	}
	if method.op == canonical.OpNative {
		m.Body = &canonical.Native{Method: env.Method, Params: env.Params}
		extensionsHeader(m, w)
		return nil
	}
	params, raised, err := raise(m, params, "/params", method.params, w.Form)
	if err != nil {
		return badParams(err)
	}
	d := &decoder{selects: true, losses: raised}
	method.read(d, m, d.open(params, "/params", method.members))
	m.Losses = d.losses
	extensionsHeader(m, w)
	return badParams(d.err)
}

// hintFor tells a client of MCP where it is. It quotes no method that a caller wrote.
func hintFor(method string) string {
	for _, family := range []string{"tools/", "resources/", "prompts/", "notifications/", "completion/", "logging/", "sampling/", "server/"} {
		if strings.HasPrefix(method, family) {
			return " in A2A: this is a method of MCP, which the agent's URL that ends in /mcp serves"
		}
	}
	if method == "initialize" || method == "ping" {
		return " in A2A: this is a method of MCP, which the agent's URL that ends in /mcp serves"
	}
	return ""
}

// badParams makes a broken params object the error that A2A has for it: the
// request itself is well formed.
func badParams(err error) error {
	malformed, ok := errors.AsType[*translators.MalformedError](err)
	if !ok {
		return err
	}
	violation := rawjson.NewBuilder().String("field", strings.TrimPrefix(malformed.Path, "/params/")).
		String("description", malformed.Reason).Bytes()
	detail := rawjson.NewBuilder().String("@type", typeBadRequest).
		Array("fieldViolations", []json.RawMessage{violation}).Bytes()
	return &canonical.Error{
		Code: canonical.CodeBadParams, Message: malformed.Path + ": " + malformed.Reason,
		Details: []json.RawMessage{detail},
	}
}

// extensionsHeader keeps the list of activated extensions: a member of the
// message that stands in a header.
func extensionsHeader(m *canonical.Message, w translators.Wire) {
	value := joined(w.Header, extensionsField(m.Origin.Version))
	if value == "" {
		return
	}
	m.Extensions = m.Extensions.With(Binding, rawjson.NewBuilder().String(HeaderExtensions, value).Bytes())
}

// carriedRequest are the canonical members of a request that A2A has no place for.
var carriedRequest = []profile.Field{
	profile.FieldDeadline, profile.FieldProgress, profile.FieldLogLevel,
	profile.FieldFromName, profile.FieldFromVersion, profile.FieldArgsAbsent, profile.FieldMessageExt,
}

// readSend reads a message to an agent.
func readSend(d *decoder, m *canonical.Message, r *reader) {
	m.Conversation.Tenant = r.text("tenant")
	push := d.configuration(&m.Preferences, r)
	raw := r.value("message")
	if raw == nil {
		r.fail("message", "required")
		return
	}
	invoke := &canonical.Invoke{Push: push}
	m.Body = invoke
	var skill string
	tenant := m.Conversation.Tenant
	invoke.Turn, skill = d.turn(raw, r.Path("message"), &m.Conversation)
	m.Conversation.Tenant = tenant
	m.Correlation.MessageID, m.To.Skill = invoke.Turn.ID, skill
	if call, ok := profile.TypedTurn(invoke.Turn.Parts); ok && invoke.Turn.Role == canonical.RoleCaller {
		invoke.Call = call
	}
	invoke.Answers = answersIn(&invoke.Turn)
	c, stray := r.carried()
	if stray != "" {
		r.fail("metadata", "a skill is chosen by a message")
	}
	profile.RestoreMessage(c.Canon, m, carriedRequest...)
	restoreAnswers(c.Canon, invoke)
	if ttl, ok := durationIn(c.Canon.Peek(keyTTL)); ok {
		c.Canon.Take(keyTTL)
		invoke.TTL = &ttl
	}
	invoke.Extensions = c.Extensions(Binding, r.leftover())
}

// turn reads the message of a request, which must be whole.
func (d *decoder) turn(raw json.RawMessage, path string, conv *canonical.Conversation) (canonical.Content, string) {
	content, r, c, skill := d.content(raw, path, conv)
	switch {
	case content.ID == "":
		r.fail("messageId", "required")
	case content.Role == "":
		r.fail("role", "expected ROLE_USER or ROLE_AGENT")
	case len(content.Parts) == 0:
		r.fail("parts", "required")
	}
	content.Extensions = c.Extensions(Binding, r.leftover())
	return content, skill
}

// configuration reads the sender's preferences. It returns the push notification settings
// apart: they are for the gateway, and are sent to no agent.
func (d *decoder) configuration(p *canonical.Preferences, r *reader) *canonical.PushConfig {
	raw := r.value("configuration")
	if raw == nil {
		return nil
	}
	c := d.open(raw, r.Path("configuration"), configMembers)
	p.AcceptMedia = c.texts("acceptedOutputModes")
	p.HistoryLength = c.integer("historyLength")
	p.NoWait = c.flag("returnImmediately")
	var push *canonical.PushConfig
	if raw := c.value("taskPushNotificationConfig"); raw != nil {
		push = d.push(raw, c.Path("taskPushNotificationConfig"))
	}
	rest := c.leftover()
	if rest == nil && p.AcceptMedia == nil && p.HistoryLength == nil && !p.NoWait && push == nil {
		rest = json.RawMessage("{}")
	}
	if rest != nil {
		r.keep("configuration", rest)
	}
	return push
}

// integer takes an int32, as number or, as ProtoJSON allows, as string.
func (r *reader) integer(name string) *int {
	raw := r.value(name)
	if raw == nil {
		return nil
	}
	text, quoted := rawjson.Unquote(raw)
	if !quoted {
		text = string(raw)
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		r.fail(name, "not an integer of 32 bits")
		return nil
	}
	value := int(n)
	if strconv.Itoa(value) != string(raw) {
		r.keep(name, raw)
	}
	return &value
}
