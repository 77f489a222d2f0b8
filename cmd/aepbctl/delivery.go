package main

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/proof"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/audit"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// exchange is a message that was sent, what came back, and their tokens: ours first.
type exchange struct {
	from           string // the caller's protocol
	request, reply []byte
	form           translators.Translator
	version        string
	records        []audit.Record
}

// delivery is an exchange as JSON. aepbctl ect verify compares all of it with the tokens.
type delivery struct {
	Workflow string `json:"workflow"`
	From     string `json:"from"` // the caller's protocol
	summary
	Request json.RawMessage        `json:"request"`
	Reply   json.RawMessage        `json:"reply"`
	Exact   map[string]proof.Bytes `json:"exact"` // request and reply, byte for byte
	Losses  []string               `json:"losses"`
	ECTs    []proof.View           `json:"ects"`
}

// summary is what a reply says.
type summary struct {
	State     string            `json:"state"`
	Answer    []json.RawMessage `json:"answer"`           // texts as strings, data as they are, files with their bytes in base64
	Detail    string            `json:"detail,omitempty"` // the agent's reason or question
	Task      string            `json:"task,omitempty"`   // that goes on
	Questions []question        `json:"questions,omitempty"`
}

// question is one that a task waits for.
type question struct {
	Text string          `json:"text,omitempty"`
	Form json.RawMessage `json:"form,omitempty"` // JSON Schema
	URL  string          `json:"url,omitempty"`
}

func (x exchange) read() reply {
	return read(x.form, translators.Wire{Binding: x.form.Info().Binding, Version: x.version, Media: x.form.Info().Media[0], Body: x.reply, Re: canonical.OpInvoke})
}

func (x exchange) delivery() delivery {
	return delivery{
		Workflow: x.records[0].Claims.Workflow, From: x.from, summary: x.summary(),
		Request: json.RawMessage(proof.AsJSON(x.request)), Reply: json.RawMessage(proof.AsJSON(x.reply)), Exact: map[string]proof.Bytes{"request": x.request, "reply": x.reply},
		Losses: proof.Warnings(x.records), ECTs: proof.Views(x.records),
	}
}

// summary reads the reply. A refusal of the gateway is no message of the protocol.
func (x exchange) summary() summary {
	var p problem
	if json.Unmarshal(x.reply, &p) == nil && p.Code != "" && p.Title != "" {
		return summary{State: "refused", Answer: []json.RawMessage{}, Detail: p.Detail}
	}
	r := x.read()
	s := summary{State: r.state, Answer: []json.RawMessage{}, Detail: r.detail, Task: r.task}
	for _, part := range r.parts {
		s.Answer = append(s.Answer, partValue(part))
	}
	for _, q := range r.questions {
		text, _ := canonical.TextOf(q.Prompt, "\n")
		s.Questions = append(s.Questions, question{text, q.Schema, q.URL})
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

// summaryOf is what a file of send says of a reply, computed from the reply.
func summaryOf(from string, reply []byte) ([]byte, error) {
	form, version, err := protocol(from)
	if err != nil {
		return nil, err
	}
	return json.Marshal(exchange{reply: reply, form: form, version: version}.summary())
}

// keep writes the exchange into a folder; empty: it is not kept.
func keep(t *target, x exchange, dir string) error {
	if dir == "" {
		return nil
	}
	var tokens []string
	for _, r := range x.records {
		tokens = append(tokens, r.Compact)
	}
	contents, err := contentsOf(t, tokens, []proof.Message{{Name: "request", Role: audit.RequestRole, Body: x.request}, {Name: "reply", Role: audit.ReplyRole, Body: x.reply}})
	if err != nil {
		return err
	}
	return contents.SaveFolder(dir)
}

// contentsOf is evidence to be kept, whose list we sign.
func contentsOf(t *target, tokens []string, messages []proof.Message) (proof.Contents, error) {
	bundle, err := t.bundle()
	if err != nil {
		return proof.Contents{}, err
	}
	svid, err := t.svid()
	if err != nil {
		return proof.Contents{}, err
	}
	signer, err := t.signer()
	return proof.Contents{
		Tokens: tokens, Anchors: bundle.Anchors(), Messages: messages, By: svid.ID, Made: time.Now(),
		Sign: func(text []byte) (string, error) {
			token, err := signer.Sign(ect.Claims{Act: proof.ActExport, Audience: []string{string(svid.ID)}, OutputHash: ect.Hash(text)})
			return token.Compact(), err
		},
	}, err
}

// saveParts writes the files of an answer into a folder. Names of agents choose no other place, and no file
// is overwritten.
func saveParts(log io.Writer, dir string, parts []canonical.Part) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for i, part := range parts {
		if part.Kind != canonical.KindFile {
			continue
		}
		at := filepath.Join(dir, safeName(part.Name, i))
		file, err := os.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return fmt.Errorf("a file of the answer was not saved: %w", err)
		}
		_, err = file.Write(part.Bytes)
		if err = errors.Join(err, file.Close()); err != nil {
			return err
		}
		fmt.Fprintf(log, "saved %s (%d bytes)\n", terminal.Word(at), len(part.Bytes))
	}
	return nil
}

// safeName is the name of a file that an agent named: letters, digits, dots, dashes and underscores of the last
// element, not beginning with a dot; else a number.
func safeName(name string, i int) string {
	const longest = 128
	name = name[strings.LastIndexAny(name, `/\`)+1:]
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r) {
			return r
		}
		return '_'
	}, name)
	name = strings.TrimLeft(name, ".")
	if name == "" {
		return "file-" + strconv.Itoa(i+1)
	}
	return name[max(0, len(name)-longest):]
}

// printRefused prints what is known of a message that the gateway refused.
func (x exchange) printRefused(w io.Writer, detail bool) error {
	if detail {
		return proof.PrintTree(w, x.records)
	}
	fmt.Fprintln(w, "state:", terminal.Bad(w, "refused"))
	note := "; no record has the hash of a refusal"
	switch about := ect.Hash(x.request); {
	case len(x.records) == 1:
		note = "; it is our own: the gateway keeps no record of this refusal"
	case slices.ContainsFunc(x.records[1:], func(r audit.Record) bool { return r.Claims.InputHash == about }):
		note = ", hash of the request matches" + note
	}
	return printProof(w, x.records, nil, note)
}

// printProof says whether the proof of an exchange holds, and under which workflow it is found. note says
// which hashes were compared.
func printProof(w io.Writer, records []audit.Record, proven error, note string) error {
	workflow := "workflow " + terminal.Word(records[0].Claims.Workflow)
	if proven == nil {
		proven = sound(records)
	}
	if proven != nil {
		_, err := fmt.Fprintf(w, "proof: %s: %s (%s)\n", terminal.Bad(w, "NOT VALID"), terminal.Line(proven.Error()), workflow)
		return err
	}
	_, err := fmt.Fprintf(w, "proof: %d %s valid, linked%s (%s)\n", len(records), terminal.Plural(len(records), "signature", "signatures"), note, workflow)
	return err
}

// sound: each token is verified, and each but ours names a parent among them.
func sound(records []audit.Record) error {
	for i, r := range records {
		if !r.Verified() {
			return fmt.Errorf("the proof does not hold: %s", r.Problem)
		}
		if i > 0 && !slices.ContainsFunc(records, func(other audit.Record) bool { return slices.Contains(r.Claims.Parents, other.Claims.ID) }) {
			return fmt.Errorf("record %s is not linked to the others", r.Claims.ID)
		}
	}
	return nil
}

// covers says whether the proof is good and about this very exchange: a token below ours for what we sent, and
// one for what came back. The first record is ours. An answer to a task that the agent hears in an exchange
// which goes on has no token of its own. note says which hashes were compared.
func covers(records []audit.Record, sent, got []byte, answers bool) (note string, err error) {
	for _, r := range records {
		if !r.Verified() {
			return "", fmt.Errorf("the proof does not hold: %s", r.Problem)
		}
	}
	if !slices.ContainsFunc(records, func(r audit.Record) bool { return r.Claims.OutputHash == ect.Hash(got) }) {
		return "", errors.New("no proof that the reply came back as it is")
	}
	below := func(with func(ect.Claims) bool) bool {
		return slices.ContainsFunc(records, func(r audit.Record) bool {
			return slices.Contains(r.Claims.Parents, records[0].Claims.ID) && with(r.Claims)
		})
	}
	question := func(c ect.Claims) bool {
		direction, _ := c.Ext.String(ect.ExtLeg)
		return direction == "reply" && c.InputHash == ""
	}
	switch {
	case below(func(c ect.Claims) bool { return c.InputHash == ect.Hash(sent) }):
		return ", hashes match", nil
	case below(question) && !answers:
		return ", hashes match; the gateway asks this itself, so there is no record of a request to the agent", nil
	case answers && below(func(ect.Claims) bool { return true }):
		return ", hash of the reply matches; that of the answer is in no record: the agent is told in an exchange that goes on", nil
	default:
		return "", errors.New("no proof that the message was translated as it was sent")
	}
}

// asJSON is a message as a JSON value: itself if it is one, else its bytes in
// hexadecimal digits.
func asJSON(body []byte) json.RawMessage {
	if json.Valid(body) {
		return body
	}
	quoted, _ := json.Marshal(hex.EncodeToString(body))
	return quoted
}

func (d delivery) write(w io.Writer, records []audit.Record) error {
	answer := translation{Message: d.Reply, Losses: d.Losses}
	if err := answer.print(w); err != nil {
		return err
	}
	return proof.PrintTree(w, records)
}
