package stream

import (
	"bytes"
	"encoding/json"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/profile"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// replyProperty is the only property of the form that a question in free text
// becomes where only forms are known.
const replyProperty = "reply"

// Inputs are what an agent asks with a task: its own questions, or, where it
// only talks, one in free text that says what its status says.
func Inputs(t *canonical.Task) []canonical.Input {
	if len(t.Inputs) > 0 {
		return t.Inputs
	}
	question := canonical.Input{Key: replyProperty, Mode: canonical.ModeText}
	if t.Status.Message != nil {
		question.Prompt = t.Status.Message.Parts
		for i := range question.Prompt {
			if p := &question.Prompt[i]; p.Kind == canonical.KindRef && t.Status.State == canonical.StateAuthRequired {
				return []canonical.Input{{Key: replyProperty, Mode: canonical.ModeURL, Prompt: question.Prompt, URL: p.URI}}
			}
		}
	}
	return []canonical.Input{question}
}

// replySchema is that form.
const replySchema = `{"type":"object","properties":{"reply":{"type":"string"}},"required":["reply"]}`

// Talk reports whether a question is what an agent says that only talks.
func Talk(in canonical.Input) bool { return in.Mode == canonical.ModeText && in.Key == replyProperty }

// Plain undoes Forms: the questions as the agent asked them.
func Plain(inputs []canonical.Input) []canonical.Input {
	out := make([]canonical.Input, len(inputs))
	for i, in := range inputs {
		if in.Mode == canonical.ModeForm && string(in.Schema) == replySchema {
			in.Mode, in.Schema = canonical.ModeText, nil
		}
		out[i] = in
	}
	return out
}

// Forms are questions for whoever knows only forms: free text becomes a form
// with one required text.
func Forms(inputs []canonical.Input) []canonical.Input {
	out := make([]canonical.Input, len(inputs))
	for i, in := range inputs {
		if in.Mode == canonical.ModeText {
			in.Mode = canonical.ModeForm
			in.Schema = json.RawMessage(replySchema)
		}
		out[i] = in
	}
	return out
}

// FreeText gives the answers to questions that were asked in free text, and
// were answered in a form, their text back. What wanted a visit, and was asked as a
// form with nothing to fill in, has an answer without content (MCP, elicitation).
func FreeText(asked []canonical.Input, answers []canonical.Answer) []canonical.Answer {
	out := make([]canonical.Answer, len(answers))
	for i, a := range answers {
		in := find(asked, a.Key)
		if in != nil && in.Mode == canonical.ModeURL && string(bytes.Join(bytes.Fields(a.Value), nil)) == "{}" {
			a.Value = nil
		}
		if in != nil && in.Mode == canonical.ModeText && a.Action == canonical.Accept && a.Parts == nil {
			if text, ok := replyText(a.Value); ok {
				a.Value, a.Parts = nil, []canonical.Part{{Kind: canonical.KindText, Text: text}}
			}
		}
		out[i] = a
	}
	return out
}

func replyText(value json.RawMessage) (string, bool) {
	if len(value) == 0 || value[0] != '{' {
		return "", false
	}
	text, ok := rawjson.Unquote(rawjson.Parse(value, "").Peek(replyProperty))
	return text, ok
}

func find(asked []canonical.Input, key string) *canonical.Input {
	for i := range asked {
		if asked[i].Key == key {
			return &asked[i]
		}
	}
	return nil
}

// Answers reads what a message answers: in its own words, or as text for the
// only question there is (a form takes text if one required text is all that it
// wants). A *canonical.Error with the schema: it is no answer to that question.
func Answers(asked []canonical.Input, invoke *canonical.Invoke) ([]canonical.Answer, error) {
	if len(invoke.Answers) > 0 {
		return invoke.Answers, nil
	}
	if len(asked) != 1 {
		return nil, &canonical.Error{Code: canonical.CodeBadParams, Message: "several questions are open: answer each by its key"}
	}
	answer := canonical.Answer{Key: asked[0].Key, Action: canonical.Accept}
	switch asked[0].Mode {
	case canonical.ModeURL:
	case canonical.ModeForm:
		return formAnswer(asked[0], answer, invoke.Turn.Parts)
	default:
		answer.Parts = invoke.Turn.Parts
	}
	return []canonical.Answer{answer}, nil
}

func formAnswer(asked canonical.Input, answer canonical.Answer, parts []canonical.Part) ([]canonical.Answer, error) {
	for i := range parts {
		if p := &parts[i]; p.Kind == canonical.KindData && len(p.Data) > 0 && p.Data[0] == '{' {
			answer.Value = p.Data
			return []canonical.Answer{answer}, nil
		}
	}
	value, _, ok := profile.Bind(asked.Schema, textOf(&canonical.Content{Parts: parts}))
	if !ok {
		return nil, &canonical.Error{
			Code: canonical.CodeBadParams, Message: "the question wants a form: answer with a data part", Schema: asked.Schema,
		}
	}
	answer.Value = value
	return []canonical.Answer{answer}, nil
}

// Turn is answers as a message to an agent that only talks.
func Turn(answers []canonical.Answer) canonical.Content {
	turn := canonical.Content{Role: canonical.RoleCaller}
	for _, a := range answers {
		switch {
		case a.Action == canonical.Decline:
			turn.Parts = append(turn.Parts, canonical.Part{Kind: canonical.KindText, Text: "declined"})
		case a.Action == canonical.Cancel:
			turn.Parts = append(turn.Parts, canonical.Part{Kind: canonical.KindText, Text: "cancelled"})
		case a.Parts != nil:
			turn.Parts = append(turn.Parts, a.Parts...)
		case a.Value != nil:
			turn.Parts = append(turn.Parts, canonical.Part{Kind: canonical.KindData, Data: a.Value, Media: "application/json"})
		default:
			turn.Parts = append(turn.Parts, canonical.Part{Kind: canonical.KindText, Text: "done"})
		}
	}
	return turn
}
