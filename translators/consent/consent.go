package consent

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/form"
	"github.com/aepb/aepb-gateway/translators/internal/profile"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// MissingError lists questions that have no answer yet.
type MissingError struct {
	Keys []string // of the questions
}

func (e *MissingError) Error() string {
	return "the message has no answer to " + quoted(e.Keys)
}

// UncheckedError reports that the values of an answer cannot be checked by the form of its
// question, because the form is none of MCP's, or both are too large.
type UncheckedError struct {
	Key string // of the question
	Err error
}

func (e *UncheckedError) Error() string {
	return "the values of the answer to the question " + quote(e.Key) + " cannot be held against its form (" + e.Err.Error() + "): answer with fewer values, decline or cancel"
}

// Unwrap is the refusal in the words of every protocol.
func (e *UncheckedError) Unwrap() error {
	return &canonical.Error{Code: canonical.CodeBadParams, Message: e.Error()}
}

// Read returns the answers that a message gives to what was questions, in the order of
// the questions. Errors: [*MissingError] if a question has no answer;
// [*canonical.Error] with [canonical.CodeBadParams] if an answer fits no question.
func Read(questions []canonical.Input, invoke *canonical.Invoke) ([]canonical.Answer, error) {
	return read(questions, invoke, rules{requires, Fit})
}

// ReadArguments is Read for the gateway's own question for the arguments of a call: data
// is arguments also where the schema requires none, and means no consent. Arguments that
// cannot be held against the schema pass: the server judges them, as those of any call.
func ReadArguments(questions []canonical.Input, invoke *canonical.Invoke) ([]canonical.Answer, error) {
	return read(questions, invoke, rules{func(json.RawMessage) bool { return true }, fitArguments})
}

// rules are what tells a question for consent from one for arguments.
type rules struct {
	takes func(schema json.RawMessage) bool // values alone answer a form
	fit   func(canonical.Input, canonical.Answer) (canonical.Answer, error)
}

func read(questions []canonical.Input, invoke *canonical.Invoke, by rules) ([]canonical.Answer, error) {
	if len(invoke.Answers) > 0 {
		if err := contradicted(invoke.Answers, invoke.Turn.Parts); err != nil {
			return nil, err
		}
		return check(questions, invoke.Answers, by.fit)
	}
	if empty(invoke.Turn.Parts) {
		return nil, &MissingError{keys(questions)}
	}
	if len(questions) != 1 {
		return nil, refused("several questions are open: answer each by its key, which is one of %s", quoted(keys(questions)))
	}
	answer, err := plain(questions[0], invoke.Turn.Parts, by.takes)
	if err != nil {
		return nil, err
	}
	return check(questions, []canonical.Answer{answer}, by.fit)
}

// Check holds answers against what was questions and returns one for each question, in
// the order of the questions. Errors as in [Read], and [*UncheckedError].
func Check(questions []canonical.Input, given []canonical.Answer) ([]canonical.Answer, error) {
	return check(questions, given, Fit)
}

func check(questions []canonical.Input, given []canonical.Answer, fit func(canonical.Input, canonical.Answer) (canonical.Answer, error)) ([]canonical.Answer, error) {
	found := make(map[string]canonical.Answer, len(given))
	for _, a := range given {
		if names := unknownMembers(a.Extensions[mcpBinding]); names != nil {
			return nil, refused(`the answer to the question %s has %s, which no answer has: answer with "action" and "content"`, quote(a.Key), quoted(names))
		}
		if a.Key == "" && len(questions) == 1 {
			a.Key = questions[0].Key
		}
		at := slices.IndexFunc(questions, func(in canonical.Input) bool { return in.Key == a.Key })
		if at < 0 {
			return nil, refused("there is no question %s: answer %s", quote(a.Key), quoted(keys(questions)))
		}
		if _, twice := found[a.Key]; twice {
			return nil, refused("the question %s is answered twice: answer it once", quote(a.Key))
		}
		checked, err := fit(questions[at], a)
		if err != nil {
			return nil, err
		}
		found[a.Key] = checked
	}
	var missing []string
	answers := make([]canonical.Answer, 0, len(questions))
	for _, in := range questions {
		a, ok := found[in.Key]
		if !ok {
			missing = append(missing, in.Key)
		}
		answers = append(answers, a)
	}
	if missing != nil {
		return nil, &MissingError{missing}
	}
	return answers, nil
}

// Fit holds one answer against its question and returns it as it may leave: without
// values where it accepts nothing. [*canonical.Error] with [canonical.CodeBadParams]:
// it is no answer to that question; the error has the schema of a form.
func Fit(in canonical.Input, a canonical.Answer) (canonical.Answer, error) {
	if a.Implied && (in.Mode == canonical.ModeURL || in.Mode == canonical.ModeForm && !requires(in.Schema)) {
		return a, noWord(in)
	}
	a.Implied = false
	if in.Mode == canonical.ModeNative {
		a.Parts = nil
		return a, fitNative(in, a)
	}
	switch a.Action {
	case canonical.Decline, canonical.Cancel:
		a.Value, a.Parts = nil, nil
		return a, nil
	case canonical.Accept:
	default:
		return a, noAction(in)
	}
	switch in.Mode {
	case canonical.ModeForm:
		return fitForm(in, a)
	case canonical.ModeURL:
		if len(a.Parts) > 0 || !blank(a.Value) {
			return a, refused("the question %s asks for a visit to its URL and takes no values: accept it without content, decline or cancel", quote(in.Key))
		}
		a.Value = nil // {} is how a form with nothing to fill in is answered
		return a, nil
	default:
		return fitText(in, a)
	}
}

// fitArguments is Fit for the arguments of a call. A schema of arguments may take members
// that it does not name.
func fitArguments(in canonical.Input, a canonical.Answer) (canonical.Answer, error) {
	a.Implied = false
	if in.Mode != canonical.ModeForm || a.Action != canonical.Accept {
		return Fit(in, a)
	}
	a, err := fitSchema(in, a)
	if unchecked, ok := errors.AsType[*UncheckedError](err); ok && unchecked.Key == in.Key {
		return a, nil
	}
	return a, err
}

func fitForm(in canonical.Input, a canonical.Answer) (canonical.Answer, error) {
	a, err := fitSchema(in, a)
	if err != nil {
		return a, err
	}
	if why := foreign(in.Schema, a.Value); why != "" {
		return a, misfit(in, why)
	}
	return a, nil
}

func fitSchema(in canonical.Input, a canonical.Answer) (canonical.Answer, error) {
	if len(a.Value) == 0 && len(a.Parts) > 0 {
		text, _ := canonical.TextOf(a.Parts, "\n")
		value, _, ok := profile.Bind(in.Schema, text)
		switch {
		case !ok || strings.TrimSpace(text) == "":
			return a, misfit(in, wanted(in.Schema))
		case isAnswerText(text):
			return a, misfit(in, "the text is JSON that looks like another way of answering: send it as a data part")
		}
		a.Value = value
	}
	a.Parts = nil // only the values were judged
	if len(a.Value) == 0 {
		a.Value = json.RawMessage("{}") // servers with the SDK for Python demand content of a form that is accepted
	}
	if a.Value[0] != '{' {
		return a, misfit(in, "it wants an object")
	}
	switch misfits, err := form.Fit(in.Schema, a.Value); {
	case err != nil:
		return a, &UncheckedError{Key: in.Key, Err: err}
	case misfits != nil:
		return a, misfit(in, strings.Join(misfits, "; "))
	}
	return a, nil
}

// fitText takes every text, and the form in which protocols without free text ask
// for it.
func fitText(in canonical.Input, a canonical.Answer) (canonical.Answer, error) {
	if len(a.Value) == 0 && !empty(a.Parts) {
		return a, nil
	}
	text, ok := rawjson.Unquote(a.Value)
	if !ok && len(a.Value) > 0 && a.Value[0] == '{' {
		text, ok = rawjson.Unquote(rawjson.Parse(a.Value, "").Peek(replyProperty))
	}
	if !ok || strings.TrimSpace(text) == "" {
		return a, refused("the question %s wants a text that is not empty: answer with text, or with {%q: TEXT} where a form is filled in", quote(in.Key), replyProperty)
	}
	a.Value, a.Parts = nil, []canonical.Part{{Kind: canonical.KindText, Text: text}}
	return a, nil
}

// replyProperty is the property of the form that a question in free text becomes
// (stream.Forms).
const replyProperty = "reply"

// fitNative checks the answer to a request that is no elicitation. It is the result of that
// request, which has no action (MCP, sampling and roots).
func fitNative(in canonical.Input, a canonical.Answer) error {
	var method string
	if in.Native != nil {
		method = in.Native.Method
	}
	if a.Action != "" || len(a.Value) == 0 || a.Value[0] != '{' {
		return refused("the answer to the question %s (%s) is the result of that request, without an action", quote(in.Key), method)
	}
	if why := misresult(method, rawjson.Parse(a.Value, "")); why != "" {
		return refused("the answer to the question %s is no result of %s: %s", quote(in.Key), method, why)
	}
	return nil
}

// plain is what a message without answers of its own means for the only question.
func plain(in canonical.Input, parts []canonical.Part, takes func(schema json.RawMessage) bool) (canonical.Answer, error) {
	a := canonical.Answer{Key: in.Key, Action: canonical.Accept}
	text, _ := canonical.TextOf(parts, "\n")
	text = strings.TrimSpace(text)
	word := canonical.Action(strings.ToLower(text))
	if data, several := object(parts); data != nil {
		if in.Mode != canonical.ModeText && (several || word == canonical.Decline || word == canonical.Cancel) {
			return a, refused("the answer to the question %s says several things: answer with one data part, decline or cancel", quote(in.Key))
		}
		if answer, ok, err := actionIn(in, data); ok || err != nil {
			silent := answer.Action == canonical.Accept && blank(answer.Value) && word != "" // only the word says what is accepted
			if means := sense(text); ok && in.Mode != canonical.ModeText && means != answer.Action && (means != "" || silent) {
				return a, refused("the answer to the question %s says several things: answer with its data part alone", quote(in.Key))
			}
			return answer, err
		}
		switch {
		case in.Mode == canonical.ModeText:
		case in.Mode == canonical.ModeForm && takes(in.Schema):
			a.Value = data
			return a, nil
		default:
			return a, noWord(in)
		}
	}
	if in.Mode == canonical.ModeURL && word == done {
		return a, nil
	}
	if in.Mode != canonical.ModeText && isAction(word) {
		_, _, chosen := profile.Bind(in.Schema, text)
		free := chosen && !choices(in.Schema)
		switch {
		case word == canonical.Accept && (in.Mode == canonical.ModeURL || !chosen):
			return a, nil
		case word != canonical.Accept && (!chosen || free):
			a.Action = word
			return a, nil
		}
	}
	a.Parts = parts
	return a, nil
}

// sense is the action that a word means by itself; empty: it is no such word.
func sense(text string) canonical.Action {
	switch word := strings.ToLower(strings.Trim(text, " \t\r\n.!")); word {
	case "yes", done, string(canonical.Accept):
		return canonical.Accept
	case "no", "declined", string(canonical.Decline):
		return canonical.Decline
	case "canceled", "cancelled", string(canonical.Cancel):
		return canonical.Cancel
	}
	return ""
}

// contradicted refuses answers without values beside a word that means something else. Other words
// beside them are what a gateway wrote of the answers, and values may be such a word themselves.
func contradicted(answers []canonical.Answer, parts []canonical.Part) error {
	text, _ := canonical.TextOf(parts, "\n")
	word := sense(text)
	for _, a := range answers {
		if word != "" && isAction(a.Action) && a.Action != word && blank(a.Value) && len(a.Parts) == 0 {
			return refused("the answer to the question %s says several things: answer without words beside it", quote(a.Key))
		}
	}
	return nil
}

// mcpBinding is the protocol whose answers keep members that they do not define.
const mcpBinding canonical.Binding = "mcp-v1"

// unknownMembers are the members of an answer that the result of an elicitation does not define (MCP
// 2026-07-28, ElicitResult): another spelling of an action among them may mean the opposite.
func unknownMembers(extra json.RawMessage) (names []string) {
	if len(extra) == 0 {
		return nil
	}
	for _, m := range rawjson.Parse(extra, "").Members() {
		if m.Name != "_meta" && m.Name != "resultType" {
			names = append(names, m.Name)
		}
	}
	return names
}

// done is what a person says after a visit.
const done = "done"

// choices reports whether the only required text of a form is one of a list.
func choices(schema json.RawMessage) bool {
	_, _, anything := profile.Bind(schema, "\x00 no choice")
	return !anything
}

// actionIn reads {"action": A, "content": {...}}, where the form has no member of that
// name. In free text other data is what the caller says.
func actionIn(in canonical.Input, data json.RawMessage) (canonical.Answer, bool, error) {
	o := rawjson.Parse(data, "")
	raw := o.Take("action")
	action, _ := rawjson.Unquote(raw) // one that is no text is none of the three
	a := canonical.Answer{Key: in.Key, Action: canonical.Action(strings.ToLower(action)), Value: o.Take("content")}
	switch {
	case in.Mode != canonical.ModeText && o.Has("elicitation") && !declares(in.Schema, "elicitation"):
		return a, false, refused(`the answer to the question %s has an "elicitation" that is none: answer with "action" and "content"`, quote(in.Key))
	case raw == nil || declares(in.Schema, "action"):
		return a, false, nil
	case in.Mode == canonical.ModeText:
		return a, isAction(a.Action) && o.Rest() == nil, nil
	case !isAction(a.Action):
		return a, false, noAction(in)
	case o.Rest() != nil:
		return a, false, refused(`the answer to the question %s has an "action" and other members: put the values into "content"`, quote(in.Key))
	default:
		return a, true, nil
	}
}

// declares reports whether a form has a property of this name.
func declares(schema json.RawMessage, name string) bool {
	if len(schema) == 0 || schema[0] != '{' {
		return false
	}
	properties := rawjson.Parse(schema, "").Object("properties")
	return properties != nil && properties.Has(name)
}

func isAction(a canonical.Action) bool {
	return a == canonical.Accept || a == canonical.Decline || a == canonical.Cancel
}

// object is the first data part that is an object, and whether there are several.
func object(parts []canonical.Part) (first json.RawMessage, several bool) {
	for i := range parts {
		if p := &parts[i]; p.Kind == canonical.KindData && len(p.Data) > 0 && p.Data[0] == '{' {
			if first != nil {
				return first, true
			}
			first = p.Data
		}
	}
	return first, false
}

// empty reports whether parts say nothing.
func empty(parts []canonical.Part) bool {
	return !slices.ContainsFunc(parts, func(p canonical.Part) bool {
		return p.Kind != canonical.KindText || strings.TrimSpace(p.Text) != ""
	})
}

// blank reports whether a value fills in nothing.
func blank(value json.RawMessage) bool {
	return len(value) == 0 || rawjson.Equal(value, json.RawMessage("{}"))
}

func misfit(in canonical.Input, why string) error {
	return &canonical.Error{
		Code: canonical.CodeBadParams, Schema: in.Schema,
		Message: fmt.Sprintf("the answer to the question %s does not fit its form: %s. Answer with values that match the schema, decline or cancel", quote(in.Key), why),
	}
}

// noWord refuses values without an action, which do not show whether the user agrees.
func noWord(in canonical.Input) error {
	return &canonical.Error{Code: canonical.CodeBadParams, Schema: in.Schema, Message: fmt.Sprintf(
		`the message does not say whether the question %s is accepted: it requires no values, so that values alone are no consent. Answer with {"action": "accept"}, with values in "content", or with the word accept, decline or cancel`, quote(in.Key))}
}

func noAction(in canonical.Input) error {
	return refused(`the answer to the question %s says neither accept, decline nor cancel: give it an "action"`, quote(in.Key))
}

func refused(format string, args ...any) error {
	return &canonical.Error{Code: canonical.CodeBadParams, Message: fmt.Sprintf(format, args...)}
}

func keys(questions []canonical.Input) []string {
	list := make([]string, len(questions))
	for i := range questions {
		list[i] = questions[i].Key
	}
	return list
}

// Bounds of what an error quotes.
const (
	maxQuoted = 8  // keys
	maxKey    = 64 // bytes of a key
)

func quote(key string) string {
	if len(key) > maxKey {
		key = strings.ToValidUTF8(key[:maxKey], "") + "..."
	}
	return strconv.QuoteToGraphic(key)
}

func quoted(keys []string) string {
	var b strings.Builder
	for i, key := range keys {
		if i == maxQuoted {
			fmt.Fprintf(&b, " and %d more", len(keys)-i)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(quote(key))
	}
	return b.String()
}
