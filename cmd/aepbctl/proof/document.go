package proof

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/audit"
)

// maxDepth bounds how deep tokens may stand in a document.
const maxDepth = 4

// object is a JSON object; members that were compared are taken out of it.
type object map[string]jsontext.Value

func (o object) take(name string) (jsontext.Value, bool) {
	v, there := o[name]
	delete(o, name)
	return v, there
}

// text takes a member that is a string; false: it is missing, or something else.
func (o object) text(name string) (text string, ok bool) {
	v, there := o.take(name)
	if !there {
		return "", false
	}
	return text, json.Unmarshal(v, &text) == nil
}

// document is a source of JSON while it is read.
type document struct {
	in     *Input
	reader Reader
	name   string
	tokens []string
}

// documents reads JSON of this program and of the gateway: one value, or several one behind the other. Tokens are strings of lists, and
// in the members compact, ects and exchanges of objects. Messages are not searched for tokens: agents write those.
func (in *Input) documents(r Reader, name string, text []byte) error {
	d := document{in: in, reader: r, name: name}
	decoder := jsontext.NewDecoder(strings.NewReader(string(text)))
	for {
		value, err := decoder.ReadValue()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("the JSON %s cannot be read: %w", place(name), err)
		}
		d.value(value.Clone(), "", 0)
	}
	if d.tokens == nil {
		return fmt.Errorf("no token %s: the JSON has neither \"compact\" nor \"ects\"", place(name))
	}
	return in.tokens(name, d.tokens)
}

// unseen names what nothing compares.
func (d *document) unseen(what string) {
	d.in.find(audit.NotCompared, "%s of %s was not looked at: nothing here can compare it with a token; remove it, or give the tokens alone", what, d.name)
}

func (d *document) value(v jsontext.Value, at string, depth int) {
	var text string
	var list []jsontext.Value
	var members object
	switch {
	case depth > maxDepth:
		d.unseen("what stands deeper than " + at)
	case json.Unmarshal(v, &text) == nil && depth > 0:
		d.tokens = append(d.tokens, text)
	case json.Unmarshal(v, &list) == nil:
		for i, element := range list {
			d.value(element, fmt.Sprintf("%s[%d]", at, i), depth+1)
		}
	case json.Unmarshal(v, &members) == nil && members["compact"] != nil:
		d.view(members, at)
	case members != nil:
		d.object(members, at, depth)
	default:
		d.unseen("the value " + terminal.Word(strings.TrimPrefix(at, ".")))
	}
}

// view compares what is said beside a token with the token.
func (d *document) view(stated object, at string) {
	compact, ok := stated.text("compact")
	if !ok {
		d.unseen(at + ".compact")
		return
	}
	d.tokens = append(d.tokens, compact)
	stated.take("verified") // what another program thought of it is judged anew
	stated.take("problem")
	claims, _, err := ect.ParseUnverified(compact)
	if err != nil {
		return // that it is no token is told by the verifier
	}
	text, err := json.Marshal(ViewOf(claims, compact), json.DefaultOptionsV2())
	var means object
	if err != nil || json.Unmarshal(text, &means) != nil {
		d.unseen("the text beside a token")
		return
	}
	delete(means, "compact")
	delete(means, "verified")
	delete(means, "problem")
	for _, name := range slices.Sorted(maps.Keys(stated)) {
		if want, known := means[name]; !known || !same(stated[name], want) {
			d.contradicts(len(d.tokens), claims.ID, name, stated[name], want)
		}
		delete(means, name)
	}
	for _, name := range slices.Sorted(maps.Keys(means)) {
		d.contradicts(len(d.tokens), claims.ID, name, nil, means[name])
	}
}

func (d *document) contradicts(token int, id ect.ID, member string, stated, means jsontext.Value) {
	d.in.find(audit.Contradicted, "the text beside token %d (%s) of %s is not what the token says: %s is %s, in the token %s", token, id, d.name, member, excerpt(stated), excerpt(means))
}

// excerpt is the beginning of a JSON value.
func excerpt(v jsontext.Value) string {
	const most = 64
	text := string(v)
	if text == "" {
		return "missing"
	}
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}

// same reports whether two JSON values mean the same. Numbers are compared digit by digit.
func same(a, b jsontext.Value) bool {
	left, right := a.Clone(), b.Clone()
	opts := []jsontext.Options{jsontext.ReorderRawObjects(true), jsontext.Multiline(false), jsontext.SpaceAfterColon(false), jsontext.SpaceAfterComma(false)}
	return left.Format(opts...) == nil && right.Format(opts...) == nil && string(left) == string(right)
}

// object reads an answer of the gateway, or a file of this program.
func (d *document) object(o object, at string, depth int) {
	first := len(d.tokens)
	for _, name := range []string{"ects", "exchanges"} {
		if list, there := o.take(name); there {
			d.value(list, at+"."+name, depth+1)
		}
	}
	var claims []ect.Claims
	for _, compact := range d.tokens[first:] {
		c, _, _ := ect.ParseUnverified(compact)
		claims = append(claims, c)
	}
	d.workflow(o, claims)
	d.losses(o, claims)
	from := d.protocols(o, claims)
	reply := d.messages(o)
	d.summary(o, from, reply)
	if next, there := o.take("next"); there && string(next) != `""` {
		d.in.find(audit.Incomplete, "%s is one page of a workflow, and there are more: aepbctl dag fetches all", d.name)
	}
	for _, name := range slices.Sorted(maps.Keys(o)) {
		d.unseen("the member " + terminal.Word(strings.TrimPrefix(at+"."+name, ".")))
	}
}

// workflow compares the workflow that is said with that of the tokens.
func (d *document) workflow(o object, claims []ect.Claims) {
	for _, name := range []string{"wid", "workflow"} {
		value, there := o[name]
		wid, ok := o.text(name)
		if there && (!ok || wid == "") || there && !slices.ContainsFunc(claims, func(c ect.Claims) bool { return c.Workflow == wid }) {
			d.in.find(audit.Contradicted, "the member %s of %s is %s, which is the workflow of no token in it", name, d.name, excerpt(value))
		}
	}
}

// losses compares the list of losses with the warnings of the tokens.
func (d *document) losses(o object, claims []ect.Claims) {
	value, there := o.take("losses")
	if !there {
		return
	}
	stated, signed := []string{}, []string{}
	for _, c := range claims {
		warnings, _ := c.Ext.Strings(ect.ExtWarnings)
		signed = append(signed, warnings...)
	}
	if json.Unmarshal(value, &stated) != nil || !slices.Equal(stated, signed) {
		d.in.find(audit.Contradicted, "the losses in %s are not those of its tokens: %d are listed, in the tokens are %d: %s", d.name, len(stated), len(signed), strings.Join(signed, "; "))
	}
}

// messages takes the messages of an exchange, and what is said of them.
func (d *document) messages(o object) (reply []byte) {
	exact := d.exact(o)
	d.in.exchanges++
	exchange := strconv.Itoa(d.in.exchanges)
	for _, one := range []struct {
		name string
		role audit.Role
	}{{"request", audit.RequestRole}, {"translated", audit.TranslationRole}, {"reply", audit.ReplyRole}} {
		shown, there := o.take(one.name)
		body, bytes := exact[one.name]
		where := fmt.Sprintf("the member %s of %s", one.name, d.name)
		switch {
		case bytes:
			d.message(d.reader.Message(where, one.role, body, false), exchange)
			if there && !same(shown, AsJSON(body)) {
				d.in.find(audit.Contradicted, "%s is not the message of its member exact", where)
			}
		case there: // as a program printed it: its bytes are lost, unless there was no space in it
			m := d.reader.Message(where, one.role, shown, false)
			if compact := shown.Clone(); compact.Compact() == nil {
				m.Hashes = append(m.Hashes, d.reader.Message("", "", compact, false).Hashes...)
			}
			d.message(m, exchange)
		}
	}
	return exact["reply"]
}

// message takes a message of an exchange, which is then said to be there as a whole.
func (d *document) message(m audit.Message, exchange string) {
	m.Of = exchange
	d.in.Messages, d.in.Whole = append(d.in.Messages, m), true
}

// protocols compares the protocols that are said with those of the tokens, and returns that of the caller.
func (d *document) protocols(o object, claims []ect.Claims) (caller string) {
	sides := map[string][]string{}
	for _, c := range claims {
		from, _ := c.Ext.String(ect.ExtSourceProtocol)
		to, _ := c.Ext.String(ect.ExtDestProtocol)
		if direction, _ := c.Ext.String(ect.ExtLeg); direction == "reply" { // it goes to the caller
			from, to = to, from
		}
		if from != "" {
			sides["from"], sides["to"] = append(sides["from"], from), append(sides["to"], to)
		}
	}
	for _, name := range []string{"from", "to"} {
		value, there := o[name]
		text, _ := o.text(name)
		if name == "from" {
			caller = text
		}
		binding, _, versioned := strings.Cut(text, "@")
		if versioned && name == "to" {
			d.unseen("the version in the member to")
		}
		if there && !slices.Contains(sides[name], binding) {
			d.in.find(audit.Contradicted, "the member %s of %s is %s, in its tokens it is %s", name, d.name, excerpt(value), strings.Join(slices.Compact(sides[name]), ", "))
		}
	}
	return caller
}

// exact reads the bytes of messages: a text, or an object with base64.
func (d *document) exact(o object) map[string][]byte {
	value, there := o.take("exact")
	if !there {
		return nil
	}
	var members map[string]Bytes
	if err := json.Unmarshal(value, &members); err != nil {
		d.unseen("the member exact")
		return nil
	}
	bodies := map[string][]byte{}
	for name, m := range members {
		bodies[name] = m
	}
	for _, name := range slices.Sorted(maps.Keys(bodies)) {
		if name != "request" && name != "reply" {
			d.unseen("the member exact." + terminal.Word(name))
		}
	}
	return bodies
}

// summary compares what is said of a reply with the reply.
func (d *document) summary(o object, from string, reply []byte) {
	if reply == nil || from == "" || d.reader.Summary == nil {
		if strings.Contains(from, "@") {
			d.unseen("the version in the member from")
		}
		return
	}
	text, err := d.reader.Summary(from, reply)
	means := object{}
	if err == nil {
		err = json.Unmarshal(text, &means)
	}
	if err != nil {
		d.in.find(audit.Contradicted, "the member from of %s: %v", d.name, err)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(means)) {
		if stated, there := o.take(name); !there || !same(stated, means[name]) {
			d.in.find(audit.Contradicted, "the member %s of %s is %s, in the reply it is %s", name, d.name, excerpt(stated), excerpt(means[name]))
		}
	}
}

// Bytes is a message in JSON: as a string if it is text, else in base64, so that its bytes survive.
type Bytes []byte

// MarshalJSON implements json.Marshaler.
func (b Bytes) MarshalJSON() ([]byte, error) {
	if text, err := jsontext.AppendQuote(nil, string(b)); err == nil {
		return text, nil
	}
	return json.Marshal(map[string]string{"base64": base64.StdEncoding.EncodeToString(b)})
}

// UnmarshalJSON implements json.Unmarshaler.
func (b *Bytes) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) == nil {
		*b = []byte(text)
		return nil
	}
	var coded struct {
		Base64 []byte `json:"base64"`
	}
	if err := json.Unmarshal(data, &coded, json.RejectUnknownMembers(true)); err != nil {
		return err
	}
	*b = coded.Base64
	return nil
}

// AsJSON is a message as a JSON value: itself if it is one, else its bytes.
func AsJSON(body []byte) jsontext.Value {
	if v := jsontext.Value(body); v.IsValid() {
		return v
	}
	text, _ := Bytes(body).MarshalJSON()
	return text
}
