package profile

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// separator stands between joined texts: a blank line.
const separator = "\n\n"

// ArgsFromTurn says a turn as the arguments of a P1 tool: texts joined by a
// blank line into message, the first data part that is an object into data,
// files and references into files, ids into context_id and task_id. What the
// arguments cannot say goes into the outline, to be carried under OutlineTurn;
// it is nil when the arguments alone give the turn back, unless always is set,
// for a tool whose name does not show that it has profile P1. Losses name
// places in an Invoke's turn.
func ArgsFromTurn(turn canonical.Content, conv canonical.Conversation, always bool) (args, outline json.RawMessage, losses []canonical.Loss) {
	w := argsWriter{}
	for i := range turn.Parts {
		w.add(i, &turn.Parts[i])
	}
	w.order(turn.Parts)
	b := rawjson.NewBuilder().String("message", strings.Join(w.texts, separator)).Raw("data", w.data)
	if len(w.files) > 0 {
		b.Array("files", w.files)
	}
	b.Optional("context_id", conv.ContextID).Optional("task_id", conv.TaskID)
	return b.Bytes(), w.outline(&turn, always), append(w.losses, headLosses(&turn, "/body/turn")...)
}

// headLosses declares what writeHead carries.
func headLosses(turn *canonical.Content, path string) []canonical.Loss {
	var losses []canonical.Loss
	if len(turn.ExtensionURIs) > 0 {
		losses = append(losses, canonical.Loss{Code: canonical.LossMetadata, Path: path + "/extensionURIs", Fate: canonical.Carried})
	}
	return append(losses, ForeignLosses(turn.Extensions, "", path)...)
}

// argsWriter sorts a turn's parts into arguments.
type argsWriter struct {
	texts   []string
	data    json.RawMessage
	files   []json.RawMessage
	entries []json.RawMessage
	losses  []canonical.Loss
}

func (w *argsWriter) add(i int, p *canonical.Part) {
	path := "/body/turn/parts/" + strconv.Itoa(i)
	entry := rawjson.NewBuilder()
	switch {
	case p.Kind == canonical.KindText:
		w.texts = append(w.texts, p.Text)
		entry.Raw("length", json.RawMessage(strconv.Itoa(len(p.Text))))
		writePart(entry, p, "text")
		w.rest(p, path)
	case p.Kind == canonical.KindData && w.data == nil && rawjson.IsObject(p.Data):
		w.data = p.Data
		entry.String("arg", "data")
		writePart(entry, p, "data")
		w.rest(p, path)
	case p.Kind == canonical.KindFile, p.Kind == canonical.KindRef && p.URI != "":
		entry.Raw("file", json.RawMessage(strconv.Itoa(len(w.files))))
		writePart(entry, p, "bytes", "media", "name", fileURI(p))
		w.files = append(w.files, writeFile(p))
		w.rest(p, path, PartMedia, PartName, PartField(fileURI(p)))
	default:
		writePart(entry, p)
		w.losses = append(w.losses, canonical.Loss{Code: canonical.LossContent, Path: path, Fate: canonical.Carried})
	}
	w.entries = append(w.entries, entry.Bytes())
}

// fileURI names the member with the content of a reference; a file has its content elsewhere.
func fileURI(p *canonical.Part) string {
	if p.Kind == canonical.KindRef {
		return "uri"
	}
	return ""
}

func writeFile(p *canonical.Part) json.RawMessage {
	b := rawjson.NewBuilder().Optional("name", p.Name).Optional("mediaType", p.Media)
	if p.Kind == canonical.KindRef {
		return b.String("uri", p.URI).Bytes()
	}
	return b.Base64("bytes", p.Bytes).Bytes()
}

// rest declares what of a part only the outline says.
func (w *argsWriter) rest(p *canonical.Part, path string, native ...PartField) {
	ignored := rawjson.NewBuilder()
	w.losses = append(w.losses, CarryPart(ignored, p, path, except(native)...)...)
	w.losses = append(w.losses, ForeignLosses(p.Extensions, "", path)...)
}

func except(native []PartField) []PartField {
	fields := make([]PartField, 0, len(partFields))
	for _, f := range partFields {
		if !slices.Contains(native, f.name) {
			fields = append(fields, f.name)
		}
	}
	return fields
}

// order declares boundaries and order where the arguments alone do not show them.
func (w *argsWriter) order(parts []canonical.Part) {
	last, disorder := 0, len(w.texts) > 1
	for i := range parts {
		rank := map[canonical.Kind]int{canonical.KindData: 1, canonical.KindFile: 2, canonical.KindRef: 2}[parts[i].Kind]
		disorder = disorder || rank < last
		last = rank
	}
	if disorder {
		w.losses = append(w.losses, canonical.Loss{Code: canonical.LossPartBoundaries, Path: "/body/turn/parts", Fate: canonical.Carried})
	}
}

// outline is nil when the arguments alone give the turn back, unless always.
func (w *argsWriter) outline(turn *canonical.Content, always bool) json.RawMessage {
	args := messageArgs{message: strings.Join(w.texts, separator), data: w.data}
	for _, raw := range w.files {
		file, err := readFile(raw)
		if err != nil {
			break
		}
		args.files = append(args.files, file)
	}
	head := rawjson.NewBuilder()
	writeHead(head, turn, canonical.RoleCaller)
	if !always && head.Empty() && SameParts(args.parts(), turn.Parts) {
		return nil
	}
	return head.Array("parts", w.entries).Bytes()
}

// SameParts reports whether two lists of parts say the same, each as [SamePart] does.
func SameParts(a, b []canonical.Part) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !SamePart(&a[i], &b[i]) {
			return false
		}
	}
	return true
}

// messageArgs are the arguments of a P1 tool, read.
type messageArgs struct {
	message           string
	data              json.RawMessage
	files             []canonical.Part
	contextID, taskID string
	empty             bool // a member stands there and says nothing
}

func (a *messageArgs) conversation() canonical.Conversation {
	return canonical.Conversation{ContextID: a.contextID, TaskID: a.taskID}
}

// parts gives the turn that the arguments stand for when nothing was carried.
func (a *messageArgs) parts() []canonical.Part {
	var parts []canonical.Part
	if a.message != "" || (a.data == nil && len(a.files) == 0) {
		parts = append(parts, canonical.Part{Kind: canonical.KindText, Text: a.message})
	}
	if a.data != nil {
		parts = append(parts, canonical.Part{Kind: canonical.KindData, Data: a.data})
	}
	return append(parts, a.files...)
}

func readArgs(tool string, raw json.RawMessage) (messageArgs, error) {
	var a messageArgs
	if raw == nil {
		return a, badArgs("the arguments are missing: this tool needs an object with the string message")
	}
	o := rawjson.Parse(raw, "")
	absent := o.Err() == nil && !o.Has("message")
	a.message = o.Required("message")
	a.data = o.RawObject("data")
	files, listed := o.Array("files")
	for _, element := range files {
		file, err := readFile(element)
		if err != nil {
			return a, err
		}
		a.files = append(a.files, file)
	}
	contextID, hasContext := o.String("context_id")
	taskID, hasTask := o.String("task_id")
	a.contextID, a.taskID = contextID, taskID
	a.empty = (listed && len(files) == 0) || (hasContext && contextID == "") || (hasTask && taskID == "")
	malformed, wrong := errors.AsType[*translators.MalformedError](o.Err())
	if !wrong && len(o.Members()) == 0 {
		return a, nil
	}
	var faults []string
	switch {
	case absent:
		faults = append(faults, `missing "message"`)
	case wrong:
		faults = append(faults, "at "+malformed.Path+": "+malformed.Reason)
	}
	if unknown := unknownNames(o.Members()); unknown != "" {
		faults = append(faults, "unknown "+unknown)
	}
	return a, badArgs("arguments of " + plainName(tool) + ": " + strings.Join(faults, "; ") +
		"; it takes message, data, files, context_id and task_id")
}

// unknownNames are the names of arguments that a tool does not take: the first of them, and none that
// could be anything but a name. Values are not quoted.
func unknownNames(members []rawjson.Member) string {
	const most = 5
	var names []string
	for _, m := range members {
		switch m.Name {
		case "message", "data", "files", "context_id", "task_id": // of a wrong type, as was said
			continue
		}
		if len(names) == most {
			names = append(names, "…")
			break
		}
		names = append(names, `"`+plainName(m.Name)+`"`)
	}
	return strings.Join(names, ", ")
}

// plainName is a name as it is where it is short and of letters, digits and a few signs, else an ellipsis.
func plainName(name string) string {
	const longest = 64
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-.", r)
	}
	if name == "" || len(name) > longest || strings.ContainsFunc(name, func(r rune) bool { return !plain(r) }) {
		return "…"
	}
	return name
}

func readFile(raw json.RawMessage) (canonical.Part, error) {
	o := rawjson.Parse(raw, "")
	p := canonical.Part{Kind: canonical.KindRef}
	p.Name, _ = o.String("name")
	p.Media, _ = o.String("mediaType")
	data, inline := o.Base64("bytes")
	uri, linked := o.String("uri")
	if o.Err() != nil || len(o.Members()) > 0 || inline == linked || (linked && uri == "") {
		return p, badArgs("a file needs either bytes in base64 or a uri, and nothing unknown")
	}
	if inline {
		p.Kind, p.Bytes = canonical.KindFile, data
	}
	p.URI = uri
	return p, nil
}

func badArgs(reason string) error {
	return &canonical.Error{Code: canonical.CodeBadParams, Message: reason, Schema: MessageInputSchema()}
}
