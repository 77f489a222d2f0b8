package mcp

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/jsonrpc"
	"github.com/aepb/aepb-gateway/translators/internal/profile"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// nativeRequest writes a method that only MCP has. In its own revision nothing
// is changed but the name of its progress.
func (e *encoder) nativeRequest(body *canonical.Native) (name string, params json.RawMessage, err error) {
	if e.m.Origin.Binding != Binding {
		return "", nil, refuse(canonical.CodeUnsupportedOp, "MCP has no such method")
	}
	if !serves(e.version, body.Method) {
		return "", nil, refuse(canonical.CodeNoMethod, "MCP "+e.version+" has no such method")
	}
	if member := nameMember(body.Method); member != "" && isObject(body.Params) {
		name, _ = rawjson.Unquote(rawjson.Parse(body.Params, "").Peek(member))
	}
	if e.native {
		return name, withToken(body.Params, e.m.Correlation.Progress), nil
	}
	w := write(canonical.Extensions{Binding: orEmpty(body.Params)})
	if !e.modern {
		for _, member := range []string{"inputResponses", "requestState"} {
			if w.has(member) {
				w.forget(member)
				e.lose(canonical.LossRequestState, canonical.Dropped, "/body/params/"+member)
			}
		}
		if w.left != nil {
			w.left.Take(metaLogLevel)
		}
	}
	e.requestMeta(w)
	if body.Params == nil {
		return name, w.object(), nil
	}
	return name, w.bytes(), nil
}

func orEmpty(raw json.RawMessage) json.RawMessage {
	if raw == nil {
		return json.RawMessage("{}")
	}
	return raw
}

// withToken gives parameters the name under which progress is wanted, if they
// have another one.
func withToken(params, token json.RawMessage) json.RawMessage {
	if token == nil {
		return params
	}
	o := rawjson.Parse(orEmpty(params), "")
	meta := rawjson.Parse([]byte("{}"), "")
	if raw := o.Peek("_meta"); isObject(raw) {
		meta = rawjson.Parse(raw, "")
	}
	if had := meta.Take("progressToken"); had != nil && rawjson.Equal(had, token) {
		return params
	}
	o.Take("_meta")
	inner := rawjson.NewBuilder().Raw("progressToken", token).Merge(meta.Rest()).Bytes()
	return rawjson.NewBuilder().Merge(o.Rest()).Raw("_meta", inner).Bytes()
}

func (e *encoder) nativeResponse(body *canonical.Native) (translators.Wire, error) {
	if e.m.Origin.Binding != Binding || !isObject(body.Result) {
		return translators.Wire{}, refuse(canonical.CodeUnsupportedOp, "MCP has no such reply")
	}
	result := body.Result
	if !e.native {
		o := rawjson.Parse(result, "")
		if kind := o.Take("resultType"); kind != nil && string(kind) != `"complete"` {
			return translators.Wire{}, refuse(canonical.CodeBadUpstream, "the result is of a type that was not asked for")
		}
		if e.modern {
			if len(o.Members()) == 0 {
				e.lose(canonical.LossEmpty, canonical.Dropped, "/body/result")
			}
			result = modernResult(o)
		} else {
			result = e.legacyResult(o)
		}
	}
	return translators.Wire{Body: jsonrpc.Result(e.m.Correlation.WireID, result)}, nil
}

// modernResult says what every result of 2026-07-28 says. How long a legacy
// server's list may be kept nobody knows.
func modernResult(o *rawjson.Object) json.RawMessage {
	b := rawjson.NewBuilder().String("resultType", "complete")
	for _, list := range []string{"prompts", "resources", "resourceTemplates", "contents"} {
		if !o.Has(list) {
			continue
		}
		if !o.Has("ttlMs") {
			b.Raw("ttlMs", json.RawMessage("0"))
		}
		if !o.Has("cacheScope") {
			b.String("cacheScope", "private")
		}
		break
	}
	return b.Merge(o.Rest()).Bytes()
}

func (e *encoder) legacyResult(o *rawjson.Object) json.RawMessage {
	for _, name := range []string{"ttlMs", "cacheScope"} {
		if o.Take(name) != nil {
			e.lose(canonical.LossCaching, canonical.Dropped, "/body/result/"+name)
		}
	}
	raw := o.Peek("_meta")
	if !isObject(raw) {
		return rawjson.NewBuilder().Merge(o.Rest()).Bytes()
	}
	meta := rawjson.Parse(raw, "")
	if meta.Take(metaServerInfo) == nil {
		return rawjson.NewBuilder().Merge(o.Rest()).Bytes()
	}
	e.lose(canonical.LossPeerInfo, canonical.Dropped, "/body/result/_meta")
	o.Take("_meta")
	return rawjson.NewBuilder().Merge(o.Rest()).Raw("_meta", meta.Rest()).Bytes()
}

var _ translators.Librarian = (*Translator)(nil)

// The media types of content that has no octets of its own.
const (
	mediaData = "application/json"
	mediaText = "text/plain"
	mediaLink = "text/uri-list" // RFC 2483: content elsewhere, which nobody fetches here
)

// Seeks reads resources/list, resources/templates/list and resources/read.
func (t *Translator) Seeks(n *canonical.Native) (*translators.Seeking, error) {
	s := &translators.Seeking{}
	switch n.Method {
	case methodResources:
		s.What = translators.SeekList
	case methodTemplates:
		s.What = translators.SeekPatterns
	case methodResourcesRead:
		s.What = translators.SeekOne
	default:
		return nil, nil
	}
	if n.Params != nil && !isObject(n.Params) {
		return nil, refuse(canonical.CodeBadParams, "params is no object")
	}
	o := rawjson.Parse(orEmpty(n.Params), "/params")
	if s.What == translators.SeekOne {
		s.URI = o.Required("uri")
	} else {
		s.Cursor, _ = o.String("cursor")
	}
	if o.Err() != nil || s.What == translators.SeekOne && s.URI == "" {
		return nil, refuse(canonical.CodeBadParams, "uri or cursor is not as it must be")
	}
	return s, nil
}

// Shows answers them. What every result of a revision says besides, the encoder adds.
func (t *Translator) Shows(s translators.Showing) *canonical.Native {
	b := rawjson.NewBuilder()
	switch s.What {
	case translators.SeekList:
		b.Raw("resources", holdings(s.Holdings, "uri"))
	case translators.SeekPatterns:
		b.Raw("resourceTemplates", holdings(s.Holdings, "uriTemplate"))
	default:
		list := make([]json.RawMessage, len(s.Contents))
		for i, held := range s.Contents {
			list[i] = contents(held)
		}
		b.Raw("contents", rawArray(list))
	}
	return &canonical.Native{Result: b.Optional("nextCursor", s.Next).Bytes()}
}

// Embeds: what is no image and no sound becomes an embedded resource (block.go).
func (t *Translator) Embeds(p *canonical.Part) bool {
	return p.Kind == canonical.KindFile && p.URI == "" && p.Form == canonical.FormNone && profile.NaturalForm(p.Media) == canonical.FormEmbedded
}

// holdings writes what all revisions have a member for.
func holdings(list []translators.Holding, uri string) json.RawMessage {
	out := make([]json.RawMessage, len(list))
	for i, h := range list {
		out[i] = rawjson.NewBuilder().String(uri, h.URI).String("name", h.Name).
			Optional("description", h.Description).Optional("mimeType", h.Media).Bytes()
	}
	return rawArray(out)
}

// contents writes TextResourceContents or BlobResourceContents. Octets that are
// a text are shown as one.
func contents(h translators.Held) json.RawMessage {
	b, p := rawjson.NewBuilder().String("uri", h.URI), h.Part
	media := func(otherwise string) {
		if p.Media != "" {
			otherwise = p.Media
		}
		b.Optional("mimeType", otherwise)
	}
	switch p.Kind {
	case canonical.KindText:
		media(mediaText)
		b.String("text", p.Text)
	case canonical.KindData:
		media(mediaData)
		b.String("text", string(p.Data))
	case canonical.KindRef:
		b.String("mimeType", mediaLink).String("text", p.URI+"\r\n")
	default:
		media("")
		if textual(p.Media) && utf8.Valid(p.Bytes) {
			b.String("text", string(p.Bytes))
		} else {
			b.Base64("blob", p.Bytes)
		}
	}
	return b.Bytes()
}

func textual(media string) bool {
	media, _, _ = strings.Cut(strings.ToLower(media), ";")
	media = strings.TrimSpace(media)
	return strings.HasPrefix(media, "text/") || media == mediaData || strings.HasSuffix(media, "+json") || strings.HasSuffix(media, "+xml")
}
