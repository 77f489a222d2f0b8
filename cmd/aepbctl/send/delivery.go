package send

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/client"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/evidence"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/proof"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/reply"
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
	reply.Summary
	Request json.RawMessage        `json:"request"`
	Reply   json.RawMessage        `json:"reply"`
	Exact   map[string]proof.Bytes `json:"exact"` // request and reply, byte for byte
	Losses  []string               `json:"losses"`
	ECTs    []proof.View           `json:"ects"`
}

func (x exchange) delivery() delivery {
	return delivery{
		Workflow: x.records[0].Claims.Workflow, From: x.from, Summary: reply.Summarize(x.form, x.version, x.reply),
		Request: json.RawMessage(proof.AsJSON(x.request)), Reply: json.RawMessage(proof.AsJSON(x.reply)), Exact: map[string]proof.Bytes{"request": x.request, "reply": x.reply},
		Losses: proof.Warnings(x.records), ECTs: proof.Views(x.records),
	}
}

// keep writes the exchange into a folder; empty: it is not kept.
func keep(c *client.Client, x exchange, dir string) error {
	if dir == "" {
		return nil
	}
	var tokens []string
	for _, r := range x.records {
		tokens = append(tokens, r.Compact)
	}
	contents, err := evidence.Contents(c, tokens, []proof.Message{{Name: "request", Role: audit.RequestRole, Body: x.request}, {Name: "reply", Role: audit.ReplyRole, Body: x.reply}})
	if err != nil {
		return err
	}
	return contents.SaveFolder(dir)
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
		proven = audit.Linked(records)
	}
	if proven != nil {
		_, err := fmt.Fprintf(w, "proof: %s: %s (%s)\n", terminal.Bad(w, "NOT VALID"), terminal.Line(proven.Error()), workflow)
		return err
	}
	_, err := fmt.Fprintf(w, "proof: %d %s valid, linked%s (%s)\n", len(records), terminal.Plural(len(records), "signature", "signatures"), note, workflow)
	return err
}

func (d delivery) write(w io.Writer, records []audit.Record) error {
	answer := translation{Message: d.Reply, Losses: d.Losses}
	if err := answer.print(w); err != nil {
		return err
	}
	return proof.PrintTree(w, records)
}
