package embedded

import (
	"bytes"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// HashForm is the aepb.hash_form of messages that were hashed before insertion (R5).
const HashForm = "before-ect"

// The members of an object in a list that has the tokens.
const (
	typeMember   = "@type"
	tokensMember = "tokens"
)

// Insert puts tokens into a message, and makes it hash as before. False: it has no
// place for them, and is as it was.
func Insert(t translators.Translator, w translators.Wire, tokens []string) (translators.Wire, bool) {
	if len(tokens) == 0 {
		return w, false
	}
	s, ok := find(t, w)
	if !ok || s.holds || s.empty {
		return w, false
	}
	member := rawjson.NewBuilder().Strings(s.place.Key, tokens, true).Bytes() // {"key":[…]}
	if s.place.List {
		member = rawjson.NewBuilder().String(typeMember, s.place.Key).Strings(tokensMember, tokens, true).Bytes()
	}
	switch {
	case s.within && !s.place.List:
		member = member[1 : len(member)-1]
	case !s.within && s.place.List:
		member = slices.Concat([]byte(`"`+s.place.Object+`":[`), member, []byte("]"))
	case !s.within:
		member = slices.Concat([]byte(`"`+s.place.Object+`":`), member)
	}
	if !s.alone {
		member = append(member, ',')
	}
	w.Hasher = hasher{t, w}
	w.Body = slices.Concat(w.Body[:s.at], member, w.Body[s.at:])
	return w, true
}

// Take takes the tokens out, and gives the message as it was before they were put
// in; without any, as it is. A member that holds something else is a
// *translators.MalformedError.
func Take(t translators.Translator, w translators.Wire) (translators.Wire, []string, error) {
	s, ok := find(t, w)
	if !ok || !s.holds {
		return w, nil, nil
	}
	var tokens []string
	elements, ok := rawjson.Elements(w.Body[s.value[0]:s.value[1]])
	for _, element := range elements {
		token, fits := rawjson.Unquote(element)
		ok = ok && fits
		tokens = append(tokens, token)
	}
	if !ok {
		return w, nil, &translators.MalformedError{Path: "/" + s.place.Object, Reason: s.place.Key + " is no array of tokens"}
	}
	w.Body = s.cut.from(w.Body)
	return w, tokens, nil
}

// hasher hashes a message with tokens inside as if it had none.
type hasher struct {
	form translators.Translator
	like translators.Wire
}

func (hasher) HashForm() string { return HashForm }

func (h hasher) HashInput(body []byte) ([]byte, error) {
	h.like.Body = body
	without, _, err := Take(h.form, h.like)
	return without.Body, err
}

// spot is where tokens are in a message, or would be.
type spot struct {
	place  translators.Place
	within bool   // there is the object of extensions
	empty  bool   // and nothing is in it
	holds  bool   // or the member is
	at     int    // behind the brace that opens it, or else the one around it
	alone  bool   // nothing follows there
	value  [2]int // of the member
	cut    cut    // what goes with it
}

// cut is a member of an object: from behind what stands before it to its end.
type cut struct {
	begin, end int
	first      bool // in its object
}

// from takes the member out, with one comma.
func (c cut) from(body []byte) []byte {
	end := c.end
	if c.first {
		if rest := bytes.TrimLeft(body[end:], " \t\r\n"); len(rest) > 0 && rest[0] == ',' {
			end = len(body) - len(rest) + 1
		}
	}
	return slices.Concat(body[:c.begin], body[end:])
}

// find finds it; false: there is no such place. What is no JSON has none: its
// codec will say so.
func find(t translators.Translator, w translators.Wire) (spot, bool) {
	bearer, ok := t.(translators.EvidencePlacer)
	if !ok {
		return spot{}, false
	}
	for _, place := range bearer.Bears(w) {
		if s, ok := look(w.Body, place); ok {
			return s, true
		}
	}
	return spot{}, false
}

// look looks at one place.
func look(body []byte, place translators.Place) (spot, bool) {
	at := 0
	for _, name := range place.Path {
		o, ok := read(body, at)
		m, has := o.member(name)
		if !ok || !has {
			return spot{}, false
		}
		at = m.value
	}
	around, ok := read(body, at)
	if _, has := around.member(place.With); !ok || !has && place.With != "" {
		return spot{}, false
	}
	o, within := around.member(place.Object)
	if !within {
		return spot{place: place, at: around.open, alone: len(around.members) == 0}, true
	}
	if place.List {
		return lookThrough(body, place, o)
	}
	inner, ok := read(body, o.value)
	s := spot{place: place, within: true, at: inner.open, empty: len(inner.members) == 0}
	if m, holds := inner.member(place.Key); holds {
		s.holds, s.value, s.cut = true, [2]int{m.value, m.end}, m.cut()
		if len(inner.members) == 1 {
			s.cut = o.cut()
		}
	}
	return s, ok
}

// lookThrough looks for the object of a list that has the tokens.
func lookThrough(body []byte, place translators.Place, list located) (spot, bool) {
	open, items, ok := readList(body, list.value)
	s := spot{place: place, within: true, at: open, empty: len(items) == 0}
	for _, item := range items {
		inner, isObject := read(body, item.value)
		kind, typed := inner.member(typeMember)
		tokens, has := inner.member(tokensMember)
		if !isObject || !typed || !has {
			continue
		}
		if name, _ := rawjson.Unquote(body[kind.value:kind.end]); name == place.Key {
			s.holds, s.value, s.cut = true, [2]int{tokens.value, tokens.end}, item.cut()
			if len(items) == 1 {
				s.cut = list.cut()
			}
			break
		}
	}
	return s, ok
}

// begin reads the bracket at a place, and tells where the reader is.
func begin(body []byte, at int, bracket jsontext.Kind) (r *jsontext.Decoder, here func() int, ok bool) {
	r = jsontext.NewDecoder(bytes.NewReader(body[at:]))
	if r.PeekKind() != bracket {
		return nil, nil, false
	}
	_, err := r.ReadToken()
	return r, func() int { return at + int(r.InputOffset()) }, err == nil
}

// readList reads the list that begins at a place; false: there is none.
func readList(body []byte, at int) (open int, items []located, ok bool) {
	r, here, ok := begin(body, at, '[')
	if !ok {
		return 0, nil, false
	}
	open = here()
	for r.PeekKind() != ']' {
		item := located{begin: here(), first: len(items) == 0}
		value, err := r.ReadValue()
		if err != nil {
			return 0, nil, false
		}
		item.end = here()
		item.value = item.end - len(value)
		items = append(items, item)
	}
	return open, items, true
}

// object is an object in a text, by places.
type object struct {
	open    int // behind its brace
	members []located
}

type located struct {
	name              string
	begin, value, end int // begin is behind what stands before it
	first             bool
}

func (m located) cut() cut { return cut{m.begin, m.end, m.first} }

func (o object) member(name string) (located, bool) {
	i := slices.IndexFunc(o.members, func(m located) bool { return m.name == name })
	if i < 0 {
		return located{}, false
	}
	return o.members[i], true
}

// read reads the object that begins at a place; false: there is none.
func read(body []byte, at int) (object, bool) {
	r, here, ok := begin(body, at, '{')
	if !ok {
		return object{}, false
	}
	o := object{open: here()}
	for r.PeekKind() == '"' {
		m := located{begin: here(), first: len(o.members) == 0}
		name, err := r.ReadToken()
		if err != nil {
			return object{}, false
		}
		m.name = name.String()
		m.value = here()
		m.value += len(body[m.value:]) - len(bytes.TrimLeft(body[m.value:], " \t\r\n:"))
		if err := r.SkipValue(); err != nil {
			return object{}, false
		}
		m.end = here()
		o.members = append(o.members, m)
	}
	return o, r.PeekKind() == '}'
}
