package routing

import (
	"encoding/json"
	"strings"

	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Bounds of the question which tool is meant.
const (
	maxChoices  = 50
	maxQuestion = 8 << 10 // bytes of its words and its form
)

// UnnamedError: the message names none of the skills that its agent has.
type UnnamedError struct {
	Refusal  *canonical.Error
	Question *canonical.Input // which one is meant; nil: there are too many to ask
}

func (e *UnnamedError) Error() string { return e.Refusal.Error() }

// Unwrap is the refusal in the words of every protocol.
func (e *UnnamedError) Unwrap() error { return e.Refusal }

// choiceForm is the form of the question which tool is meant.
type choiceForm struct {
	Type       string `json:"type"`
	Properties struct {
		Tool struct {
			Type string   `json:"type"`
			Enum []string `json:"enum"`
		} `json:"tool"`
	} `json:"properties"`
	Required []string `json:"required"`
}

// choice asks which tool is meant: one of those that may be called now, by the names that the
// caller knows. Nil: there is none, or the question would be too large.
func (r Router) choice(q Query, d *canonical.Description, listed directory.Endpoint) *canonical.Input {
	form := choiceForm{Type: "object", Required: []string{"tool"}}
	form.Properties.Tool.Type = "string"
	var words strings.Builder
	words.WriteString("Which tool? Answer with its name, or with a data part {\"skill\": …, \"input\": …}.")
	known := allNames(q.In.Features, d)
	for i := range d.Capabilities {
		c := &d.Capabilities[i]
		if c.Profile.Content() || r.Directory.Admits(q.To.Agent, listed, q.offer().Own(c.ID)) != nil {
			continue
		}
		form.Properties.Tool.Enum = append(form.Properties.Tool.Enum, known[i])
		words.WriteString("\n- " + known[i])
		for _, more := range []string{c.Title, c.Description} {
			if more = strings.Join(strings.Fields(more), " "); more != "" && more != known[i] {
				words.WriteString(": " + more)
			}
		}
		if words.Len() > maxQuestion || len(form.Properties.Tool.Enum) > maxChoices {
			return nil
		}
	}
	schema, err := json.Marshal(form)
	if err != nil || len(form.Properties.Tool.Enum) == 0 || words.Len()+len(schema) > maxQuestion {
		return nil
	}
	return &canonical.Input{
		Key: "tool", Mode: canonical.ModeForm, Schema: schema, Prompt: []canonical.Part{{Kind: canonical.KindText, Text: words.String()}},
	}
}

// Chosen is the name in the answer to that question.
func Chosen(answer canonical.Answer) string {
	var value struct {
		Tool string `json:"tool"`
	}
	_ = json.Unmarshal(answer.Value, &value) // it fits the form
	return value.Tool
}

// Choosing is the answer to that question that a call is.
func Choosing(call *canonical.Call) canonical.Answer {
	value, _ := json.Marshal(map[string]string{"tool": call.Name}) //nolint:errchkjson // a text
	return canonical.Answer{Key: "tool", Action: canonical.Accept, Value: value}
}
