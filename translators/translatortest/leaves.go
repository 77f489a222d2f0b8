package translatortest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// leaf is one thing that a message says: a scalar and where it stands.
type leaf struct {
	path  string
	kind  kind
	value string
}

type kind string

const (
	kindText   kind = "text"   // a string, of Go or of JSON
	kindScalar kind = "scalar" // a number, boolean, null, time, or an empty JSON container
	kindBytes  kind = "bytes"  // bytes, as base64
	kindMark   kind = "mark"   // something is there: a pointer, a type
)

// leaves takes a message apart. Where it came from and what it lost before are
// not part of what it says.
func leaves(m *canonical.Message) []leaf {
	said := *m
	said.Origin, said.Losses = canonical.Origin{}, nil
	var l []leaf
	walk(&l, "", reflect.ValueOf(said))
	return l
}

func walk(l *[]leaf, path string, v reflect.Value) {
	add := func(k kind, value string) { *l = append(*l, leaf{path, k, value}) }
	switch v.Kind() {
	case reflect.String:
		if v.String() != "" {
			add(kindText, v.String())
		}
	case reflect.Bool, reflect.Int, reflect.Int64:
		if !v.IsZero() {
			add(kindScalar, fmt.Sprint(v.Interface()))
		}
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			walkPointer(l, path, v)
		}
	case reflect.Struct:
		walkStruct(l, path, v)
	case reflect.Slice:
		walkSlice(l, path, v)
	case reflect.Map:
		for _, key := range sortedKeys(v) {
			walk(l, path+"/"+escape(key.String()), v.MapIndex(key))
		}
	default:
		add(kindMark, "unknown kind "+v.Kind().String())
	}
}

func walkPointer(l *[]leaf, path string, v reflect.Value) {
	inner := v.Elem()
	if v.Kind() == reflect.Interface {
		inner = inner.Elem()
		*l = append(*l, leaf{path, kindMark, inner.Type().Name()})
	} else {
		*l = append(*l, leaf{path, kindMark, "present"})
	}
	if inner.Kind() == reflect.Int { // a pointer because zero says something
		*l = append(*l, leaf{path, kindScalar, strconv.FormatInt(inner.Int(), 10)})
		return
	}
	walk(l, path, inner)
}

func walkStruct(l *[]leaf, path string, v reflect.Value) {
	if at, ok := reflect.TypeAssert[time.Time](v); ok {
		if !at.IsZero() {
			*l = append(*l, leaf{path, kindScalar, at.UTC().Format(time.RFC3339Nano)})
		}
		return
	}
	for i := range v.NumField() {
		walk(l, path+"/"+camel(v.Type().Field(i).Name), v.Field(i))
	}
}

func walkSlice(l *[]leaf, path string, v reflect.Value) {
	switch value := v.Interface().(type) {
	case json.RawMessage:
		if value != nil {
			walkJSON(l, path, value)
		}
	case []byte:
		if value != nil {
			*l = append(*l, leaf{path, kindBytes, base64.StdEncoding.EncodeToString(value)})
		}
	default:
		for i := range v.Len() {
			walk(l, path+"/"+strconv.Itoa(i), v.Index(i))
		}
	}
}

// walkJSON goes down to the scalars, so that one changed number in a large
// value is named by its own place. Numbers stay text: 1 and 1.0 differ.
func walkJSON(l *[]leaf, path string, raw json.RawMessage) {
	if rawjson.Check(raw, translators.DefaultBodyLimit, 2*translators.DefaultDepth) != nil {
		*l = append(*l, leaf{path, kindMark, "not JSON: " + string(raw)})
		return
	}
	raw = trim(raw)
	switch raw[0] {
	case '{':
		members := rawjson.Parse(raw, "").Members()
		for _, m := range members {
			walkJSON(l, path+"/"+escape(m.Name), m.Value)
		}
		if len(members) == 0 {
			*l = append(*l, leaf{path, kindScalar, "{}"})
		}
	case '[':
		elements, _ := rawjson.Elements(raw)
		for i, element := range elements {
			walkJSON(l, path+"/"+strconv.Itoa(i), element)
		}
		if len(elements) == 0 {
			*l = append(*l, leaf{path, kindScalar, "[]"})
		}
	case '"':
		text, _ := rawjson.Unquote(raw)
		*l = append(*l, leaf{path, kindText, text})
	default:
		*l = append(*l, leaf{path, kindScalar, string(raw)})
	}
}

// sameJSON compares values: members in any order, strings unescaped, numbers
// digit by digit. What is not JSON is compared byte by byte.
func sameJSON(a, b []byte) (string, bool) {
	var left, right []leaf
	walkJSON(&left, "", a)
	walkJSON(&right, "", b)
	missing := difference(left, right)
	added := difference(right, left)
	for _, gone := range missing {
		return fmt.Sprintf("%s is gone or changed: %s %q", gone.path, gone.kind, clip(gone.value)), false
	}
	for _, extra := range added {
		return fmt.Sprintf("%s was added: %s %q", extra.path, extra.kind, clip(extra.value)), false
	}
	return "", true
}

// difference lists the leaves of a that b does not have at the same place.
func difference(a, b []leaf) []leaf {
	have := make(map[leaf]bool, len(b))
	for _, l := range b {
		have[l] = true
	}
	return slices.DeleteFunc(slices.Clone(a), func(l leaf) bool { return have[l] })
}

func sortedKeys(v reflect.Value) []reflect.Value {
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	return keys
}

func escape(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}

// camel is the field's name in a path: ContextID is contextID, ID is id.
func camel(field string) string {
	if strings.ToUpper(field) == field {
		return strings.ToLower(field)
	}
	runes := []rune(field)
	runes[0] = unicode.ToLower(runes[0])
	return string(runes)
}

func trim(raw json.RawMessage) json.RawMessage {
	return json.RawMessage(strings.TrimSpace(string(raw)))
}

// clip keeps a value short enough to read.
func clip(value string) string {
	if len(value) > 80 {
		return value[:80] + "…"
	}
	return value
}
