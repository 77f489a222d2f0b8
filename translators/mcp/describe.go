package mcp

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/jsonrpc"
	"github.com/aepb/aepb-gateway/translators/internal/profile"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// decodeDescribe reads server/discover and initialize.
func decodeDescribe(env jsonrpc.Message, m *canonical.Message, r *reader) error {
	m.Op = canonical.OpDescribe
	body := &canonical.DescribeRequest{Versions: []string{Modern}}
	if m.Origin.Version != Modern {
		body.Versions = []string{r.Required("protocolVersion")}
		r.at(m.Origin.Version, "")
		takeInfo(r, r.Object, "clientInfo", &m.From)
		if string(r.Peek("capabilities")) == "null" {
			r.Take("capabilities")
			r.Put("capabilities", json.RawMessage("{}"))
		}
		m.Preferences.CanAnswer, _ = declared(r.Peek("capabilities"), m.Origin.Version)
		if raw := r.RawObject("capabilities"); raw != nil && !rawjson.Equal(raw, []byte("{}")) {
			r.Put("capabilities", raw)
		} else if raw == nil {
			r.Fail("capabilities", "required")
		}
	}
	restoreAsker(m, r)
	body.Client = m.From
	body.Extensions = requestExtensions(env, r)
	m.Body = body
	return r.err()
}

func (e *encoder) describe(body *canonical.DescribeRequest) (string, json.RawMessage) {
	w := write(body.Extensions)
	e.losses = append(e.losses, foreign(body.Extensions, "/body")...)
	who := e.m.From
	if body.Client.Name != "" || body.Client.Version != "" {
		who = body.Client
	}
	version := e.version
	if e.native && len(body.Versions) > 0 {
		version = body.Versions[0]
	} else if !slices.Equal(body.Versions, []string{version}) && len(body.Versions) > 0 {
		e.lose(canonical.LossPeerInfo, canonical.Dropped, "/body/versions")
	}
	if e.modern {
		e.losses = append(e.losses, e.sameClient(who)...)
		e.requestMeta(w)
		return MethodDiscover, w.bytes()
	}
	e.requestMeta(w)
	w.need("protocolVersion", version)
	e.forget(w, canonical.LossPeerInfo, "capabilities")
	if !w.own.Has("capabilities") {
		raw := declaring(e.m.Preferences.CanAnswer, false, e.version)
		if left, _ := declared(raw, e.version); !slices.Equal(left, e.m.Preferences.CanAnswer) {
			e.lose(canonical.LossPeerInfo, canonical.Dropped, "/preferences/canAnswer")
		}
		w.raw("capabilities", raw)
	}
	if left := w.own.Peek("clientInfo"); !e.native || left != nil || who.Name != "" || who.Version != "" {
		w.raw("clientInfo", e.info(w, "clientInfo", left, who))
	}
	return MethodInitialize, w.bytes()
}

// sameClient returns the loss of a second client name: a modern request has one, in _meta.
func (e *encoder) sameClient(who canonical.Party) []canonical.Loss {
	if who.Name == e.m.From.Name && who.Version == e.m.From.Version {
		return nil
	}
	return []canonical.Loss{{Code: canonical.LossPeerInfo, Path: "/body/client", Fate: canonical.Dropped}}
}

func (e *encoder) page(body *canonical.Page) json.RawMessage {
	w := write(body.Extensions)
	w.text("cursor", body.Cursor)
	e.requestMeta(w)
	e.losses = append(e.losses, foreign(body.Extensions, "/body")...)
	return e.params(w, body.Extensions)
}

// ToolsPage asks for the tools at a cursor; nil: for the first ones.
func ToolsPage(cursor *string) *canonical.Page {
	return &canonical.Page{Extensions: canonical.Extensions{Binding: cursorParams(cursor)}}
}

// cursorParams are the params of a list. An empty cursor is a cursor (2026-07-28, Pagination).
func cursorParams(cursor *string) json.RawMessage {
	b := rawjson.NewBuilder()
	if cursor != nil {
		b.String("cursor", *cursor)
	}
	return b.Object()
}

// NextPage is the cursor of the page after this one; nil: this was the last.
func NextPage(list *canonical.CapabilityList) *string {
	return nextPage(list.Next, member(list.Extensions[Binding], "nextCursor"))
}

// nextPage returns the cursor of the next page; nil: none. left is `""` for an empty cursor.
func nextPage(cursor string, left json.RawMessage) *string {
	if cursor == "" && string(left) != `""` {
		return nil
	}
	return &cursor
}

// decodeDescription reads DiscoverResult and InitializeResult.
func decodeDescription(m *canonical.Message, r *reader) error {
	d := &canonical.Description{}
	capabilities := r.Peek("capabilities")
	if capabilities == nil || string(capabilities) == "null" { // a server that says nothing of what it can do
		r.Take("capabilities")
		capabilities = json.RawMessage("{}")
		r.Put("capabilities", capabilities)
	}
	if !rawjson.IsObject(capabilities) {
		r.Fail("capabilities", "not an object")
	}
	d.Tasks = tasksOffered(capabilities, m.Origin.Version)
	takeText(r.Object, "instructions", &d.Instructions)
	if m.Origin.Version == Modern {
		d.Versions, _ = r.Strings("supportedVersions")
		if len(d.Versions) == 0 {
			r.Fail("supportedVersions", "required")
		}
		if r.meta != nil {
			takeServer(r, r.meta, metaServerInfo, d)
		}
	} else {
		d.Versions = []string{r.Required("protocolVersion")}
		r.at(m.Origin.Version, "")
		takeServer(r, r.Object, "serverInfo", d)
	}
	d.Extensions = r.extensions()
	m.Body = d
	return r.err()
}

// takeServer takes what a Description has fields for out of an Implementation.
func takeServer(r *reader, o *rawjson.Object, name string, d *canonical.Description) {
	takeParty(r, o, name, "malformed", serverFields(d), func(info *rawjson.Object) bool {
		if icons, ok := rawjson.Elements(info.Peek("icons")); ok && len(icons) > 0 {
			d.IconURL, _ = rawjson.Parse(icons[0], "").String("src")
		}
		return d.Name == ""
	})
}

// takeParty takes fields out of an Implementation; what is left of it stays under its
// name, and so does one that nameless says has none.
func takeParty(r *reader, o *rawjson.Object, name, reason string, fields []namedText, nameless func(*rawjson.Object) bool) {
	info := o.Object(name)
	if info == nil {
		return
	}
	r.nested(info, levelParty, name)
	for _, f := range fields {
		takeText(info, f.name, f.value)
	}
	bare := nameless(info)
	if info.Err() != nil {
		o.Fail(name, reason)
		return
	}
	if rest := info.Rest(); rest != nil || bare {
		o.Put(name, rawjson.OrEmpty(rest))
	}
}

type namedText struct {
	name  string
	value *string
}

func partyFields(p *canonical.Party) []namedText {
	return []namedText{{"name", &p.Name}, {"version", &p.Version}}
}

func serverFields(d *canonical.Description) []namedText {
	return []namedText{
		{"name", &d.Name},
		{"title", &d.Title},
		{"version", &d.Version},
		{"description", &d.Description},
		{"websiteUrl", &d.DocumentationURL},
	}
}

func (e *encoder) description(d *canonical.Description) json.RawMessage {
	w := write(d.Extensions)
	e.losses = append(e.losses, foreign(d.Extensions, "/body")...)
	if !e.native {
		w.raw("capabilities", e.offers(w.own.Peek("capabilities"), d.Tasks))
	}
	e.descriptionVersions(w, d)
	e.resultKind(w, resultDone)
	w.text("instructions", d.Instructions)
	if e.modern {
		if left := w.metaLeft(metaServerInfo); left != nil || d.Name != "" || !e.native {
			w.metaRaw(metaServerInfo, e.party(w, metaServerInfo, left, serverFields(d), "", d.IconURL))
		}
	} else {
		if left := w.own.Peek("serverInfo"); left != nil || d.Name != "" || !e.native {
			w.raw("serverInfo", e.party(w, "serverInfo", left, serverFields(d), "", d.IconURL))
		}
	}
	e.caching(w)
	e.descriptionLosses(d)
	return w.bytes()
}

func (e *encoder) descriptionVersions(w *writer, d *canonical.Description) {
	list := Revisions()
	switch {
	case e.native:
		list = d.Versions
	case !e.modern:
		list = []string{e.version}
	}
	if e.modern {
		w.forget("protocolVersion")
		w.raw("supportedVersions", rawjson.ArrayOf(rawjson.List(list, func(v *string) json.RawMessage { return rawjson.Quote(*v) })))
	} else {
		w.forget("supportedVersions")
		if len(list) > 0 {
			w.need("protocolVersion", list[0])
		}
	}
	e.dropIf(len(d.Versions) > 0 && !slices.Equal(list, d.Versions), canonical.LossPeerInfo, "/body/versions")
}

// party writes an Implementation over what was left of one. nameless is what it is called
// if it does not say.
func (e *encoder) party(level *writer, name string, left json.RawMessage, fields []namedText, nameless, icon string) json.RawMessage {
	w := e.nested(left, levelParty)
	for _, f := range fields {
		w.text(f.name, *f.value)
	}
	for _, required := range [...][2]string{{"name", nameless}, {"version", ""}} {
		if !e.native && !w.own.Has(required[0]) && !slices.Contains(w.written, required[0]) {
			w.need(required[0], required[1])
		}
	}
	if icon != "" && !w.own.Has("icons") {
		w.raw("icons", rawjson.ArrayOf([]json.RawMessage{rawjson.NewBuilder().String("src", icon).Bytes()}))
	}
	out := level.fit(w, name)
	e.declare(w, canonical.LossPeerInfo, "/body", "/"+name, map[string]string{"websiteUrl": "documentationURL", "icons": "iconURL"})
	return out
}

// descriptionLosses declares the losses of a description. MCP lists tools by another request,
// and has no place for the rest.
func (e *encoder) descriptionLosses(d *canonical.Description) {
	e.dropIf(d.Provider != nil, canonical.LossPeerInfo, "/body/provider")
	e.dropIf(len(d.Interfaces) > 0, canonical.LossPeerInfo, "/body/interfaces")
	e.dropIf(len(d.InputModes) > 0, canonical.LossModes, "/body/inputModes")
	e.dropIf(len(d.OutputModes) > 0, canonical.LossModes, "/body/outputModes")
	e.dropIf(len(d.Capabilities) > 0, canonical.LossSchemas, "/body/capabilities")
}

func decodeList(m *canonical.Message, r *reader) error {
	list := &canonical.CapabilityList{Capabilities: []canonical.Capability{}}
	tools, ok := r.Array("tools")
	if !ok {
		r.Fail("tools", "required")
	}
	metas := r.hoisted(canonTools, m.Origin.Version, levelTool, tools)
	decodeTools(tools, metas, m.Origin.Version, list)
	takeText(r.Object, "nextCursor", &list.Next)
	list.Extensions = r.extensions()
	m.Body = list
	return r.err()
}

// The carried members of a tool.
const (
	canonTags         = "tags"
	canonExamples     = "examples"
	canonInputModes   = "inputModes"
	canonOutputModes  = "outputModes"
	canonOutputSchema = "outputSchema"
	canonInputSchema  = "inputSchema"
	canonID           = "id"
)

func decodeTool(raw json.RawMessage, at, version string, meta json.RawMessage) (canonical.Capability, error) {
	c := canonical.Capability{Profile: canonical.ProfileTyped}
	r, err := readIn(raw, at, version, levelTool, meta)
	if err != nil {
		return c, err
	}
	c.ID = r.Required("name")
	takeText(r.Object, "title", &c.Title)
	takeText(r.Object, "description", &c.Description)
	if c.InputSchema = r.RawObject("inputSchema"); c.InputSchema == nil {
		r.Fail("inputSchema", "required")
	}
	c.OutputSchema = r.RawObject("outputSchema")
	if c.InputSchema != nil && !isObjectSchema(c.InputSchema) {
		r.place("inputSchema")
	}
	if c.OutputSchema != nil && version != Modern && !isObjectSchema(c.OutputSchema) {
		r.place("outputSchema")
	}
	c.Annotations = r.RawObject("annotations")
	if rawjson.Equal(c.InputSchema, profile.MessageInputSchema()) {
		c.Profile = canonical.ProfileMessage
	}
	restoreTool(r.carried.Canon, &c)
	c.Extensions = r.extensions()
	return c, r.err()
}

type namedList struct {
	name   string
	values *[]string
}

func toolLists(c *canonical.Capability) []namedList {
	return []namedList{{canonTags, &c.Tags}, {canonInputModes, &c.InputModes}, {canonOutputModes, &c.OutputModes}}
}

func restoreTool(canon *rawjson.Object, c *canonical.Capability) {
	for _, l := range toolLists(c) {
		if values, ok := stringList(canon.Peek(l.name)); ok {
			canon.Take(l.name)
			*l.values = values
		}
	}
	examples, ok := stringList(canon.Peek(canonExamples))
	if plain, shown := strings.CutSuffix(c.Description, examplesText(examples)); ok && shown {
		canon.Take(canonExamples)
		c.Description, c.Examples = plain, examples
	}
	if raw := canon.Peek(canonOutputSchema); raw != nil && c.OutputSchema == nil && raw[0] == '{' && !isObjectSchema(raw) {
		c.OutputSchema = canon.Take(canonOutputSchema)
	}
	if raw := canon.Peek(canonInputSchema); raw != nil && raw[0] == '{' && !isObjectSchema(raw) && rawjson.Equal(c.InputSchema, anyObject()) {
		c.InputSchema = canon.Take(canonInputSchema)
	}
}

func stringList(raw json.RawMessage) ([]string, bool) {
	values, ok := rawjson.Texts(raw)
	return values, ok && len(values) > 0
}

// examplesText is what is appended to a description.
func examplesText(examples []string) string {
	if len(examples) == 0 {
		return ""
	}
	return "\n\nExamples:\n- " + strings.Join(examples, "\n- ")
}

func isObjectSchema(schema json.RawMessage) bool {
	return bytes.HasPrefix(schema, []byte("{")) && rawjson.Parse(schema, "").PeekText("type") == "object"
}

func anyObject() json.RawMessage { return json.RawMessage(`{"type":"object"}`) }

func (e *encoder) list(body *canonical.CapabilityList) json.RawMessage {
	w := write(body.Extensions)
	e.losses = append(e.losses, foreign(body.Extensions, "/body")...)
	names := make([]string, len(body.Capabilities))
	for i := range names {
		names[i] = body.Capabilities[i].ID
	}
	if !e.native {
		names = (*Translator)(nil).CapabilityNames(body.Capabilities)
	}
	tools, metas := make([]json.RawMessage, len(names)), make([]json.RawMessage, len(names))
	for i := range body.Capabilities {
		tools[i], metas[i] = e.tool(&body.Capabilities[i], names[i], "/body/capabilities/"+strconv.Itoa(i))
	}
	w.raw("tools", rawjson.ArrayOf(tools))
	w.hoist(canonTools, metas)
	w.text("nextCursor", body.Next)
	e.head(w, resultDone)
	e.caching(w)
	return w.bytes()
}

// tool writes one tool, and its _meta apart where a tool has no place for one.
func (e *encoder) tool(c *canonical.Capability, name, at string) (tool, meta json.RawMessage) {
	w := e.write(c.Extensions, levelTool)
	w.need("name", name)
	if name != c.ID {
		w.canon.String(canonID, c.ID)
		e.lose(canonical.LossIDs, canonical.Dropped, at+"/id")
	}
	w.text("title", c.Title)
	w.text("description", c.Description+examplesText(c.Examples))
	e.schemas(w, c, at)
	if c.Annotations != nil || !w.lacks("annotations") {
		w.raw("annotations", annotations(c))
	}
	for _, l := range toolLists(c) {
		if len(*l.values) > 0 {
			w.canon.Strings(l.name, *l.values, false)
			e.lose(canonical.LossModes, canonical.Carried, at+"/"+l.name)
		}
	}
	if len(c.Examples) > 0 {
		w.canon.Strings(canonExamples, c.Examples, false)
		e.lose(canonical.LossModes, canonical.Carried, at+"/examples")
	}
	e.losses = append(e.losses, foreign(c.Extensions, at)...)
	tool = w.bytes()
	e.declare(w, canonical.LossSchemas, at, "", nil)
	return tool, w.hoisted
}

// annotations returns the tool annotations of a skill. A skill only allows to say that
// the agent reaches an open world.
func annotations(c *canonical.Capability) json.RawMessage {
	if c.Annotations == nil && c.Profile == canonical.ProfileMessage && c.InputSchema == nil {
		return json.RawMessage(`{"openWorldHint":true}`)
	}
	return c.Annotations
}

func (e *encoder) schemas(w *writer, c *canonical.Capability, at string) {
	in, out := c.InputSchema, c.OutputSchema
	switch {
	case in == nil && c.Profile == canonical.ProfileTyped:
		in = anyObject()
	case in == nil:
		in = profile.MessageInputSchema()
		if out == nil && !w.lacks("outputSchema") {
			out = profile.MessageOutputSchema()
		}
	case !isObjectSchema(in) && !w.isPlaced("inputSchema"):
		w.canon.Raw(canonInputSchema, in)
		e.lose(canonical.LossSchemas, canonical.Carried, at+"/inputSchema")
		in = anyObject()
	}
	w.raw("inputSchema", in)
	if out != nil && !e.modern && !isObjectSchema(out) && !w.isPlaced("outputSchema") {
		w.canon.Raw(canonOutputSchema, out)
		e.lose(canonical.LossSchemas, canonical.Carried, at+"/outputSchema")
		out = nil
	}
	w.raw("outputSchema", out)
}
