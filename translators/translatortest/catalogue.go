package translatortest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Catalogue: every loss has a code of the catalogue and a fate; a loss of Encode
// also has a place that a canonical message can have.
//
// A code outside the catalogue weighs as content, so a forgotten entry refuses
// harmless messages; a place that does not exist has no meaning for a reader.
func Catalogue(tr translators.Translator, s Samples) []string {
	var failures []string
	for i, m := range decoded(tr, s) {
		for _, loss := range m.Losses {
			failures = append(failures, listed(name("wire", i, m), loss)...)
		}
	}
	for i, m := range slices.Concat(s.Foreign, decoded(tr, s)) {
		_, losses, err := encode(tr, m, s.target(m))
		if err != nil {
			continue
		}
		for _, loss := range losses {
			who := name("message", i, m)
			failures = append(failures, listed(who, loss)...)
			if !place(loss.Path) {
				failures = append(failures, fmt.Sprintf("%s: %s: a canonical message has no such place", who, loss))
			}
		}
	}
	return failures
}

func listed(who string, loss canonical.Loss) []string {
	var failures []string
	if _, ok := canonical.Lookup(loss.Code); !ok {
		failures = append(failures, fmt.Sprintf("%s: %q is not in the catalogue", who, loss.Code))
	}
	if loss.Fate != canonical.Carried && loss.Fate != canonical.Dropped {
		failures = append(failures, fmt.Sprintf("%s: %s: %q is no fate", who, loss.Code, loss.Fate))
	}
	return failures
}

// place reports whether path can stand in a message, /body being optional.
func place(path string) bool {
	if path == "" {
		return true
	}
	if path[0] != '/' {
		return false
	}
	segments := strings.Split(strings.ToLower(path[1:]), "/")
	return resolves(reflect.TypeFor[canonical.Message](), segments) || resolves(reflect.TypeFor[canonical.Body](), segments)
}

func resolves(t reflect.Type, segments []string) bool {
	if len(segments) == 0 || t == reflect.TypeFor[json.RawMessage]() {
		return true
	}
	switch t.Kind() {
	case reflect.Pointer:
		return resolves(t.Elem(), segments)
	case reflect.Interface:
		return slices.ContainsFunc(bodies(), func(body reflect.Type) bool { return resolves(body, segments) })
	case reflect.Map:
		return resolves(t.Elem(), segments[1:])
	case reflect.Slice:
		_, err := strconv.ParseUint(segments[0], 10, 32)
		return err == nil && resolves(t.Elem(), segments[1:])
	case reflect.Struct:
		field, ok := t.FieldByNameFunc(func(n string) bool { return strings.EqualFold(n, segments[0]) })
		return ok && t != reflect.TypeFor[time.Time]() && resolves(field.Type, segments[1:])
	default:
		return false
	}
}

func bodies() []reflect.Type {
	return []reflect.Type{
		reflect.TypeFor[canonical.Invoke](), reflect.TypeFor[canonical.Result](),
		reflect.TypeFor[canonical.DescribeRequest](), reflect.TypeFor[canonical.Description](),
		reflect.TypeFor[canonical.Page](), reflect.TypeFor[canonical.CapabilityList](),
		reflect.TypeFor[canonical.Error](), reflect.TypeFor[canonical.Event](),
		reflect.TypeFor[canonical.TaskQuery](), reflect.TypeFor[canonical.TaskFilter](), reflect.TypeFor[canonical.TaskList](),
		reflect.TypeFor[canonical.PushRequest](), reflect.TypeFor[canonical.PushConfig](), reflect.TypeFor[canonical.PushList](),
		reflect.TypeFor[canonical.Done](), reflect.TypeFor[canonical.Reply](), reflect.TypeFor[canonical.Abort](),
		reflect.TypeFor[canonical.Native](),
	}
}
