package a2a_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
	"github.com/aepb/aepb-gateway/translators/translatortest/nulls"
)

// TestDecode_NullOfEachMember: an agent may write null for each optional member of what it answers, at
// each depth, in both versions; both versions and MCP can say what is read, and MCP without nulls.
func TestDecode_NullOfEachMember(t *testing.T) {
	t.Parallel()
	type place struct {
		definition, before, after string
		op                        canonical.Op
		event                     bool
	}
	places := map[string][]place{
		a2a.Version: {
			{"Task", `{"task":`, `}`, canonical.OpInvoke, false},
			{"Message", `{"message":`, `}`, canonical.OpInvoke, false},
			{"Task", ``, ``, canonical.OpTaskGet, false},
			{"Task Status Update Event", `{"statusUpdate":`, `}`, canonical.OpInvoke, true},
			{"Task Artifact Update Event", `{"artifactUpdate":`, `}`, canonical.OpInvoke, true},
			{"Agent Card", ``, ``, canonical.OpDescribe, false},
		},
		a2a.Version03: {
			{"Task", ``, ``, canonical.OpInvoke, false},
			{"Message", ``, ``, canonical.OpInvoke, false},
			{"Task", ``, ``, canonical.OpTaskGet, false},
			{"TaskStatusUpdateEvent", ``, ``, canonical.OpInvoke, true},
			{"TaskArtifactUpdateEvent", ``, ``, canonical.OpInvoke, true},
			{"AgentCard", ``, ``, canonical.OpDescribe, false},
		},
	}
	const message = `{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"x"}]}`
	with := map[string]string{
		"Part": `{"text":"x"}`, "Message": `{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"x"}]}`,
		"Task": `{"id":"t","contextId":"c","status":{"state":"TASK_STATE_COMPLETED","message":` + message + `}}`, "Task Status": `{"state":"TASK_STATE_WORKING"}`,
		"Agent Card":                 `{"name":"n","supportedInterfaces":[{"url":"https://example.com/x","protocolBinding":"JSONRPC","protocolVersion":"1.0"}]}`,
		"Artifact":                   `{"artifactId":"a","parts":[{"text":"x"}]}`,
		"Task Status Update Event":   `{"taskId":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}`,
		"Task Artifact Update Event": `{"taskId":"t","contextId":"c","artifact":{"artifactId":"a","parts":[{"text":"x"}]}}`,
	}
	old := map[string]string{"Task": `{"id":"t","contextId":"c"}`, "AgentCard": `{"url":"https://example.com/x","protocolVersion":"0.3.0"}`, "FileWithBytes": `{"bytes":"eA=="}`, "TaskStatusUpdateEvent": `{"taskId":"t","contextId":"c"}`, "TaskArtifactUpdateEvent": `{"taskId":"t","contextId":"c"}`}
	tr, other := a2a.New(translators.Config{}), mcp.New(translators.Config{})
	null := regexp.MustCompile(`:null`)
	tried := 0
	for version, all := range places {
		file := filepath.Join("..", "..", "..", "shared", "data", "a2a", map[string]string{a2a.Version: "schema-1.0.json", a2a.Version03: "schema-0.3.json"}[version])
		schema, err := os.ReadFile(file)
		if os.IsNotExist(err) {
			t.Logf("NOT CHECKED against the official schema: %s is absent", file)
			return
		}
		given := with
		if version == a2a.Version03 {
			given = old
		}
		for _, p := range all {
			for at, value := range nulls.Of(t, schema, p.definition, given) {
				tried++
				body := p.before + string(value) + p.after
				if p.op != canonical.OpDescribe {
					body = `{"jsonrpc":"2.0","id":1,"result":` + body + `}`
				}
				m, err := tr.Decode(translators.Wire{Version: version, Re: p.op, Event: p.event, Body: []byte(body)})
				if err != nil {
					t.Errorf("%s %s%s: %v\n%s", version, p.definition, at, err, body)
					continue
				}
				for _, to := range []string{a2a.Version, a2a.Version03} {
					if p.op == canonical.OpDescribe && to != version {
						continue // a card names the interfaces of its version
					}
					if _, _, err := tr.Encode(m, translators.Target{Version: to}); err != nil {
						t.Errorf("%s %s%s in %s: %v", version, p.definition, at, to, err)
					}
				}
				if p.event || p.op == canonical.OpDescribe {
					continue
				}
				if w, _, err := other.Encode(m, translators.Target{Version: mcp.Legacy}); err != nil {
					t.Errorf("%s %s%s in MCP: %v", version, p.definition, at, err)
				} else if result := regexp.MustCompile(`"ttl":null|"_meta":.*$`).ReplaceAll(w.Body, nil); null.Match(result) {
					t.Errorf("%s %s%s in MCP: %s", version, p.definition, at, w.Body)
				}
			}
		}
	}
	if tried < 150 {
		t.Errorf("only %d values were made", tried)
	}
	t.Logf("%d values", tried)
}
