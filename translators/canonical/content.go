package canonical

import (
	"encoding/json"
	"strings"
)

// Role is who speaks.
type Role string

// The two roles of a turn.
const (
	RoleCaller Role = "caller"
	RoleAgent  Role = "agent"
)

// Content is one turn of a dialogue.
type Content struct {
	ID            string
	Role          Role
	Parts         []Part
	ExtensionURIs []string
	Extensions    Extensions
}

// Kind says which content member of a Part is set.
type Kind string

// The kinds of part.
const (
	KindText Kind = "text" // Text
	KindData Kind = "data" // Data: any JSON value
	KindFile Kind = "file" // Bytes: inline binary
	KindRef  Kind = "ref"  // URI: content elsewhere, never fetched by a codec
)

// Form is the native shape a part had, where a protocol has several for one kind.
type Form string

// The forms of MCP content blocks. FormNone lets the encoder choose by media type.
const (
	FormNone     Form = ""
	FormImage    Form = "image"
	FormAudio    Form = "audio"
	FormEmbedded Form = "embedded" // an embedded resource; its URI is in Part.URI
)

// Part is one piece of content. Kind says which of Text, Data, Bytes and URI
// is the content; a file or text that is an embedded resource keeps the
// resource's own URI in URI too, with Form set to FormEmbedded.
type Part struct {
	Kind        Kind
	Text        string          `json:",omitzero"`
	Data        json.RawMessage `json:",omitempty"`
	Bytes       []byte          `json:",omitzero"`
	URI         string          `json:",omitzero"`
	Media       string          `json:",omitzero"` // media type; empty: not said
	Name        string          `json:",omitzero"` // file name
	Title       string          `json:",omitzero"`
	Description string          `json:",omitzero"`
	Size        json.RawMessage `json:",omitempty"` // declared size in bytes, raw number; nil: not said
	Form        Form            `json:",omitzero"`
	Annotations json.RawMessage `json:",omitempty"` // MCP annotations, raw; nil: none
	Extensions  Extensions      `json:",omitzero"`
}

// TextOf is the texts among parts, joined; false: there are none.
func TextOf(parts []Part, between string) (string, bool) {
	var texts []string
	for i := range parts {
		if parts[i].Kind == KindText {
			texts = append(texts, parts[i].Text)
		}
	}
	return strings.Join(texts, between), len(texts) > 0
}
