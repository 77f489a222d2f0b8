package proof

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/audit"
)

// Stamp is when a token was issued.
func Stamp(c ect.Claims) string { return time.Unix(c.IssuedAt, 0).UTC().Format(time.DateTime + "Z") }

// PrintRecords prints one line for each token: number, state, time, who spoke to whom, what it did, the
// hash, and what was lost.
func PrintRecords(w io.Writer, views []audit.Record) error {
	short := Names(views)
	for i, v := range views {
		mark, text := terminal.Good(w, "ok"), RecordLine(v, short)
		if !v.Verified() {
			mark, text = terminal.Bad(w, "NOT VERIFIED"), strings.TrimPrefix(text+": "+terminal.Line(v.Problem), ": ")
		}
		if _, err := fmt.Fprintf(w, "%d %s %s\n", i+1, mark, text); err != nil {
			return err
		}
	}
	return nil
}

// RecordLine is what a token says, in one line. name shortens identities.
func RecordLine(v audit.Record, name func(string) string) string {
	if v.Claims.ID == "" && v.Claims.Issuer == "" {
		return "" // what cannot be read at all
	}
	var audience []string
	for _, id := range v.Claims.Audience {
		if id != string(v.Claims.Issuer) || len(v.Claims.Audience) == 1 { // who issues a token may verify it too
			audience = append(audience, name(id))
		}
	}
	text := fmt.Sprintf("%s %s -> %s: %s", Stamp(v.Claims), name(string(v.Claims.Issuer)), strings.Join(audience, ", "), Deed(v, name))
	if hash := cmp.Or(v.Claims.OutputHash, v.Claims.InputHash); hash != "" {
		text += ", sha256 " + Brief(hash)
	}
	if why, ok := v.Claims.Ext.String(ect.ExtDescription); ok && why != "" && v.Claims.Act == ect.ActTranslateError {
		text += ": " + terminal.Line(why) // the draft has four codes, and the description says more
	}
	warnings, _ := v.Claims.Ext.Strings(ect.ExtWarnings)
	report := LossesOf(warnings)
	text += Codes("kept", report.Carried) + Codes("lost", report.Dropped)
	if len(report.Dropped) == 0 && (v.Claims.Act == ect.ActTranslate || v.Claims.Act == ect.ActCPATTranslate) {
		text += ", lost nothing"
	}
	return text
}

// Codes lists losses by their codes.
func Codes(label string, items []Loss) string {
	if len(items) == 0 {
		return ""
	}
	codes := make([]string, len(items))
	for i, item := range items {
		codes[i] = cmp.Or(string(item.code), "unknown")
	}
	return fmt.Sprintf(", %s %d (%s)", label, len(items), strings.Join(codes, " "))
}

// Deed is what a token says that its issuer did.
func Deed(v audit.Record, name func(string) string) string {
	text := terminal.Word(v.Claims.Act)
	from, _ := v.Claims.Ext.String(ect.ExtSourceProtocol)
	to, _ := v.Claims.Ext.String(ect.ExtDestProtocol)
	route := ""
	if from != "" {
		route = " " + terminal.Word(from)
	}
	if to != "" {
		route += " -> " + terminal.Word(to)
	}
	switch v.Claims.Act {
	case "send_task":
		text = "sent a task"
	case ect.ActTranslate, ect.ActCPATTranslate:
		text = "translated" + route
	case ect.ActTranslateError:
		text = "refused or failed" + route
		if code, ok := v.Claims.Ext.String(ect.ExtError); ok {
			text += " (" + terminal.Word(code) + ")"
		}
	default:
		text += route
	}
	if caller, ok := v.Claims.Ext.String(ect.ExtCaller); ok && caller != "" {
		text += " for " + name(caller)
	}
	return text
}

// Names returns a function that shortens identities where all are of one trust domain: to their paths.
func Names(views []audit.Record) func(string) string {
	const scheme = "spiffe://"
	domain := ""
	for _, v := range views {
		for _, id := range append([]string{string(v.Claims.Issuer)}, v.Claims.Audience...) {
			rest, ok := strings.CutPrefix(id, scheme)
			if !ok {
				continue // the URL of an agent without one
			}
			name, _, _ := strings.Cut(rest, "/")
			if domain != "" && name != domain {
				return terminal.Word[string]
			}
			domain = name
		}
	}
	return func(id string) string {
		if path, ok := strings.CutPrefix(id, scheme+domain+"/"); ok && path != "" {
			return terminal.Word(path)
		}
		return terminal.Word(id)
	}
}

// Brief is the beginning of a hash.
func Brief(hash string) string {
	const most = 8
	if len(hash) <= most {
		return terminal.Word(hash)
	}
	return terminal.Word(hash[:most]) + "…"
}

// PrintTree prints tokens as a tree: a token stands below its first parent.
func PrintTree(w io.Writer, views []audit.Record) error {
	const deepest = 40 // levels that are shown as such
	depth := map[ect.ID]int{}
	for _, v := range views {
		level := 0
		for _, parent := range v.Claims.Parents {
			if d, ok := depth[parent]; ok {
				level = min(deepest, max(level, d+1))
			}
		}
		depth[v.Claims.ID] = level
		state := "verified"
		if !v.Verified() {
			state = "NOT VERIFIED: " + terminal.Line(v.Problem)
		}
		route := ""
		if from, ok := v.Claims.Ext.String(ect.ExtSourceProtocol); ok {
			route = " " + terminal.Word(from)
			if to, _ := v.Claims.Ext.String(ect.ExtDestProtocol); to != "" {
				route += " → " + terminal.Word(to)
			}
		}
		if _, err := fmt.Fprintf(w, "%s%s %s%s by %s, %s\n", strings.Repeat("  ", level), terminal.Word(v.Claims.ID), terminal.Word(v.Claims.Act), route, terminal.Word(v.Claims.Issuer), state); err != nil {
			return err
		}
	}
	return nil
}
