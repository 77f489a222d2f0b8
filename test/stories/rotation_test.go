package stories

import (
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/config"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// issuedBy makes a call and gives the last ECT that the gateway signed for it.
func issuedBy(t *testing.T, b *gatewaytest.Fixture) string {
	t.Helper()
	n := b.Number()
	got := b.Send(t, b.Sealed(t, gatewaytest.HTTPRequest{Body: gatewaytest.AddBody(n)}))
	tokens := got.Header.Values(ect.HeaderName)
	if got.Status != http.StatusOK || len(tokens) == 0 {
		t.Fatalf("got %d %s", got.Status, got.Body)
	}
	return tokens[len(tokens)-1]
}

// A new SVID is in force at once, and nobody is cut off; what the old one signed
// stays good.
func TestSVID_RotatesWithoutInterruption(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true, Config: config.Config{}})
	for name, agent := range b.Settings().Agents {
		agent.Callers = []string{"spiffe://" + gatewaytest.TrustDomain + "/*"}
		b.Settings().Agents[name] = agent
	}
	c := gatewaytest.OnFiles(b)
	gatewaytest.Must(t, b.Reload(t.Context(), c))
	before, old := gatewaytest.Shown(t, b), issuedBy(t, b)

	next := b.SVID(t, "/gateway")
	gatewaytest.PutSVID(t, b, next)
	gatewaytest.Must(t, b.Reload(t.Context(), c))
	if now := gatewaytest.Shown(t, b); now == before || now != next.Chain[0].SerialNumber.String() {
		t.Errorf("a new connection is shown %s", now)
	}
	reused := false
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused }})
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, b.At.Public+"/.well-known/aepb", http.NoBody)
	gatewaytest.Must(t, err)
	if got, err := gatewaytest.Receive(b.Client, request); err != nil || got.Status != http.StatusOK || !reused {
		t.Errorf("the connection was dropped: %d, %v", got.Status, err)
	}
	fresh := issuedBy(t, b)
	if header := func(token string) string { h, _, _ := strings.Cut(token, "."); return h }; header(fresh) == header(old) {
		t.Error("ECTs are still signed with the old key")
	}
	for _, token := range []string{old, fresh} {
		if _, err := b.Judge.Verify(t.Context(), token, ect.Check{Purpose: ect.Parent}); err != nil {
			t.Errorf("no longer verified: %v", err)
		}
	}
	refusesCertificates(t, b, c)
	if now := gatewaytest.Shown(t, b); now != next.Chain[0].SerialNumber.String() {
		t.Errorf("what was refused is in force: %s", now)
	}
	issuedBy(t, b)
}

// refusesCertificates: what will not do changes nothing.
func refusesCertificates(t *testing.T, b *gatewaytest.Fixture, c config.Config) {
	t.Helper()
	stranger, err := identity.NewAuthority(identity.AuthorityDeps{TrustDomain: gatewaytest.TrustDomain})
	gatewaytest.Must(t, err)
	for name, spoil := range map[string]func(){
		"another workload":  func() { gatewaytest.PutSVID(t, b, b.SVID(t, "/somebody")) },
		"another authority": func() { gatewaytest.PutSVID(t, b, gatewaytest.Issue(t, stranger, "/gateway", identity.SVIDRequest{})) },
		"an expired SVID":   func() { gatewaytest.PutSVID(t, b, gatewaytest.Expired(t, b, "/gateway")) },
		"a key of another": func() {
			gatewaytest.Must(t, b.SVID(t, "/gateway").WritePEM(c.Identity.Certificate, filepath.Join(b.Dir, "elsewhere.pem")))
		},
		"half a file": func() { gatewaytest.Must(t, os.Truncate(c.Identity.Certificate, 100)) },
		"no file":     func() { gatewaytest.Must(t, os.Remove(c.Identity.Key)) },
	} {
		spoil()
		if err := b.Reload(t.Context(), c); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}
