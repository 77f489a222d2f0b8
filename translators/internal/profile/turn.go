package profile

import (
	"encoding/json"
	"maps"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// The members of an Invoke's and a Result's Extensions[CanonKey] that hold an
// outline: how the parts that arrived as arguments or as blocks were arranged
// at home. An outline refers to content and never repeats it. A decoder keeps
// it as it came; TurnOf and ResultOf follow it if it fits the message exactly
// and ignore it otherwise: kept, not believed.
const (
	OutlineTurn = "turn"
	OutlineTask = "task"
)

// Turn is an invocation in the words of a protocol of messages.
type Turn struct {
	Content      canonical.Content
	Conversation canonical.Conversation // what P1 arguments say; empty ids: nothing
	Extensions   canonical.Extensions   // the Invoke's, without the outline that was followed
	Losses       []canonical.Loss
}

// TurnOf gives the turn of an invocation: its own if it has parts, else the one
// that its call stands for: by the outline that came along, else by profile P1
// for a message capability (and for the tool "message" when the caller chose none),
// else by profile P2. The Content has an ID only if the Invoke's own turn has.
// Arguments that miss the P1 schema are a *canonical.Error.
func TurnOf(invoke *canonical.Invoke, capability *canonical.Capability) (Turn, error) {
	t := Turn{Content: invoke.Turn, Extensions: invoke.Extensions}
	if len(invoke.Turn.Parts) > 0 || invoke.Call == nil {
		return t, nil
	}
	if outline := takeOutline(invoke.Extensions, OutlineTurn); outline != nil {
		if content, conv, ok := followTurn(outline, invoke.Call); ok {
			content.ID = invoke.Turn.ID
			t.Content, t.Conversation = content, conv
			t.Extensions = withoutOutline(invoke.Extensions, OutlineTurn)
			return t, nil
		}
	}
	content, conv, losses, err := speak(invoke.Call, capability)
	content.ID = invoke.Turn.ID
	t.Content, t.Conversation, t.Losses = content, conv, losses
	return t, err
}

func speak(call *canonical.Call, capability *canonical.Capability) (canonical.Content, canonical.Conversation, []canonical.Loss, error) {
	if !isMessage(call, capability) {
		return typedContent(call, capability), canonical.Conversation{}, nil, nil
	}
	a, err := readArgs(call.Name, call.Args)
	if err != nil {
		return canonical.Content{}, canonical.Conversation{}, nil, err
	}
	var losses []canonical.Loss
	if a.empty {
		losses = append(losses, canonical.Loss{Code: canonical.LossEmpty, Path: "/body/call/args", Fate: canonical.Dropped})
	}
	return canonical.Content{Role: canonical.RoleCaller, Parts: a.parts()}, a.conversation(), losses, nil
}

func isMessage(call *canonical.Call, capability *canonical.Capability) bool {
	if capability != nil && capability.Profile != "" {
		return capability.Profile == canonical.ProfileMessage
	}
	if call.Name != MessageTool {
		return false
	}
	_, err := readArgs(call.Name, call.Args)
	return err == nil
}

// typedContent is the P2 turn of a call, naming the skill as its owner does.
func typedContent(call *canonical.Call, capability *canonical.Capability) canonical.Content {
	named := *call
	if capability != nil && capability.ID != "" {
		named.Name = capability.ID
	}
	return canonical.Content{
		Role:          canonical.RoleCaller,
		Parts:         []canonical.Part{{Kind: canonical.KindData, Data: TypedData(&named), Media: TypedMedia}},
		ExtensionURIs: []string{ExtensionURI},
	}
}

// TypedParts are the parts of the turn that says a call as profile P2 does.
func TypedParts(call *canonical.Call) []canonical.Part { return typedContent(call, nil).Parts }

// SaysCall reports whether parts are [TypedParts] of a call and nothing else.
func SaysCall(parts []canonical.Part, call *canonical.Call) bool {
	if len(parts) != 1 || parts[0].Kind != canonical.KindData {
		return false
	}
	bare := canonical.Part{Kind: canonical.KindData, Data: parts[0].Data, Media: TypedMedia}
	typed, ok := ParseTyped(bare.Data)
	return ok && typed.Name == call.Name && rawjson.Equal(typed.Args, argsOf(call)) && SamePart(&bare, &parts[0])
}

// OutlineTyped is the outline of a turn that has a P2 call: what TurnOf would
// not find in the call. Nil: nothing. The advisory texts beside the data part
// are content that the tool does not see; they are carried with it.
func OutlineTyped(turn *canonical.Content, call *canonical.Call) (outline json.RawMessage, losses []canonical.Loss) {
	if plainHead(turn) && SameParts(typedContent(call, nil).Parts, turn.Parts) {
		if _, ok := TypedTurn(turn.Parts); ok {
			return nil, nil
		}
	}
	at := soleDataAt(turn.Parts)
	w := argsWriter{}
	for i := range turn.Parts {
		w.beside(i, &turn.Parts[i], i == at)
	}
	b := rawjson.NewBuilder()
	writeHead(b, turn, canonical.RoleCaller)
	outline = b.Array("parts", w.entries).Bytes()
	return outline, append(w.losses, typedHeadLosses(turn)...)
}

// plainHead reports whether all of the turn but its parts is as in typedContent.
func plainHead(turn *canonical.Content) bool {
	return (turn.Role == "" || turn.Role == canonical.RoleCaller) && len(turn.Extensions) == 0 &&
		len(turn.ExtensionURIs) == 1 && turn.ExtensionURIs[0] == ExtensionURI
}

// typedHeadLosses returns the losses of a P2 turn, which lists the extension of AEPB alone.
func typedHeadLosses(turn *canonical.Content) []canonical.Loss {
	if len(turn.ExtensionURIs) == 1 && turn.ExtensionURIs[0] == ExtensionURI {
		return ForeignLosses(turn.Extensions, "", "/body/turn")
	}
	return headLosses(turn, "/body/turn")
}

// beside writes the entry of one part of a typed turn.
func (w *argsWriter) beside(i int, p *canonical.Part, isCall bool) {
	path := "/body/turn/parts/" + strconv.Itoa(i)
	entry := rawjson.NewBuilder()
	if isCall {
		entry.String("arg", "call")
		writePart(entry, p, "data")
		native := []PartField{}
		if p.Media == TypedMedia {
			native = append(native, PartMedia)
		}
		w.rest(p, path, native...)
	} else {
		writePart(entry, p)
		w.losses = append(w.losses, canonical.Loss{Code: canonical.LossPartBoundaries, Path: path, Fate: canonical.Carried})
	}
	w.entries = append(w.entries, entry.Bytes())
}

// BindTurn is profile P3 for a whole turn: its texts, joined by a blank line,
// become the only required string of schema. The outline is never nil, because
// the call alone does not show that the words were free. ok is false when the
// schema wants something else or the turn holds more than text.
func BindTurn(turn *canonical.Content, schema json.RawMessage) (args, outline json.RawMessage, losses []canonical.Loss, ok bool) {
	w := argsWriter{}
	for i := range turn.Parts {
		if turn.Parts[i].Kind != canonical.KindText {
			return nil, nil, nil, false
		}
		w.add(i, &turn.Parts[i])
	}
	w.order(turn.Parts)
	args, property, ok := Bind(schema, strings.Join(w.texts, separator))
	if !ok || len(w.texts) == 0 {
		return nil, nil, nil, false
	}
	b := rawjson.NewBuilder().String("bind", property)
	writeHead(b, turn, canonical.RoleCaller)
	outline = b.Array("parts", w.entries).Bytes()
	return args, outline, append(w.losses, headLosses(turn, "/body/turn")...), true
}

// ConversationOf gives the ids that a call names, if it has the arguments of P1.
func ConversationOf(call *canonical.Call) canonical.Conversation {
	if call == nil {
		return canonical.Conversation{}
	}
	names := false
	rawjson.Walk(call.Args, func(quoted, _ json.RawMessage) bool {
		name, _ := rawjson.Unquote(quoted)
		names = names || name == "context_id" || name == "task_id"
		return true
	})
	if !names { // most arguments are a tool's own, and to say why they are not ours is no use here
		return canonical.Conversation{}
	}
	a, err := readArgs(call.Name, call.Args)
	if err != nil {
		return canonical.Conversation{}
	}
	return a.conversation()
}

// followTurn builds the turn that an outline describes. It fits only if saying
// that turn again gives exactly this call and this outline.
func followTurn(outline json.RawMessage, call *canonical.Call) (canonical.Content, canonical.Conversation, bool) {
	o := rawjson.Parse(outline, "")
	var turn canonical.Content
	if o.Err() != nil || !readHead(o, &turn, canonical.RoleCaller) {
		return turn, canonical.Conversation{}, false
	}
	entries, _ := o.Array("parts")
	property, bound := o.String("bind")
	r := argsReader{call: call}
	if args, err := readArgs(call.Name, call.Args); err == nil && !bound {
		r.args, r.rest = args, args.message
	}
	if bound && rawjson.IsObject(call.Args) {
		r.rest = rawjson.Parse(call.Args, "").PeekText(property)
	}
	for _, entry := range entries {
		if !r.read(entry) {
			return turn, canonical.Conversation{}, false
		}
	}
	turn.Parts = r.parts
	if r.typed {
		again, _ := OutlineTyped(&turn, call)
		return turn, canonical.Conversation{}, rawjson.Equal(again, outline)
	}
	if bound {
		args, again, _, ok := BindTurn(&turn, bindSchema(property))
		return turn, canonical.Conversation{}, ok && rawjson.Equal(args, call.Args) && rawjson.Equal(again, outline)
	}
	conv := r.args.conversation()
	args, again, _ := ArgsFromTurn(turn, conv, true)
	return turn, conv, rawjson.Equal(args, call.Args) && rawjson.Equal(again, outline)
}

// bindSchema is the least schema that binds to property.
func bindSchema(property string) json.RawMessage {
	str := rawjson.NewBuilder().String("type", "string").Bytes()
	return rawjson.NewBuilder().Strings("required", []string{property}, true).
		Raw("properties", rawjson.NewBuilder().Raw(property, str).Bytes()).Bytes()
}

// argsReader puts parts together from an outline's entries.
type argsReader struct {
	call  *canonical.Call
	args  messageArgs
	rest  string // of the message, not yet used
	begun bool
	typed bool
	parts []canonical.Part
}

func (r *argsReader) read(entry json.RawMessage) bool {
	o := rawjson.Parse(entry, "")
	length, file := o.Take("length"), o.Take("file")
	arg, _ := o.String("arg")
	p, ok := readPart(o)
	switch {
	case !ok || len(o.Members()) > 0:
		return false
	case length != nil:
		ok = r.text(length, &p)
	case file != nil:
		ok = r.file(file, &p)
	case arg == "data":
		p.Data, ok = r.args.data, r.args.data != nil
	case arg == "call":
		p.Data, ok = TypedData(r.call), !r.typed
		r.typed = true
	case arg != "":
		ok = false
	}
	r.parts = append(r.parts, p)
	return ok
}

func (r *argsReader) text(length json.RawMessage, p *canonical.Part) bool {
	if r.begun {
		after, ok := strings.CutPrefix(r.rest, separator)
		if !ok {
			return false
		}
		r.rest = after
	}
	n, err := strconv.Atoi(string(length))
	if err != nil || n < 0 || n > len(r.rest) {
		return false
	}
	p.Text, r.rest, r.begun = r.rest[:n], r.rest[n:], true
	return utf8.ValidString(p.Text)
}

func (r *argsReader) file(index json.RawMessage, p *canonical.Part) bool {
	i, err := strconv.Atoi(string(index))
	if err != nil || i < 0 || i >= len(r.args.files) {
		return false
	}
	native := r.args.files[i]
	p.Bytes, p.Name, p.Media = native.Bytes, native.Name, native.Media
	if native.Kind == canonical.KindRef {
		p.URI = native.URI
	}
	return p.Kind == native.Kind
}

func takeOutline(ext canonical.Extensions, name string) json.RawMessage {
	if ext[CanonKey] == nil {
		return nil
	}
	raw := rawjson.Parse(ext[CanonKey], "").Take(name)
	if !rawjson.IsObject(raw) {
		return nil
	}
	return raw
}

// withoutOutline is ext without one member of what was carried.
func withoutOutline(ext canonical.Extensions, name string) canonical.Extensions {
	out := canonical.Extensions{}
	maps.Copy(out, ext)
	o := rawjson.Parse(ext[CanonKey], "")
	o.Take(name)
	delete(out, CanonKey)
	if rest := o.Rest(); rest != nil {
		out[CanonKey] = rest
	}
	if len(out) == 0 {
		return nil
	}
	return out
}
