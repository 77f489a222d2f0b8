package translatortest

import (
	"bytes"
	"reflect"
	"time"

	"github.com/aepb/aepb-gateway/translators/canonical"
)

// spare is capacity behind every byte slice of a clone, filled with tide: an
// encoder that appends to a value it was only lent leaves a mark there, which
// no comparison of lengths and contents would show.
const (
	spare = 8
	tide  = 0xA5
)

// clone copies a message down to the last byte.
func clone(m *canonical.Message) *canonical.Message {
	return copyOf(reflect.ValueOf(m)).Interface().(*canonical.Message)
}

func copyOf(v reflect.Value) reflect.Value {
	out := reflect.New(v.Type()).Elem()
	out.Set(v)
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			out.Set(reflect.New(v.Type().Elem()))
			out.Elem().Set(copyOf(v.Elem()))
		}
	case reflect.Interface:
		if !v.IsNil() {
			out.Set(copyOf(v.Elem()))
		}
	case reflect.Struct:
		if _, isTime := reflect.TypeAssert[time.Time](v); isTime {
			return out
		}
		for i := range v.NumField() {
			out.Field(i).Set(copyOf(v.Field(i)))
		}
	case reflect.Slice:
		copySlice(out, v)
	case reflect.Map:
		if !v.IsNil() {
			out.Set(reflect.MakeMap(v.Type()))
			for _, key := range v.MapKeys() {
				out.SetMapIndex(key, copyOf(v.MapIndex(key)))
			}
		}
	default:
	}
	return out
}

func copySlice(out, v reflect.Value) {
	if v.IsNil() {
		return
	}
	if v.Type().Elem().Kind() == reflect.Uint8 {
		room := append(bytes.Clone(v.Bytes()), bytes.Repeat([]byte{tide}, spare)...)
		out.SetBytes(room[:v.Len()])
		return
	}
	out.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
	for i := range v.Len() {
		out.Index(i).Set(copyOf(v.Index(i)))
	}
}

// trampled reports whether something wrote behind a byte slice of a clone.
func trampled(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return !v.IsNil() && trampled(v.Elem())
	case reflect.Struct:
		if _, isTime := reflect.TypeAssert[time.Time](v); isTime {
			return false
		}
		for _, field := range v.Fields() {
			if trampled(field) {
				return true
			}
		}
	case reflect.Slice:
		return trampledSlice(v)
	case reflect.Map:
		for _, key := range v.MapKeys() {
			if trampled(v.MapIndex(key)) {
				return true
			}
		}
	default:
	}
	return false
}

func trampledSlice(v reflect.Value) bool {
	if v.Type().Elem().Kind() != reflect.Uint8 {
		for i := range v.Len() {
			if trampled(v.Index(i)) {
				return true
			}
		}
		return false
	}
	if v.IsNil() || v.Cap() < v.Len()+spare {
		return false
	}
	behind := v.Slice(0, v.Len()+spare).Bytes()[v.Len():]
	return !bytes.Equal(behind, bytes.Repeat([]byte{tide}, spare))
}
