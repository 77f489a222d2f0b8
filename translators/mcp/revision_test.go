package mcp_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
	"github.com/aepb/aepb-gateway/translators/mcp"
	"github.com/aepb/aepb-gateway/translators/translatortest"
)

// olderSamples are what the revisions before 2025-11-25 say: all of the legacy
// samples, and what is special about their age.
func olderSamples(legacy []sample) []sample {
	var out []sample
	for _, s := range legacy {
		for _, version := range []string{mcp.LegacyJune, mcp.LegacyMarch, mcp.LegacyFirst} {
			if s.version == mcp.Legacy {
				out = append(out, sample{s.name + " of " + version, version, s.re, s.body})
			}
		}
	}
	result := func(inner string) string { return `{"jsonrpc":"2.0","id":1,"result":{` + inner + `}}` }
	ext := func(canon string) string { return `"_meta":{"aepb.gateway/ext":{"canon":{` + canon + `}}}` }
	link := `{"type":"resource_link","uri":"file:///a","name":"a","title":"t","icons":[{"src":"s"}],"_meta":{"k":1}}`
	for i, version := range []string{mcp.LegacyJune, mcp.LegacyMarch, mcp.LegacyFirst} {
		one := func(name string, re canonical.Op, body string) {
			out = append(out, sample{fmt.Sprint(name, " ", i), version, re, body})
		}
		one("in its place", canonical.OpInvoke, result(`"content":[`+link+`,{"type":"text","text":"x","annotations":{"lastModified":"2025-01-01T00:00:00Z","priority":1},"_meta":{}},{"type":"resource","resource":{"uri":"u","text":"t","_meta":{"k":1}}}],"structuredContent":{"a":1}`))
		one("in its place, any value", canonical.OpInvoke, result(`"content":[],"structuredContent":[null]`))
		one("copied", canonical.OpInvoke, result(`"content":[{"type":"text","text":"{\"a\": 1}"},{"type":"text","text":"[1]"}],`+ext(`"structured":1`)))
		one("copied, not the first", canonical.OpInvoke, result(`"content":[{"type":"text","text":"[1]"},{"type":"text","text":"[1]"}],`+ext(`"structured":1`)))
		one("appended", canonical.OpInvoke, result(`"content":[{"type":"text","text":"a"},{"type":"text","text":"[1]"}],`+ext(`"structured":"appended"`)))
		one("appended, but said before", canonical.OpInvoke, result(`"content":[{"type":"text","text":"[1]"},{"type":"text","text":"[1]"}],`+ext(`"structured":"appended"`)))
		one("appended with annotations", canonical.OpInvoke, result(`"content":[{"type":"text","text":"[1]","annotations":{}}],`+ext(`"structured":"appended"`)))
		one("copied object", canonical.OpInvoke, result(`"content":[{"type":"text","text":"{\"a\":1.0}"}],`+ext(`"structured":0`)))
		one("copied nonsense", canonical.OpInvoke, result(`"content":[{"type":"text","text":"no"}],`+ext(`"structured":7`)))
		one("copied beside the thing", canonical.OpInvoke, result(`"content":[{"type":"text","text":"[1]"}],"structuredContent":{},`+ext(`"structured":0`)))
		one("hoisted", canonical.OpInvoke, result(`"content":[{"type":"text","text":"a: u"},{"type":"text","text":"b"}],`+
			ext(`"blocks":{"0":{"k":1,"aepb.gateway/ext":{"canon":{"kind":"link","name":"a","uri":"u","members":{"icons":[]}}}},"1":{}}`)))
		one("hoisted too far", canonical.OpInvoke, result(`"content":[{"type":"text","text":"b"}],`+ext(`"blocks":{"1":{"k":1}}`)))
		one("hoisted beside the thing", canonical.OpInvoke, result(`"content":[{"type":"text","text":"b","_meta":{"k":1}}],`+ext(`"blocks":{"0":{"k":2}}`)))
		one("hoisted under another number", canonical.OpInvoke, result(`"content":[{"type":"text","text":"b"}],`+ext(`"blocks":{"00":{"k":2}}`)))
		one("link with another text", canonical.OpInvoke, result(`"content":[{"type":"text","text":"x"}],`+ext(`"blocks":{"0":{"aepb.gateway/ext":{"canon":{"kind":"link","uri":"u"}}}}`)))
		one("trimmed", canonical.OpInvoke, result(`"content":[{"type":"text","text":"x","annotations":{"priority":1}},{"type":"text","text":"y"}],`+
			ext(`"blocks":{"0":{"aepb.gateway/ext":{"canon":{"annotations":{"priority":1,"lastModified":"l"}}}},"1":{"aepb.gateway/ext":{"canon":{"annotations":{"lastModified":"l"}}}}}`)))
		one("trimmed otherwise", canonical.OpInvoke, result(`"content":[{"type":"text","text":"x","annotations":{"priority":1}}],`+
			ext(`"blocks":{"0":{"aepb.gateway/ext":{"canon":{"annotations":{"priority":2,"lastModified":"l"}}}}}`)))
		one("contents carried", canonical.OpInvoke, result(`"content":[{"type":"resource","resource":{"uri":"u","text":"t"}}],`+
			ext(`"blocks":{"0":{"aepb.gateway/ext":{"canon":{"contents":{"_meta":{"k":1}}}}}}`)))
		one("who answered", canonical.OpInvoke, result(`"content":[],`+ext(`"fromName":"n","fromVersion":"v"`)))
		one("tools in their place", canonical.OpCapabilities, result(`"tools":[{"name":"a","title":"t","inputSchema":{},"outputSchema":{"type":"array"},"icons":[],"execution":{},"_meta":{"k":1}}]`))
		one("tools carried", canonical.OpCapabilities, result(`"tools":[{"name":"a","inputSchema":{"type":"object"}}],`+
			ext(`"tools":{"0":{"k":1,"aepb.gateway/ext":{"canon":{"members":{"title":"t","outputSchema":{"type":"object"},"icons":[]},"tags":["x"]}}}}`)))
		one("tools half carried", canonical.OpCapabilities, result(`"tools":[{"name":"a","title":"here","inputSchema":{"type":"object"}}],`+
			ext(`"tools":{"0":{"aepb.gateway/ext":{"canon":{"members":{"title":"t"}}}}}`)))
		one("tools carry what is no newer", canonical.OpCapabilities, result(`"tools":[{"name":"a","inputSchema":{"type":"object"}}],`+
			ext(`"tools":{"0":{"aepb.gateway/ext":{"canon":{"members":{"x":"t"}}}}}`)))
		one("a server in its place", canonical.OpDescribe, result(`"protocolVersion":"`+version+`","capabilities":{},"serverInfo":{"name":"s","version":"1","title":"t","description":"d","websiteUrl":"w","icons":[{"src":"i"}]}`))
		one("a server carried", canonical.OpDescribe, result(`"protocolVersion":"`+version+`","capabilities":{},"serverInfo":{"name":"s","version":"1"},`+ext(`"serverInfo":{"description":"d","websiteUrl":"w","icons":[{"src":"i"}]}`)))
		one("a client carried", "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"`+version+`","capabilities":{},"clientInfo":{"name":"n","version":"1"},`+ext(`"clientInfo":{"icons":[]}`)+`}}`)
	}
	return out
}

// TestTranslator_ContractOfEachRevision holds the codec to what every translator must do, revision by
// revision: toward messages of other protocols as toward those of the others.
func TestTranslator_ContractOfEachRevision(t *testing.T) {
	t.Parallel()
	tr := mcp.New(translators.Config{})
	all := samples()
	for _, version := range tr.Info().Versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			s := translatortest.Samples{
				Malformed: [][]byte{nil, []byte("{"), []byte("["), []byte("[]"), []byte(`{"jsonrpc":"1.0","id":1,"method":"ping"}`), []byte(`{"jsonrpc":"2.0","id":1.5,"method":"ping"}`), []byte(`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`)},
				Target: func(m *canonical.Message) translators.Target {
					to := target(m)
					to.Version = version
					return to
				},
			}
			for _, m := range foreign() {
				s.Foreign = append(s.Foreign, m)
			}
			for _, one := range all {
				if one.version == version {
					s.Wires = append(s.Wires, one.wire())
				} else if m := ordinary(t, tr, one); m != nil {
					s.Foreign = append(s.Foreign, m)
				}
			}
			translatortest.Run(t, tr, s)
		})
	}
}

// ordinary is a sample as a message for another revision; nil for one that is
// about its own revision alone: what stood against its rules, what was carried
// there, and what was said explicitly although nothing would have meant the same.
func ordinary(t *testing.T, tr *mcp.Translator, s sample) *canonical.Message {
	t.Helper()
	m, err := tr.Decode(s.wire())
	if err != nil {
		t.Fatalf("%s: %v", s.name, err)
	}
	content, err := json.Marshal(m.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, special := range []string{`"aepb.gateway/`, `"_meta":{}`, `"params":{}`, `"capabilities":{}`, `"name":null`} {
		if bytes.Contains(content, []byte(special)) || strings.Contains(s.body, special) {
			return nil
		}
	}
	if s.version == mcp.Modern && s.re != "" && !strings.Contains(s.body, "resultType") {
		return nil
	}
	if m.Phase == canonical.PhaseResponse && (m.Op == canonical.OpTaskCancel || m.Op == canonical.OpTaskGet) {
		return nil // what one revision says of a task at once, another says when asked again
	}
	if m.Op == canonical.OpNotice || m.Op == canonical.OpPing || m.Phase == canonical.PhaseError {
		return nil
	}
	return m
}

// TestEncode_OfficialExamplesInOlderRevisions: what the newest revision shows off is
// valid in every older one, with no member that it does not have.
func TestEncode_OfficialExamplesInOlderRevisions(t *testing.T) {
	t.Parallel()
	dir := published(t)
	if dir == "" {
		return
	}
	files, _ := filepath.Glob(filepath.Join(dir, "examples-2026-07-28", "*", "*.json"))
	tr := mcp.New(translators.Config{})
	definitions := map[canonical.Op]string{
		canonical.OpInvoke: "CallToolResult", canonical.OpCapabilities: "ListToolsResult", canonical.OpDescribe: "InitializeResult",
	}
	for _, version := range []string{mcp.Legacy, mcp.LegacyJune, mcp.LegacyMarch, mcp.LegacyFirst} {
		official := loadSchemas(t, version)
		n := 0
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			w, ok := example(filepath.Base(filepath.Dir(file)), data)
			if !ok || w.Re == "" {
				continue
			}
			m, err := tr.Decode(w)
			if err != nil || m.Phase != canonical.PhaseResponse {
				continue
			}
			definition := definitions[w.Re]
			if w.Re == canonical.OpNative {
				definition = strings.TrimSuffix(filepath.Base(filepath.Dir(file)), "Response")
			}
			if result, ok := m.Body.(*canonical.Result); ok && result.Pending != nil || definition == "SubscriptionsListenResult" {
				continue // what no older revision has
			}
			n++
			t.Run(version+" "+filepath.Base(file), func(t *testing.T) {
				m.Correlation.WireID = json.RawMessage("1")
				old, _, err := tr.Encode(m, translators.Target{Version: version})
				if err != nil {
					t.Fatal(err)
				}
				official.check(t, definition, resultOf(t, old.Body))
			})
		}
		if n < 20 {
			t.Errorf("%s: only %d examples", version, n)
		}
	}
}

// TestDowngrade_ToOlderRevisions: what an old client gets to see of what it has no words for.
func TestDowngrade_ToOlderRevisions(t *testing.T) {
	t.Parallel()
	tr := mcp.New(translators.Config{})
	for name, tc := range map[string]struct {
		version, left, want string
		losses              []string
	}{
		"structured content, March": {
			mcp.LegacyMarch, `"content":[{"type":"text","text":"see"}],"structuredContent":{"a":1}`,
			`{"content":[{"type":"text","text":"see"},{"type":"text","text":"{\"a\":1}"}],"_meta":{"aepb.gateway/ext":{"canon":{"structured":"appended"}}}}`,
			[]string{"L17 carried /body/output/structured"},
		},
		"structured content with its copy, March": {
			mcp.LegacyMarch, `"content":[{"type":"text","text":"{ \"a\":1 }"}],"structuredContent":{"a":1}`,
			`{"content":[{"type":"text","text":"{ \"a\":1 }"}],"_meta":{"aepb.gateway/ext":{"canon":{"structured":0}}}}`,
			[]string{"L17 carried /body/output/structured"},
		},
		"structured content, June": {
			mcp.LegacyJune, `"content":[],"structuredContent":{"a":1}`, `{"content":[],"structuredContent":{"a":1}}`, nil,
		},
		"a structured list, June": {
			mcp.LegacyJune, `"content":[],"structuredContent":[1]`,
			`{"content":[{"type":"text","text":"[1]"}],"_meta":{"aepb.gateway/ext":{"canon":{"structured":"appended"}}}}`,
			[]string{"L17 carried /body/output/structured"},
		},
		"a link, March": {
			mcp.LegacyMarch, `"content":[{"type":"resource_link","uri":"file:///a","name":"a","icons":[],"_meta":{"k":1}}]`,
			`{"content":[{"type":"text","text":"a: file:///a"}],"_meta":{"aepb.gateway/ext":{"canon":{"blocks":{"0":{"aepb.gateway/ext":{"canon":{"kind":"link","name":"a","uri":"file:///a","members":{"icons":[]}}},"k":1}}}}}}`,
			[]string{
				"L11 carried /body/output/parts/0/kind", "L27 carried /body/output/parts/0/name", "L11 carried /body/output/parts/0/uri",
				"L11 carried /body/output/parts/0/extensions/mcp-v1/icons", "L11 carried /body/output/parts/0/extensions/mcp-v1/_meta",
			},
		},
		"a link, June": {
			mcp.LegacyJune, `"content":[{"type":"resource_link","uri":"file:///a","name":"a","icons":[],"_meta":{"k":1}}]`,
			`{"content":[{"type":"resource_link","uri":"file:///a","name":"a","_meta":{"k":1,"aepb.gateway/ext":{"canon":{"members":{"icons":[]}}}}}]}`,
			[]string{"L11 carried /body/output/parts/0/extensions/mcp-v1/icons"},
		},
		"annotations, March": {
			mcp.LegacyMarch, `"content":[{"type":"text","text":"x","annotations":{"priority":1,"lastModified":"l"}}]`,
			`{"content":[{"type":"text","text":"x","annotations":{"priority":1}}],"_meta":{"aepb.gateway/ext":{"canon":{"blocks":{"0":{"aepb.gateway/ext":{"canon":{"annotations":{"priority":1,"lastModified":"l"}}}}}}}}}`,
			[]string{"L11 carried /body/output/parts/0/annotations"},
		},
		"contents, March": {
			mcp.LegacyMarch, `"content":[{"type":"resource","resource":{"uri":"u","text":"t","_meta":{"k":1}}}]`,
			`{"content":[{"type":"resource","resource":{"uri":"u","text":"t"}}],"_meta":{"aepb.gateway/ext":{"canon":{"blocks":{"0":{"aepb.gateway/ext":{"canon":{"contents":{"_meta":{"k":1}}}}}}}}}}`,
			[]string{"L11 carried /body/output/parts/0/extensions/mcp-v1/resource/_meta"},
		},
		"audio, first": {
			mcp.LegacyFirst, `"content":[{"type":"audio","data":"AA==","mimeType":"audio/wav"}]`,
			`{"content":[{"type":"resource","resource":{"uri":"a2a:///","mimeType":"audio/wav","blob":"AA=="}}],"_meta":{"aepb.gateway/ext":{"canon":{"blocks":{"0":{"aepb.gateway/ext":{"canon":{"kind":"audio","derived":"uri"}}}}}}}}`,
			[]string{"L11 carried /body/output/parts/0/form"},
		},
		"audio, March": {mcp.LegacyMarch, `"content":[{"type":"audio","data":"AA==","mimeType":"audio/wav"}]`, `{"content":[{"type":"audio","data":"AA==","mimeType":"audio/wav"}]}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			left := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete",%s}}`, tc.left)
			m, err := tr.Decode(translators.Wire{Version: mcp.Modern, Re: canonical.OpInvoke, Body: []byte(left)})
			if err != nil {
				t.Fatal(err)
			}
			w, losses, err := tr.Encode(m, translators.Target{Version: tc.version})
			if err != nil {
				t.Fatal(err)
			}
			if got := resultOf(t, w.Body); !rawjson.Equal(got, []byte(tc.want)) {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
			var got []string
			for _, loss := range losses {
				got = append(got, loss.String())
			}
			if diff := cmp.Diff(slices.Sorted(slices.Values(tc.losses)), slices.Sorted(slices.Values(got))); diff != "" {
				t.Error(diff)
			}
			comesHome(t, tr, tc.version, w, left)
		})
	}
}

// comesHome: the way back over the old revision ends where it began.
func comesHome(t *testing.T, tr *mcp.Translator, version string, w translators.Wire, left string) {
	t.Helper()
	back, err := tr.Decode(translators.Wire{Version: version, Re: canonical.OpInvoke, Body: w.Body})
	if err != nil {
		t.Fatal(err)
	}
	home, losses, err := tr.Encode(back, translators.Target{Version: mcp.Modern})
	if err != nil || !rawjson.Equal(home.Body, []byte(left)) {
		t.Errorf("home: %v %s\nleft: %s", err, home.Body, left)
	}
	if len(losses) > 0 {
		t.Errorf("losses on the way home: %v", losses)
	}
}

// TestDowngrade_ListOfTools: an old client's list of tools.
func TestDowngrade_ListOfTools(t *testing.T) {
	t.Parallel()
	tr := mcp.New(translators.Config{})
	m := &canonical.Message{
		Op: canonical.OpCapabilities, Phase: canonical.PhaseResponse, Correlation: canonical.Correlation{WireID: json.RawMessage("1")},
		Body: &canonical.CapabilityList{Capabilities: []canonical.Capability{
			{ID: "p1", Title: "T", Profile: canonical.ProfileMessage, Tags: []string{"x"}},
			{
				ID: "p2", Profile: canonical.ProfileTyped, InputSchema: json.RawMessage(`{"type":"object"}`), OutputSchema: json.RawMessage(`{"type":"object"}`),
				Extensions: canonical.Extensions{mcp.Binding: json.RawMessage(`{"execution":{"taskSupport":"optional"}}`)},
			},
		}},
	}
	w, losses, err := tr.Encode(m, translators.Target{Version: mcp.LegacyMarch})
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Tools []map[string]json.RawMessage
	}
	if err := json.Unmarshal(resultOf(t, w.Body), &got); err != nil {
		t.Fatal(err)
	}
	for i, tool := range got.Tools {
		for _, name := range []string{"title", "outputSchema", "_meta", "execution"} {
			if tool[name] != nil {
				t.Errorf("tool %d has %s", i, name)
			}
		}
	}
	want := []canonical.Loss{
		{Code: canonical.LossSchemas, Path: "/body/capabilities/0/title", Fate: canonical.Carried},
		{Code: canonical.LossModes, Path: "/body/capabilities/0/tags", Fate: canonical.Carried},
		{Code: canonical.LossSchemas, Path: "/body/capabilities/1/outputSchema", Fate: canonical.Carried},
		{Code: canonical.LossSchemas, Path: "/body/capabilities/1/extensions/mcp-v1/execution", Fate: canonical.Carried},
	}
	less := func(a, b canonical.Loss) int { return strings.Compare(a.String(), b.String()) }
	slices.SortFunc(want, less)
	slices.SortFunc(losses, less)
	if diff := cmp.Diff(want, losses); diff != "" {
		t.Error(diff)
	}
	back, err := tr.Decode(translators.Wire{Version: mcp.LegacyMarch, Re: canonical.OpCapabilities, Body: w.Body})
	if err != nil {
		t.Fatal(err)
	}
	tools := back.Body.(*canonical.CapabilityList).Capabilities
	if tools[0].Title != "T" || tools[0].Tags[0] != "x" || string(tools[1].OutputSchema) != `{"type":"object"}` {
		t.Errorf("what comes back: %+v", tools)
	}
}

// TestDecode_NewerMembersAreUnderstood: what a server says in words newer than the revision that was
// agreed on is understood all the same.
func TestDecode_NewerMembersAreUnderstood(t *testing.T) {
	t.Parallel()
	tr := mcp.New(translators.Config{})
	body := `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"resource_link","uri":"u","name":"n","title":"t"}],"structuredContent":{"a":1}}}`
	m := home(t, tr, translators.Wire{Version: mcp.LegacyMarch, Re: canonical.OpInvoke, Body: []byte(body)})
	out := m.Body.(*canonical.Result).Output
	if out.Parts[0].Kind != canonical.KindRef || out.Parts[0].Title != "t" || string(out.Structured) != `{"a":1}` {
		t.Errorf("got %+v", out)
	}
	w, losses, err := tr.Encode(m, translators.Target{Version: mcp.Modern})
	if err != nil || len(losses) > 0 || bytes.Contains(w.Body, []byte("aepb.gateway")) {
		t.Errorf("in the newest revision: %v %v %s", err, losses, w.Body)
	}
}

// TestVersion_OfARequest: who says which revision a request is of.
func TestVersion_OfARequest(t *testing.T) {
	t.Parallel()
	call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`
	initialize := func(version string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"` + version + `","capabilities":{},"clientInfo":{"name":"n","version":"v"}}}`
	}
	header := func(version string) http.Header { return http.Header{"Mcp-Protocol-Version": {version}} }
	for name, tc := range map[string]struct {
		version string
		header  http.Header
		body    string
		want    string
	}{
		"the caller of the codec":        {version: mcp.LegacyJune, body: call, want: mcp.LegacyJune},
		"the header":                     {header: header(mcp.LegacyJune), body: call, want: mcp.LegacyJune},
		"the oldest header":              {header: header(mcp.LegacyMarch), body: call, want: mcp.LegacyMarch},
		"no version among header fields": {header: http.Header{}, body: call, want: mcp.LegacyMarch},
		"no header at all":               {body: call, want: mcp.Legacy},
		"the body":                       {header: http.Header{}, body: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t",` + modernMeta + `}}}`, want: mcp.Modern},
		"initialize asks":                {header: http.Header{}, body: initialize(mcp.LegacyMarch), want: mcp.LegacyMarch},
		"initialize asks for more":       {header: http.Header{}, body: initialize("2099-01-01"), want: mcp.Legacy},
		"initialize asks for the modern": {header: http.Header{}, body: initialize(mcp.Modern), want: mcp.Legacy},
		"initialize asks for the first":  {header: http.Header{}, body: initialize("2024-11-05"), want: mcp.LegacyFirst},
		"initialize asks for less":       {header: http.Header{}, body: initialize("2024-10-07"), want: mcp.Legacy},
		"initialize, whatever is said":   {header: header(mcp.Legacy), body: initialize(mcp.LegacyJune), want: mcp.LegacyJune},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := mcp.New(translators.Config{}).Decode(translators.Wire{Version: tc.version, Header: tc.header, Body: []byte(tc.body)})
			if err != nil || m.Origin.Version != tc.want {
				t.Errorf("got %+v %v, want %s", m, err, tc.want)
			}
		})
	}
}

// TestDecode_RefusalsInOlderRevisions: what no revision before the modern one lets through.
func TestDecode_RefusalsInOlderRevisions(t *testing.T) {
	t.Parallel()
	result := func(inner string) string { return `{"jsonrpc":"2.0","id":1,"result":` + inner + `}` }
	for name, tc := range map[string]struct {
		re   canonical.Op
		body string
		code canonical.Code // empty: malformed
	}{
		"a batch":             {body: `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`},
		"the reserved member": {canonical.OpDescribe, result(`{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"n","version":"v","aepb.gateway/placed":[]}}`), ""},
		"discover":            {body: `{"jsonrpc":"2.0","id":1,"method":"server/discover"}`, code: canonical.CodeNoMethod},
	} {
		for _, version := range []string{mcp.LegacyJune, mcp.LegacyMarch, mcp.LegacyFirst} {
			t.Run(version+" "+name, func(t *testing.T) {
				t.Parallel()
				_, err := mcp.New(translators.Config{}).Decode(translators.Wire{Version: version, Re: tc.re, Body: []byte(tc.body)})
				if tc.code == "" && !errors.Is(err, translators.ErrMalformed) || tc.code != "" && !hasCode(err, tc.code) {
					t.Errorf("got %v", err)
				}
			})
		}
	}
}

// A _meta that somebody carries for a tool and no gateway wrote is not believed:
// a revision that has a place for it there does not look at it, so one that has
// none must not stumble over it.
func TestDecode_ForeignCarriedMetaIsIgnored(t *testing.T) {
	t.Parallel()
	tr := mcp.New(translators.Config{})
	for name, carried := range map[string]string{
		"empty": `{}`, "a list": `[]`, "our own": `{"mcp-v1":{}}`, "no object": `{"a2a-v1":1}`, "empty canon": `{"canon":{}}`,
	} {
		body := `{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"a","inputSchema":{"type":"object"}}],"_meta":{"aepb.gateway/ext":{"canon":{"tools":{"0":{"aepb.gateway/ext":` + carried + `}}}}}}}`
		for _, version := range []string{mcp.LegacyJune, mcp.LegacyMarch, mcp.LegacyFirst} {
			m, err := tr.Decode(translators.Wire{Version: version, Re: canonical.OpCapabilities, Body: []byte(body)})
			if err != nil {
				t.Errorf("%s, %s: %v", name, version, err)
				continue
			}
			list, ok := m.Body.(*canonical.CapabilityList)
			if !ok || len(list.Capabilities) != 1 || len(list.Capabilities[0].Extensions) != 0 {
				t.Errorf("%s, %s: believed: %+v", name, version, m.Body)
			}
		}
	}
}

// TestVersion_Header: since 2025-06-18 a request names its revision.
func TestVersion_Header(t *testing.T) {
	t.Parallel()
	m := foreign()["plain"]
	for version, want := range map[string]string{
		mcp.Modern: mcp.Modern, mcp.Legacy: mcp.Legacy, mcp.LegacyJune: mcp.LegacyJune, mcp.LegacyMarch: "", mcp.LegacyFirst: "",
	} {
		w, _, err := mcp.New(translators.Config{}).Encode(m, translators.Target{Version: version})
		if err != nil || w.Version != version || w.Header.Get("Mcp-Protocol-Version") != want {
			t.Errorf("%s: got %v %v", version, w.Header, err)
		}
	}
}

// emitted is a message of another protocol, and the official definition that it
// has to match in each revision; where there is none, it cannot be said.
type emitted struct {
	m    *canonical.Message
	want map[string]string
}

// everywhere is one definition in the revisions from since to until.
func everywhere(definition, since, until string) map[string]string {
	out := map[string]string{}
	for _, version := range []string{mcp.LegacyFirst, mcp.LegacyMarch, mcp.LegacyJune, mcp.Legacy, mcp.Modern} {
		if since <= version && version <= until {
			out[version] = definition
		}
	}
	return out
}

// extension is a definition of the revision 2025-11-25 that went on in the
// extension for tasks.
func extension(definition string) map[string]string {
	return map[string]string{mcp.Legacy: definition, mcp.Modern: "ext-tasks " + definition}
}

func work() map[string]emitted {
	one := json.RawMessage("1")
	say := func(op canonical.Op, phase canonical.Phase, body canonical.Body) *canonical.Message {
		return &canonical.Message{
			Op: op, Phase: phase, Body: body, Correlation: canonical.Correlation{WireID: one}, Origin: canonical.Origin{Binding: "a2a-v1"},
			Preferences: canonical.Preferences{TaskOK: phase == canonical.PhaseResponse},
		}
	}
	event := func(e canonical.Event) *canonical.Message {
		return say(canonical.OpInvoke, canonical.PhaseEvent, &e)
	}
	loud := func(e canonical.Event) *canonical.Message {
		m := event(e)
		m.Preferences.LogLevel = "info"
		return m
	}
	text := func(s string) []canonical.Part { return []canonical.Part{{Kind: canonical.KindText, Text: s}} }
	form := canonical.Input{Key: "k", Mode: canonical.ModeForm, Prompt: text("how many?"), Schema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`)}
	visit := canonical.Input{Key: "v", Mode: canonical.ModeURL, Prompt: text("log in"), URL: "https://login.example"}
	answer := canonical.Answer{Key: "k", Action: canonical.Accept, Value: json.RawMessage(`{"n":1}`)}
	all := map[string]emitted{
		"progress":        {event(canonical.Event{Progress: &canonical.Progress{Token: one, Value: one, Total: json.RawMessage("2"), Message: "m"}}), everywhere("ProgressNotification", mcp.LegacyMarch, mcp.Modern)},
		"little progress": {event(canonical.Event{Progress: &canonical.Progress{Token: json.RawMessage(`"t"`), Value: one}}), everywhere("ProgressNotification", mcp.LegacyMarch, mcp.Modern)},
		"log":             {loud(canonical.Event{Log: &canonical.Log{Level: "warning", Logger: "l", Data: json.RawMessage(`{"a":1}`)}}), everywhere("LoggingMessageNotification", mcp.LegacyMarch, mcp.Modern)},
		"a form":          {event(canonical.Event{Ask: &canonical.Ask{ID: one, Input: form}}), everywhere("ElicitRequest", mcp.LegacyJune, mcp.Legacy)},
		"a visit":         {event(canonical.Event{Ask: &canonical.Ask{ID: one, Input: visit}}), everywhere("ElicitRequest", mcp.Legacy, mcp.Legacy)},
		"questions":       {say(canonical.OpInvoke, canonical.PhaseResponse, &canonical.Result{Pending: &canonical.Pending{Inputs: []canonical.Input{form, visit}, State: "s"}}), everywhere("InputRequiredResult", mcp.Modern, mcp.Modern)},
		"abort":           {say(canonical.OpAbort, canonical.PhaseRequest, &canonical.Abort{Request: json.RawMessage(`"r"`), Reason: "why"}), everywhere("CancelledNotification", mcp.LegacyMarch, mcp.Modern)},
		"ask for":         {say(canonical.OpTaskGet, canonical.PhaseRequest, &canonical.TaskQuery{ID: "t"}), extension("GetTaskRequest")},
		"cancel":          {say(canonical.OpTaskCancel, canonical.PhaseRequest, &canonical.TaskQuery{ID: "t"}), extension("CancelTaskRequest")},
		"canceling":       {say(canonical.OpTaskCancel, canonical.PhaseResponse, &canonical.Done{}), map[string]string{mcp.Modern: "ext-tasks CancelTaskResult"}},
		"answer":          {say(canonical.OpTaskAnswer, canonical.PhaseRequest, &canonical.TaskQuery{ID: "t", Answers: []canonical.Answer{answer}}), map[string]string{mcp.Modern: "ext-tasks UpdateTaskRequest"}},
		"answered":        {say(canonical.OpTaskAnswer, canonical.PhaseResponse, &canonical.Done{}), map[string]string{mcp.Modern: "ext-tasks UpdateTaskResult"}},
		"wait for":        {say(canonical.OpTaskResult, canonical.PhaseRequest, &canonical.TaskQuery{ID: "t"}), everywhere("GetTaskPayloadRequest", mcp.Legacy, mcp.Legacy)},
		"which tasks":     {say(canonical.OpTaskList, canonical.PhaseRequest, &canonical.TaskFilter{Cursor: "c"}), everywhere("ListTasksRequest", mcp.Legacy, mcp.Legacy)},
	}
	at := time.Date(2026, 7, 28, 1, 2, 3, 0, time.UTC)
	for _, state := range []canonical.State{
		canonical.StateCompleted, canonical.StateFailed, canonical.StateRejected, canonical.StateCanceled, canonical.StateInputRequired,
		canonical.StateAuthRequired, canonical.StateSubmitted, canonical.StateWorking,
	} {
		task := &canonical.Task{
			ID: "t", ContextID: "c", Status: canonical.Status{State: state, At: at, Message: &canonical.Content{Role: canonical.RoleAgent, Parts: text("said")}},
			Artifacts: []canonical.Artifact{{ID: "a", Name: "n", Parts: everyPart()}}, Created: at, Poll: time.Second,
		}
		if state == canonical.StateInputRequired {
			task.Inputs = []canonical.Input{form}
		}
		result := &canonical.Result{Task: task}
		all["task "+string(state)] = emitted{say(canonical.OpTaskGet, canonical.PhaseResponse, result), extension("GetTaskResult")}
		all["a list with "+string(state)] = emitted{
			say(canonical.OpTaskList, canonical.PhaseResponse, &canonical.TaskList{Tasks: []canonical.Task{*task}, Next: "n"}), everywhere("ListTasksResult", mcp.Legacy, mcp.Legacy),
		}
		if !state.Terminal() {
			all["begun "+string(state)] = emitted{say(canonical.OpInvoke, canonical.PhaseResponse, result), extension("CreateTaskResult")}
		}
	}
	return all
}

// TestEncode_TasksValidUnderSchema: events, questions, answers and tasks as they are written
// for each revision, under its official schema and that of the extension.
func TestEncode_TasksValidUnderSchema(t *testing.T) {
	t.Parallel()
	tr := mcp.New(translators.Config{})
	official := map[string]*schemas{"ext-tasks": loadSchemas(t, "ext-tasks")}
	for _, version := range tr.Info().Versions {
		official[version] = loadSchemas(t, version)
	}
	for name, tc := range work() {
		for _, version := range tr.Info().Versions {
			w, _, err := tr.Encode(tc.m, translators.Target{Version: version})
			definition, ok := tc.want[version]
			if !ok {
				if err == nil && strings.Contains(string(w.Body), `"tasks/`) {
					t.Errorf("%s %s: %s", version, name, w.Body)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s %s: %v", version, name, err)
				continue
			}
			book, body := version, w.Body
			if extended, in := strings.CutPrefix(definition, "ext-tasks "); in {
				book, definition = "ext-tasks", extended
			}
			if tc.m.Phase == canonical.PhaseResponse {
				body = resultOf(t, body)
			}
			t.Run(version+" "+name, func(t *testing.T) { official[book].check(t, definition, body) })
		}
	}
}

// TestEncode_AnswerToAServerValidUnderSchema: what goes back to a server that asked.
func TestEncode_AnswerToAServerValidUnderSchema(t *testing.T) {
	t.Parallel()
	tr := mcp.New(translators.Config{})
	for _, version := range []string{mcp.LegacyJune, mcp.Legacy} {
		official := loadSchemas(t, version)
		for _, answer := range []canonical.Answer{
			{Action: canonical.Accept, Value: json.RawMessage(`{"n":1,"s":"x","b":true}`)}, {Action: canonical.Decline}, {Action: canonical.Cancel},
		} {
			m := &canonical.Message{
				Op: canonical.OpAnswer, Phase: canonical.PhaseRequest, Body: &canonical.Reply{ID: json.RawMessage("7"), Answer: answer},
				Origin: canonical.Origin{Binding: "a2a-v1"},
			}
			w, _, err := tr.Encode(m, translators.Target{Version: version})
			if err != nil {
				t.Fatal(err)
			}
			official.check(t, "ElicitResult", resultOf(t, w.Body))
		}
	}
}

// TestEncode_ModesOfASession: a request of a session does not say what its
// sender can be asked, and that is a loss only where the beginning of the session did not
// say it either.
func TestEncode_ModesOfASession(t *testing.T) {
	t.Parallel()
	form, both := []canonical.Mode{canonical.ModeForm}, []canonical.Mode{canonical.ModeForm, canonical.ModeURL}
	for name, tc := range map[string]struct {
		version           string
		canAnswer, answer []canonical.Mode
		declared          bool
	}{
		"the session was told":              {mcp.Legacy, both, both, false},
		"the session was told less":         {mcp.Legacy, both, form, true},
		"the session was told more":         {mcp.Legacy, form, both, true},
		"no session":                        {mcp.Legacy, both, nil, true},
		"nothing can be asked":              {mcp.Legacy, nil, nil, false},
		"a revision without that":           {mcp.LegacyMarch, both, both, false},
		"a revision without one of them":    {mcp.LegacyJune, both, both, false},
		"a revision that knows the other":   {mcp.LegacyJune, both, []canonical.Mode{canonical.ModeURL}, true},
		"every request says so":             {mcp.Modern, both, nil, false},
		"every request says so, told other": {mcp.Modern, both, form, false},
	} {
		_, losses, err := mcp.New(translators.Config{}).Encode(&canonical.Message{
			Op: canonical.OpInvoke, Phase: canonical.PhaseRequest, Body: &canonical.Invoke{Call: &canonical.Call{Name: "add"}},
			Correlation: canonical.Correlation{WireID: json.RawMessage(`1`)}, Preferences: canonical.Preferences{CanAnswer: tc.canAnswer},
		}, translators.Target{Version: tc.version, Capability: &canonical.Capability{ID: "add"}, Answers: tc.answer})
		declared := slices.ContainsFunc(losses, func(l canonical.Loss) bool { return l.Path == "/preferences/canAnswer" })
		if err != nil || declared != tc.declared {
			t.Errorf("%s: losses are %v, %v", name, losses, err)
		}
	}
}
