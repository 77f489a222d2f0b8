package a2a

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/profile"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// A question with more than words stands in the message of a status as a data
// part {"elicitation": {"key", "mode", "schema", "url", "prompt"}}, after the
// words, of which the last few ("prompt") are the question's, or all of them; its
// answer in a message as {"elicitation": {"key", "action", "content"}}. Who
// knows nothing of it reads the words (reference, input required).
const (
	keyElicitation = "elicitation"
	keyPrompt      = "prompt"
)

// keyAnswers and keyState are the members of canon with answers that the words
// of a message do not give in full, and with what a question wants back.
const (
	keyAnswers = "answers"
	keyState   = "requestState"
)

// soleKey names a question that has no name, being the only one.
const soleKey = "reply"

// elicitation finds such a part.
func elicitation(p *canonical.Part) *rawjson.Object {
	if p.Kind != canonical.KindData || !rawjson.IsObject(p.Data) {
		return nil
	}
	if !bytes.Contains(p.Data, []byte(keyElicitation)) && bytes.IndexByte(p.Data, '\\') < 0 { // an escape may hide the name
		return nil
	}
	o := rawjson.Parse(p.Data, "")
	inner := o.Take(keyElicitation)
	if !rawjson.IsObject(inner) || o.Rest() != nil {
		return nil
	}
	return rawjson.Parse(inner, "")
}

func memberText(o *rawjson.Object, name, otherwise string) string {
	if text, ok := rawjson.Unquote(o.Peek(name)); ok && text != "" {
		return text
	}
	return otherwise
}

// inputsIn are the questions that a status asks in our words. What it says in
// words alone is a question in free text, which needs no more than that.
func inputsIn(s *canonical.Status) []canonical.Input {
	if s.Message == nil || s.State != canonical.StateInputRequired && s.State != canonical.StateAuthRequired {
		return nil
	}
	var inputs []canonical.Input
	var prompt []canonical.Part
	for i := range s.Message.Parts {
		p := &s.Message.Parts[i]
		o := elicitation(p)
		if o == nil {
			prompt = append(prompt, *p)
			continue
		}
		input := canonical.Input{Key: memberText(o, "key", soleKey), Prompt: lastOf(prompt, o.Peek(keyPrompt)), Schema: o.Peek("schema"), URL: memberText(o, "url", "")}
		prompt = nil
		switch mode := canonical.Mode(memberText(o, "mode", "")); {
		case mode == canonical.ModeURL && input.URL != "", mode == "" && input.URL != "":
			input.Mode = canonical.ModeURL
		case rawjson.IsObject(input.Schema):
			input.Mode = canonical.ModeForm
		default:
			input.Mode, input.Schema = canonical.ModeText, nil
		}
		inputs = append(inputs, input)
	}
	return inputs
}

// lastOf are as many of the last parts as count says, if it counts them.
func lastOf(parts []canonical.Part, count json.RawMessage) []canonical.Part {
	if n, err := strconv.Atoi(string(count)); err == nil && n >= 0 && n < len(parts) {
		return parts[len(parts)-n:]
	}
	return parts
}

// unasked are the parts after the last question.
func unasked(parts []canonical.Part) []canonical.Part {
	for i := range slices.Backward(parts) {
		if elicitation(&parts[i]) != nil {
			return parts[i+1:]
		}
	}
	return parts
}

// ends reports whether words end with these parts.
func ends(words, with []canonical.Part) bool {
	return len(with) <= len(words) && reflect.DeepEqual(slices.Clip(words[len(words)-len(with):]), slices.Clip(with))
}

// asking is a status with the questions in its message. Those that it asks
// already, because it came from A2A, are not asked twice.
func (e *encoder) asking(s *canonical.Status, inputs []canonical.Input, path, id string) *canonical.Status {
	open := inputsIn(s)
	var parts []canonical.Part // what the message does not say
	var words []canonical.Part // said after the last question
	if s.Message != nil {
		words = unasked(s.Message.Parts)
	}
	for i := range inputs {
		in := &inputs[i]
		if slices.ContainsFunc(open, func(other canonical.Input) bool { return other.Key == in.Key }) {
			continue
		}
		if !ends(words, in.Prompt) {
			parts = append(parts, in.Prompt...)
			words = slices.Concat(words, in.Prompt)
		}
		place := at(path+"/inputs", i)
		if in.Mode == canonical.ModeNative {
			e.drop(canonical.LossSampling, place)
			continue
		}
		if in.Mode == canonical.ModeText && len(inputs) == 1 && in.Key == soleKey {
			e.drop(canonical.LossElicitation, place)
			continue
		}
		e.lose(canonical.LossElicitation, place)
		for binding := range in.Extensions {
			e.drop(canonical.LossExtension, place+"/extensions/"+string(binding))
		}
		parts = append(parts, canonical.Part{Kind: canonical.KindData, Media: profile.TypedMedia, Data: question(in, len(words))})
		words = nil
	}
	if len(parts) == 0 {
		return s
	}
	out, message := *s, canonical.Content{Role: canonical.RoleAgent}
	if s.Message != nil {
		message = *s.Message
	}
	if message.ID == "" && !e.home {
		message.ID = e.mint(id + "/status")
	}
	message.Parts = slices.Concat(message.Parts, parts)
	if !slices.Contains(message.ExtensionURIs, profile.ExtensionURI) {
		message.ExtensionURIs = append(slices.Clone(message.ExtensionURIs), profile.ExtensionURI)
	}
	out.Message = &message
	return &out
}

// question is one after so many parts of words.
func question(in *canonical.Input, words int) json.RawMessage {
	b := rawjson.NewBuilder().String("key", in.Key).String("mode", string(in.Mode)).
		Raw("schema", in.Schema).Optional("url", in.URL)
	if n := len(in.Prompt); n != words {
		b.Raw(keyPrompt, json.RawMessage(strconv.Itoa(n)))
	}
	return rawjson.NewBuilder().Raw(keyElicitation, b.Bytes()).Bytes()
}

// answersIn are the answers that a message gives in our words.
func answersIn(turn *canonical.Content) []canonical.Answer {
	var answers []canonical.Answer
	for i := range turn.Parts {
		if o := elicitation(&turn.Parts[i]); o != nil {
			answers = append(answers, readAnswer(o))
		}
	}
	return answers
}

// readAnswer reads an answer. Without a key it is to the only question there is; with
// content and without an action it accepts what requires values. Whether the action is
// one is judged against the question (package consent).
func readAnswer(o *rawjson.Object) canonical.Answer {
	a := canonical.Answer{Key: wordIn(o.Peek("key")), Action: canonical.Action(wordIn(o.Peek("action")))}
	content := o.Peek("content")
	if content != nil && leftOut(o.Peek("action")) {
		a.Action, a.Implied = canonical.Accept, true
	}
	if a.Action == canonical.Accept {
		a.Value = content
	}
	return a
}

// wordIn is a text; what is something else stays JSON, so that it names no question
// and no action.
func wordIn(raw json.RawMessage) string {
	if text, ok := rawjson.Unquote(raw); ok || leftOut(raw) {
		return text
	}
	return string(raw)
}

// leftOut reports whether a member is absent or null.
func leftOut(raw json.RawMessage) bool { return raw == nil || string(raw) == "null" }

func sayAnswer(a *canonical.Answer) json.RawMessage {
	action := string(a.Action)
	if a.Implied {
		action = ""
	}
	return rawjson.NewBuilder().Optional("key", a.Key).Optional("action", action).Raw("content", a.Value).Bytes()
}

// answers says answers that the message does not: in parts where it has none,
// else beside its words, which are for agents that know words only.
func (e *encoder) answers(invoke *canonical.Invoke, turn *canonical.Content, canon *rawjson.Builder) {
	list := answersIn(turn)
	var beside []json.RawMessage
	silent := len(turn.Parts) == 0
	for i := range invoke.Answers {
		a, place := &invoke.Answers[i], at("/body/answers", i)
		if slices.ContainsFunc(list, func(other canonical.Answer) bool { return other.Key == a.Key }) {
			continue
		}
		for binding := range a.Extensions {
			e.drop(canonical.LossExtension, place+"/extensions/"+string(binding))
		}
		if len(a.Parts) > 0 {
			e.drop(canonical.LossElicitation, place)
			if silent {
				turn.Parts = append(turn.Parts, a.Parts...)
			}
			continue
		}
		e.lose(canonical.LossElicitation, place)
		if silent {
			data := rawjson.NewBuilder().Raw(keyElicitation, sayAnswer(a)).Bytes()
			turn.Parts = append(turn.Parts, canonical.Part{Kind: canonical.KindData, Media: profile.TypedMedia, Data: data})
		} else {
			beside = append(beside, sayAnswer(a))
		}
	}
	if len(beside) > 0 {
		canon.Array(keyAnswers, beside)
	}
	if invoke.State != "" {
		canon.String(keyState, invoke.State)
		e.lose(canonical.LossRequestState, "/body/state")
	}
}

// restoreAnswers takes out of canon what answers wrote there.
func restoreAnswers(canon *rawjson.Object, invoke *canonical.Invoke) {
	if state, ok := rawjson.Unquote(canon.Peek(keyState)); ok && state != "" {
		canon.Take(keyState)
		invoke.State = state
	}
	elements, ok := rawjson.Elements(canon.Peek(keyAnswers))
	var answers []canonical.Answer
	for _, element := range elements {
		if !rawjson.IsObject(element) {
			return
		}
		answer := readAnswer(rawjson.Parse(element, ""))
		if answer.Implied || !rawjson.Equal(sayAnswer(&answer), element) {
			return
		}
		answers = append(answers, answer)
	}
	if ok && len(answers) > 0 {
		canon.Take(keyAnswers)
		invoke.Answers = append(invoke.Answers, answers...)
	}
}
