package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// reply is what an agent answered, as people read it.
type reply struct {
	parts     []canonical.Part // the answer
	state     string           // in words, of ours
	detail    string           // the agent's reason or question, as it came; empty: none
	questions []canonical.Input
	task      string        // id; empty: the reply is no task that goes on
	took      time.Duration // zero: not said
	err       error         // why the agent did not do what it was asked for; nil: it did, or is at work, or asks
}

// read reads a reply. One that is not of the protocol is shown as it came.
func read(form translators.Translator, wire translators.Wire) reply {
	m, err := form.Decode(wire)
	if err != nil {
		return reply{parts: []canonical.Part{raw(wire.Body)}, state: "unknown: the reply is not of the protocol that was asked for"}
	}
	switch body := m.Body.(type) {
	case *canonical.Error:
		return reply{state: "refused by the agent", detail: body.Message, err: fmt.Errorf("the agent refused: %s", terminal.Line(body.Message))}
	case *canonical.Result:
		return readResult(body)
	default:
		return reply{parts: []canonical.Part{raw(wire.Body)}, state: "completed"}
	}
}

// raw is a message as one part: JSON, or its bytes in hexadecimal digits.
func raw(body []byte) canonical.Part {
	return canonical.Part{Kind: canonical.KindData, Data: asJSON(body)}
}

func readResult(result *canonical.Result) reply {
	switch {
	case result.Task != nil:
		return readTask(result.Task)
	case result.Pending != nil:
		return reply{state: "input required", questions: result.Pending.Inputs}
	case result.Output != nil:
		return readOutput(result.Output)
	case result.Turn != nil:
		return reply{parts: result.Turn.Parts, state: "completed"}
	default:
		return reply{state: "completed"}
	}
}

func readOutput(output *canonical.Output) reply {
	if output.Failed {
		detail, _ := canonical.TextOf(output.Parts, "\n")
		return reply{state: "failed", detail: detail, err: errors.New("the call failed: the reply says why")}
	}
	parts := output.Parts
	if output.Structured != nil {
		parts = withoutCopy(parts, output.Structured)
	}
	return reply{parts: parts, state: "completed"}
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

func readTask(task *canonical.Task) reply {
	var r reply
	if task.Output != nil {
		r = readOutput(task.Output)
	}
	for _, artifact := range task.Artifacts {
		r.parts = append(r.parts, artifact.Parts...)
	}
	var message []canonical.Part
	if task.Status.Message != nil {
		message = task.Status.Message.Parts
	}
	r.state = strings.ReplaceAll(string(task.Status.State), "-", " ")
	switch state := task.Status.State; {
	case state == canonical.StateCompleted:
		if len(r.parts) == 0 {
			r.parts = message
		}
		return r
	case state.Terminal():
		r.err = fmt.Errorf("the agent's task is %s: the reply says why", task.Status.State)
		if task.Failure != nil && r.detail == "" {
			r.detail = task.Failure.Message
		}
		if text, ok := canonical.TextOf(message, "\n"); ok {
			r.detail = text
		}
		if text, ok := canonical.TextOf(r.parts, "\n"); ok && r.detail == "" {
			r.detail, r.parts = text, nil
		}
		return r
	}
	r.task, r.questions = task.ID, task.Inputs
	if len(r.questions) == 0 {
		r.detail, _ = canonical.TextOf(message, "\n")
		for _, part := range message {
			if part.Kind == canonical.KindData {
				r.questions = append(r.questions, canonical.Input{Schema: part.Data})
			}
		}
	}
	return r
}

// write writes the answer and then the state. What the agent wrote stands on one line with its name, or
// behind a bar: no text of an agent looks like a line of ours.
func (r reply) write(w io.Writer) error {
	var lines []string
	for _, part := range r.parts {
		lines = append(lines, partLines(part)...)
	}
	if len(lines) > 0 {
		labelled(w, "answer", lines)
	}
	state := r.state
	if r.task != "" {
		state += " (task " + terminal.Word(r.task) + ")"
	}
	if r.took > 0 {
		state += " after " + terminal.Duration(r.took)
	}
	if r.err != nil {
		state = terminal.Bad(w, state)
	}
	if r.detail == "" {
		fmt.Fprintln(w, "state:", state)
	} else {
		labelled(w, "state: "+state, textLines(r.detail))
	}
	for _, q := range r.questions {
		printQuestion(w, q)
	}
	return nil
}

// next says how a question is answered.
func (r reply) next(w io.Writer, agent string) error {
	if r.task == "" || len(r.questions) == 0 {
		return nil
	}
	with := "--text TEXT"
	if slices.ContainsFunc(r.questions, func(q canonical.Input) bool { return q.Schema != nil }) {
		with = "--args '{…}'"
	}
	_, err := fmt.Fprintf(w, "next: answer with aepbctl send %s --task %s %s\n", terminal.Word(agent), terminal.Word(r.task), with)
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
