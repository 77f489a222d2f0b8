package ect

import (
	"strconv"
	"testing"
)

// What is remembered of headers stays bounded, and what is in use is known.
func TestHeaders_AreBounded(t *testing.T) {
	t.Parallel()
	var known headers
	for i := range 3 * maxHeaders {
		name := strconv.Itoa(i)
		known.learn(&parsed{encoded: name, header: Header{KeyID: name}})
		if header, ok := known.find(name); !ok || header.KeyID != name || len(known.known) > maxHeaders {
			t.Fatalf("%s: %v %v, %d are kept", name, header, ok, len(known.known))
		}
	}
	known.learn(&parsed{header: Header{KeyID: "of an unsigned token"}})
	if _, ok := known.find(""); ok {
		t.Error("no header is known")
	}
}
