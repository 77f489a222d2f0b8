package mcp_test

import (
	"encoding/json"
	"testing"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// TestSeeks: who looks for what.
func TestSeeks(t *testing.T) {
	t.Parallel()
	tr := mcp.New(translators.Config{})
	for name, tc := range map[string]struct {
		method, params string
		want           *translators.Seeking
		code           canonical.Code
	}{
		"the first page":       {"resources/list", "", &translators.Seeking{What: translators.SeekList}, ""},
		"another page":         {"resources/list", `{"cursor":"c","_meta":{}}`, &translators.Seeking{What: translators.SeekList, Cursor: "c"}, ""},
		"templates":            {"resources/templates/list", `{}`, &translators.Seeking{What: translators.SeekPatterns}, ""},
		"one":                  {"resources/read", `{"uri":"a:b"}`, &translators.Seeking{What: translators.SeekOne, URI: "a:b"}, ""},
		"something else":       {"prompts/list", `{"cursor":7}`, nil, ""},
		"nothing in one":       {"resources/read", `{}`, nil, canonical.CodeBadParams},
		"nothing at all":       {"resources/read", "", nil, canonical.CodeBadParams},
		"an empty URI":         {"resources/read", `{"uri":""}`, nil, canonical.CodeBadParams},
		"a number for a URI":   {"resources/read", `{"uri":7}`, nil, canonical.CodeBadParams},
		"a number as a cursor": {"resources/list", `{"cursor":7}`, nil, canonical.CodeBadParams},
		"a list":               {"resources/list", `[]`, nil, canonical.CodeBadParams},
	} {
		n := &canonical.Native{Method: tc.method}
		if tc.params != "" {
			n.Params = json.RawMessage(tc.params)
		}
		got, err := tr.Seeks(n)
		if tc.code != "" && !hasCode(err, tc.code) || tc.code == "" && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if tc.want == nil && got != nil || tc.want != nil && (got == nil || *got != *tc.want) {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

// TestShownIsValid: what is shown is valid in every revision, and loses nothing.
func TestShownIsValid(t *testing.T) {
	t.Parallel()
	tr := mcp.New(translators.Config{})
	var held []translators.Held
	for _, p := range everyPart() {
		held = append(held, translators.Held{URI: "a2a://x/y", Part: &p})
	}
	list := []translators.Holding{{URI: "a2a://x/{y}", Name: "n", Description: "d", Media: "text/plain"}, {URI: "a2a://z", Name: "m"}}
	for definition, showing := range map[string]translators.Showing{
		"ListResourcesResult":         {What: translators.SeekList, Holdings: list, Next: "c"},
		"ListResourceTemplatesResult": {What: translators.SeekPatterns, Holdings: list},
		"ReadResourceResult":          {What: translators.SeekOne, Contents: held},
	} {
		for _, version := range tr.Info().Versions {
			official := loadSchemas(t, version)
			for _, s := range []translators.Showing{showing, {What: showing.What}} {
				m := &canonical.Message{
					Op: canonical.OpNative, Phase: canonical.PhaseResponse, Body: tr.Shows(s),
					Correlation: canonical.Correlation{WireID: json.RawMessage("1")}, Origin: canonical.Origin{Binding: mcp.Binding},
				}
				w, losses, err := tr.Encode(m, translators.Target{Version: version})
				if err != nil || len(losses) > 0 {
					t.Fatalf("%s %s: %v %v", version, definition, err, losses)
				}
				official.check(t, definition, resultOf(t, w.Body))
			}
		}
	}
}

// TestContents: how each kind of part reads.
func TestContents(t *testing.T) {
	t.Parallel()
	tr := mcp.New(translators.Config{})
	for want, p := range map[string]canonical.Part{
		`{"uri":"u","mimeType":"text/plain","text":"a"}`:                        {Kind: canonical.KindText, Text: "a"},
		`{"uri":"u","mimeType":"text/markdown","text":""}`:                      {Kind: canonical.KindText, Media: "text/markdown"},
		`{"uri":"u","mimeType":"application/json","text":"{\"a\":1.50}"}`:       {Kind: canonical.KindData, Data: json.RawMessage(`{"a":1.50}`)},
		`{"uri":"u","mimeType":"text/uri-list","text":"https://x.example\r\n"}`: {Kind: canonical.KindRef, URI: "https://x.example", Media: "image/png"},
		`{"uri":"u","blob":"AP8="}`:                                             {Kind: canonical.KindFile, Bytes: []byte{0, 255}},
		`{"uri":"u","mimeType":"text/plain","blob":"AP8="}`:                     {Kind: canonical.KindFile, Bytes: []byte{0, 255}, Media: "text/plain"},
		`{"uri":"u","mimeType":"text/csv; charset=utf-8","text":"a,b"}`:         {Kind: canonical.KindFile, Bytes: []byte("a,b"), Media: "text/csv; charset=utf-8"},
		`{"uri":"u","mimeType":"application/ld+json","text":"{}"}`:              {Kind: canonical.KindFile, Bytes: []byte("{}"), Media: "application/ld+json"},
		`{"uri":"u","mimeType":"application/pdf","blob":"JVBERg=="}`:            {Kind: canonical.KindFile, Bytes: []byte("%PDF"), Media: "application/pdf"},
		`{"uri":"u","mimeType":"application/octet-stream","blob":""}`:           {Kind: canonical.KindFile, Media: "application/octet-stream"},
	} {
		got := tr.Shows(translators.Showing{What: translators.SeekOne, Contents: []translators.Held{{URI: "u", Part: &p}}})
		if string(got.Result) != `{"contents":[`+want+`]}` {
			t.Errorf("got  %s\nwant %s", got.Result, want)
		}
	}
}

func TestEmbeds(t *testing.T) {
	t.Parallel()
	for i, tc := range []struct {
		p    canonical.Part
		want bool
	}{
		{canonical.Part{Kind: canonical.KindFile}, true},
		{canonical.Part{Kind: canonical.KindFile, Media: "text/csv"}, true},
		{canonical.Part{Kind: canonical.KindFile, Media: "image/png"}, false},
		{canonical.Part{Kind: canonical.KindFile, Media: "audio/wav"}, false},
		{canonical.Part{Kind: canonical.KindFile, URI: "u", Form: canonical.FormEmbedded}, false},
		{canonical.Part{Kind: canonical.KindText}, false},
		{canonical.Part{Kind: canonical.KindRef, URI: "u"}, false},
	} {
		if got := mcp.New(translators.Config{}).Embeds(&tc.p); got != tc.want {
			t.Errorf("%d: got %t", i, got)
		}
	}
}
