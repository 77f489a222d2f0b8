package a2a_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// TestDecode_LenientPart: a part that cannot be read beside a text costs neither the text nor the
// reply: it is data, as it came, and declared. A caller's is refused.
func TestDecode_LenientPart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ version, form, parts string }{
		"1.0 of an unknown kind": {a2a.Version, "", `{"text":"hi"},{"video":{"uri":"u"}}`},
		"1.0 of two contents":    {a2a.Version, "", `{"text":"hi"},{"text":"a","url":"u"}`},
		"1.0 of a number":        {a2a.Version, "", `{"text":"hi"},{"text":7}`},
		"0.3 of an unknown kind": {a2a.Version03, "", `{"kind":"text","text":"hi"},{"kind":"video","video":{"uri":"u"}}`},
		"0.3 of a number":        {a2a.Version03, "", `{"kind":"text","text":"hi"},{"kind":"text","text":7}`},
		"0.3, HTTP form":         {a2a.Version03, a2a.FormHTTP, `{"text":"hi"},{"video":{"uri":"u"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := a2a.New(translators.Config{})
			body := `{"jsonrpc":"2.0","id":1,"result":{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[` + c.parts + `]}}}`
			if c.version == a2a.Version03 {
				body = `{"jsonrpc":"2.0","id":1,"result":{"kind":"message","messageId":"m","role":"agent","parts":[` + c.parts + `]}}`
			}
			if c.form == a2a.FormHTTP {
				body = `{"message":{"messageId":"m","role":"ROLE_AGENT","content":[` + c.parts + `]}}`
			}
			m, err := tr.Decode(translators.Wire{Version: c.version, Form: c.form, Re: canonical.OpInvoke, Body: []byte(body)})
			if err != nil {
				t.Fatal(err)
			}
			result, _ := m.Body.(*canonical.Result)
			if result == nil || result.Turn == nil || len(result.Turn.Parts) != 2 || result.Turn.Parts[0].Text != "hi" || result.Turn.Parts[1].Kind != canonical.KindData {
				t.Fatalf("it is read as %+v", result)
			}
			if declared := fmt.Sprint(m.Losses); !strings.Contains(declared, "L29") {
				t.Errorf("declared is %s", declared)
			}
			for _, other := range []translators.Translator{tr, mcp.New(translators.Config{})} {
				if _, _, err := other.Encode(m, translators.Target{}); err != nil {
					t.Errorf("in %s: %v", other.Info().Binding, err)
				}
			}
			if c.form != "" {
				return
			}
			method := map[string]string{a2a.Version: "SendMessage", a2a.Version03: "message/send"}[c.version]
			role := map[string]string{a2a.Version: "ROLE_USER", a2a.Version03: "user"}[c.version]
			request := `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{"message":{"kind":"message","messageId":"m","role":"` + role + `","parts":[` + c.parts + `]}}}`
			if _, err := tr.Decode(translators.Wire{Version: c.version, Body: []byte(request)}); err == nil {
				t.Errorf("a caller may say %s", request)
			}
		})
	}
}
