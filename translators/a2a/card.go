package a2a

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a/internal/a2a03"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/profile"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// keySigned is the leftover that tells whether a card is still the one that
// was signed: a hash of how it is written without its signatures.
const keySigned = profile.ExtensionURI + "#signed"

// keyImplied is the leftover of the capability that stands for an agent whose card
// lists no skills. It is on no card that is written.
const keyImplied = profile.ExtensionURI + "#implied"

// maxSkills bounds the skills of a card, as the tools of an MCP server are bounded: what
// is learned of an agent is kept, compared and listed to each of its callers.
const maxSkills = 10_000

// What a description without these gets on a card, where they are required.
const (
	plainVersion = "0"
	plainTag     = "agent"
	mcpTag       = "mcp"
)

// extensionAbout describes our entry in a card's list of extensions.
const extensionAbout = "Input and output schemas of skills, for typed invocation."

func (t *Translator) decodeCard(w translators.Wire) (*canonical.Message, error) {
	if err := rawjson.Check(w.Body, t.cfg.BodyLimit, t.cfg.Depth); err != nil {
		return nil, err
	}
	m := arrived(w)
	m.Op, m.Phase = canonical.OpDescribe, canonical.PhaseResponse
	card := json.RawMessage(w.Body)
	if a2a03.IsCard(card) {
		raised, err := a2a03.RaiseCard(card)
		if err != nil {
			return m, err
		}
		card, m.Origin.Version = raised, Version03
	}
	d := &decoder{}
	description, err := d.card(card)
	if err != nil {
		return m, err
	}
	m.Body, m.Losses = description, d.losses
	return m, nil
}

func (d *decoder) card(body []byte) (*canonical.Description, error) {
	r := d.open(body, "", cardMembers)
	c := &canonical.Description{
		Name: r.text("name"), Version: r.text("version"), Description: r.text("description"),
		DocumentationURL: r.text("documentationUrl"), IconURL: r.text("iconUrl"),
		InputModes: r.texts("defaultInputModes"), OutputModes: r.texts("defaultOutputModes"),
	}
	if c.Name == "" {
		r.fail("name", "required")
	}
	c.Provider = d.provider(r)
	c.Interfaces = d.interfaces(r)
	c.Versions = versionsOf(c.Interfaces)
	skills := r.list("skills")
	if len(skills) > maxSkills {
		r.fail("skills", "more than "+strconv.Itoa(maxSkills)+" entries")
		skills = nil
	}
	ids := make(map[string]bool, len(skills))
	for i, element := range skills {
		c.Capabilities = append(c.Capabilities, d.capability(element, at("/skills", i), ids))
	}
	d.flags(r, c)
	params := d.params(r)
	for i := range c.Capabilities {
		params.skill(&c.Capabilities[i])
	}
	params.card(c)
	if len(c.Capabilities) == 0 {
		c.Capabilities = []canonical.Capability{impliedSkill(c)}
	}
	signatures := r.Take("signatures")
	c.Extensions = result(params.ext, r.leftover())
	if d.err != nil {
		return nil, d.err
	}
	sign(c, signatures)
	return c, nil
}

// impliedSkill is what protocols of calls see of an agent whose card has an empty
// list of skills (A2A 4.4.1 demands the list and no entry in it): it takes
// messages (profile P1), so it is one tool that takes a message.
func impliedSkill(c *canonical.Description) canonical.Capability {
	return canonical.Capability{
		ID: "message", Title: c.Name, Description: c.Description, Profile: canonical.ProfileMessage,
		Extensions: canonical.Extensions{Binding: rawjson.NewBuilder().Bool(keyImplied, true).Bytes()},
	}
}

func implied(c *canonical.Capability) bool {
	own := c.Extensions[Binding]
	return own != nil && rawjson.Parse(own, "").Has(keyImplied)
}

// sign keeps signatures with the hash of what they were made for.
func sign(c *canonical.Description, signatures json.RawMessage) {
	if signatures == nil {
		return
	}
	left := rawjson.NewBuilder().Merge(c.Extensions[Binding]).Raw("signatures", signatures)
	if hash := signedHash(c); hash != "" {
		left.String(keySigned, hash)
	}
	c.Extensions = result(c.Extensions, left.Bytes())
}

func signedHash(c *canonical.Description) string {
	card, err := (&encoder{m: &canonical.Message{}, home: true}).unsigned(c)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(card)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

func (d *decoder) provider(r *reader) *canonical.Provider {
	raw := r.value("provider")
	if raw == nil {
		return nil
	}
	o := d.open(raw, "/provider", providerMembers)
	p := &canonical.Provider{Organization: o.text("organization"), URL: o.text("url")}
	if rest := o.leftover(); rest != nil {
		r.keep("provider", rest)
	}
	return p
}

// interfaces reads the interfaces of an agent. The canonical form has no place for
// unknown members, so a list that has any is also kept as it came.
func (d *decoder) interfaces(r *reader) []canonical.Interface {
	raw := r.value("supportedInterfaces")
	if raw == nil {
		return nil
	}
	elements, ok := rawjson.Elements(raw)
	if !ok {
		r.fail("supportedInterfaces", "not an array")
	}
	var list []canonical.Interface
	for i, element := range elements {
		o := d.open(element, at("/supportedInterfaces", i), interfaceMembers)
		list = append(list, canonical.Interface{
			URL: o.text("url"), Transport: o.text("protocolBinding"),
			Version: o.text("protocolVersion"), Tenant: o.text("tenant"),
		})
	}
	if !rawjson.Equal(rawjson.ArrayOf(writeInterfaces(list)), raw) {
		r.keep("supportedInterfaces", raw)
	}
	return list
}

func writeInterfaces(list []canonical.Interface) []json.RawMessage {
	out := make([]json.RawMessage, len(list))
	for i, f := range list {
		out[i] = rawjson.NewBuilder().Optional("url", f.URL).Optional("protocolBinding", f.Transport).
			Optional("tenant", f.Tenant).Optional("protocolVersion", f.Version).Bytes()
	}
	return out
}

func versionsOf(list []canonical.Interface) []string {
	var versions []string
	for _, f := range list {
		if v := Spoken(f.Version); v != "" && !slices.Contains(versions, v) {
			versions = append(versions, v)
		}
	}
	return versions
}

func (d *decoder) capability(raw json.RawMessage, path string, ids map[string]bool) canonical.Capability {
	r := d.open(raw, path, skillMembers)
	c := canonical.Capability{
		ID: r.text("id"), Title: r.text("name"), Description: r.text("description"), Profile: canonical.ProfileMessage,
		Tags: r.texts("tags"), Examples: r.texts("examples"),
		InputModes: r.texts("inputModes"), OutputModes: r.texts("outputModes"),
	}
	if c.ID == "" || ids[c.ID] {
		r.fail("id", "required, and once only")
	}
	ids[c.ID] = true
	c.Extensions = result(nil, r.leftover())
	return c
}

func (e *encoder) card(c *canonical.Description) (json.RawMessage, error) {
	card, err := e.unsigned(c)
	if err != nil {
		return nil, err
	}
	e.declareCard(c)
	left := rawjson.Parse(rawjson.OrEmpty(c.Extensions[Binding]), "")
	signatures := left.Take("signatures")
	if signatures == nil {
		return card, nil
	}
	if hash, _ := rawjson.Unquote(left.Take(keySigned)); hash == "" || hash != signedHash(c) {
		e.drop(canonical.LossSignature, "/body/extensions/"+string(Binding)+"/signatures")
		return card, nil
	}
	return rawjson.NewBuilder().Merge(card).Raw("signatures", signatures).Bytes(), nil
}

// unsigned writes a card but for its signatures. Members that A2A requires and
// the description lacks are filled in.
func (e *encoder) unsigned(c *canonical.Description) (json.RawMessage, error) {
	if len(c.Capabilities) == 0 || len(c.Interfaces) == 0 || c.Name == "" {
		return nil, &canonical.Error{Code: canonical.CodeCardUnavailable, Message: "a card needs a name, a place to reach the agent, and a skill"}
	}
	left := rawjson.Parse(rawjson.OrEmpty(c.Extensions[Binding]), "")
	left.Take(keySigned)
	w := newWriter(left.Rest(), cardMembers)
	w.text("name", c.Name)
	w.required("description", cmp.Or(c.Description, c.Instructions, c.Name))
	w.b.Raw("supportedInterfaces", e.interfaces(c.Interfaces, w.form("supportedInterfaces")))
	w.b.Raw("provider", provider(c.Provider, w.form("provider")))
	w.required("version", cmp.Or(c.Version, plainVersion))
	w.text("documentationUrl", c.DocumentationURL)
	copied, flags := *c, w.form("capabilities")
	if string(left.Peek(flagExtended03)) == "true" { // so it need not be said among the capabilities
		copied.Extended = rawjson.IsObject(flags) && string(rawjson.Parse(flags, "").Peek(flagExtended)) == "true"
	}
	w.b.Raw("capabilities", e.cardCapabilities(&copied, flags))
	for _, name := range []string{"securitySchemes", "securityRequirements"} {
		w.b.Raw(name, w.form(name))
	}
	w.modes("defaultInputModes", c.InputModes)
	w.modes("defaultOutputModes", c.OutputModes)
	var skills []json.RawMessage
	for i := range c.Capabilities {
		if !implied(&c.Capabilities[i]) {
			skills = append(skills, e.capability(&c.Capabilities[i]))
		}
	}
	if len(skills) == 0 && !e.home {
		w.form("skills")
		w.b.Array("skills", nil)
	} else {
		w.list("skills", skills)
	}
	w.text("iconUrl", c.IconURL)
	return w.bytes(), nil
}

// required writes a text that a card must have; the form "" of a card that had
// it empty stands before what was filled in.
func (w *writer) required(name, value string) {
	if form := w.form(name); string(form) == `""` {
		w.b.Raw(name, form)
		return
	}
	w.b.String(name, value)
}

func (w *writer) modes(name string, modes []string) {
	if i := slices.IndexFunc(w.rest, func(m rawjson.Member) bool { return m.Name == name }); len(modes) == 0 && i < 0 {
		modes = []string{"text/plain", "application/json"}
	}
	w.texts(name, modes)
}

func (e *encoder) interfaces(list []canonical.Interface, form json.RawMessage) json.RawMessage {
	if form != nil {
		d := &decoder{}
		r := d.open(rawjson.NewBuilder().Raw("supportedInterfaces", form).Bytes(), "", cardMembers)
		if values := d.interfaces(r); d.err == nil && slices.Equal(values, list) {
			return form
		}
	}
	return rawjson.ArrayOf(writeInterfaces(list))
}

func provider(p *canonical.Provider, form json.RawMessage) json.RawMessage {
	if p == nil {
		if string(form) == "null" {
			return form
		}
		return nil
	}
	w := newWriter(objectOrNil(form), providerMembers)
	w.text("organization", p.Organization)
	w.text("url", p.URL)
	return w.bytes()
}

func (e *encoder) capability(c *canonical.Capability) json.RawMessage {
	w := newWriter(c.Extensions[Binding], skillMembers)
	w.text("id", c.ID)
	w.required("name", cmp.Or(c.Title, c.ID))
	w.required("description", cmp.Or(c.Description, c.Title, c.ID))
	tags := c.Tags
	if i := slices.IndexFunc(w.rest, func(m rawjson.Member) bool { return m.Name == "tags" }); len(tags) == 0 && i < 0 {
		tags = e.tags(c)
	}
	w.texts("tags", tags)
	w.texts("examples", c.Examples)
	w.texts("inputModes", c.InputModes)
	w.texts("outputModes", c.OutputModes)
	w.b.Raw("securityRequirements", w.form("securityRequirements"))
	return w.bytes()
}

// hints are the MCP tool annotations that say something to a reader of tags.
var hints = []struct{ name, tag string }{
	{"readOnlyHint", "read-only"},
	{"destructiveHint", "destructive"},
	{"idempotentHint", "idempotent"},
	{"openWorldHint", "open-world"},
}

// tags gives a skill that has none the tags that a card must show.
func (e *encoder) tags(c *canonical.Capability) []string {
	tag := plainTag
	if e.m.Origin.Binding == profile.MCP || c.Extensions[profile.MCP] != nil || c.InputSchema != nil {
		tag = mcpTag
	}
	tags := []string{tag}
	if len(c.Annotations) > 0 && c.Annotations[0] == '{' {
		o := rawjson.Parse(c.Annotations, "")
		for _, hint := range hints {
			if string(o.Peek(hint.name)) == "true" {
				tags = append(tags, hint.tag)
			}
		}
	}
	return tags
}

// declareCard says what a reader of the card proper does not see.
func (e *encoder) declareCard(c *canonical.Description) {
	e.loseIf(c.Title != "", canonical.LossPeerInfo, "/body/title")
	e.loseIf(c.Instructions != "", canonical.LossPeerInfo, "/body/instructions")
	e.loseIf(!slices.Equal(c.Versions, versionsOf(c.Interfaces)), canonical.LossPeerInfo, "/body/versions")
	e.add(profile.ForeignLosses(c.Extensions, Binding, "/body"))
	for i := range c.Capabilities {
		capability := &c.Capabilities[i]
		path := "/body/capabilities/" + strconv.Itoa(i)
		for _, f := range schemaFields {
			if *f.at(capability) != nil {
				e.lose(canonical.LossSchemas, path+"/"+f.name)
			}
		}
		e.add(profile.ForeignLosses(capability.Extensions, Binding, path))
	}
	e.declareEnvelope()
}

// declareEnvelope declares the losses of the envelope, for which a card has no place.
func (e *encoder) declareEnvelope() {
	e.dropIf(e.m.Correlation.WireID != nil, canonical.LossIDs, "/correlation/wireID")
	e.dropIf(len(e.m.Extensions) > 0, canonical.LossExtension, "/extensions")
	e.dropIf(e.m.From.Name != "", canonical.LossPeerInfo, "/from/name")
	e.dropIf(e.m.From.Version != "", canonical.LossPeerInfo, "/from/version")
}

// Served is a description as a gateway serves it at url: reached there and
// nowhere else, without the agent's own security, transports and signatures,
// and without members whose meaning here is unknown. Extensions that the agent
// declares stay, because its callers must know them.
//
// union: its card is the union of both versions (R9), so that a client of 0.3
// finds the members that it looks for beside those of 1.0.
func Served(d *canonical.Description, url string, union bool) *canonical.Description {
	out := *d
	out.Interfaces = []canonical.Interface{
		{URL: url, Transport: TransportJSONRPC, Version: Version},
		{URL: url, Transport: FormHTTP, Version: Version},
		{URL: url, Transport: TransportJSONRPC, Version: Version03},
		{URL: url, Transport: FormHTTP, Version: Version03},
	}
	out.Versions = []string{Version, Version03}
	out.Streams, out.Pushes = true, true // whatever the agent can, its endpoints can
	var members json.RawMessage
	if union {
		members = a2a03.Union(url, d.Extended)
	}
	out.Extensions = servedExtensions(d, members)
	out.Capabilities = slices.Clone(d.Capabilities)
	for i := range out.Capabilities {
		c := &out.Capabilities[i]
		if own := c.Extensions[Binding]; own != nil {
			left := without(rawjson.Parse(own, ""), "securityRequirements")
			c.Extensions = replaced(c.Extensions, without(rawjson.Parse(rawjson.OrEmpty(left), ""), "security"))
		}
	}
	return &out
}

// TransportJSONRPC is the name of the JSON-RPC binding on a card.
const TransportJSONRPC = "JSONRPC"

// servedExtensions keeps of the card's own leftovers the declared extensions,
// and adds the members of 0.3.
func servedExtensions(d *canonical.Description, union json.RawMessage) canonical.Extensions {
	b := rawjson.NewBuilder().Merge(union)
	remaining := rawjson.NewBuilder()
	if d.Extended { // in the words of 1.0 too, beside a union
		remaining.Bool(flagExtended, true)
	}
	if capabilities := rawjson.Parse(rawjson.OrEmpty(d.Extensions[Binding]), "").Take("capabilities"); rawjson.IsObject(capabilities) {
		remaining.Raw("extensions", ofSkills(rawjson.Parse(capabilities, "").Take("extensions"), d.Capabilities))
	}
	b.Raw("capabilities", remaining.Object())
	return replaced(d.Extensions, b.Bytes())
}

// replaced is a copy of ext with another object of our own; nil: none.
func replaced(ext canonical.Extensions, own json.RawMessage) canonical.Extensions {
	out := maps.Clone(ext)
	delete(out, Binding)
	return result(out, own)
}
