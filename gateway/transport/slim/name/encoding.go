package name

import (
	"github.com/cespare/xxhash/v2"

	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/dataplane"
)

// Hash is what nodes route one word of a name by: XXH64 over its bytes and one
// byte 0xFF.
func Hash(word string) uint64 {
	data := make([]byte, 0, len(word)+1)
	return xxhash.Sum64(append(append(data, word...), 0xFF))
}

// Key is a name as nodes know it: hashes and id. Comparable.
type Key struct {
	Org, Namespace, Service uint64
	ID                      ID
}

// Key hashes the name.
func (n Name) Key() Key { return Key{Hash(n.Org), Hash(n.Namespace), Hash(n.Service), n.ID} }

// Any is the key of any instance.
func (k Key) Any() Key {
	k.ID = AnyID()
	return k
}

// Encode is the name on the wire.
func (n Name) Encode() *dataplane.Name {
	k := n.Key()
	return &dataplane.Name{
		Name: &dataplane.EncodedName{
			Component_0: k.Org, Component_1: k.Namespace, Component_2: k.Service,
			NameId: &dataplane.NameId{Id_0: k.ID.High, Id_1: k.ID.Low},
		},
		StrName: &dataplane.StringName{StrComponent_0: n.Org, StrComponent_1: n.Namespace, StrComponent_2: n.Service},
	}
}

// Decode reads a name off the wire. The words must be there and hash to what
// the nodes routed by: a name that reads as one application and is routed as
// another would deceive code that logs or authorizes it. Errors: *Error.
func Decode(wire *dataplane.Name) (Name, error) {
	key, err := DecodeKey(wire)
	if err != nil {
		return Name{}, err
	}
	words := wire.GetStrName()
	if words == nil {
		return Name{}, &Error{"its words are missing"}
	}
	n, err := New(words.GetStrComponent_0(), words.GetStrComponent_1(), words.GetStrComponent_2())
	if err != nil {
		return Name{}, err
	}
	if n = n.With(key.ID); n.Key() != key {
		return Name{}, &Error{"its words are not those that it is routed by"}
	}
	return n, nil
}

// DecodeKey reads only what nodes route by. Errors: *Error.
func DecodeKey(wire *dataplane.Name) (Key, error) {
	encoded := wire.GetName()
	if encoded == nil || encoded.GetNameId() == nil {
		return Key{}, &Error{"what it is routed by is missing"}
	}
	id := encoded.GetNameId()
	return Key{
		Org: encoded.GetComponent_0(), Namespace: encoded.GetComponent_1(), Service: encoded.GetComponent_2(),
		ID: ID{id.GetId_0(), id.GetId_1()},
	}, nil
}
