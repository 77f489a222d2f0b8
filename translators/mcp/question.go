package mcp

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/jsonrpc"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// askKey names the only question of a request that a server makes.
const askKey = "ask"

// replyForm is the form that a question in free text becomes.
const replyForm = `{"type":"object","properties":{"reply":{"type":"string"}},"required":["reply"]}`

// decodeInput reads one question: an elicitation, or another request of a
// server, which stays as it is. rest is what stood beside method and params.
func decodeInput(key, method string, params, rest json.RawMessage, path string) (canonical.Input, error) {
	in := canonical.Input{Key: key}
	if method == methodElicit && params == nil {
		params = json.RawMessage("{}")
	}
	var left json.RawMessage
	if p := elicitation(method, params, path); p != nil {
		in.Prompt = []canonical.Part{{Kind: canonical.KindText, Text: p.Required("message")}}
		if string(p.Peek("mode")) == `"url"` {
			p.Take("mode")
			in.Mode, in.URL = canonical.ModeURL, p.Required("url")
		} else {
			in.Mode, in.Schema = canonical.ModeForm, p.RawObject("requestedSchema")
			if in.Schema == nil {
				p.Fail("requestedSchema", "required")
			}
		}
		if p.Err() != nil {
			return in, p.Err()
		}
		left = p.Rest()
	} else {
		in.Mode, in.Native = canonical.ModeNative, &canonical.Native{Method: method, Params: params}
	}
	in.Extensions = in.Extensions.With(Binding, rawjson.NewBuilder().Raw("params", left).Merge(rest).Object())
	return in, nil
}

// elicitation opens the parameters of an elicitation in a mode that is known;
// nil: it is something else.
func elicitation(method string, params json.RawMessage, path string) *rawjson.Object {
	if method != methodElicit {
		return nil
	}
	p := rawjson.Parse(params, path+"/params")
	switch string(p.Peek("mode")) {
	case "", `"form"`, `"url"`:
		return p
	default:
		return nil
	}
}

// inputRequest is a question as a request of a server.
type inputRequest struct {
	method       string
	params, rest json.RawMessage
}

// input writes one question. id names it, and no other question has that id.
func (e *encoder) input(in *canonical.Input, id, at string) (inputRequest, error) {
	left := rawjson.Open(in.Extensions[Binding])
	params := left.Take("params")
	out := inputRequest{rest: left.Rest()}
	if in.Mode == canonical.ModeNative {
		if in.Native == nil || in.Native.Method == "" {
			return out, refuse(canonical.CodeInternal, "a question without a text")
		}
		out.method, out.params = in.Native.Method, in.Native.Params
		return out, nil
	}
	if e.version <= LegacyMarch {
		return out, refuse(canonical.CodeUnsupportedOp, "MCP "+e.version+" has no elicitation")
	}
	out.method = methodElicit
	out.params = e.elicit(in, params, id, at)
	return out, nil
}

func (e *encoder) elicit(in *canonical.Input, left json.RawMessage, id, at string) json.RawMessage {
	text := e.prompt(in.Prompt, at+"/prompt")
	b := rawjson.NewBuilder()
	switch {
	case in.Mode == canonical.ModeURL && e.version != LegacyJune:
		b.String("message", text).String("mode", "url").String("url", in.URL)
		if e.version == Legacy && !(rawjson.IsObject(left) && rawjson.Parse(left, "").Has("elicitationId")) {
			b.String("elicitationId", id)
		}
	case in.Mode == canonical.ModeURL: // a form without fields: to accept it is to have been there
		e.lose(canonical.LossSchemas, canonical.Dropped, at)
		b.String("message", join(text, in.URL)).Raw("requestedSchema", json.RawMessage(`{"type":"object","properties":{}}`))
	case in.Mode == canonical.ModeForm && (e.native || flat(in.Schema)):
		b.String("message", text).Raw("requestedSchema", in.Schema)
	case in.Mode == canonical.ModeForm:
		e.lose(canonical.LossSchemas, canonical.Dropped, at+"/schema")
		b.String("message", join(text, string(in.Schema))).Raw("requestedSchema", json.RawMessage(replyForm))
	default:
		b.String("message", text).Raw("requestedSchema", json.RawMessage(replyForm))
	}
	if rawjson.IsObject(left) {
		for _, m := range rawjson.Parse(left, "").Members() {
			if m.Name == "mode" && e.version == LegacyJune && !e.native {
				continue // there was only one
			}
			b.Raw(m.Name, m.Value)
		}
	}
	return b.Bytes()
}

// prompt is what a question says, in text.
func (e *encoder) prompt(parts []canonical.Part, at string) string {
	if len(parts) != 1 || parts[0].Kind != canonical.KindText {
		e.lose(canonical.LossPartBoundaries, canonical.Dropped, at)
	}
	var texts []string
	for i := range parts {
		switch p := &parts[i]; p.Kind {
		case canonical.KindText:
			texts = append(texts, p.Text)
		case canonical.KindData:
			texts = append(texts, string(p.Data))
		case canonical.KindRef:
			texts = append(texts, p.URI)
		default:
			e.lose(canonical.LossContent, canonical.Dropped, at)
		}
	}
	return strings.Join(texts, "\n\n")
}

func join(text, more string) string {
	if text == "" {
		return more
	}
	return text + "\n\n" + more
}

// flat reports whether a schema is one that an elicitation may have: an object
// of strings, numbers, booleans and choices.
func flat(schema json.RawMessage) bool {
	if !isObjectSchema(schema) {
		return false
	}
	properties := rawjson.Parse(schema, "").Peek("properties")
	if !rawjson.IsObject(properties) {
		return false
	}
	for _, p := range rawjson.Parse(properties, "").Members() {
		if !rawjson.IsObject(p.Value) {
			return false
		}
		one := rawjson.Parse(p.Value, "")
		switch kind := one.PeekText("type"); kind {
		case "string", "number", "integer", "boolean":
		case "array":
			items := one.Peek("items")
			if !rawjson.IsObject(items) || !rawjson.Parse(items, "").Has("enum") && !rawjson.Parse(items, "").Has("anyOf") {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// decodeInputs reads a map of questions.
func decodeInputs(raw json.RawMessage, path string) ([]canonical.Input, error) {
	var inputs []canonical.Input
	o := rawjson.Parse(raw, path)
	for _, m := range o.Members() {
		if !rawjson.IsObject(m.Value) {
			o.Fail(m.Name, "not an object")
			return nil, o.Err()
		}
		request := rawjson.Parse(m.Value, o.Path(m.Name))
		method := request.Required("method")
		if method == "" {
			request.Fail("method", "empty")
		}
		params := request.RawObject("params")
		if request.Err() != nil {
			return nil, request.Err()
		}
		in, err := decodeInput(m.Name, method, params, request.Rest(), o.Path(m.Name))
		if err != nil {
			return nil, err
		}
		inputs = append(inputs, in)
	}
	return inputs, nil
}

// inputs writes a map of questions.
func (e *encoder) inputs(inputs []canonical.Input, at string) (json.RawMessage, error) {
	return byKey(inputs, func(in *canonical.Input) string { return in.Key }, func(in *canonical.Input, i int) (json.RawMessage, error) {
		request, err := e.input(in, in.Key, indexed(at, i))
		return rawjson.NewBuilder().String("method", request.method).Raw("params", request.params).Merge(request.rest).Bytes(), err
	}, canonical.CodeInternal, "two questions under one key")
}

// byKey writes a map; twice is why no key may stand there twice.
func byKey[T any](list []T, key func(*T) string, write func(*T, int) (json.RawMessage, error), code canonical.Code, twice string) (json.RawMessage, error) {
	b := rawjson.NewBuilder()
	var seen []string
	for i := range list {
		if slices.Contains(seen, key(&list[i])) {
			return nil, refuse(code, twice)
		}
		seen = append(seen, key(&list[i]))
		value, err := write(&list[i], i)
		if err != nil {
			return nil, err
		}
		b.Raw(seen[i], value)
	}
	return b.Bytes(), nil
}

// decodePending reads a result that asks.
func decodePending(m *canonical.Message, r *reader) error {
	pending := &canonical.Pending{}
	inputs := r.RawObject("inputRequests")
	if inputs != nil {
		var err error
		if pending.Inputs, err = decodeInputs(inputs, "/result/inputRequests"); err != nil {
			return err
		}
		if pending.Inputs == nil {
			r.Put("inputRequests", inputs)
		}
	}
	stated := r.Has("requestState")
	takeText(r.Object, "requestState", &pending.State)
	if r.Err() == nil && inputs == nil && !stated {
		return refuse(canonical.CodeBadUpstream, "the result asks for input without an input request")
	}
	m.Body = &canonical.Result{Pending: pending, Extensions: r.extensions()}
	return r.err()
}

// pending writes a result that asks.
func (e *encoder) pending(w *writer, p *canonical.Pending) error {
	if !e.modern {
		return refuse(canonical.CodeCapabilityRequired, "the agent's input request needs a capability that this client lacks")
	}
	if lacks := lacking(p.Inputs, e.m.Preferences.CanAnswer); len(lacks) > 0 {
		return undeclared("what the agent asks", declaring(lacks, false, e.version))
	}
	if len(p.Inputs) > 0 {
		inputs, err := e.inputs(p.Inputs, "/body/pending/inputs")
		if err != nil {
			return err
		}
		w.raw("inputRequests", inputs)
	}
	w.text("requestState", p.State)
	return nil
}

// lacking is what a client has to declare that it can answer for these questions, and
// has not. nil as what it can: that is not known here.
func lacking(inputs []canonical.Input, can []canonical.Mode) (modes []canonical.Mode) {
	for i := range inputs {
		mode := inputs[i].Mode
		switch {
		case mode == canonical.ModeText:
			mode = canonical.ModeForm
		case mode == canonical.ModeNative && inputs[i].Native != nil:
			domain, _, _ := strings.Cut(inputs[i].Native.Method, "/")
			if mode = canonical.Mode(domain); !slices.Contains(natives[:], mode) {
				continue
			}
		}
		if can != nil && !slices.Contains(can, mode) {
			modes = append(modes, mode)
		}
	}
	return modes
}

// decodeNativeRequest keeps a request that only MCP has. What the methods that may ask
// repeat is read (2026-07-28, multi round-trip requests).
func decodeNativeRequest(env jsonrpc.Message, version string) (*canonical.Native, error) {
	n := &canonical.Native{Method: env.Method, Params: env.Params}
	if version != Modern || env.Method != methodPromptsGet && env.Method != methodResourcesRead || !rawjson.IsObject(env.Params) {
		return n, nil
	}
	o := rawjson.Parse(env.Params, "/params")
	answers := o.Take("inputResponses")
	takeText(o, "requestState", &n.State)
	if answers == nil && n.State == "" {
		return n, o.Err()
	}
	var err error
	if n.Answers, err = decodeAnswers(rawjson.OrEmpty(answers), "/params/inputResponses"); err != nil {
		return nil, err
	}
	n.Params = rawjson.OrEmpty(o.Rest())
	return n, o.Err()
}

// repeated are the parameters of a request that only MCP has, with what makes it the
// answer to a question.
func (e *encoder) repeated(body *canonical.Native) (json.RawMessage, error) {
	switch {
	case len(body.Answers) == 0 && body.State == "":
		return body.Params, nil
	case !e.modern:
		e.lose(canonical.LossRequestState, canonical.Dropped, "/body/state")
		return body.Params, nil
	}
	answers, err := e.answers(body.Answers, "/body/answers")
	if err != nil {
		return nil, err
	}
	b := rawjson.NewBuilder().Rest(rawjson.Parse(rawjson.OrEmpty(body.Params), ""))
	if len(body.Answers) > 0 {
		b.Raw("inputResponses", answers)
	}
	return b.Optional("requestState", body.State).Bytes(), nil
}

// decodeAnswers reads a map of answers.
func decodeAnswers(raw json.RawMessage, path string) ([]canonical.Answer, error) {
	var answers []canonical.Answer
	o := rawjson.Parse(raw, path)
	for _, m := range o.Members() {
		switch {
		case m.Name == "":
			o.Fail(m.Name, "an answer without a key: name the question as inputRequests does")
		case !rawjson.IsObject(m.Value):
			o.Fail(m.Name, "not an object")
		}
		if err := o.Err(); err != nil {
			return nil, err
		}
		answer := decodeAnswer(m.Value)
		answer.Key = m.Name
		answers = append(answers, answer)
	}
	return answers, nil
}

// decodeAnswer reads one answer. The result of a request that is no elicitation
// is its own word: it has no action.
func decodeAnswer(raw json.RawMessage) canonical.Answer {
	o := rawjson.Parse(raw, "")
	switch a := canonical.Action(o.PeekText("action")); a {
	case canonical.Accept, canonical.Decline, canonical.Cancel:
		if o.Has("content") && !rawjson.IsObject(o.Peek("content")) {
			break
		}
		o.Take("action")
		answer := canonical.Answer{Action: a, Value: o.Take("content")}
		answer.Extensions = answer.Extensions.With(Binding, o.Rest())
		return answer
	}
	return canonical.Answer{Value: raw}
}

// answer writes one answer.
func (e *encoder) answer(a *canonical.Answer, at string) (json.RawMessage, error) {
	if a.Action == "" {
		if !rawjson.IsObject(a.Value) {
			return json.RawMessage("{}"), nil
		}
		return a.Value, nil
	}
	content := a.Value
	if content == nil && len(a.Parts) > 0 {
		text := e.prompt(a.Parts, at+"/parts")
		content = rawjson.NewBuilder().String("reply", text).Bytes()
	}
	if content != nil && !rawjson.IsObject(content) {
		return nil, refuse(canonical.CodeBadParams, "the answer to a form must be an object")
	}
	b := rawjson.NewBuilder().String("action", string(a.Action)).Raw("content", content)
	for binding := range a.Extensions {
		if binding != Binding {
			e.lose(canonical.LossExtension, canonical.Dropped, at+"/extensions/"+string(binding))
		}
	}
	return b.Merge(a.Extensions[Binding]).Bytes(), nil
}

// answers writes a map of answers.
func (e *encoder) answers(answers []canonical.Answer, at string) (json.RawMessage, error) {
	return byKey(answers, func(a *canonical.Answer) string { return a.Key }, func(a *canonical.Answer, i int) (json.RawMessage, error) {
		return e.answer(a, indexed(at, i))
	}, canonical.CodeBadParams, "two answers to one question")
}
