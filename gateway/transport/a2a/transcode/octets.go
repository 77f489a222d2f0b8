package transcode

import (
	"cmp"
	"encoding/base64"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Bounds of what is transcoded. Each level of a message may move all that is
// below it: so there is one for that.
const (
	deepest    = 200
	mostFields = 64 // of one message: a bit each
	usual      = 32 // fields under way, for a start
	mostMoves  = 16 // of each octet of the text, and
	fewMoves   = 1 << 16
)

// The messages that JSON writes in ways of their own (protobuf's JSON mapping).
const (
	wellKnown  = "google.protobuf."
	kindStruct = wellKnown + "Struct"
	kindValue  = wellKnown + "Value"
	kindList   = wellKnown + "ListValue"
	kindTime   = wellKnown + "Timestamp"
	kindEmpty  = wellKnown + "Empty"
	kindNull   = wellKnown + "NullValue"
)

// Members of a Value, and what Struct, ListValue and Timestamp hold.
const (
	valueNull   = 1
	valueNumber = 2
	valueString = 3
	valueBool   = 4
	valueStruct = 5
	valueList   = 6

	onlyField = 1
	seconds   = 1
	nanos     = 2

	mapKey   = 1
	mapValue = 2

	earliest = -62135596800 // 0001-01-01T00:00:00Z
	latest   = 253402300799 // 9999-12-31T23:59:59Z
	mostFrac = len(".999999999")
)

// Octets is the message that a text in JSON says, as protobuf writes it in its
// deterministic form: fields in their order, entries of maps by their keys. It is
// for the library to judge where ok is false.
func Octets(kind protoreflect.MessageDescriptor, text []byte) (octets []byte, ok bool) {
	p := packer{
		scanner: scanner{text: string(text)},
		out:     make([]byte, 0, len(text)+16), chunks: make([]chunk, 0, usual), moves: mostMoves*len(text) + fewMoves,
	}
	if !p.message(kind, deepest) || p.peek() != 0 || p.at < len(p.text) {
		return nil, false
	}
	return p.out, true
}

// packer writes what it reads. A message is written where it is read, its fields
// as they come: they are put in order at its end, when its length is known, too.
type packer struct {
	scanner
	out    []byte
	chunks []chunk // of the messages and maps under way
	spare  []byte
	moves  int // octets that may yet be moved
}

// chunk is a field, or an entry of a map, among the octets that are written.
type chunk struct {
	order    uint64
	key      string
	from, to int
}

func (c chunk) compare(other chunk) int {
	if c.order != other.order {
		return cmp.Compare(c.order, other.order)
	}
	return strings.Compare(c.key, other.key)
}

// order is where a field stands: members of oneofs stand behind all others.
func order(f protoreflect.FieldDescriptor) uint64 {
	place := uint64(f.Number()) //nolint:gosec // positive
	if of := f.ContainingOneof(); of != nil && !of.IsSynthetic() {
		place |= uint64(of.Index()+1) << 32 //nolint:gosec // positive
	}
	return place
}

func (p *packer) message(kind protoreflect.MessageDescriptor, deep int) bool {
	if deep--; deep < 0 {
		return false
	}
	if name := kind.FullName(); strings.HasPrefix(string(name), wellKnown) {
		switch name {
		case kindStruct:
			return p.entries(kind.Fields().ByNumber(onlyField), deep)
		case kindList:
			return p.elements(kind.Fields().ByNumber(onlyField), deep)
		case kindValue:
			return p.value(kind.Fields(), deep)
		case kindTime:
			return p.time()
		case kindEmpty:
		default:
			return false
		}
	}
	return p.members(kind.Fields(), deep)
}

func (p *packer) members(fields protoreflect.FieldDescriptors, deep int) bool {
	if !p.take("{") || fields.Len() > mostFields {
		return false
	}
	var seen, chosen uint64
	start, base := len(p.out), len(p.chunks)
	for n := 0; ; n++ {
		another, ok := p.next(n, '}')
		if !ok || !another {
			return ok && p.inOrder(start, base)
		}
		name, ok := p.name()
		f := fields.ByJSONName(name)
		if f == nil {
			f = fields.ByTextName(name)
		}
		if !ok || f == nil || seen&(1<<f.Index()) != 0 {
			return false
		}
		seen |= 1 << f.Index()
		if p.absent(f) {
			continue
		}
		if of := f.ContainingOneof(); of != nil {
			if chosen&(1<<of.Index()) != 0 {
				return false
			}
			chosen |= 1 << of.Index()
		}
		from := len(p.out)
		if !p.field(f, deep) {
			return false
		}
		p.chunks = append(p.chunks, chunk{order: order(f), from: from, to: len(p.out)})
	}
}

// absent takes null, which is no value of a field, except of a Value.
func (p *packer) absent(f protoreflect.FieldDescriptor) bool {
	if p.peek() != 'n' || f.Enum() != nil && f.Enum().FullName() == kindNull || f.Message() != nil && f.Message().FullName() == kindValue {
		return false
	}
	return p.take("null")
}

// inOrder ends a message, or a map: its chunks are brought in order. False: there
// is one twice, or too much has been moved.
func (p *packer) inOrder(start, base int) bool {
	chunks := p.chunks[base:]
	p.chunks = p.chunks[:base]
	if !slices.IsSortedFunc(chunks, chunk.compare) {
		if p.moves -= len(p.out) - start; p.moves < 0 {
			return false
		}
		p.spare = append(p.spare[:0], p.out[start:]...)
		slices.SortFunc(chunks, chunk.compare)
		at := start
		for _, c := range chunks {
			at += copy(p.out[at:], p.spare[c.from-start:c.to-start])
		}
	}
	for i := 1; i < len(chunks); i++ {
		if chunks[i-1].compare(chunks[i]) == 0 {
			return false
		}
	}
	return true
}

func (p *packer) field(f protoreflect.FieldDescriptor, deep int) bool {
	switch {
	case f.IsMap():
		return p.entries(f, deep)
	case f.IsList():
		return p.elements(f, deep)
	default:
		return p.single(f, deep, f.HasPresence())
	}
}

func (p *packer) entries(f protoreflect.FieldDescriptor, deep int) bool {
	if !p.take("{") || f.MapKey().Kind() != protoreflect.StringKind {
		return false
	}
	start, base := len(p.out), len(p.chunks)
	for n := 0; ; n++ {
		another, ok := p.next(n, '}')
		if !ok || !another {
			return ok && p.inOrder(start, base)
		}
		key, ok := p.name()
		if !ok {
			return false
		}
		from := len(p.out)
		at := p.open(f)
		p.out = protowire.AppendTag(p.out, mapKey, protowire.BytesType)
		p.out = protowire.AppendString(p.out, key)
		if !p.single(f.MapValue(), deep, true) || !p.shut(at) {
			return false
		}
		p.chunks = append(p.chunks, chunk{key: key, from: from, to: len(p.out)})
	}
}

func (p *packer) elements(f protoreflect.FieldDescriptor, deep int) bool {
	if wire, known := wireOf(f); !known || wire != protowire.BytesType || !p.take("[") {
		return false // numbers would be packed
	}
	for n := 0; ; n++ {
		another, ok := p.next(n, ']')
		if !ok || !another {
			return ok
		}
		if !p.single(f, deep, true) {
			return false
		}
	}
}

func (p *packer) value(members protoreflect.FieldDescriptors, deep int) bool {
	var which protowire.Number
	switch p.peek() {
	case 'n':
		p.varint(valueNull, 0)
		return p.take("null")
	case 't', 'f':
		which = valueBool
	case '"':
		which = valueString
	case '{':
		which = valueStruct
	case '[':
		which = valueList
	default:
		which = valueNumber
	}
	return p.single(members.ByNumber(which), deep, true)
}

// single writes one value of a field; its zero only if that is to be said.
func (p *packer) single(f protoreflect.FieldDescriptor, deep int, always bool) bool {
	switch f.Kind() {
	case protoreflect.MessageKind:
		at := p.open(f)
		return p.message(f.Message(), deep) && p.shut(at)
	case protoreflect.StringKind:
		value, ok := p.quoted()
		if always || value != "" {
			p.out = protowire.AppendTag(p.out, f.Number(), protowire.BytesType)
			p.out = protowire.AppendString(p.out, value)
		}
		return ok
	case protoreflect.BytesKind:
		return p.binary(f, always)
	case protoreflect.DoubleKind:
		text, ok := p.number()
		value, err := strconv.ParseFloat(text, 64)
		p.out = protowire.AppendTag(p.out, f.Number(), protowire.Fixed64Type)
		p.out = protowire.AppendFixed64(p.out, math.Float64bits(value))
		return ok && err == nil && always
	case protoreflect.BoolKind, protoreflect.Int32Kind, protoreflect.EnumKind:
		value, ok := p.scalar(f)
		if always || value != 0 {
			p.varint(f.Number(), value)
		}
		return ok
	default:
		return false
	}
}

// scalar is what protobuf writes as a varint.
func (p *packer) scalar(f protoreflect.FieldDescriptor) (uint64, bool) {
	if f.Kind() == protoreflect.BoolKind {
		if p.take("true") {
			return 1, true
		}
		return 0, p.take("false")
	}
	if p.peek() == '"' && f.Kind() == protoreflect.EnumKind {
		name, ok := p.quoted()
		value := f.Enum().Values().ByName(protoreflect.Name(name))
		if !ok || value == nil {
			return 0, false
		}
		return uint64(value.Number()), true //nolint:gosec // as protobuf does
	}
	text, ok := p.integer()
	value, err := strconv.ParseInt(text, 10, 32)
	return uint64(value), ok && err == nil //nolint:gosec // as protobuf does
}

// integer is a number, which may stand in a string.
func (p *packer) integer() (string, bool) {
	if p.peek() != '"' {
		return p.number()
	}
	text, ok := p.quoted()
	inner := scanner{text: text}
	number, isOne := inner.number()
	return number, ok && isOne && number == text
}

// binary is base64 of either alphabet, with or without its padding.
func (p *packer) binary(f protoreflect.FieldDescriptor, always bool) bool {
	text, ok := p.quoted()
	encoding := base64.StdEncoding
	if strings.ContainsAny(text, "-_") {
		encoding = base64.URLEncoding
	}
	if len(text)%4 != 0 {
		encoding = encoding.WithPadding(base64.NoPadding)
	}
	value, err := encoding.DecodeString(text)
	if always || len(value) > 0 {
		p.out = protowire.AppendTag(p.out, f.Number(), protowire.BytesType)
		p.out = protowire.AppendBytes(p.out, value)
	}
	return ok && err == nil
}

// time is RFC 3339 with at most nine digits behind the point.
func (p *packer) time() bool {
	text, ok := p.quoted()
	value, err := time.Parse(time.RFC3339Nano, text)
	dot := strings.LastIndexByte(text, '.')
	if !ok || err != nil || dot >= 0 && strings.LastIndexAny(text, "Z-+")-dot > mostFrac {
		return false
	}
	if at := value.Unix(); at != 0 {
		p.varint(seconds, uint64(at)) //nolint:gosec // as protobuf does
	}
	if frac := value.Nanosecond(); frac != 0 {
		p.varint(nanos, uint64(frac)) //nolint:gosec // positive
	}
	return value.Unix() >= earliest && value.Unix() <= latest
}

func (p *packer) varint(number protowire.Number, value uint64) {
	p.out = protowire.AppendTag(p.out, number, protowire.VarintType)
	p.out = protowire.AppendVarint(p.out, value)
}

// open begins a message, with room for a length of one octet.
func (p *packer) open(f protoreflect.FieldDescriptor) int {
	p.out = protowire.AppendTag(p.out, f.Number(), protowire.BytesType)
	p.out = append(p.out, 0)
	return len(p.out)
}

// shut ends it: what is longer gives way to its length. False: too much has.
func (p *packer) shut(at int) bool {
	size := len(p.out) - at
	if more := protowire.SizeVarint(uint64(size)) - 1; more > 0 { //nolint:gosec // positive
		if p.moves -= size; p.moves < 0 {
			return false
		}
		p.out = append(p.out, make([]byte, more)...)
		copy(p.out[at+more:], p.out[at:])
	}
	protowire.AppendVarint(p.out[:at-1], uint64(size)) //nolint:gosec // positive
	return true
}
