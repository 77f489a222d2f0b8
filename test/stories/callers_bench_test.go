package stories

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/ect/identity/apikey"
	"github.com/aepb/aepb-gateway/ect/identity/oauth/oauthtest"
	"github.com/aepb/aepb-gateway/gateway/config"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// BenchmarkCallers_ByCredential: what a call over MCP to the calculator costs by how its caller is known, and by the number of rules about
// tools. Callers take turns of 50 calls. The gateway, its caller and its agent are one process, whose CPU time is
// reported: µs/call, and the ratio of the medians to that of a certificate.
func BenchmarkCallers_ByCredential(b *testing.B) {
	var certificate atomic.Pointer[tls.Certificate]
	server := oauthtest.Start(b, func() tls.Certificate { return *certificate.Load() })
	now := time.Now()
	key, text, err := apikey.New("bench", "spiffe://aepb.dev/by-key", now, now.Add(time.Hour))
	gatewaytest.Must(b, err)
	file, err := apikey.Format([]apikey.Key{key})
	gatewaytest.Must(b, err)
	at := filepath.Join(b.TempDir(), "keys.yaml")
	gatewaytest.Must(b, os.WriteFile(at, file, 0o600))
	g := gatewaytest.NewFixture(b, gatewaytest.Plan{Config: config.Config{
		Limits: gatewaytest.ManyRequests(), APIKeys: config.APIKeys{File: at},
		OAuth: map[string]config.OAuthIssuer{"corp": {Issuer: server.URL, Identities: []config.OAuthIdentity{{Path: "users/{sub}"}}}},
	}})
	svid := gatewaytest.Issue(b, g.Dev.Authority, "/authorization-server", identity.SVIDRequest{})
	certificate.Store(new(svid.Certificate()))
	const endpoint = "/agents/calculator/mcp"
	token := server.Token(g.At.Public+endpoint, func(_, claims oauthtest.Object) { claims["exp"] = now.Add(time.Hour).Unix() })
	rules := func(many int) {
		agent, _ := g.Directory().Find("calculator")
		agent.Rules.Callers = []string{"spiffe://aepb.dev/*#invoke:add*"}
		for n := range many {
			agent.Rules.Callers = append(agent.Rules.Callers, fmt.Sprintf("spiffe://aepb.dev/team-%d/*#invoke:tool-%d*", n, n))
		}
		agent.Rules.Open = many == 0
		gatewaytest.Must(b, g.Directory().Put(agent))
	}
	names := []string{"certificate", "API key", "access token", "certificate, 50 rules"}
	turns := map[string][]time.Duration{}
	call := func(name string) {
		r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, g.At.Public+endpoint, bytes.NewReader([]byte(gatewaytest.CallBody("add", ect.Hash([]byte(name))))))
		gatewaytest.Must(b, err)
		for header, value := range gatewaytest.Mirror("tools/call", "add") {
			r.Header.Set(header, value)
		}
		r.Header.Set("Content-Type", "application/json")
		client := g.Anonymous
		switch name {
		case "API key":
			r.Header.Set(apikey.Field, text)
		case "access token":
			r.Header.Set("Authorization", "Bearer "+token)
		default:
			client = g.Client
		}
		response, err := client.Do(r)
		gatewaytest.Must(b, err)
		answer, err := io.ReadAll(response.Body)
		gatewaytest.Must(b, err)
		gatewaytest.Must(b, response.Body.Close())
		if response.StatusCode != http.StatusOK || bytes.Contains(answer, []byte(`"error"`)) {
			b.Fatalf("%s: %d %s", name, response.StatusCode, answer)
		}
	}
	const turn = 50
	for b.Loop() {
		for _, name := range names {
			if rules(0); name == names[3] {
				rules(50)
			}
			call(name)
			before := used(b)
			for range turn {
				call(name)
			}
			turns[name] = append(turns[name], (used(b)-before)/turn)
		}
	}
	median := func(name string) float64 {
		list := slices.Sorted(slices.Values(turns[name]))
		return float64(list[len(list)/2].Microseconds())
	}
	for _, name := range names {
		unit := string(bytes.ReplaceAll(bytes.ReplaceAll([]byte(name), []byte(" "), []byte("-")), []byte(","), nil))
		b.ReportMetric(median(name), unit+"-µs/call")
		b.ReportMetric(median(name)/median(names[0]), unit+"-ratio")
	}
}

// used is the CPU time of this process.
func used(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	gatewaytest.Must(tb, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
