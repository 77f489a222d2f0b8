package main

import (
	"cmp"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/ect"
)

// chain is tokens that were judged, as they are printed.
type chain struct {
	views   []tokenView
	detail  bool
	partial bool // tokens that are missing may be those of others
	bodies  []body
	anchors []*x509.Certificate // that they were verified against
}

// body is a message whose hash is looked for.
type body struct{ file, hash string }

func readBodies(files []string) ([]body, error) {
	var out []body
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		out = append(out, body{file, ect.Hash(data)})
	}
	return out, nil
}

// distrust takes back what was said of the tokens below one that is not verified: that they are signed
// well does not prove what they come from. A parent that is not among them is another matter.
func distrust(views []tokenView) {
	valid, children := map[ect.ID]int{}, map[ect.ID][]int{}
	for i, v := range views {
		valid[v.ID] += 0
		if v.Verified {
			valid[v.ID]++
		}
		for _, parent := range v.Parents {
			children[parent] = append(children[parent], i)
		}
	}
	var broken []ect.ID // given, and of none of these tokens is the signature good
	for id, n := range valid {
		if n == 0 {
			broken = append(broken, id)
		}
	}
	for ; len(broken) > 0; broken = broken[1:] {
		for _, i := range children[broken[0]] {
			v := &views[i]
			if !v.Verified {
				continue
			}
			v.Verified, v.Problem = false, "the signature is good, but its parent "+string(broken[0])+" is not verified"
			if valid[v.ID]--; valid[v.ID] == 0 {
				broken = append(broken, v.ID)
			}
		}
	}
}

// ordered puts parents before children, as far as both are there, and else what was issued first.
func ordered(views []tokenView) []tokenView {
	byTime := slices.Clone(views)
	slices.SortStableFunc(byTime, func(a, b tokenView) int { return a.IssuedAt.Compare(b.IssuedAt) })
	here := map[ect.ID][]int{}
	for i, v := range byTime {
		here[v.ID] = append(here[v.ID], i)
	}
	var out []tokenView
	done := make([]bool, len(byTime))
	var visit func(i int)
	visit = func(i int) {
		if done[i] {
			return
		}
		done[i] = true
		for _, parent := range byTime[i].Parents {
			for _, at := range here[parent] {
				visit(at)
			}
		}
		out = append(out, byTime[i])
	}
	for i := range byTime {
		visit(i)
	}
	return out
}

// showChain prints tokens that were judged, and what they prove together. A token that is not verified, a
// parent that is missing, and a body that is in no token make the answer a no.
func (t *target) showChain(cmd *cobra.Command, c chain) error {
	sorted := ordered(c.views)
	err := t.show(cmd, c.views, func(w io.Writer) error {
		if c.detail {
			return printChain(w, sorted)
		}
		return printRecords(w, sorted)
	})
	if err != nil {
		return err
	}
	to := cmd.OutOrStdout()
	switch {
	case t.output == "json" && c.partial: // each token says whether it is verified
		to = io.Discard
	case t.output == "json": // which standard output holds alone
		to = cmd.ErrOrStderr()
	}
	holds := printVerdict(to, sorted, c)
	for _, b := range c.bodies {
		holds = printBody(to, sorted, b) && holds
	}
	if !holds {
		return errRefused
	}
	return nil
}

// printVerdict says whether all tokens hold and every parent that they name is among them.
func printVerdict(w io.Writer, views []tokenView, c chain) bool {
	here := map[ect.ID]bool{}
	for _, v := range views {
		here[v.ID] = true
	}
	wrong, missing := 0, 0
	for i, v := range views {
		if !v.Verified {
			wrong++
		}
		for _, parent := range v.Parents {
			if !here[parent] {
				fmt.Fprintf(w, "%s: record %d (%s) names parent %s, which %s\n", terminal.Bad(w, "INCOMPLETE"), i+1, terminal.Word(v.ID), terminal.Word(parent), c.absent())
				missing++
			}
		}
	}
	if wrong > 0 {
		fmt.Fprintf(w, "%s: %d of %d %s not verified\n", terminal.Bad(w, "NOT PROVEN"), wrong, len(views), terminal.Plural(len(views), "record"))
	}
	if wrong+missing > 0 {
		return wrong == 0 && c.partial
	}
	fmt.Fprintf(w, "%s: %d %s verified%s, and every parent that they name is among them\n", terminal.Good(w, "complete"), len(views), terminal.Plural(len(views), "record"), against(c.anchors))
	return true
}

// absent is why a parent is not there.
func (c chain) absent() string {
	if c.partial {
		return "you may not see, or is not kept here"
	}
	return "was not given (aepbctl dag fetches the records of a workflow)"
}

// against names the CA, if there is one alone.
func against(anchors []*x509.Certificate) string {
	if len(anchors) != 1 {
		return ""
	}
	name := cmp.Or(anchors[0].Subject.CommonName, anchors[0].Subject.String())
	if name == "" {
		return ""
	}
	return fmt.Sprintf(" with CA %q", terminal.Line(name))
}

// printBody says which tokens bind a body by its hash.
func printBody(w io.Writer, views []tokenView, b body) bool {
	var places []string
	for i, v := range views {
		if v.Input == b.hash {
			places = append(places, fmt.Sprintf("inp_hash of record %d", i+1))
		}
		if v.Output == b.hash {
			places = append(places, fmt.Sprintf("out_hash of record %d", i+1))
		}
	}
	if places == nil {
		fmt.Fprintf(w, "body %s: NOT the message of any record: sha256 %s is no inp_hash and no out_hash\n", terminal.Word(b.file), b.hash)
		return false
	}
	fmt.Fprintf(w, "body %s: sha256 %s is %s\n", terminal.Word(b.file), brief(b.hash), strings.Join(places, " and "))
	return true
}

// printRecords prints one line for each token: number, state, time, who spoke to whom, what it did, the
// hash, and what was lost.
func printRecords(w io.Writer, views []tokenView) error {
	short := sameDomain(views)
	for i, v := range views {
		mark, text := terminal.Good(w, "ok"), recordLine(v, short)
		if !v.Verified {
			mark, text = terminal.Bad(w, "NOT VERIFIED"), strings.TrimPrefix(text+": "+terminal.Line(v.Problem), ": ")
		}
		if _, err := fmt.Fprintf(w, "%d %s %s\n", i+1, mark, text); err != nil {
			return err
		}
	}
	return nil
}

func recordLine(v tokenView, name func(string) string) string {
	if v.ID == "" && v.Issuer == "" {
		return "" // what cannot be read at all
	}
	var audience []string
	for _, id := range v.Audience {
		if id != string(v.Issuer) || len(v.Audience) == 1 { // who issues a token may verify it too
			audience = append(audience, name(id))
		}
	}
	text := fmt.Sprintf("%s %s -> %s: %s", v.IssuedAt.Format(time.DateTime+"Z"), name(string(v.Issuer)), strings.Join(audience, ", "), deed(v, name))
	if hash := cmp.Or(v.Output, v.Input); hash != "" {
		text += ", sha256 " + brief(hash)
	}
	warnings, _ := v.Ext.Strings(ect.ExtWarnings)
	report := reportOf(warnings)
	text += codesOf("kept", report.carried) + codesOf("lost", report.dropped)
	if len(report.dropped) == 0 && (v.Act == ect.ActTranslate || v.Act == ect.ActCPATTranslate) {
		text += ", lost nothing"
	}
	return text
}

func codesOf(label string, items []lossItem) string {
	if len(items) == 0 {
		return ""
	}
	codes := make([]string, len(items))
	for i, item := range items {
		codes[i] = cmp.Or(string(item.code), "unknown")
	}
	return fmt.Sprintf(", %s %d (%s)", label, len(items), strings.Join(codes, " "))
}

// deed is what a token says that its issuer did.
func deed(v tokenView, name func(string) string) string {
	text := terminal.Word(v.Act)
	from, _ := v.Ext.String(ect.ExtSourceProtocol)
	to, _ := v.Ext.String(ect.ExtDestProtocol)
	route := ""
	if from != "" {
		route = " " + terminal.Word(from)
	}
	if to != "" {
		route += " -> " + terminal.Word(to)
	}
	switch v.Act {
	case "send_task":
		text = "sent a task"
	case ect.ActTranslate, ect.ActCPATTranslate:
		text = "translated" + route
	case ect.ActTranslateError:
		text = "refused or failed" + route
		if code, ok := v.Ext.String(ect.ExtError); ok {
			text += " (" + terminal.Word(code) + ")"
		}
	default:
		text += route
	}
	if caller, ok := v.Ext.String(ect.ExtCaller); ok && caller != "" {
		text += " for " + name(caller)
	}
	return text
}

// sameDomain shortens identities where all are of one trust domain: to their paths.
func sameDomain(views []tokenView) func(string) string {
	const scheme = "spiffe://"
	domain := ""
	for _, v := range views {
		for _, id := range append([]string{string(v.Issuer)}, v.Audience...) {
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

// brief is the beginning of a hash.
func brief(hash string) string {
	const most = 8
	if len(hash) <= most {
		return terminal.Word(hash)
	}
	return terminal.Word(hash[:most]) + "…"
}

// tokens reads tokens from arguments, each a token or a file with some, else from standard input.
func tokens(args []string, stdin io.Reader) ([]string, error) {
	if len(args) == 0 {
		data, err := io.ReadAll(io.LimitReader(stdin, maxReply))
		if err != nil {
			return nil, err
		}
		return tokensIn(data, "on standard input")
	}
	var list []string
	for _, arg := range args {
		if strings.Count(arg, ".") == 2 && !strings.ContainsAny(arg, `/\`) && strings.HasPrefix(arg, "ey") {
			list = append(list, arg)
			continue
		}
		data, err := os.ReadFile(arg)
		switch {
		case errors.Is(err, fs.ErrNotExist) && !strings.HasPrefix(arg, "ey"):
			return nil, fmt.Errorf("%s: no such file, and not a token either", terminal.Word(arg))
		case errors.Is(err, fs.ErrNotExist), err != nil && strings.Count(arg, ".") == 2:
			list = append(list, arg) // it is no file: the verifier says what is wrong with it as a token
			continue
		case err != nil:
			return nil, err
		}
		found, err := tokensIn(data, "in "+arg)
		if err != nil {
			return nil, err
		}
		list = append(list, found...)
	}
	return list, nil
}

// tokensIn finds tokens in text: separated by blanks, or in JSON of this program and of the gateway.
func tokensIn(data []byte, where string) ([]string, error) {
	text := strings.TrimSpace(string(data))
	if !strings.HasPrefix(text, "[") && !strings.HasPrefix(text, "{") {
		if list := strings.Fields(text); slices.ContainsFunc(list, func(one string) bool { return strings.HasPrefix(one, "ey") || strings.Count(one, ".") == 2 }) {
			return list, nil
		}
		return nil, errors.New("no token " + where)
	}
	var list []string
	for decoder := json.NewDecoder(strings.NewReader(text)); ; {
		var value json.RawMessage
		err := decoder.Decode(&value)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("the JSON %s cannot be read: %w", where, err)
		}
		list = append(list, compacts(value, 0)...)
	}
	if list == nil {
		return nil, fmt.Errorf("no token %s: the JSON has neither \"compact\" nor \"ects\"", where)
	}
	return list, nil
}

// compacts are the tokens of a JSON value: a list of tokens, or of objects, in whose members compact, ects
// and exchanges they are. Members with messages are not searched: agents write those.
func compacts(value json.RawMessage, depth int) []string {
	const deepest = 4
	var text string
	var list []json.RawMessage
	var object struct {
		Compact   string            `json:"compact"`
		ECTs      []json.RawMessage `json:"ects"`
		Exchanges []json.RawMessage `json:"exchanges"`
	}
	switch {
	case depth > deepest:
		return nil
	case json.Unmarshal(value, &text) == nil && depth > 0:
		return []string{text}
	case json.Unmarshal(value, &list) == nil:
	case json.Unmarshal(value, &object) == nil && object.Compact != "":
		return []string{object.Compact}
	default:
		list = slices.Concat(object.ECTs, object.Exchanges)
	}
	var out []string
	for _, element := range list {
		out = append(out, compacts(element, depth+1)...)
	}
	return out
}

// printChain prints tokens as a tree: a token stands below its first parent.
func printChain(w io.Writer, views []tokenView) error {
	depth := map[ect.ID]int{}
	for _, v := range views {
		level := 0
		for _, parent := range v.Parents {
			if d, ok := depth[parent]; ok {
				level = max(level, d+1)
			}
		}
		depth[v.ID] = level
		state := "verified"
		if !v.Verified {
			state = "NOT VERIFIED: " + terminal.Line(v.Problem)
		}
		route := ""
		if from, ok := v.Ext.String(ect.ExtSourceProtocol); ok {
			route = " " + terminal.Word(from)
			if to, _ := v.Ext.String(ect.ExtDestProtocol); to != "" {
				route += " → " + terminal.Word(to)
			}
		}
		if _, err := fmt.Fprintf(w, "%s%s %s%s by %s, %s\n", strings.Repeat("  ", level), terminal.Word(v.ID), terminal.Word(v.Act), route, terminal.Word(v.Issuer), state); err != nil {
			return err
		}
	}
	return nil
}
