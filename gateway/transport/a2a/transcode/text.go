package transcode

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// MostFields is how many fields a message may have, with all that is in it, and
// be transcoded.
const MostFields = 1 << 16

// Text is the JSON of a message in protobuf's form, without blanks, no deeper than
// depth (messages, and entries of maps, as protobuf counts them). Strange are
// fields that the descriptor lacks: the text goes without them. It is for the
// library to judge where ok is false.
func Text(kind protoreflect.MessageDescriptor, octets []byte, depth int) (text []byte, strange, ok bool) {
	s := speller{out: make([]byte, 0, 2*len(octets)+64), spans: make([]span, 0, usual), left: MostFields}
	ok = s.message(kind, octets, depth)
	return s.out, s.strange, ok
}

// speller writes JSON. Fields come in any order, so that those of a message are
// collected before the first is written.
type speller struct {
	out     []byte
	spans   []span // of the messages under way
	left    int    // fields that may follow
	strange bool
}

// span is one value of a field; of an entry of a map, its key and its value.
type span struct {
	field protoreflect.FieldDescriptor
	index int // in the order of the schema, which is that of JSON
	key   []byte
	value []byte
}

func byIndex(a, b span) int { return cmp.Compare(a.index, b.index) }
func byKey(a, b span) int   { return bytes.Compare(a.key, b.key) }

// wireOf is how a kind of field travels, by itself.
func wireOf(f protoreflect.FieldDescriptor) (wire protowire.Type, known bool) {
	switch f.Kind() {
	case protoreflect.BoolKind, protoreflect.Int32Kind, protoreflect.Int64Kind, protoreflect.EnumKind:
		return protowire.VarintType, true
	case protoreflect.DoubleKind:
		return protowire.Fixed64Type, true
	case protoreflect.StringKind, protoreflect.BytesKind, protoreflect.MessageKind:
		return protowire.BytesType, true
	default:
		return 0, false
	}
}

// cut takes the first field off: its value is without its length.
func (s *speller) cut(in []byte) (number protowire.Number, wire protowire.Type, value, rest []byte, ok bool) {
	number, wire, n := protowire.ConsumeTag(in)
	if s.left--; s.left < 0 || n < 0 || number > protowire.MaxValidNumber {
		return 0, 0, nil, nil, false
	}
	in = in[n:]
	if n = protowire.ConsumeFieldValue(number, wire, in); n < 0 {
		return 0, 0, nil, nil, false
	}
	value, rest = in[:n], in[n:]
	if wire == protowire.BytesType {
		value, _ = protowire.ConsumeBytes(value)
	}
	return number, wire, value, rest, true
}

func (s *speller) message(kind protoreflect.MessageDescriptor, in []byte, depth int) bool {
	if depth--; depth < 0 {
		return false
	}
	from := len(s.spans)
	if !s.collect(kind.Fields(), in) {
		return false
	}
	ok := s.write(kind.FullName(), from, len(s.spans), depth)
	s.spans = s.spans[:from]
	return ok
}

// collect finds the fields of a message, and puts them in order.
func (s *speller) collect(fields protoreflect.FieldDescriptors, in []byte) bool {
	from, chosen := len(s.spans), uint64(0)
	for len(in) > 0 {
		number, wire, value, rest, ok := s.cut(in)
		if !ok {
			return false
		}
		in = rest
		f := fields.ByNumber(number)
		if f == nil {
			s.strange = true
			continue
		}
		want, known := wireOf(f)
		if !known || wire != want || f.IsList() && want != protowire.BytesType || fields.Len() > mostFields {
			return false
		}
		if of := f.ContainingOneof(); of != nil && !of.IsSynthetic() {
			if chosen&(1<<of.Index()) != 0 {
				return false
			}
			chosen |= 1 << of.Index()
		}
		s.spans = append(s.spans, span{field: f, index: f.Index(), value: value})
	}
	if found := s.spans[from:]; !slices.IsSortedFunc(found, byIndex) {
		slices.SortStableFunc(found, byIndex)
	}
	return true
}

// write is the JSON of what has been collected from a message.
func (s *speller) write(kind protoreflect.FullName, from, to, depth int) bool {
	if strings.HasPrefix(string(kind), wellKnown) {
		switch kind {
		case kindStruct:
			return s.entries(from, to, depth)
		case kindList:
			return s.elements(from, to, depth)
		case kindValue:
			return to-from == 1 && s.single(s.spans[from].field, s.spans[from].value, depth)
		case kindTime:
			return s.time(s.spans[from:to])
		case kindEmpty:
		default:
			return false
		}
	}
	s.out = append(s.out, '{')
	for from < to {
		f, next := s.spans[from].field, from+1
		for next < to && s.spans[next].index == s.spans[from].index {
			next++
		}
		if !s.member(f, from, next, depth) {
			return false
		}
		from = next
	}
	s.out = append(s.out, '}')
	return true
}

// member is a field with its values, of which there may be several in lists and maps.
func (s *speller) member(f protoreflect.FieldDescriptor, from, to, depth int) bool {
	value, many := s.spans[from].value, f.IsList() || f.IsMap()
	if !many && to-from > 1 {
		return false
	}
	if !many && !f.HasPresence() && zero(f.Kind(), value) {
		return f.Kind() != protoreflect.DoubleKind
	}
	if s.out[len(s.out)-1] != '{' {
		s.out = append(s.out, ',')
	}
	s.out = append(s.out, '"')
	s.out = append(s.out, f.JSONName()...)
	s.out = append(s.out, '"', ':')
	switch {
	case f.IsMap():
		return s.entries(from, to, depth)
	case f.IsList():
		return s.elements(from, to, depth)
	default:
		return s.single(f, value, depth)
	}
}

func zero(kind protoreflect.Kind, value []byte) bool {
	switch kind {
	case protoreflect.StringKind, protoreflect.BytesKind, protoreflect.MessageKind:
		return len(value) == 0
	case protoreflect.BoolKind:
		return varint(value) == 0
	default:
		return int32(varint(value)) == 0 //nolint:gosec // as protobuf does
	}
}

func varint(value []byte) uint64 {
	v, _ := protowire.ConsumeVarint(value)
	return v
}

// entries are those of a map, by their keys, of which each may be there once.
func (s *speller) entries(from, to, depth int) bool {
	if depth--; depth < 0 && from < to {
		return false
	}
	for i := from; i < to; i++ {
		if !s.entry(&s.spans[i]) {
			return false
		}
	}
	found := s.spans[from:to]
	if !slices.IsSortedFunc(found, byKey) {
		slices.SortFunc(found, byKey)
	}
	s.out = append(s.out, '{')
	for i := from; i < to; i++ {
		this := s.spans[i]
		if i > from {
			if bytes.Equal(s.spans[i-1].key, this.key) {
				return false
			}
			s.out = append(s.out, ',')
		}
		if !s.quoted(this.key) {
			return false
		}
		s.out = append(s.out, ':')
		if !s.single(this.field.MapValue(), this.value, depth) {
			return false
		}
	}
	s.out = append(s.out, '}')
	return true
}

// entry divides an entry of a map. Either part may be there once, or is empty.
func (s *speller) entry(e *span) bool {
	want, known := wireOf(e.field.MapValue())
	if !known || e.field.MapKey().Kind() != protoreflect.StringKind {
		return false
	}
	var parts [2][]byte
	for in := e.value; len(in) > 0; {
		number, wire, value, rest, ok := s.cut(in)
		if !ok || number > mapValue || parts[number-1] != nil || number == mapKey && wire != protowire.BytesType || number == mapValue && wire != want {
			return false
		}
		in, parts[number-1] = rest, slices.Clip(value)
	}
	e.key, e.value = parts[0], parts[1]
	return true
}

func (s *speller) elements(from, to, depth int) bool {
	s.out = append(s.out, '[')
	for i := from; i < to; i++ {
		if i > from {
			s.out = append(s.out, ',')
		}
		if !s.single(s.spans[i].field, s.spans[i].value, depth) {
			return false
		}
	}
	s.out = append(s.out, ']')
	return true
}

func (s *speller) single(f protoreflect.FieldDescriptor, value []byte, depth int) bool {
	switch f.Kind() {
	case protoreflect.MessageKind:
		return s.message(f.Message(), value, depth)
	case protoreflect.StringKind:
		return s.quoted(value)
	case protoreflect.BytesKind:
		s.out = append(s.out, '"')
		s.out = base64.StdEncoding.AppendEncode(s.out, value)
		s.out = append(s.out, '"')
	case protoreflect.BoolKind:
		s.out = strconv.AppendBool(s.out, varint(value) != 0)
	case protoreflect.Int32Kind:
		s.out = strconv.AppendInt(s.out, int64(int32(varint(value))), 10) //nolint:gosec // as protobuf does
	case protoreflect.EnumKind:
		s.enum(f.Enum(), protoreflect.EnumNumber(varint(value))) //nolint:gosec // as protobuf does
	case protoreflect.DoubleKind:
		bits, _ := protowire.ConsumeFixed64(value)
		return s.number(math.Float64frombits(bits))
	default:
		return false
	}
	return true
}

// enum is a value's name, or its number where the schema has no name for it.
func (s *speller) enum(kind protoreflect.EnumDescriptor, number protoreflect.EnumNumber) {
	named := kind.Values().ByNumber(number)
	switch {
	case kind.FullName() == kindNull:
		s.out = append(s.out, "null"...)
	case named == nil:
		s.out = strconv.AppendInt(s.out, int64(number), 10)
	default:
		s.out = append(s.out, '"')
		s.out = append(s.out, named.Name()...)
		s.out = append(s.out, '"')
	}
}

// number is a double; those that are no number have no JSON.
func (s *speller) number(value float64) bool {
	s.out = AppendNumber(s.out, value)
	return !math.IsNaN(value) && !math.IsInf(value, 0)
}

// AppendNumber writes a finite double in JSON: the shortest digits that read as
// the same, with an exponent where ECMAScript writes one.
func AppendNumber(out []byte, value float64) []byte {
	const small, large = 1e-6, 1e21
	if size := math.Abs(value); size == 0 || size >= small && size < large {
		return strconv.AppendFloat(out, value, 'f', -1, 64)
	}
	out = strconv.AppendFloat(out, value, 'e', -1, 64)
	if end := len(out) - 2; out[end] == '0' && out[end-1] == '-' { // e-09 is e-9
		out = append(out[:end], out[end+1])
	}
	return out
}

// time is in UTC, its fraction in threes of digits.
func (s *speller) time(fields []span) bool {
	var at, frac int64
	for _, f := range fields {
		if f.field.Number() == seconds {
			at = int64(varint(f.value)) //nolint:gosec // as protobuf does
		} else {
			frac = int64(int32(varint(f.value))) //nolint:gosec // as protobuf does
		}
	}
	if at < earliest || at > latest || frac < 0 || frac >= int64(time.Second) {
		return false
	}
	s.out = time.Unix(at, frac).UTC().AppendFormat(s.out, `"2006-01-02T15:04:05.000000000`)
	for _, idle := range []string{"000", "000", ".000"} {
		s.out = bytes.TrimSuffix(s.out, []byte(idle))
	}
	s.out = append(s.out, 'Z', '"')
	return true
}

// quoted is a string; false: it is no UTF-8.
func (s *speller) quoted(value []byte) bool {
	const hex = "0123456789abcdef"
	s.out = append(s.out, '"')
	from := 0
	for i, c := range value {
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		s.out = append(append(s.out, value[from:i]...), '\\')
		from = i + 1
		if short := strings.IndexByte("\"\\\b\f\n\r\t", c); short >= 0 {
			s.out = append(s.out, `"\bfnrt`[short])
		} else {
			s.out = append(s.out, 'u', '0', '0', hex[c>>4], hex[c&0xf])
		}
	}
	s.out = append(append(s.out, value[from:]...), '"')
	return utf8.Valid(value)
}
