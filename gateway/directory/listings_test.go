package directory_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// TestAllowDocuments_ListedAgentsAreProtected: a document that a caller names is the listed agent that it
// describes, or it uses nothing that belongs to listed agents, peers or ourselves.
func TestAllowDocuments_ListedAgentsAreProtected(t *testing.T) {
	t.Parallel()
	const place = "https://docs.example/doc"
	listedAt := directory.Endpoint{Binding: binding, URL: toyEndpoint}
	for name, tc := range map[string]struct {
		listed   directory.Agent
		endpoint string
		want     []string // nil: refused
	}{
		"the same":                 {directory.Agent{Name: "a", ID: pricing, Endpoints: []directory.Endpoint{listedAt}}, toyEndpoint, []string{"a"}},
		"the same, judged by name": {directory.Agent{Name: "a", Endpoints: []directory.Endpoint{listedAt}}, toyEndpoint, []string{"a"}},
		"its id, elsewhere":        {directory.Agent{Name: "a", ID: pricing, Endpoints: []directory.Endpoint{listedAt}}, elsewhere, nil},
		"its endpoint, another id": {directory.Agent{Name: "a", ID: "spiffe://example.com/b", Endpoints: []directory.Endpoint{listedAt}}, toyEndpoint, nil},
		"its address":              {directory.Agent{Name: "a", Endpoints: []directory.Endpoint{listedAt}}, "https://AGENT.example.com.:8443/x", nil},
		"a peer's address":         {directory.Agent{Name: "a", Endpoints: []directory.Endpoint{listedAt}}, "https://peer.example/x", nil},
		"our own":                  {directory.Agent{Name: "a", Endpoints: []directory.Endpoint{listedAt}}, "https://self.example/x", nil},
		"another":                  {directory.Agent{Name: "a", ID: "spiffe://example.com/b", Endpoints: []directory.Endpoint{listedAt}}, elsewhere, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, agents, _ := newWeb(t)
			_, found, _ := newWeb(t)
			open := &gate{}
			d, err := directory.New(directory.Deps{
				Describers: map[canonical.Binding]transport.Describer{binding: &agentSays{}}, Egress: &gate{}, Client: agents,
				Documents: found, Grants: open, Ours: func(at string) bool { return at == "self.example:443" },
				Now: time.Now, Logger: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				t.Fatal(err)
			}
			list(t, d, tc.listed)
			if err := errors.Join(
				d.AllowDocuments(directory.Documents{Hosts: []string{"docs.example"}, Rules: policy.Rules{Open: true}}),
				d.UsePeers([]directory.Peer{{ID: "spiffe://example.com/peer", URL: "https://peer.example/aepb/translate"}}),
			); err != nil {
				t.Fatal(err)
			}
			found.put(place, 200, documentOf(pricing, "L2", activeLife, tc.endpoint))
			visitor, _, err := d.Visitor(place)
			if err != nil {
				t.Fatal(err)
			}
			got, err := d.Reach(context.WithoutCancel(t.Context()), visitor)
			var denied *egress.DeniedError
			if tc.want == nil && (!errors.As(err, &denied) || denied.Reason != egress.ReasonTaken) || tc.want != nil && (err != nil || !slices.Equal(got.Listings, tc.want)) {
				t.Errorf("listings %v, %v", got.Listings, err)
			}
			if agents.count(place) != 0 || found.count(place) != 1 || open.opened("docs.example") != 1 {
				t.Error("the document was fetched with what is open to agents")
			}
		})
	}
}
