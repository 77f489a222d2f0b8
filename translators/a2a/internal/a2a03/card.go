package a2a03

import (
	"cmp"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// PlainVersion is what a card of 0.3 says that it is, and what one is that does not.
const PlainVersion = "0.3.0"

// The transports by the names that cards give them; a card that names none has
// the first.
const (
	jsonRPC  = "JSONRPC"
	httpJSON = "HTTP+JSON"
)

// IsCard reports whether a card is one of 0.3 alone: it says where the agent
// is, and not in the words of 1.0.
func IsCard(card json.RawMessage) bool {
	o := rawjson.Parse(card, "")
	return !o.Has("supportedInterfaces") && (o.Has("url") || o.Has("protocolVersion"))
}

// Speaks reports whether a protocol version, as cards name it, is 0.3.
func Speaks(version string) bool { return version == "0.3" || strings.HasPrefix(version, "0.3.") }

// RaiseCard adds to a card of 0.3 the list of interfaces that 1.0 reads. All
// else stays: what 0.3 said is then an unknown member of the card.
func RaiseCard(card json.RawMessage) (json.RawMessage, error) {
	o := rawjson.Parse(card, "")
	list, err := interfaces(o)
	if err != nil {
		return nil, err
	}
	return rawjson.NewBuilder().Merge(card).Array("supportedInterfaces", list).Bytes(), nil
}

// interfaces are those that url, preferredTransport and additionalInterfaces name.
func interfaces(o *rawjson.Object) ([]json.RawMessage, error) {
	textOr := func(name, otherwise string) string {
		raw := o.Peek(name)
		text, ok := rawjson.Unquote(raw)
		if raw != nil && !ok && !isNull(raw) {
			o.Fail(name, "not a string")
		}
		return cmp.Or(text, otherwise)
	}
	version := textOr("protocolVersion", PlainVersion)
	if !Speaks(version) {
		o.Fail("protocolVersion", "not 0.3")
	}
	first := address(textOr("url", ""), textOr("preferredTransport", jsonRPC), version)
	list := []json.RawMessage{first}
	elements, ok := rawjson.Elements(orArray(o.Peek("additionalInterfaces")))
	if !ok {
		o.Fail("additionalInterfaces", "not an array")
	}
	for i, element := range elements {
		a := rawjson.Parse(element, "/additionalInterfaces/"+strconv.Itoa(i))
		other := address(a.Required("url"), a.Required("transport"), version)
		if a.Err() != nil {
			return nil, a.Err()
		}
		if string(other) != string(first) {
			list = append(list, other)
		}
	}
	return list, o.Err()
}

func orArray(raw json.RawMessage) json.RawMessage {
	if raw == nil || isNull(raw) {
		return json.RawMessage("[]")
	}
	return raw
}

func address(url, transport, version string) json.RawMessage {
	return rawjson.NewBuilder().String("url", url).String("protocolBinding", transport).
		String("protocolVersion", version).Bytes()
}

// LowerCard writes a card of 1.0, as the codec writes it, as one of 0.3. A card
// that was raised gets back what it said; another one loses the interfaces of
// other versions, its signatures and what it demands of its callers, which 0.3
// says in other words. The error is a *canonical.Error: no interface of 0.3.
func LowerCard(card json.RawMessage) (json.RawMessage, []canonical.Loss, error) {
	o := rawjson.Parse(card, "")
	supported := o.Take("supportedInterfaces")
	if rest := o.Rest(); IsCard(rest) {
		// What cannot be read fails a copy: o is still to be written.
		if list, err := interfaces(rawjson.Parse(rest, "")); err == nil && rawjson.Equal(rawjson.ArrayOf(list), supported) {
			return rest, nil, nil
		}
	}
	for _, name := range cardOld {
		o.Take(name)
	}
	l := &lowerer{}
	b := rawjson.NewBuilder()
	if !l.interfaces(b, supported) {
		return nil, nil, &canonical.Error{Code: canonical.CodeCardUnavailable, Message: "the agent names no interface of A2A 0.3"}
	}
	rest, losses := Unsecured(o.Rest())
	rest, extended := withoutExtended(rest)
	if b.Merge(rest); extended {
		b.Bool("supportsAuthenticatedExtendedCard", true)
	}
	return b.Bytes(), append(l.losses, losses...), nil
}

// withoutExtended takes the flag for the extended card off the capabilities of 1.0:
// 0.3 has a member of the card for it.
func withoutExtended(card json.RawMessage) (json.RawMessage, bool) {
	o := rawjson.Parse(card, "")
	capabilities := o.Peek("capabilities")
	if len(capabilities) == 0 || capabilities[0] != '{' {
		return card, false
	}
	flags := rawjson.Parse(capabilities, "")
	if string(flags.Take("extendedAgentCard")) != "true" {
		return card, false
	}
	b := rawjson.NewBuilder()
	for _, m := range o.Members() {
		if m.Name == "capabilities" {
			m.Value = rawjson.NewBuilder().Rest(flags).Bytes()
		}
		b.Raw(m.Name, m.Value)
	}
	return b.Bytes(), true
}

// PlaceInterfaces is where lost interfaces are declared.
const PlaceInterfaces = "/body/interfaces"

// cardOld are the members that say in 0.3 where the agent is.
var cardOld = []string{"url", "preferredTransport", "additionalInterfaces", "protocolVersion"}

// interfaces writes those of 0.3; false: there is none.
func (l *lowerer) interfaces(b *rawjson.Builder, supported json.RawMessage) bool {
	elements, _ := rawjson.Elements(supported)
	var others []json.RawMessage
	found, gone := false, false
	for i, element := range elements {
		members := rawjson.Parse(element, "")
		text := func(name string) string { value := members.PeekText(name); return value }
		url, transport := text("url"), text("protocolBinding")
		switch {
		case !Speaks(text("protocolVersion")):
			gone = true
			continue
		case members.Has("tenant"):
			l.drop(canonical.LossIDs, "/body/interfaces/"+strconv.Itoa(i)+"/tenant")
		}
		if found {
			others = append(others, rawjson.NewBuilder().String("transport", transport).String("url", url).Bytes())
			continue
		}
		found = true
		b.String("protocolVersion", PlainVersion).String("url", url).String("preferredTransport", transport)
	}
	if len(others) > 0 {
		b.Array("additionalInterfaces", others)
	}
	l.dropIf(gone, canonical.LossPeerInfo, PlaceInterfaces)
	return found
}

// Unsecured is a card without what each version says in other words: how
// callers prove who they are, and signatures over the card.
func Unsecured(card json.RawMessage) (json.RawMessage, []canonical.Loss) {
	l := &lowerer{}
	const place = "/body/extensions/a2a-v1/"
	o := rawjson.Parse(card, "")
	b := rawjson.NewBuilder()
	for _, m := range o.Members() {
		switch m.Name {
		case "securitySchemes", "securityRequirements", "security", "supportsAuthenticatedExtendedCard":
			l.drop(canonical.LossModes, place+m.Name)
		case "signatures":
			l.drop(canonical.LossSignature, place+m.Name)
		case "skills":
			b.Raw(m.Name, mapped(m.Value, "/body/capabilities", l.skill))
		default:
			b.Raw(m.Name, m.Value)
		}
	}
	return b.Bytes(), l.losses
}

func (l *lowerer) skill(raw json.RawMessage, path string) json.RawMessage {
	o := rawjson.Parse(raw, "")
	b := rawjson.NewBuilder()
	for _, m := range o.Members() {
		if m.Name == "securityRequirements" || m.Name == "security" {
			l.drop(canonical.LossModes, path+"/extensions/a2a-v1/"+m.Name)
			continue
		}
		b.Raw(m.Name, m.Value)
	}
	return b.Bytes()
}

// Union are the members by which a card of 1.0 is one of 0.3 as well: the
// agent is reached at url, over JSON-RPC and over HTTP alone. extended: it has an
// extended card.
func Union(url string, extended bool) json.RawMessage {
	other := rawjson.NewBuilder().String("transport", httpJSON).String("url", url).Bytes()
	b := rawjson.NewBuilder().String("url", url).String("preferredTransport", jsonRPC).
		Array("additionalInterfaces", []json.RawMessage{other}).String("protocolVersion", PlainVersion)
	if extended {
		b.Bool("supportsAuthenticatedExtendedCard", true)
	}
	return b.Bytes()
}
