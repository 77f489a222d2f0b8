package gateway_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// documents serves the capability documents of hosts.
type documents map[string]string

func (d documents) DoAs(r *http.Request, _ ect.Identity) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(d[r.URL.Host]))}, nil
}

// TestAttack_SuccessorDescribesListedAgent: a successor whose document describes a listed
// agent shows what that agent says of itself to those alone whom the agent lists.
func TestAttack_SuccessorDescribesListedAgent(t *testing.T) {
	t.Parallel()
	document := func(name, lifecycle string) string {
		return `{"aepb_version":"1.0","agent_id":"spiffe://example.com/agents/` + name + `","protocols":[{"id":"mcp-v1","version":"1","endpoint":"https://` + name +
			`.example/mcp"}],"ect_assurance_level":"L2","lifecycle":{"version":"1.0.0",` + lifecycle + `}}`
	}
	for _, listed := range []bool{true, false} {
		b := newSignalFixture(t, func(d *directory.Deps) {
			d.Client = documents{
				"old.example":  document("old", `"status":"retired","successor":"https://heir.example/doc"`),
				"heir.example": document("private", `"status":"active","successor":null`),
			}
		})
		who, callers := b.caller, []string{string(b.outsider.ID)}
		if listed {
			callers = append(callers, string(who.ID))
		}
		if err := errors.Join(
			b.Directory.AllowDocuments(directory.Documents{Hosts: []string{"heir.example"}, Rules: policy.Rules{Callers: []string{string(who.ID)}}}),
			b.Directory.Put(directory.Agent{Name: "old", Capability: "https://old.example/doc", Rules: policy.Rules{Open: true}}),
			b.Directory.Put(directory.Agent{
				Name: "private", ID: "spiffe://example.com/agents/private", Rules: policy.Rules{Callers: callers},
				Endpoints: []directory.Endpoint{{Binding: mcp.Binding, URL: "https://private.example/mcp"}},
			}),
		); err != nil {
			t.Fatal(err)
		}
		description, err := b.Describe(t.Context(), transport.CallInfo{Agent: "old", Caller: identity.Caller{Peer: who.Peer()}, Binding: mcp.Binding})
		if _, forbidden := errors.AsType[*policy.Forbidden](err); listed != (err == nil) || listed == forbidden || listed != (description != nil) {
			t.Errorf("listed: %t; it is described as %+v, %v", listed, description, err)
		}
	}
}
