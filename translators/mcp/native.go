package mcp

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/jsonrpc"
	"github.com/aepb/aepb-gateway/translators/internal/profile"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// methodListen stands for the request, of legacy revisions, to hear what a server
// says without being asked: a GET, which has no words (2025-11-25, Streamable
// HTTP, listening for messages from the server). Nothing is its reply.
const methodListen = "GET"

func decodeListen(w translators.Wire) (*canonical.Message, error) {
	version, err := requestVersion(w, "", &reader{Object: rawjson.Empty()}, true)
	if err == nil && version == Modern {
		err = refuse(canonical.CodeNoMethod, "this method is not served here")
	}
	if err != nil {
		return nil, err
	}
	return &canonical.Message{
		Op: canonical.OpNative, Phase: canonical.PhaseRequest, Body: &canonical.Native{Method: methodListen},
		Origin: canonical.Origin{Binding: Binding, Version: version},
	}, nil
}

// listen writes such a request.
func (e *encoder) listen() (translators.Wire, error) {
	if e.modern || e.m.Origin.Binding != Binding {
		return translators.Wire{}, refuse(canonical.CodeNoMethod, "MCP "+e.version+" has no such method")
	}
	return translators.Wire{Verb: http.MethodGet, Header: header(e.m, e.version, methodListen, "")}, nil
}

var _ translators.ChangeNotifier = (*Translator)(nil)

// Changes reports whether a notification says that a server has other tools now.
func (t *Translator) Changes(n *canonical.Native) bool {
	return n.Method == noticeTools
}

// nativeRequest writes a method that only MCP has. In its own revision nothing
// is changed but the name of its progress.
func (e *encoder) nativeRequest(body *canonical.Native) (name string, params json.RawMessage, err error) {
	if e.m.Origin.Binding != Binding {
		return "", nil, refuse(canonical.CodeUnsupportedOp, "MCP has no such method")
	}
	if !serves(e.version, body.Method) {
		return "", nil, refuse(canonical.CodeNoMethod, "MCP "+e.version+" has no such method")
	}
	if member := nameMember(body.Method); member != "" && rawjson.IsObject(body.Params) {
		name = rawjson.Parse(body.Params, "").PeekText(member)
	}
	params, err = e.repeated(body)
	if err != nil {
		return "", nil, err
	}
	if e.native {
		return name, withToken(params, e.m.Correlation.Progress), nil
	}
	w := write(canonical.Extensions{Binding: rawjson.OrEmpty(params)})
	if !e.modern && w.left != nil {
		w.left.Take(metaLogLevel)
	}
	e.requestMeta(w)
	if params == nil {
		return name, w.object(), nil
	}
	return name, w.bytes(), nil
}

// withToken gives parameters the name under which progress is wanted, if they
// have another one.
func withToken(params, token json.RawMessage) json.RawMessage {
	if token == nil {
		return params
	}
	o := rawjson.Parse(rawjson.OrEmpty(params), "")
	meta := rawjson.Open(o.Peek("_meta"))
	if had := meta.Take("progressToken"); had != nil && rawjson.Equal(had, token) {
		return params
	}
	o.Take("_meta")
	inner := rawjson.NewBuilder().Raw("progressToken", token).Rest(meta).Bytes()
	return rawjson.NewBuilder().Rest(o).Raw("_meta", inner).Bytes()
}

func (e *encoder) nativeResponse(body *canonical.Native) (translators.Wire, error) {
	if e.m.Origin.Binding != Binding || !rawjson.IsObject(body.Result) {
		return translators.Wire{}, refuse(canonical.CodeUnsupportedOp, "MCP has no such reply")
	}
	result := body.Result
	if !e.native {
		o := rawjson.Parse(result, "")
		if kind := o.Take("resultType"); kind != nil && string(kind) != `"complete"` {
			return translators.Wire{}, refuse(canonical.CodeBadUpstream, "the result type was not requested")
		}
		if e.modern {
			e.dropIf(len(o.Members()) == 0, canonical.LossEmpty, "/body/result")
			result = modernResult(o)
		} else {
			result = e.legacyResult(o)
		}
	}
	return translators.Wire{Body: jsonrpc.Result(e.m.Correlation.WireID, result)}, nil
}

// modernResult writes the members of every result of 2026-07-28. A legacy server does not
// say how long its list may be cached.
func modernResult(o *rawjson.Object) json.RawMessage {
	b := rawjson.NewBuilder().String("resultType", "complete")
	for _, list := range []string{"prompts", "resources", "resourceTemplates", "contents"} {
		if !o.Has(list) {
			continue
		}
		if !o.Has("ttlMs") {
			b.Raw("ttlMs", json.RawMessage("0"))
		}
		if !o.Has("cacheScope") {
			b.String("cacheScope", "private")
		}
		break
	}
	return b.Rest(o).Bytes()
}

func (e *encoder) legacyResult(o *rawjson.Object) json.RawMessage {
	for _, name := range []string{"ttlMs", "cacheScope"} {
		if o.Take(name) != nil {
			e.lose(canonical.LossCaching, canonical.Dropped, "/body/result/"+name)
		}
	}
	meta := rawjson.Open(o.Peek("_meta"))
	if meta.Take(metaServerInfo) == nil {
		return rawjson.OrEmpty(o.Rest())
	}
	e.lose(canonical.LossPeerInfo, canonical.Dropped, "/body/result/_meta")
	o.Take("_meta")
	return rawjson.NewBuilder().Rest(o).Raw("_meta", meta.Rest()).Bytes()
}

var _ translators.ResourceProvider = (*Translator)(nil)

// The media types of content that has no bytes of its own.
const (
	mediaData = "application/json"
	mediaText = "text/plain"
	mediaLink = "text/uri-list" // RFC 2483: content elsewhere, which the gateway does not fetch
)

// Seeks reads resources/list, resources/templates/list and resources/read.
func (t *Translator) Seeks(n *canonical.Native) (*translators.ResourceQuery, error) {
	s := &translators.ResourceQuery{}
	switch n.Method {
	case methodResources:
		s.What = translators.SeekList
	case methodTemplates:
		s.What = translators.SeekPatterns
	case methodResourcesRead:
		s.What = translators.SeekOne
	default:
		return nil, nil
	}
	if n.Params != nil && !rawjson.IsObject(n.Params) {
		return nil, refuse(canonical.CodeBadParams, "params is no object")
	}
	o := rawjson.Parse(rawjson.OrEmpty(n.Params), "/params")
	if s.What == translators.SeekOne {
		s.URI = o.Required("uri")
	} else {
		s.Cursor, _ = o.String("cursor")
	}
	if o.Err() != nil || s.What == translators.SeekOne && s.URI == "" {
		return nil, refuse(canonical.CodeBadParams, "uri or cursor is malformed")
	}
	return s, nil
}

// Shows answers them. What every result of a revision says besides, the encoder adds.
func (t *Translator) Shows(s translators.ResourceResult) *canonical.Native {
	b := rawjson.NewBuilder()
	switch s.What {
	case translators.SeekList:
		b.Raw("resources", resources(s.Resources, "uri"))
	case translators.SeekPatterns:
		b.Raw("resourceTemplates", resources(s.Resources, "uriTemplate"))
	default:
		b.Array("contents", rawjson.List(s.Contents, contents))
	}
	return &canonical.Native{Result: b.Optional("nextCursor", s.Next).Bytes()}
}

// Embeds reports whether a part, which is no image or sound, becomes an embedded resource.
func (t *Translator) Embeds(p *canonical.Part) bool {
	return p.Kind == canonical.KindFile && p.URI == "" && p.Form == canonical.FormNone && profile.NaturalForm(p.Media) == canonical.FormEmbedded
}

// resources writes what all revisions have a member for.
func resources(list []translators.Resource, uri string) json.RawMessage {
	return rawjson.ArrayOf(rawjson.List(list, func(h *translators.Resource) json.RawMessage {
		return rawjson.NewBuilder().String(uri, h.URI).String("name", h.Name).
			Optional("description", h.Description).Optional("mimeType", h.Media).Bytes()
	}))
}

// contents writes TextResourceContents or BlobResourceContents. Bytes that are
// a text are shown as one.
func contents(h *translators.ResourceContent) json.RawMessage {
	b, p := rawjson.NewBuilder().String("uri", h.URI), h.Part
	media := func(otherwise string) {
		if p.Media != "" {
			otherwise = p.Media
		}
		b.Optional("mimeType", otherwise)
	}
	switch p.Kind {
	case canonical.KindText:
		media(mediaText)
		b.String("text", p.Text)
	case canonical.KindData:
		media(mediaData)
		b.String("text", string(p.Data))
	case canonical.KindRef:
		b.String("mimeType", mediaLink).String("text", p.URI+"\r\n")
	default:
		media("")
		if textual(p.Media) && utf8.Valid(p.Bytes) {
			b.String("text", string(p.Bytes))
		} else {
			b.Base64("blob", p.Bytes)
		}
	}
	return b.Bytes()
}

func textual(media string) bool {
	media, _, _ = strings.Cut(strings.ToLower(media), ";")
	media = strings.TrimSpace(media)
	return strings.HasPrefix(media, "text/") || media == mediaData || strings.HasSuffix(media, "+json") || strings.HasSuffix(media, "+xml")
}

// What a server has beside tools, as the skills that callers of other protocols
// know it by. All of a prompt's name stands behind its prefix.
const (
	promptPrefix = "prompt."
	skillRead    = "resource.read"
	skillList    = "resource.list"
)

// PromptsPage asks a server for a page of its prompts.
func PromptsPage(cursor *string) *canonical.Native {
	return &canonical.Native{Method: methodPrompts, Params: cursorParams(cursor)}
}

// Prompts reads the answer: each prompt as a skill. next is the cursor of the
// next page; nil: this was the last.
func Prompts(n *canonical.Native) (skills []canonical.Capability, next *string, err error) {
	o := rawjson.Parse(rawjson.OrEmpty(n.Result), "/result")
	list, ok := o.Array("prompts")
	if !ok {
		o.Fail("prompts", "required")
	}
	for _, raw := range list {
		skill, err := promptSkill(raw)
		if err != nil {
			return nil, nil, err
		}
		skills = append(skills, skill)
	}
	var cursor string
	takeText(o, "nextCursor", &cursor)
	return skills, nextPage(cursor, o.Peek("nextCursor")), o.Err()
}

func promptSkill(raw json.RawMessage) (canonical.Capability, error) {
	o := rawjson.Parse(raw, "/result/prompts")
	c := canonical.Capability{Profile: canonical.ProfilePrompt, Tags: []string{"mcp", "prompt"}}
	name := o.Required("name")
	if name == "" {
		o.Fail("name", "required")
	}
	c.ID = promptPrefix + name
	takeText(o, "title", &c.Title)
	takeText(o, "description", &c.Description)
	var arguments []json.RawMessage
	if o.Has("arguments") {
		arguments, _ = o.Array("arguments")
	}
	properties, required, seen := rawjson.NewBuilder(), []string(nil), map[string]bool{}
	for _, argument := range arguments {
		a := rawjson.Parse(argument, "/result/prompts/arguments")
		name := a.Required("name")
		about, _ := a.String("description")
		if must, _ := a.Bool("required"); must {
			required = append(required, name)
		}
		if a.Err() != nil || seen[name] {
			o.Fail("arguments", "malformed, or one stands twice")
			break
		}
		seen[name] = true
		properties.Raw(name, textSchema(about))
	}
	c.InputSchema = argumentsSchema(properties, required...)
	return c, o.Err()
}

func textSchema(about string) json.RawMessage {
	return rawjson.NewBuilder().String("type", "string").Optional("description", about).Bytes()
}

func argumentsSchema(properties *rawjson.Builder, required ...string) json.RawMessage {
	return rawjson.NewBuilder().String("type", "object").Raw("properties", properties.Bytes()).
		Strings("required", required, false).Bool("additionalProperties", false).Bytes()
}

// Reading are the skills by which a server's resources are listed and read.
func Reading() []canonical.Capability {
	tags := []string{"mcp", "resource"}
	return []canonical.Capability{
		{
			ID: skillRead, Title: "Read a resource", Description: "Answers with what is in the resource of this URI.", Tags: tags,
			Profile: canonical.ProfileResource, InputSchema: argumentsSchema(rawjson.NewBuilder().Raw("uri", textSchema("which one")), "uri"),
		},
		{
			ID: skillList, Title: "List resources", Description: "Answers with the resources that can be read, a page at a time.", Tags: tags,
			Profile:     canonical.ProfileResources,
			InputSchema: argumentsSchema(rawjson.NewBuilder().Raw("cursor", textSchema("nextCursor of the page before; none: the first"))),
		},
	}
}

// Offers reports whether a server said that it has something: tools, prompts,
// resources.
func Offers(d *canonical.Description, what string) bool {
	raw := d.Extensions[Binding]
	if !rawjson.IsObject(raw) {
		return false
	}
	capabilities := rawjson.Parse(raw, "").Peek("capabilities")
	return rawjson.IsObject(capabilities) && rawjson.IsObject(rawjson.Parse(capabilities, "").Peek(what))
}

func (e *encoder) profile() canonical.Profile {
	if e.capability == nil {
		return ""
	}
	return e.capability.Profile
}

// method is what a capability of this profile is called by, and what the header
// repeats of the call.
func (e *encoder) method(call *canonical.Call) (method, name string) {
	switch e.profile() {
	case canonical.ProfilePrompt:
		return methodPromptsGet, strings.TrimPrefix(call.Name, promptPrefix)
	case canonical.ProfileResource:
		return methodResourcesRead, rawjson.Parse(rawjson.OrEmpty(call.Args), "").PeekText("uri")
	case canonical.ProfileResources:
		return methodResources, ""
	default:
		return MethodCall, call.Name
	}
}

// arguments writes those of a call. Prompts and resources take texts and nothing else.
func (e *encoder) arguments(w *writer, call *canonical.Call) error {
	if !e.profile().Content() {
		w.need("name", call.Name)
		w.raw("arguments", call.Args)
		return nil
	}
	args, n := rawjson.Parse(rawjson.OrEmpty(call.Args), ""), 0
	for _, m := range args.Members() {
		if _, ok := rawjson.Unquote(m.Value); ok {
			n++
		}
	}
	fits := n == len(args.Members())
	switch e.profile() {
	case canonical.ProfilePrompt:
		w.need("name", strings.TrimPrefix(call.Name, promptPrefix))
		w.raw("arguments", call.Args)
	case canonical.ProfileResource:
		uri := args.PeekText("uri")
		fits = fits && n == 1 && uri != ""
		w.need("uri", uri)
	default:
		fits = fits && n <= 1 && args.Has("cursor") == (n == 1)
		w.raw("cursor", args.Peek("cursor"))
	}
	if !fits {
		return &canonical.Error{Code: canonical.CodeBadParams, Message: "the arguments do not match the schema", Schema: e.capability.InputSchema}
	}
	return nil
}

// decodeContent reads what answers a skill that stands for a prompt or for
// resources: the blocks as parts, and what says more than they do as it came.
func decodeContent(m *canonical.Message, r *reader, profiled canonical.Profile) error {
	out := &canonical.Output{}
	var err error
	switch profiled {
	case canonical.ProfilePrompt:
		err = decodeMessages(m, r, out)
	case canonical.ProfileResource:
		list, ok := r.Array("contents")
		if !ok {
			r.Fail("contents", "required")
		}
		for i, raw := range list {
			block := rawjson.NewBuilder().String("type", "resource").Raw("resource", raw).Bytes()
			out.Parts = lenientBlock(out.Parts, m, block, "/result/contents/"+strconv.Itoa(i), nil)
		}
	default:
		if _, ok := rawjson.Elements(r.Peek("resources")); !ok {
			r.Fail("resources", "required")
		}
		out.Structured = rawjson.NewBuilder().Raw("resources", r.Take("resources")).Raw("nextCursor", r.Take("nextCursor")).Bytes()
	}
	if err != nil {
		return err
	}
	result := &canonical.Result{Output: out, Extensions: r.extensions()}
	m.Body, m.Conversation = result, profile.ReplyConversation(result.Extensions)
	return r.err()
}

// decodeMessages reads a GetPromptResult. Who speaks a part does not say.
func decodeMessages(m *canonical.Message, r *reader, out *canonical.Output) error {
	list, ok := rawjson.Elements(r.Peek("messages"))
	if !ok {
		r.Fail("messages", "required")
	}
	for i, raw := range list {
		at := "/result/messages/" + strconv.Itoa(i)
		o := rawjson.Parse(raw, at)
		if role := o.Required("role"); role != "user" && role != "assistant" {
			o.Fail("role", "neither user nor assistant")
		}
		content := o.RawObject("content")
		if content == nil {
			o.Fail("content", "required")
		}
		if o.Err() != nil {
			return o.Err()
		}
		out.Parts = lenientBlock(out.Parts, m, content, at+"/content", nil)
	}
	if about := r.Peek("description"); about != nil && about[0] != '"' {
		r.Fail("description", "not a string")
	}
	out.Structured = rawjson.NewBuilder().Raw("description", r.Take("description")).Raw("messages", r.Take("messages")).Bytes()
	return nil
}
