package mcp_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
	"github.com/aepb/aepb-gateway/translators/translatortest/nulls"
)

// results are the results of a server, by what they answer.
var results = map[string]canonical.Op{
	"InitializeResult": canonical.OpDescribe, "DiscoverResult": canonical.OpDescribe, "ListToolsResult": canonical.OpCapabilities,
	"CallToolResult": canonical.OpInvoke, "GetPromptResult": canonical.OpNative, "ReadResourceResult": canonical.OpNative,
	"ListPromptsResult": canonical.OpNative, "ListResourcesResult": canonical.OpNative, "ListResourceTemplatesResult": canonical.OpNative,
	"CompleteResult": canonical.OpNative, "EmptyResult": canonical.OpPing, "CreateTaskResult": canonical.OpInvoke, "Task": canonical.OpTaskGet,
}

// TestDecode_NullOfEachMember: a server may write null for each optional member of each result, at each
// depth, in each revision. What becomes of it in other revisions has no null, and A2A can say it.
func TestDecode_NullOfEachMember(t *testing.T) {
	t.Parallel()
	dir := published(t)
	if dir == "" {
		return
	}
	with := map[string]string{
		"InitializeResult": `{"protocolVersion":"VERSION"}`, "DiscoverResult": `{"resultType":"complete","supportedVersions":["VERSION"]}`,
		"Task": `{"status":"working"}`,
	}
	tr, other := mcp.New(translators.Config{}), a2a.New(translators.Config{})
	null := regexp.MustCompile(`:null`)
	tried := 0
	for _, version := range mcp.Revisions() {
		schema, err := os.ReadFile(filepath.Join(dir, "schema", version+".json"))
		if err != nil {
			t.Fatal(err)
		}
		for definition, op := range results {
			for at, value := range nulls.Of(t, schema, definition, with) {
				value = json.RawMessage(strings.NewReplacer("VERSION", version, `"resultType":"x"`, `"resultType":"complete"`).Replace(string(value)))
				tried++
				m, err := tr.Decode(translators.Wire{Version: version, Re: op, Body: replyTo(string(value))})
				if err != nil {
					t.Errorf("%s %s%s: %v\n%s", version, definition, at, err, value)
					continue
				}
				if list, ok := m.Body.(*canonical.CapabilityList); ok && len(list.Omitted) > 0 {
					t.Errorf("%s %s%s: left out is %+v", version, definition, at, list.Omitted)
				}
				for _, to := range mcp.Revisions() {
					if w, _, err := tr.Encode(m, translators.Target{Version: to}); err == nil && to != version && null.Match(w.Body) && !saysNull(at) {
						t.Errorf("%s %s%s in %s: %s", version, definition, at, to, w.Body)
					} else if err != nil && op != canonical.OpNative && op != canonical.OpTaskGet {
						t.Errorf("%s %s%s in %s: %v", version, definition, at, to, err)
					}
				}
				m.Conversation = canonical.Conversation{TaskID: "t", ContextID: "c"}
				if _, _, err := other.Encode(m, translators.Target{}); err != nil && op == canonical.OpInvoke {
					t.Errorf("%s %s%s in A2A: %v", version, definition, at, err)
				}
			}
		}
	}
	if tried < 500 {
		t.Errorf("only %d values were made", tried)
	}
	t.Logf("%d values", tried)
}

// saysNull: null is a value there. A task lives as long as its server wants, structured content of
// 2026-07-28 is any value, and schemas belong to their tools.
func saysNull(at string) bool {
	return regexp.MustCompile(`/ttl(Ms)?$|/structuredContent$|Schema/`).MatchString(at)
}
