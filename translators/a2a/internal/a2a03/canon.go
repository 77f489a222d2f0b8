package a2a03

import (
	"encoding/json"

	"github.com/aepb/aepb-gateway/translators/internal/profile"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// pack writes members into the canon of metadata. ok is false if a value of another
// origin has that name.
func pack(metadata json.RawMessage, members []rawjson.Member) (out json.RawMessage, ok bool) {
	if len(members) == 0 {
		return metadata, true
	}
	m := rawjson.Open(metadata)
	ext, mine := within(m, profile.ExtensionURI)
	canon, free := within(ext, profile.CanonKey)
	if !mine || !free {
		return metadata, false
	}
	for _, member := range members {
		if canon.Has(member.Name) {
			return metadata, false
		}
		canon.Put(member.Name, member.Value)
	}
	ext.Put(profile.CanonKey, canon.Rest())
	m.Put(profile.ExtensionURI, ext.Rest())
	return m.Rest(), true
}

// unpack takes those of the names out of the canon of metadata whose value pack
// could have written: a string, or null. Levels that become empty go.
func unpack(metadata json.RawMessage, names ...string) (json.RawMessage, []rawjson.Member) {
	if !rawjson.IsObject(metadata) {
		return metadata, nil
	}
	m := rawjson.Parse(metadata, "")
	ext, mine := within(m, profile.ExtensionURI)
	canon, found := within(ext, profile.CanonKey)
	if !mine || !found {
		return metadata, nil
	}
	var members []rawjson.Member
	for _, name := range names {
		if value := canon.Peek(name); isText(value) || isNull(value) {
			members = append(members, rawjson.Member{Name: name, Value: canon.Take(name)})
		}
	}
	if len(members) == 0 {
		return metadata, nil
	}
	for _, level := range []struct {
		in, of *rawjson.Object
		name   string
	}{{canon, ext, profile.CanonKey}, {ext, m, profile.ExtensionURI}} {
		level.of.PutSet(level.name, level.in.Rest())
	}
	return m.Rest(), members
}

// within takes the object that stands under a name; an empty one if nothing
// does. false: something else does.
func within(o *rawjson.Object, name string) (*rawjson.Object, bool) {
	raw := o.Peek(name)
	if raw != nil && !rawjson.IsObject(raw) {
		return rawjson.Empty(), false
	}
	return rawjson.Open(o.Take(name)), true
}
