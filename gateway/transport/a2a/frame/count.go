package frame

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// countable reports whether octets hold no more messages than left, and none
// deeper than depth, before anything is made of them: two octets are enough for
// a message that takes a hundred in memory. Octets that are no message at all
// are countable; who reads them will say so.
func countable(kind protoreflect.MessageDescriptor, body []byte, depth int, left *int) bool {
	if *left--; *left < 0 || depth < 0 {
		return false
	}
	for len(body) > 0 {
		number, wireType, n := protowire.ConsumeTag(body)
		if n < 0 {
			return true
		}
		body = body[n:]
		n = protowire.ConsumeFieldValue(number, wireType, body)
		if n < 0 {
			return true
		}
		field := kind.Fields().ByNumber(number)
		if wireType == protowire.BytesType && field != nil {
			value, _ := protowire.ConsumeBytes(body)
			if field.Kind() == protoreflect.MessageKind && !countable(field.Message(), value, depth-1, left) {
				return false
			}
			if field.Kind() != protoreflect.MessageKind && field.IsList() {
				if *left--; *left < 0 {
					return false
				}
			}
		}
		body = body[n:]
	}
	return true
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
