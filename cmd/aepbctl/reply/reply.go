// Package reply says what an agent answered, in words and as JSON, whatever protocol it answered in.
package reply

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/builtin"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/spelling"
)

// Reply is what an agent answered, as people read it.
type Reply struct {
	Parts     []canonical.Part // the answer
	State     string           // in words, of ours
	Detail    string           // the agent's reason or question, as it came; empty: none
	Questions []canonical.Input
	Task      string        // id; empty: the reply is no task that goes on
	Took      time.Duration // zero: not said
	Err       error         // why the agent did not do what it was asked for; nil: it did, or is at work, or asks
}

// Read reads the reply to a message of a protocol. One that is not of the protocol is shown as it came.
func Read(form translators.Translator, version string, body []byte) Reply {
	return read(form, translators.Wire{Binding: form.Info().Binding, Version: version, Media: form.Info().Media[0], Body: body, Re: canonical.OpInvoke})
}

func read(form translators.Translator, wire translators.Wire) Reply {
	m, err := form.Decode(wire)
	if err != nil {
		return Reply{Parts: []canonical.Part{raw(wire.Body)}, State: "unknown: the reply is not of the protocol that was asked for"}
	}
	switch body := m.Body.(type) {
	case *canonical.Error:
		return Reply{State: "refused by the agent", Detail: body.Message, Err: fmt.Errorf("the agent refused: %s", terminal.Line(body.Message))}
	case *canonical.Result:
		return readResult(body)
	default:
		return Reply{Parts: []canonical.Part{raw(wire.Body)}, State: "completed"}
	}
}

// raw is a message as one part: JSON, or its bytes in hexadecimal digits.
func raw(body []byte) canonical.Part {
	return canonical.Part{Kind: canonical.KindData, Data: HexJSON(body)}
}

func readResult(result *canonical.Result) Reply {
	switch {
	case result.Task != nil:
		return readTask(result.Task)
	case result.Pending != nil:
		return Reply{State: "input required", Questions: result.Pending.Inputs}
	case result.Output != nil:
		return readOutput(result.Output)
	case result.Turn != nil:
		return Reply{Parts: result.Turn.Parts, State: "completed"}
	default:
		return Reply{State: "completed"}
	}
}

func readOutput(output *canonical.Output) Reply {
	if output.Failed {
		detail, _ := canonical.TextOf(output.Parts, "\n")
		return Reply{State: "failed", Detail: detail, Err: errors.New("the call failed: the reply says why")}
	}
	parts := output.Parts
	if output.Structured != nil {
		parts = withoutCopy(parts, output.Structured)
	}
	return Reply{Parts: parts, State: "completed"}
}

// withoutCopy is the parts of a tool's output with its structured content, and without the text that is
// its copy (MCP, tools: structured content).
func withoutCopy(parts []canonical.Part, structured json.RawMessage) []canonical.Part {
	out := []canonical.Part{{Kind: canonical.KindData, Data: structured}}
	for _, part := range parts {
		if part.Kind != canonical.KindText || !sameJSON([]byte(part.Text), structured) {
			out = append(out, part)
		}
	}
	return out
}

func sameJSON(a, b []byte) bool {
	var left, right bytes.Buffer
	return json.Compact(&left, a) == nil && json.Compact(&right, b) == nil && bytes.Equal(left.Bytes(), right.Bytes())
}

func readTask(task *canonical.Task) Reply {
	var r Reply
	if task.Output != nil {
		r = readOutput(task.Output)
	}
	for _, artifact := range task.Artifacts {
		r.Parts = append(r.Parts, artifact.Parts...)
	}
	var message []canonical.Part
	if task.Status.Message != nil {
		message = task.Status.Message.Parts
	}
	r.State = strings.ReplaceAll(string(task.Status.State), "-", " ")
	switch state := task.Status.State; {
	case state == canonical.StateCompleted:
		if len(r.Parts) == 0 {
			r.Parts = message
		}
		return r
	case state.Terminal():
		r.Err = fmt.Errorf("the agent's task is %s: the reply says why", task.Status.State)
		if task.Failure != nil && r.Detail == "" {
			r.Detail = task.Failure.Message
		}
		if text, ok := canonical.TextOf(message, "\n"); ok {
			r.Detail = text
		}
		if text, ok := canonical.TextOf(r.Parts, "\n"); ok && r.Detail == "" {
			r.Detail, r.Parts = text, nil
		}
		return r
	}
	r.Task, r.Questions = task.ID, task.Inputs
	if len(r.Questions) == 0 {
		r.Detail, _ = canonical.TextOf(message, "\n")
		for _, part := range message {
			if part.Kind == canonical.KindData {
				r.Questions = append(r.Questions, canonical.Input{Schema: part.Data})
			}
		}
	}
	return r
}

// Write writes the answer and then the state. What the agent wrote stands on one line with its name, or
// behind a bar: no text of an agent looks like a line of ours.
func (r Reply) Write(w io.Writer) error {
	var lines []string
	for _, part := range r.Parts {
		lines = append(lines, partLines(part)...)
	}
	if len(lines) > 0 {
		labelled(w, "answer", lines)
	}
	state := r.State
	if r.Task != "" {
		state += " (task " + terminal.Word(r.Task) + ")"
	}
	if r.Took > 0 {
		state += " after " + terminal.Duration(r.Took)
	}
	if r.Err != nil {
		state = terminal.Bad(w, state)
	}
	if r.Detail == "" {
		fmt.Fprintln(w, "state:", state)
	} else {
		labelled(w, "state: "+state, textLines(r.Detail))
	}
	for _, q := range r.Questions {
		printQuestion(w, q)
	}
	return nil
}

// Next says how a question is answered.
func (r Reply) Next(w io.Writer, agent string) error {
	if r.Task == "" || len(r.Questions) == 0 {
		return nil
	}
	with := "--text TEXT"
	if slices.ContainsFunc(r.Questions, func(q canonical.Input) bool { return q.Schema != nil }) {
		with = "--args '{…}'"
	}
	_, err := fmt.Fprintf(w, "next: answer with aepbctl send %s --task %s %s\n", terminal.Word(agent), terminal.Word(r.Task), with)
	return err
}

func printQuestion(w io.Writer, q canonical.Input) {
	if text, ok := canonical.TextOf(q.Prompt, "\n"); ok {
		labelled(w, "question", textLines(text))
	}
	if q.Schema != nil {
		fmt.Fprintf(w, "form: %s\n", terminal.Visible(q.Schema))
	}
	if q.URL != "" {
		fmt.Fprintln(w, "answer at:", terminal.Word(q.URL))
	}
}

// labelled writes one line behind its label, several below it.
func labelled(w io.Writer, label string, lines []string) {
	if len(lines) == 1 {
		fmt.Fprintf(w, "%s: %s\n", label, lines[0])
		return
	}
	fmt.Fprintf(w, "%s:\n", label)
	for _, text := range lines {
		fmt.Fprintf(w, "  | %s\n", text)
	}
}

func partLines(part canonical.Part) []string {
	name := ""
	if part.Name != "" {
		name = " " + terminal.Word(part.Name)
	}
	if part.Media != "" {
		name += " (" + terminal.Word(part.Media) + ")"
	}
	switch part.Kind {
	case canonical.KindText:
		return textLines(part.Text)
	case canonical.KindData:
		return []string{string(terminal.Visible(part.Data))}
	case canonical.KindFile:
		return []string{fmt.Sprintf("a file%s of %d bytes: --out DIR saves it", name, len(part.Bytes))}
	default:
		return []string{"a reference" + name + " to " + terminal.Word(part.URI)}
	}
}

// textLines is text of others, a line each, with everything escaped that a terminal would obey.
func textLines(text string) []string {
	lines := strings.Split(strings.TrimRight(text, "\r\n"), "\n")
	for i := range lines {
		lines[i] = terminal.Line(strings.TrimSuffix(lines[i], "\r"))
	}
	return lines
}

// Summary is what a reply says.
type Summary struct {
	State     string            `json:"state"`
	Answer    []json.RawMessage `json:"answer"`           // texts as strings, data as they are, files with their bytes in base64
	Detail    string            `json:"detail,omitempty"` // the agent's reason or question
	Task      string            `json:"task,omitempty"`   // that goes on
	Questions []Question        `json:"questions,omitempty"`
}

// Question is one that a task waits for.
type Question struct {
	Text string          `json:"text,omitempty"`
	Form json.RawMessage `json:"form,omitempty"` // JSON Schema
	URL  string          `json:"url,omitempty"`
}

// Summarize reads a reply. A refusal of the gateway is no message of the protocol.
func Summarize(form translators.Translator, version string, body []byte) Summary {
	var p struct{ Title, Code, Detail string }
	if json.Unmarshal(body, &p) == nil && p.Code != "" && p.Title != "" {
		return Summary{State: "refused", Answer: []json.RawMessage{}, Detail: p.Detail}
	}
	r := Read(form, version, body)
	s := Summary{State: r.State, Answer: []json.RawMessage{}, Detail: r.Detail, Task: r.Task}
	for _, part := range r.Parts {
		s.Answer = append(s.Answer, partValue(part))
	}
	for _, q := range r.Questions {
		text, _ := canonical.TextOf(q.Prompt, "\n")
		s.Questions = append(s.Questions, Question{text, q.Schema, q.URL})
	}
	return s
}

// partValue is a part of an answer as JSON.
func partValue(part canonical.Part) json.RawMessage {
	var value any
	switch part.Kind {
	case canonical.KindText:
		value = part.Text
	case canonical.KindData:
		return part.Data
	default:
		value = struct {
			Name  string `json:"name,omitempty"`
			Media string `json:"media_type,omitempty"`
			Bytes []byte `json:"bytes,omitempty"`
			URI   string `json:"uri,omitempty"`
		}{part.Name, part.Media, part.Bytes, part.URI}
	}
	text, _ := json.Marshal(value) // strings and bytes: it cannot fail
	return text
}

// SummaryOf is what a file of send says of a reply, computed from the reply.
func SummaryOf(from string, reply []byte) ([]byte, error) {
	form, version, err := Protocol(from)
	if err != nil {
		return nil, err
	}
	return json.Marshal(Summarize(form, version, reply))
}

// HexJSON is a message as a JSON value: itself if it is one, else its bytes in
// hexadecimal digits.
func HexJSON(body []byte) json.RawMessage {
	if json.Valid(body) {
		return body
	}
	quoted, _ := json.Marshal(hex.EncodeToString(body))
	return quoted
}

// Protocol is the form of a protocol, such as mcp-v1@2025-11-25, and its version, if one is named.
func Protocol(text string) (translators.Translator, string, error) {
	id, version, _ := strings.Cut(text, "@")
	known, err := translators.NewRegistry(builtin.Forms(translators.Config{})...)
	if err != nil {
		return nil, "", err
	}
	form, ok := known.Translator(canonical.Binding(id))
	if !ok {
		return nil, "", fmt.Errorf("no protocol %q; there are %v%s", id, known.Bindings(), spelling.DidYouMean(id, known.Bindings()))
	}
	if version != "" && !slices.Contains(form.Info().Versions, version) {
		return nil, "", fmt.Errorf("%s has no version %q; there are %v", id, version, form.Info().Versions)
	}
	return form, version, nil
}
