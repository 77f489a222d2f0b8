package mcp_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// TestResourceQuery_OfEachRequest: who looks for what.
func TestResourceQuery_OfEachRequest(t *testing.T) {
	t.Parallel()
	tr := mcp.New(translators.Config{})
	for name, tc := range map[string]struct {
		method, params string
		want           *translators.ResourceQuery
		code           canonical.Code
	}{
		"the first page":       {"resources/list", "", &translators.ResourceQuery{What: translators.SeekList}, ""},
		"another page":         {"resources/list", `{"cursor":"c","_meta":{}}`, &translators.ResourceQuery{What: translators.SeekList, Cursor: "c"}, ""},
		"templates":            {"resources/templates/list", `{}`, &translators.ResourceQuery{What: translators.SeekPatterns}, ""},
		"one":                  {"resources/read", `{"uri":"a:b"}`, &translators.ResourceQuery{What: translators.SeekOne, URI: "a:b"}, ""},
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

// TestResourceResult_ValidInEveryRevision: what is shown is valid in every revision, and loses nothing.
func TestResourceResult_ValidInEveryRevision(t *testing.T) {
	t.Parallel()
	tr := mcp.New(translators.Config{})
	var waiting []translators.ResourceContent
	for _, p := range everyPart() {
		waiting = append(waiting, translators.ResourceContent{URI: "a2a://x/y", Part: &p})
	}
	list := []translators.Resource{{URI: "a2a://x/{y}", Name: "n", Description: "d", Media: "text/plain"}, {URI: "a2a://z", Name: "m"}}
	for definition, showing := range map[string]translators.ResourceResult{
		"ListResourcesResult":         {What: translators.SeekList, Resources: list, Next: "c"},
		"ListResourceTemplatesResult": {What: translators.SeekPatterns, Resources: list},
		"ReadResourceResult":          {What: translators.SeekOne, Contents: waiting},
	} {
		for _, version := range tr.Info().Versions {
			official := loadSchemas(t, version)
			for _, s := range []translators.ResourceResult{showing, {What: showing.What}} {
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

// TestContents_OfEachPart: how each kind of part reads.
func TestContents_OfEachPart(t *testing.T) {
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
		got := tr.Shows(translators.ResourceResult{What: translators.SeekOne, Contents: []translators.ResourceContent{{URI: "u", Part: &p}}})
		if string(got.Result) != `{"contents":[`+want+`]}` {
			t.Errorf("got  %s\nwant %s", got.Result, want)
		}
	}
}

func TestEmbeds_Parts(t *testing.T) {
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

// contentSkills are what stands for prompts and resources, each with a call of
// it and its native request and result.
func contentSkills() map[string]struct {
	skill                       canonical.Capability
	args                        string
	request, result, name, text string
} {
	type row = struct {
		skill                       canonical.Capability
		args                        string
		request, result, name, text string
	}
	reading := mcp.Reading()
	prompt := canonical.Capability{ID: "prompt.greet", Profile: canonical.ProfilePrompt, InputSchema: json.RawMessage(`{"type":"object"}`)}
	return map[string]row{
		"GetPrompt":     {prompt, `{"who":"you"}`, `"name":"greet","arguments":{"who":"you"}`, `"messages":[{"role":"user","content":{"type":"text","text":"hi"}}]`, "greet", "prompts/get"},
		"ReadResource":  {reading[0], `{"uri":"file:///ä"}`, `"uri":"file:///ä"`, `"contents":[{"uri":"file:///ä","text":"t"}]`, "=?base64?ZmlsZTovLy/DpA==?=", "resources/read"},
		"ListResources": {reading[1], `{"cursor":"c"}`, `"cursor":"c"`, `"resources":[{"uri":"u","name":"n"}],"nextCursor":"d"`, "", "resources/list"},
	}
}

func callOf(c *canonical.Capability, args string) *canonical.Message {
	call := &canonical.Call{Name: c.ID}
	if args != "" {
		call.Args = json.RawMessage(args)
	}
	return &canonical.Message{
		Op: canonical.OpInvoke, Phase: canonical.PhaseRequest, Correlation: canonical.Correlation{WireID: json.RawMessage(`"1"`)},
		To: canonical.Party{Skill: c.ID}, Body: &canonical.Invoke{Call: call}, Origin: canonical.Origin{Binding: "a2a-v1"},
	}
}

// TestContent_RequestInEveryRevision: each skill asks in the words of every revision, validly.
func TestContent_RequestInEveryRevision(t *testing.T) {
	t.Parallel()
	tr := mcp.New(translators.Config{})
	for definition, tc := range contentSkills() {
		for _, version := range tr.Info().Versions {
			m := callOf(&tc.skill, tc.args)
			m.Preferences.TaskOK = version == mcp.Legacy // which only calls of tools may be answered with
			w, losses, err := tr.Encode(m, translators.Target{Version: version, Capability: &tc.skill})
			if err != nil || len(losses) > 0 {
				t.Fatalf("%s %s: %v %v", version, definition, err, losses)
			}
			loadSchemas(t, version).check(t, definition+"Request", w.Body)
			var answer struct {
				Method string
				Params map[string]json.RawMessage
			}
			if err := json.Unmarshal(w.Body, &answer); err != nil {
				t.Fatal(err)
			}
			delete(answer.Params, "_meta")
			got, err := json.Marshal(answer.Params)
			if err != nil || answer.Method != tc.text || !rawjson.Equal(got, []byte("{"+tc.request+"}")) {
				t.Errorf("%s %s: got %s %s %v", version, definition, answer.Method, got, err)
			}
			if header := w.Header.Get("Mcp-Name"); version == mcp.Modern && header != tc.name {
				t.Errorf("%s: Mcp-Name %q", definition, header)
			}
		}
	}
}

// TestContent_ArgumentsMustFitTheSchema: what does not fit is refused with the schema.
func TestContent_ArgumentsMustFitTheSchema(t *testing.T) {
	t.Parallel()
	tr, skills := mcp.New(translators.Config{}), contentSkills()
	for i, tc := range []struct {
		skill, args string
		ok          bool
	}{
		{"GetPrompt", "", true},
		{"GetPrompt", `{}`, true},
		{"GetPrompt", `{"a":1}`, false},
		{"GetPrompt", `{"a":null}`, false},
		{"GetPrompt", `{"a":{}}`, false},
		{"ReadResource", "", false},
		{"ReadResource", `{"uri":""}`, false},
		{"ReadResource", `{"uri":1}`, false},
		{"ReadResource", `{"uri":"u","x":"y"}`, false},
		{"ListResources", "", true},
		{"ListResources", `{}`, true},
		{"ListResources", `{"cursor":1}`, false},
		{"ListResources", `{"x":"y"}`, false},
	} {
		skill := skills[tc.skill].skill
		_, _, err := tr.Encode(callOf(&skill, tc.args), translators.Target{Capability: &skill})
		var answer *canonical.Error
		if tc.ok != (err == nil) || !tc.ok && (!errors.As(err, &answer) || answer.Code != canonical.CodeBadParams || answer.Schema == nil) {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// TestContent_AnswersBecomeParts: the answers, of which nothing is lost, as parts.
func TestContent_AnswersBecomeParts(t *testing.T) {
	t.Parallel()
	tr := mcp.New(translators.Config{})
	image := `{"type":"image","data":"AP8=","mimeType":"image/png"}`
	for name, tc := range map[string]struct {
		profile          canonical.Profile
		result           string
		parts            []canonical.Part
		structured, left string
		unread           bool // what of it cannot be read is data, and declared
	}{
		"messages": {
			canonical.ProfilePrompt, `"description":"d","messages":[{"role":"user","content":{"type":"text","text":"hi"}},{"role":"assistant","content":` + image + `}]`,
			[]canonical.Part{{Kind: canonical.KindText, Text: "hi"}, {Kind: canonical.KindFile, Bytes: []byte{0, 255}, Media: "image/png"}},
			`{"description":"d","messages":[{"role":"user","content":{"type":"text","text":"hi"}},{"role":"assistant","content":` + image + `}]}`, "", false,
		},
		"no messages": {canonical.ProfilePrompt, `"messages":[],"x":1`, nil, `{"messages":[]}`, `{"x":1}`, false},
		"contents": {
			canonical.ProfileResource, `"contents":[{"uri":"u","mimeType":"text/csv","text":"a,b"},{"uri":"v","blob":"AP8="}],"ttlMs":5,"cacheScope":"public"`,
			[]canonical.Part{
				{Kind: canonical.KindText, Text: "a,b", Media: "text/csv", URI: "u", Form: canonical.FormEmbedded},
				{Kind: canonical.KindFile, Bytes: []byte{0, 255}, URI: "v", Form: canonical.FormEmbedded},
			},
			"", `{"ttlMs":5,"cacheScope":"public"}`, false,
		},
		"a list":            {canonical.ProfileResources, `"resources":[{"uri":"u","name":"n","size":1.50}],"nextCursor":"c"`, nil, `{"resources":[{"uri":"u","name":"n","size":1.50}],"nextCursor":"c"}`, "", false},
		"the last page":     {canonical.ProfileResources, `"resources":[]`, nil, `{"resources":[]}`, "", false},
		"a tool's result":   {canonical.ProfilePrompt, `"content":[]`, nil, "", "", true},
		"another's":         {canonical.ProfileResource, `"messages":[]`, nil, "", "", true},
		"no list at all":    {canonical.ProfileResources, `"resources":{}`, nil, "", "", true},
		"somebody's role":   {canonical.ProfilePrompt, `"messages":[{"role":"system","content":{"type":"text","text":""}}]`, nil, "", "", true},
		"no role":           {canonical.ProfilePrompt, `"messages":[{"content":{"type":"text","text":""}}]`, nil, "", "", true},
		"no content":        {canonical.ProfilePrompt, `"messages":[{"role":"user"}]`, nil, "", "", true},
		"a list of content": {canonical.ProfilePrompt, `"messages":[{"role":"user","content":[]}]`, nil, "", "", true},
		"an unknown block":  {canonical.ProfilePrompt, `"messages":[{"role":"user","content":{"type":"video"}}]`, nil, "", "", true},
		"a number":          {canonical.ProfilePrompt, `"messages":[],"description":7`, nil, "", "", true},
		"no uri":            {canonical.ProfileResource, `"contents":[{"text":""}]`, nil, "", "", true},
		"no text, no blob":  {canonical.ProfileResource, `"contents":[{"uri":"u"}]`, nil, "", "", true},
		"a text":            {canonical.ProfileResource, `"contents":["u"]`, nil, "", "", true},
	} {
		for _, version := range tr.Info().Versions {
			body := `{"jsonrpc":"2.0","id":1,"result":{` + tc.result + `}}`
			if version == mcp.Modern {
				body = `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete",` + tc.result + `}}`
			}
			m, err := tr.Decode(translators.Wire{Version: version, Re: canonical.OpInvoke, Profile: tc.profile, Body: []byte(body)})
			if tc.unread {
				result, _ := m.Body.(*canonical.Result)
				if err != nil || len(m.Losses) != 1 || result.Output.Parts[0].Kind != canonical.KindData || result.Output.Failed {
					t.Errorf("%s, %s: %v, %v, %+v", name, version, err, m.Losses, result)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s, %s: %v", name, version, err)
				continue
			}
			result := m.Body.(*canonical.Result)
			if diff := cmp.Diff(tc.parts, result.Output.Parts); diff != "" || string(result.Output.Structured) != tc.structured || string(result.Extensions[mcp.Binding]) != tc.left {
				t.Errorf("%s, %s: %s %s %s", name, version, diff, result.Output.Structured, result.Extensions)
			}
		}
	}
}

// TestContent_PromptThatRequestsInput: in the newest revision a prompt may ask first.
func TestContent_PromptThatRequestsInput(t *testing.T) {
	t.Parallel()
	body := `{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","requestState":"s","inputRequests":{"k":{"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{}}}}}}}`
	tr := mcp.New(translators.Config{})
	m, err := tr.Decode(translators.Wire{Version: mcp.Modern, Re: canonical.OpInvoke, Profile: canonical.ProfilePrompt, Body: []byte(body)})
	if err != nil || m.Body.(*canonical.Result).Pending == nil {
		t.Fatalf("%+v %v", m, err)
	}
	skill := contentSkills()["GetPrompt"].skill
	again := callOf(&skill, `{"who":"you"}`)
	invoke := again.Body.(*canonical.Invoke)
	invoke.State, invoke.Answers = "s", []canonical.Answer{{Key: "k", Action: canonical.Decline}}
	w, _, err := tr.Encode(again, translators.Target{Version: mcp.Modern, Capability: &skill})
	if err != nil {
		t.Fatal(err)
	}
	loadSchemas(t, mcp.Modern).check(t, "GetPromptRequest", w.Body)
	if !strings.Contains(string(w.Body), `"requestState":"s"`) || !strings.Contains(string(w.Body), `"k":{"action":"decline"}`) {
		t.Errorf("%s", w.Body)
	}
}

// FuzzContent_PartsOrRefusal: whatever answers a prompt, or a resource, is read or refused in
// words, and what was read has only parts that can be said.
func FuzzContent_PartsOrRefusal(f *testing.F) {
	f.Add(`{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"u","text":"t"}}}],"description":"d"}`)
	f.Add(`{"contents":[{"uri":"u","blob":"AP8=","_meta":{"aepb.gateway/ext":{"canon":{"name":"n"}}}}],"resultType":"complete"}`)
	f.Add(`{"resources":[{"uri":"u"}],"nextCursor":7,"_meta":{"aepb.gateway/ext":{"canon":{"blocks":{"0":{}}}}}}`)
	f.Add(`{"prompts":[{"name":"n","arguments":[{"name":"a","required":true}]}]}`)
	tr := mcp.New(translators.Config{})
	f.Fuzz(func(t *testing.T, inside string) {
		if _, _, err := mcp.Prompts(&canonical.Native{Result: json.RawMessage(`{}`)}); !errors.Is(err, translators.ErrMalformed) {
			t.Fatalf("nothing is a list of prompts: %v", err)
		}
		body := []byte(`{"jsonrpc":"2.0","id":1,"result":` + inside + `}`)
		if m, err := tr.Decode(translators.Wire{Version: mcp.Legacy, Re: canonical.OpNative, Body: body}); err == nil && m.Phase == canonical.PhaseResponse {
			_, _, _ = mcp.Prompts(m.Body.(*canonical.Native))
		}
		for _, version := range tr.Info().Versions {
			for _, profile := range []canonical.Profile{canonical.ProfilePrompt, canonical.ProfileResource, canonical.ProfileResources} {
				m, err := tr.Decode(translators.Wire{Version: version, Re: canonical.OpInvoke, Profile: profile, Body: body})
				if err != nil {
					var answer *canonical.Error
					if !errors.Is(err, translators.ErrMalformed) && !errors.As(err, &answer) {
						t.Errorf("%T %v", err, err)
					}
					continue
				}
				if result, ok := m.Body.(*canonical.Result); ok && result.Output != nil && result.Output.Structured != nil && !json.Valid(result.Output.Structured) {
					t.Errorf("no JSON: %s", result.Output.Structured)
				}
				m.Correlation.WireID = json.RawMessage("1")
				if _, _, err := tr.Encode(m, translators.Target{Version: version}); err != nil {
					t.Errorf("what was read cannot be said: %v", err)
				}
			}
		}
	})
}
