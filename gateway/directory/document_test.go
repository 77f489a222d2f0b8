package directory_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/directory"
)

// The examples of the two drafts, with the parts that tests change.
const (
	aepbDocument = `{"aepb_version":"1.0","agent_id":"spiffe://example.com/agent/pricing",` +
		`"protocols":[{"id":"a2a-v1","version":"1.0","endpoint":"https://agent.example.com/a2a","priority":10},` +
		`{"id":"mcp-v1","version":"2025-03-26","endpoint":"https://agent.example.com/mcp","priority":20}],` +
		`"translation_gateways":["https://gateway.example.com/aepb/translate"],"ect_assurance_level":"L2",` +
		`"ect_namespaces":["atd","hitl","apae"],` +
		`"lifecycle":{"status":"active","version":"2.1.0","deprecated_at":null,"sunset_at":null,"successor":null}}`
	cpatDocument = `{"cpat_version":"1.0","agent_id":"spiffe://example.com/agent/pricing",` +
		`"protocols":[{"id":"a2a-v1","version":"1.0","endpoint":"https://agent.example.com/a2a"}],` +
		`"translation_gateways":["https://gateway.example.com/cpat/translate"],"ect_assurance_level":"L1"}`
	deprecatedLife = `"status":"deprecated","version":"2.1.0","deprecated_at":"2026-01-02T03:04:05Z","sunset_at":null,"successor":"https://new.example.com/.well-known/aepb"`
)

func with(old, replacement string) string {
	if !strings.Contains(aepbDocument, old) {
		return ""
	}
	return strings.Replace(aepbDocument, old, replacement, 1)
}

func TestParseDocument_AEPBAndCPAT(t *testing.T) {
	t.Parallel()
	got, err := directory.ParseDocument([]byte(aepbDocument), false)
	if err != nil {
		t.Fatal(err)
	}
	if got.AgentID != "spiffe://example.com/agent/pricing" || got.Level != ect.L2 || len(got.Protocols) != 2 ||
		got.Protocols[1].URL != "https://agent.example.com/mcp" || got.Protocols[1].Priority != 20 ||
		!slices.Equal(got.Namespaces, []string{"atd", "hitl", "apae"}) || len(got.Gateways) != 1 || got.Lifecycle.Status != directory.Active || got.Lifecycle.Version != "2.1.0" {
		t.Errorf("got %+v", got)
	}
	got, err = directory.ParseDocument([]byte(cpatDocument), false)
	if err != nil || got.Namespaces != nil || got.Level != ect.L1 || got.Lifecycle.Status != directory.Active || got.Protocols[0].Rank() != directory.DefaultPriority {
		t.Errorf("CPAT: %+v %v", got, err)
	}
	got, err = directory.ParseDocument([]byte(with(`"status":"active","version":"2.1.0","deprecated_at":null,"sunset_at":null,"successor":null`, deprecatedLife)), false)
	if err != nil || got.Lifecycle.Successor != "https://new.example.com/.well-known/aepb" ||
		!got.Lifecycle.DeprecatedAt.Equal(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)) {
		t.Errorf("deprecated: %+v %v", got, err)
	}
}

func TestParseDocument_Accepts(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		text string
		ids  string // of the protocols, with their ranks
	}{
		"unknown members":           {with(`"aepb_version"`, `"x_new":{"a":[1]},"aepb_version"`), "a2a-v1=10 mcp-v1=20"},
		"unknown protocol":          {with(`"id":"mcp-v1"`, `"id":"acme-v9"`), "a2a-v1=10 acme-v9=20"},
		"priority of zero":          {with(`"priority":20`, `"priority":0`), "a2a-v1=10 mcp-v1=0"},
		"no priority":               {with(`,"priority":20`, ``), "a2a-v1=10 mcp-v1=100"},
		"two versions, second best": {with(`"id":"mcp-v1"`, `"id":"a2a-v1"`), "a2a-v1=10"},
		"two versions, first best":  {with(`"priority":10`, `"priority":30`), "a2a-v1=30 mcp-v1=20"},
		"one without TLS":           {with(`https://agent.example.com/mcp`, `http://agent.example.com/mcp`), "a2a-v1=10"},
		"no gateways":               {with(`"https://gateway.example.com/aepb/translate"`, ``), "a2a-v1=10 mcp-v1=20"},
	} {
		got, err := directory.ParseDocument([]byte(tc.text), false)
		var ids []string
		for _, e := range got.Protocols {
			ids = append(ids, fmt.Sprintf("%s=%d", e.Binding, e.Rank()))
		}
		if err != nil || strings.Join(ids, " ") != tc.ids {
			t.Errorf("%s: got %v %v, want %s", name, ids, err, tc.ids)
		}
	}
}

func TestParseDocument_Refuses(t *testing.T) {
	t.Parallel()
	many := strings.Repeat(`{"id":"x","version":"1","endpoint":"https://x.example"},`, 10_000)
	lifecycle := `"status":"active","version":"2.1.0","deprecated_at":null,"sunset_at":null,"successor":null`
	life := func(text string) string { return with(lifecycle, text) }
	for name, text := range map[string]string{
		"nothing":              ``,
		"no object":            `[]`,
		"null":                 `null`,
		"half":                 aepbDocument[:len(aepbDocument)/2],
		"two values":           aepbDocument + aepbDocument,
		"duplicate member":     with(`"aepb_version":"1.0"`, `"aepb_version":"1.0","agent_id":"spiffe://evil.example/x"`),
		"duplicate, nested":    with(`"id":"a2a-v1"`, `"id":"a2a-v1","id":"mcp-v1"`),
		"no version":           with(`"aepb_version":"1.0",`, ``),
		"version 2":            with(`"aepb_version":"1.0"`, `"aepb_version":"2.0"`),
		"version as a number":  with(`"aepb_version":"1.0"`, `"aepb_version":1.0`),
		"no id":                with(`"spiffe://example.com/agent/pricing"`, `""`),
		"id of no workload":    with(`"spiffe://example.com/agent/pricing"`, `"spiffe://example.com"`),
		"id of the web":        with(`"spiffe://example.com/agent/pricing"`, `"https://example.com/agent"`),
		"no protocols":         `{"aepb_version":"1.0","agent_id":"spiffe://e.x/a","protocols":[],"ect_assurance_level":"L2","lifecycle":{` + lifecycle + `}}`,
		"ten thousand":         with(`"protocols":[`, `"protocols":[`+many),
		"sixty-five":           with(`"protocols":[`, `"protocols":[`+numbered(65)),
		"same protocol twice":  with(`"id":"mcp-v1","version":"2025-03-26"`, `"id":"a2a-v1","version":"1.0"`),
		"protocol without id":  with(`"id":"mcp-v1",`, ``),
		"without version":      with(`"version":"2025-03-26",`, ``),
		"without endpoint":     with(`"endpoint":"https://agent.example.com/mcp",`, ``),
		"negative priority":    with(`"priority":10`, `"priority":-1`),
		"fractional priority":  with(`"priority":10`, `"priority":1.5`),
		"huge priority":        with(`"priority":10`, `"priority":99999999999999999999`),
		"only plain HTTP":      strings.ReplaceAll(aepbDocument, "https://agent.", "http://agent."),
		"a program as gateway": with("https://gateway.example.com", "stdio:?arg=sh&x="),
		"credentials":          strings.ReplaceAll(aepbDocument, "https://agent.", "https://u:p@agent."),
		"plain HTTP gateway":   with("https://gateway.example.com", "http://gateway.example.com"),
		"level 4":              with(`"L2"`, `"L4"`),
		"no level":             with(`"ect_assurance_level":"L2",`, ``),
		"no lifecycle":         with(`,"lifecycle":{`+lifecycle+`}`, ``),
		"unknown status":       life(strings.Replace(lifecycle, "active", "tired", 1)),
		"not semantic":         life(strings.Replace(lifecycle, "2.1.0", "2.1", 1)),
		"leading zero":         life(strings.Replace(lifecycle, "2.1.0", "2.01.0", 1)),
		"deprecated, no time":  life(strings.Replace(lifecycle, "active", "deprecated", 1)),
		"time of no day":       life(strings.Replace(deprecatedLife, "2026-01-02T", "2026-01-32T", 1)),
		"successor plain":      life(strings.Replace(deprecatedLife, "https://new", "http://new", 1)),
		"successor in a field": life(strings.Replace(deprecatedLife, "https://new.example.com/", `https://new.example.com/\r\nX: y`, 1)),
		"successor no URL":     life(strings.Replace(deprecatedLife, "https://new.example.com/", "pricing-v3", 1)),
	} {
		var refused *directory.DocumentError
		if _, err := directory.ParseDocument([]byte(text), false); !errors.As(err, &refused) {
			t.Errorf("%s: got %v, want a DocumentError", name, err)
		}
		if name != "nothing" && text == "" {
			t.Errorf("%s: the test changed nothing", name)
		}
	}
}

// numbered are so many protocols, no two alike.
func numbered(n int) string {
	var out strings.Builder
	for i := range n {
		fmt.Fprintf(&out, `{"id":"x%d","version":"1","endpoint":"https://x.example"},`, i)
	}
	return out.String()
}

func TestParseDocument_SixtyFourProtocols(t *testing.T) {
	t.Parallel()
	got, err := directory.ParseDocument([]byte(with(`"protocols":[`, `"protocols":[`+numbered(62))), false)
	if err != nil || len(got.Protocols) != 64 {
		t.Errorf("%d protocols, %v", len(got.Protocols), err)
	}
}

func FuzzDocument_Parse(f *testing.F) {
	for _, text := range []string{aepbDocument, cpatDocument, `{}`, `[`, `{"aepb_version":"1.0","aepb_version":"1.0"}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := directory.ParseDocument(data, false)
		if err != nil {
			if _, ok := errors.AsType[*directory.DocumentError](err); !ok {
				t.Errorf("an error of another type: %v", err)
			}
			return
		}
		if got.AgentID == "" || len(got.Protocols) == 0 || got.Level == 0 || got.Lifecycle.Status == "" {
			t.Errorf("accepted without what it must have: %+v", got)
		}
	})
}

// TestParseDocument_NamesNoProgram: what a stranger writes is never run here.
func TestParseDocument_NamesNoProgram(t *testing.T) {
	t.Parallel()
	for _, plain := range []bool{false, true} {
		d, err := directory.ParseDocument([]byte(strings.ReplaceAll(aepbDocument, "https://agent.example.com/mcp", "stdio:?arg=sh")), plain)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range d.Protocols {
			if e.IsProgram() {
				t.Errorf("it names %s", e.URL)
			}
		}
	}
}
