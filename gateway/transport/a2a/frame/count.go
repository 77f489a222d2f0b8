package frame

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// count is what bytes hold, found out before anything is made of them: two bytes
// are enough for a message that takes a hundred in memory.
type count struct {
	left    int  // messages, and elements of lists, that there may be
	strange bool // there are fields that the schema lacks
}

// message reports whether bytes hold no more than may be, and nothing deeper than
// depth. Bytes that are no message at all pass; who reads them will say so.
func (c *count) message(kind protoreflect.MessageDescriptor, data []byte, depth int) bool {
	if c.left--; c.left < 0 || depth < 0 {
		return false
	}
	for len(data) > 0 {
		number, wire, n := protowire.ConsumeTag(data)
		if n < 0 {
			return true
		}
		data = data[n:]
		n = protowire.ConsumeFieldValue(number, wire, data)
		if n < 0 {
			return true
		}
		if !c.field(kind.Fields().ByNumber(number), wire, data[:n], depth) {
			return false
		}
		data = data[n:]
	}
	return true
}

func (c *count) field(field protoreflect.FieldDescriptor, wire protowire.Type, value []byte, depth int) bool {
	switch {
	case field == nil:
		c.strange = true
	case wire == protowire.BytesType && field.Message() != nil:
		inner, _ := protowire.ConsumeBytes(value)
		return c.message(field.Message(), inner, depth-1)
	case wire == protowire.BytesType && field.IsList():
		c.left--
	case wire != wireOf(field):
		c.strange = true
	}
	return c.left >= 0
}

// wireOf is how a field of a kind that the schemas have travels.
func wireOf(field protoreflect.FieldDescriptor) protowire.Type {
	switch field.Kind() {
	case protoreflect.DoubleKind:
		return protowire.Fixed64Type
	case protoreflect.StringKind, protoreflect.BytesKind, protoreflect.MessageKind:
		return protowire.BytesType
	default:
		return protowire.VarintType
	}
}

// Tenant is the tenant that a request names; the last one counts, as it does
// for every reader of protobuf.
func Tenant(method protoreflect.MethodDescriptor, body []byte) string {
	field := method.Input().Fields().ByName("tenant")
	tenant := ""
	for field != nil && len(body) > 0 {
		number, wireType, n := protowire.ConsumeTag(body)
		if n < 0 {
			return ""
		}
		body = body[n:]
		n = protowire.ConsumeFieldValue(number, wireType, body)
		if n < 0 {
			return ""
		}
		if number == field.Number() && wireType == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(body)
			tenant = string(value)
		}
		body = body[n:]
	}
	return tenant
}
