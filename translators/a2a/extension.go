package a2a

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/profile"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// A card has one open slot: the params of an entry in capabilities.extensions.
// Ours holds, under skills, the schemas of each skill by its id, and what the
// card as a whole carries:
//
//	{"skills": {ID: {"inputSchema", "outputSchema", "annotations", "canon", BINDING…}},
//	 "canon": {"title", "instructions", "versions"}, BINDING…}
//
// The capabilities object stays a leftover as it came, and encoding lays the
// canonical values over it; so entries of others keep their order.

// The members of canon on a card and on a skill.
const (
	keyTitle        = "title"
	keyInstructions = "instructions"
	keyVersions     = "versions"
	keyProfile      = "profile"
)

var schemaFields = []struct {
	name string
	at   func(*canonical.Capability) *json.RawMessage
}{
	{"inputSchema", func(c *canonical.Capability) *json.RawMessage { return &c.InputSchema }},
	{"outputSchema", func(c *canonical.Capability) *json.RawMessage { return &c.OutputSchema }},
	{"annotations", func(c *canonical.Capability) *json.RawMessage { return &c.Annotations }},
}

// params is our entry's params, read.
type params struct {
	skills map[string]json.RawMessage
	canon  *rawjson.Object
	ext    canonical.Extensions
}

// params reads our entry and leaves the capabilities object as it is.
func (d *decoder) params(r *reader) params {
	p := params{canon: rawjson.Empty()}
	raw := r.value("capabilities")
	if raw == nil {
		return p
	}
	r.keep("capabilities", raw)
	if !rawjson.IsObject(raw) {
		r.fail("capabilities", "not an object")
		return p
	}
	found := rawjson.Parse(ourParams(raw), "")
	if found.Err() != nil {
		return p
	}
	if skills := found.Take("skills"); rawjson.IsObject(skills) {
		p.skills = map[string]json.RawMessage{}
		for _, m := range rawjson.Parse(skills, "").Members() {
			p.skills[m.Name] = m.Value
		}
	}
	p.canon = rawjson.Open(found.Take(profile.CanonKey))
	p.ext = foreign(found)
	return p
}

// ourParams finds the params of our entry; "null": none.
func ourParams(capabilities json.RawMessage) json.RawMessage {
	elements, _ := rawjson.Elements(rawjson.Parse(capabilities, "").Peek("extensions"))
	for _, element := range elements {
		if isOurs(element) {
			if raw := rawjson.Parse(element, "").Peek("params"); raw != nil {
				return raw
			}
		}
	}
	return json.RawMessage("null")
}

func isOurs(entry json.RawMessage) bool {
	return rawjson.Open(entry).PeekText("uri") == profile.ExtensionURI
}

// foreign are the members that are the objects of other bindings.
func foreign(o *rawjson.Object) canonical.Extensions {
	var ext canonical.Extensions
	for _, m := range o.Members() {
		if !rawjson.IsObject(m.Value) || m.Name == string(Binding) || m.Name == profile.CanonKey {
			continue
		}
		ext = ext.With(canonical.Binding(m.Name), m.Value)
	}
	return ext
}

// skill gives a capability what params say of it: one with an input schema is typed.
func (p params) skill(c *canonical.Capability) {
	raw := p.skills[c.ID]
	if !rawjson.IsObject(raw) {
		return
	}
	o := rawjson.Parse(raw, "")
	for _, f := range schemaFields {
		if value := o.Take(f.name); isSchema(value) {
			*f.at(c) = value
		}
	}
	if c.InputSchema != nil {
		c.Profile = canonical.ProfileTyped
	}
	if name := rawjson.Open(o.Take(profile.CanonKey)).PeekText(keyProfile); isProfile(name) {
		c.Profile = canonical.Profile(name)
	}
	for binding, value := range foreign(o) {
		c.Extensions = c.Extensions.With(binding, value)
	}
}

func isProfile(text string) bool {
	p := canonical.Profile(text)
	return p == canonical.ProfileMessage || p == canonical.ProfileTyped || p.Content()
}

func (p params) card(c *canonical.Description) {
	c.Title = p.canon.PeekText(keyTitle)
	c.Instructions = p.canon.PeekText(keyInstructions)
	if versions, ok := rawjson.Texts(p.canon.Peek(keyVersions)); ok {
		c.Versions = versions
	}
}

// How a card says that there is an extended one: among its capabilities in 1.0,
// by a member of its own in 0.3.
const (
	flagExtended   = "extendedAgentCard"
	flagExtended03 = "supportsAuthenticatedExtendedCard"
)

// flagsOf are the capabilities of an agent that are flags.
func flagsOf(c *canonical.Description) []named[bool] {
	return []named[bool]{{"streaming", &c.Streams}, {"pushNotifications", &c.Pushes}, {flagExtended, &c.Extended}}
}

// flags reads them.
func (d *decoder) flags(r *reader, c *canonical.Description) {
	if raw := r.Peek("capabilities"); rawjson.IsObject(raw) {
		for _, f := range flagsOf(c) {
			*f.at = string(rawjson.Parse(raw, "").Peek(f.name)) == "true"
		}
	}
	c.Extended = c.Extended || string(r.Peek(flagExtended03)) == "true"
}

// flagged lays flags over the capabilities that there were. What says false
// already, or says nothing, stays as it is.
func flagged(left json.RawMessage, c *canonical.Description) json.RawMessage {
	o := rawjson.Parse(left, "")
	b := rawjson.NewBuilder()
	for _, f := range flagsOf(c) {
		if was := string(o.Peek(f.name)) == "true"; was != *f.at {
			o.Take(f.name)
			b.Bool(f.name, *f.at)
		}
	}
	return b.Rest(o).Bytes()
}

// cardCapabilities lays our entry over the capabilities that the card had.
func (e *encoder) cardCapabilities(c *canonical.Description, left json.RawMessage) json.RawMessage {
	left = flagged(rawjson.ObjectOr(left), c)
	o := rawjson.Parse(left, "")
	before := o.Peek("extensions")
	elements, _ := rawjson.Elements(before)
	entries, done := make([]json.RawMessage, 0, len(elements)+1), false
	for _, element := range elements {
		if !done && isOurs(element) {
			element, done = overEntry(element, c), true
		}
		entries = append(entries, element)
	}
	if !done {
		if ours := overParams(nil, c); ours != nil {
			entries = append(entries, rawjson.NewBuilder().String("uri", profile.ExtensionURI).
				String("description", extensionAbout).Raw("params", ours).Bytes())
		}
	}
	if len(entries) == 0 {
		return left
	}
	o.Take("extensions")
	return rawjson.NewBuilder().Rest(o).Array("extensions", entries).Bytes()
}

func overEntry(entry json.RawMessage, c *canonical.Description) json.RawMessage {
	o := rawjson.Parse(entry, "")
	return rawjson.NewBuilder().Merge(without(o, "params")).Raw("params", overParams(o.Peek("params"), c)).Bytes()
}

// ofSkills leaves out of our entry among declared extensions what is there of other skills: those that are not offered
// to who reads the card, and own names of those that are shown under others.
func ofSkills(extensions json.RawMessage, skills []canonical.Capability) json.RawMessage {
	elements, ok := rawjson.Elements(extensions)
	if !ok || !slices.ContainsFunc(elements, isOurs) {
		return extensions
	}
	shown := make(map[string]bool, len(skills))
	for i := range skills {
		shown[skills[i].ID] = true
	}
	for i, element := range elements {
		if !isOurs(element) {
			continue
		}
		entry := rawjson.Parse(element, "")
		params := rawjson.Open(entry.Peek("params"))
		left := rawjson.NewBuilder()
		for _, m := range rawjson.Open(params.Peek("skills")).Members() {
			if shown[m.Name] {
				left.Raw(m.Name, m.Value)
			}
		}
		rest := rawjson.NewBuilder().Merge(without(params, "skills")).Raw("skills", left.Object()).Object()
		elements[i] = rawjson.NewBuilder().Merge(without(entry, "params")).Raw("params", rest).Bytes()
	}
	return rawjson.ArrayOf(elements)
}

// without is an object less one member; nil: empty.
func without(o *rawjson.Object, name string) json.RawMessage {
	b := rawjson.NewBuilder()
	for _, m := range o.Members() {
		if m.Name != name {
			b.Raw(m.Name, m.Value)
		}
	}
	return b.Object()
}

// overParams lays what the description says over the params that were there;
// nil: there is nothing to say and there was nothing.
func overParams(left json.RawMessage, c *canonical.Description) json.RawMessage {
	l := over(left)
	l.put("skills", overSkills(l.o.Peek("skills"), c), rawjson.IsObject)
	l.put(profile.CanonKey, overCanon(l.o.Peek(profile.CanonKey), c), rawjson.IsObject)
	l.extensions(c.Extensions)
	return l.value(left)
}

func overCanon(left json.RawMessage, c *canonical.Description) json.RawMessage {
	l := over(left)
	l.put(keyTitle, rawjson.QuoteSet(c.Title), isText)
	l.put(keyInstructions, rawjson.QuoteSet(c.Instructions), isText)
	was := l.o.Peek(keyVersions)
	list, ok := rawjson.Texts(was)
	switch {
	case ok && slices.Equal(list, c.Versions):
		l.put(keyVersions, was, isTexts)
	case slices.Equal(c.Versions, versionsOf(c.Interfaces)):
		l.put(keyVersions, nil, isTexts)
	default:
		l.put(keyVersions, rawjson.ArrayOf(rawjson.List(c.Versions, func(v *string) json.RawMessage { return rawjson.Quote(*v) })), isTexts)
	}
	return l.value(left)
}

func overSkills(left json.RawMessage, c *canonical.Description) json.RawMessage {
	l := over(left)
	for i := range c.Capabilities {
		capability := &c.Capabilities[i]
		was := l.o.Peek(capability.ID)
		s := over(was)
		for _, f := range schemaFields {
			s.put(f.name, *f.at(capability), isSchema)
		}
		s.put(profile.CanonKey, overProfile(s.o.Peek(profile.CanonKey), capability), rawjson.IsObject)
		s.extensions(capability.Extensions)
		l.put(capability.ID, s.value(was), rawjson.IsObject)
	}
	return l.value(left)
}

// overProfile says the profile where the schema does not.
func overProfile(left json.RawMessage, c *canonical.Capability) json.RawMessage {
	implied := canonical.ProfileMessage
	if c.InputSchema != nil {
		implied = canonical.ProfileTyped
	}
	l := over(left)
	if encoded := l.o.Peek(keyProfile); c.Profile != "" && c.Profile != implied {
		l.put(keyProfile, rawjson.Quote(string(c.Profile)), isText)
	} else if text, _ := rawjson.Unquote(encoded); text != string(c.Profile) && isProfile(text) {
		l.put(keyProfile, nil, isText)
	}
	return l.value(left)
}

// layer lays members over an object that was there.
type layer struct {
	o    *rawjson.Object
	b    *rawjson.Builder
	puts []string
}

func over(left json.RawMessage) *layer {
	return &layer{o: rawjson.Open(left), b: rawjson.NewBuilder()}
}

// put sets a member. Without a value, what stood there goes if reads says that
// a value could have been read from it, and stays if it never meant anything.
func (l *layer) put(name string, value json.RawMessage, reads func(json.RawMessage) bool) {
	l.puts = append(l.puts, name)
	if was := l.o.Peek(name); value == nil && !reads(was) {
		value = was
	}
	l.b.Raw(name, value)
}

// isSchema reports whether raw is an object, or a boolean, which is a schema too.
func isSchema(raw json.RawMessage) bool {
	return rawjson.IsObject(raw) || string(raw) == "true" || string(raw) == "false"
}

func isText(raw json.RawMessage) bool {
	text, ok := rawjson.Unquote(raw)
	return ok && text != ""
}

func isTexts(raw json.RawMessage) bool {
	_, ok := rawjson.Texts(raw)
	return ok
}

func (l *layer) extensions(ext canonical.Extensions) {
	for _, binding := range slices.Sorted(maps.Keys(ext)) {
		if binding != Binding && binding != profile.CanonKey {
			l.put(string(binding), ext[binding], rawjson.IsObject)
		}
	}
}

func (l *layer) bytes() json.RawMessage {
	for _, m := range l.o.Members() {
		if !slices.Contains(l.puts, m.Name) {
			l.b.Raw(m.Name, m.Value)
		}
	}
	return l.b.Bytes()
}

// value is the layered object; was, when there is nothing in it.
func (l *layer) value(was json.RawMessage) json.RawMessage {
	out := l.bytes()
	if string(out) == "{}" {
		return was
	}
	return out
}
