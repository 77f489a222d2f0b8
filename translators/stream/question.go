package stream

import (
	"encoding/json"

	"github.com/aepb/aepb-gateway/translators/canonical"
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

// Forms rewrites questions for a client that knows only forms: free text becomes a form
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
