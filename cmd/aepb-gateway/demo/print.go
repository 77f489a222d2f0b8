package demo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Print tells a person what happened.
func (r Report) Print(w io.Writer) error {
	var b bytes.Buffer
	records, hashes := 0, 0
	for i, x := range r.Exchanges {
		fmt.Fprintf(&b, "%d. %s\n", i+1, x.summary)
		fmt.Fprintf(&b, "   answer           %s\n", shorten(answerIn(x.Reply)))
		fmt.Fprintf(&b, "   the client sent  %s\n", inWords(x.Request))
		fmt.Fprintf(&b, "   the agent got    %s\n", inWords(x.Translated))
		fmt.Fprintf(&b, "   kept as extensions: %s\n", lossesIn(x.Losses, canonical.Carried))
		fmt.Fprintf(&b, "   lost: %s\n", lossesIn(x.Losses, canonical.Dropped))
		fmt.Fprintf(&b, "   proof: %s\n", proofOf(x.ECTs))
		records += len(x.ECTs)
		hashes += 2 * len(x.ECTs)
	}
	if r.OK {
		fmt.Fprintf(&b, "All %d signatures, their links, and %d hashes of the bytes that both sides saw were checked with the trust bundle alone.\n"+
			"Next: demo --keep leaves everything running; dev --stdio COMMAND, dev --mcp URL or dev --a2a URL takes your own.\n", records, hashes)
	} else {
		b.WriteString("NOT everything verified.\n")
	}
	_, err := w.Write(b.Bytes())
	return err
}

// message is what people want to see of one in A2A or MCP.
type message struct {
	Method string `json:"method"`
	Params struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
		Message   struct {
			Parts []part `json:"parts"`
		} `json:"message"`
	} `json:"params"`
	Result struct {
		Structured json.RawMessage `json:"structuredContent"`
		Content    []part          `json:"content"`
		Task       struct {
			Artifacts []struct {
				Parts []part `json:"parts"`
			} `json:"artifacts"`
		} `json:"task"`
	} `json:"result"`
}

type part struct {
	Text string          `json:"text"`
	Data json.RawMessage `json:"data"`
}

func (p part) words() string {
	if p.Data != nil {
		return string(p.Data)
	}
	return strconv.Quote(p.Text)
}

// inWords is a request: its method and what it asks.
func inWords(raw json.RawMessage) string {
	var m message
	if json.Unmarshal(raw, &m) != nil || m.Method == "" {
		return shorten(string(raw))
	}
	var asks []string
	for _, p := range m.Params.Message.Parts {
		asks = append(asks, p.words())
	}
	if m.Params.Name != "" {
		asks = append(asks, m.Params.Name, string(m.Params.Arguments))
	}
	protocol := "A2A"
	if strings.Contains(m.Method, "/") {
		protocol = "MCP"
	}
	return shorten(protocol + "  " + m.Method + "  " + strings.Join(asks, " "))
}

// answerIn is what a reply says.
func answerIn(raw json.RawMessage) string {
	var m message
	if json.Unmarshal(raw, &m) != nil {
		return string(raw)
	}
	parts := m.Result.Content
	for _, artifact := range m.Result.Task.Artifacts {
		parts = append(parts, artifact.Parts...)
	}
	switch {
	case len(m.Result.Structured) > 0:
		return string(m.Result.Structured)
	case len(parts) > 0:
		return parts[0].words()
	}
	return string(raw)
}

// lossesIn are the losses of one fate in words.
func lossesIn(losses []string, fate canonical.Fate) string {
	var words []string
	for _, loss := range losses {
		code, rest, _ := strings.Cut(loss, " ")
		entry, known := canonical.Lookup(canonical.LossCode(code))
		one := entry.What + " (" + code + ")"
		if known && strings.HasPrefix(rest, string(fate)) && !slices.Contains(words, one) {
			words = append(words, one)
		}
	}
	if words == nil {
		return "nothing"
	}
	return strings.Join(words, "; ")
}

// proofOf counts the tokens, and names the workflow that they are found by.
func proofOf(tokens []string) string {
	for _, compact := range tokens {
		if claims, _, err := ect.ParseUnverified(compact); err == nil {
			return fmt.Sprintf("%d signed records, of the request and of the reply, linked (workflow %s)", len(tokens), claims.Workflow)
		}
	}
	return "none"
}

// shorten keeps a message to one readable line.
func shorten(message string) string {
	const most = 160
	runes := []rune(message)
	if len(runes) <= most {
		return message
	}
	return string(runes[:most]) + "…"
}
