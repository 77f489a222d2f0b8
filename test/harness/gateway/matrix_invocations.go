package gatewaytest

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

func (c *Caller) tells(ctx context.Context, text string) *Received {
	return c.Ask(ctx, c.Request(canonical.OpInvoke, c.Invoke(text)), false, nil)
}

func (c *Caller) says(ctx context.Context) string {
	h := c.tells(ctx, "say hello")
	if strings.Contains(h.Text(), "You said: say hello") {
		return "said"
	}
	return h.Otherwise()
}

// content is a message with a value and a file.
func (c *Caller) content() *canonical.Message {
	const data = `{"k":9007199254740991}`
	invoke := c.Invoke("say it")
	if invoke.Call != nil {
		invoke.Call.Args = json.RawMessage(`{"message":"say it","data":` + data + `,"files":[{"name":"f.bin","mediaType":"application/octet-stream","bytes":"AP8H"}]}`)
	} else {
		invoke.Turn.Parts = append(invoke.Turn.Parts, canonical.Part{Kind: canonical.KindData, Data: json.RawMessage(data)},
			canonical.Part{Kind: canonical.KindFile, Name: "f.bin", Media: "application/octet-stream", Bytes: []byte{0, 255, 7}})
	}
	return c.Request(canonical.OpInvoke, invoke)
}

func (c *Caller) carries(ctx context.Context) string {
	h := c.Ask(ctx, c.content(), false, nil)
	var found []string
	parts := h.parts()
	if strings.Contains(h.Text(), "You said: say it") {
		found = append(found, "text")
	}
	if strings.Contains(h.Text(), "9007199254740991") {
		found = append(found, "data")
	}
	for _, p := range parts {
		if p.Kind == canonical.KindFile && bytes.Equal(p.Bytes, []byte{0, 255, 7}) {
			found = append(found, "file")
			break
		}
	}
	if len(found) == 0 {
		return h.Otherwise()
	}
	return strings.Join(found, " ")
}

// link is a message with a file that is elsewhere.
func (c *Caller) link() *canonical.Message {
	invoke := c.Invoke("say it")
	if invoke.Call != nil {
		invoke.Call.Args = json.RawMessage(`{"message":"say it","files":[{"name":"f.txt","mediaType":"text/plain","uri":"` + linked + `"}]}`)
	} else {
		invoke.Turn.Parts = append(invoke.Turn.Parts, canonical.Part{Kind: canonical.KindRef, Name: "f.txt", Media: "text/plain", URI: linked})
	}
	return c.Request(canonical.OpInvoke, invoke)
}

// linked is where that file is.
const linked = "https://files.example/f.txt"

func (c *Caller) links(ctx context.Context) string {
	h := c.Ask(ctx, c.link(), false, nil)
	var found []string
	if strings.Contains(h.Text(), "You said: say it") {
		found = append(found, "text")
	}
	for _, p := range h.parts() {
		if p.Kind == canonical.KindRef && p.URI == linked && p.Name == "f.txt" && p.Media == "text/plain" {
			found = append(found, "link")
		}
	}
	if len(found) == 0 {
		return h.Otherwise()
	}
	return strings.Join(found, " ")
}

// addition is a call with arguments of its own.
func (c *Caller) addition() *canonical.Message {
	args := `{"a":40,"b":2}`
	if c.side.Form == uacp.FormBare { // which is found again by that
		args = `{"a":40,"b":2,"for":"` + c.Wid + `"}`
	}
	return c.Request(canonical.OpInvoke, &canonical.Invoke{Call: &canonical.Call{Name: "add", Args: json.RawMessage(args)}})
}

func (c *Caller) adds(ctx context.Context) string {
	h := c.Ask(ctx, c.addition(), false, nil)
	if strings.Contains(h.Text(), "42") {
		return "added"
	}
	return h.Otherwise()
}

func (c *Caller) fails(ctx context.Context) string {
	h := c.tells(ctx, DoFail)
	if h.State() == canonical.StateFailed && strings.Contains(h.Text(), "it went wrong") {
		return "failed"
	}
	return h.Otherwise()
}

func (c *Caller) refuses(ctx context.Context) string {
	return c.tells(ctx, doRefuse).Otherwise()
}

func (c *Caller) comesAgain(ctx context.Context) string {
	h := c.tells(ctx, doPut)
	out := h.Otherwise()
	if e := h.Refusal(); e != nil && e.RetryAfter > 0 {
		out += ", again in " + e.RetryAfter.String()
	}
	return out
}

// goesOn says the same twice in the dialogue that the first answer was in; who was
// told of none begins one.
func (c *Caller) goesOn(ctx context.Context) string {
	dialogue := c.tells(ctx, doCount).dialogue()
	if dialogue == "" {
		dialogue = string(ect.NewID())
		c.counts(ctx, dialogue)
	}
	h := c.counts(ctx, dialogue)
	for _, n := range []string{"said 1", "said 2"} {
		if strings.Contains(h.Text(), n) {
			return n
		}
	}
	return h.Otherwise()
}

// counts says it in a dialogue.
func (c *Caller) counts(ctx context.Context, dialogue string) *Received {
	m := c.Request(canonical.OpInvoke, c.Invoke(doCount))
	m.Conversation.ContextID = dialogue
	if call := m.Body.(*canonical.Invoke).Call; call != nil {
		call.Args = json.RawMessage(`{"message":"` + doCount + `","context_id":"` + dialogue + `"}`)
	}
	return c.Ask(ctx, m, false, nil)
}

func (c *Caller) streams(ctx context.Context) string {
	m := c.Request(canonical.OpInvoke, c.Invoke(DoTell))
	m.Preferences.Stream = true
	if c.words() == mcp.Binding {
		m.Correlation.Progress = json.RawMessage(`"p"`)
	}
	h := c.Ask(ctx, m, true, nil)
	text := h.Text()
	first, second := strings.Index(text, "first"), strings.Index(text, "second")
	switch {
	case first < 0 || second < first || h.Refused() != "":
		return h.Otherwise()
	case h.Events > 1 || strings.Contains(h.Noticed(), "under way"):
		return "told"
	default:
		return "waited"
	}
}
