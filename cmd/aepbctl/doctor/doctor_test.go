package doctor_test

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/doctor"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/directory/admindoc"
)

const (
	day        = 24 * time.Hour
	impatience = 300 * time.Millisecond // of checks that end late
)

// broken is one way in which a set-up is not well, and the finding that says so.
type broken struct {
	name          string
	change        func(t *testing.T, b *setup)
	status        doctor.Status
	check         string
	found, remedy string
}

// TestRun_AllIsWell: nothing is found where there is nothing, and every check was made.
func TestRun_AllIsWell(t *testing.T) {
	t.Parallel()
	b := newSetup(t)
	b.deps.Config = b.write("gateway.yaml", goodConfig)
	b.deps.CheckConfig = func(context.Context, string) (string, error) { return "ok\nmemory: enough\n", nil }
	checks := map[string]int{}
	for _, f := range b.run() {
		checks[f.Check]++
		if f.Status != doctor.OK && f.Check != "disk" && f.Check != "memory" || f.Status == doctor.OK && f.Remedy != "" { // of this machine
			t.Errorf("%+v", f)
		}
	}
	for _, check := range []string{"configuration", "our certificate", "CA", "public listener", "admin listener", "clocks", "readiness", "gateway identity", "state", "operator", "agent", "disk", "memory"} {
		if checks[check] == 0 {
			t.Errorf("nothing about %s in %v", check, checks)
		}
	}
}

const goodConfig = `
public_url: https://gw.example
identity: {trust_domain: aepb.dev, certificate: a.pem, key: b.pem, bundle: c.pem}
admin: {operators: {ann: {id: spiffe://aepb.dev/client, roles: [operator]}}}
`

func try(t *testing.T, table []broken) {
	t.Helper()
	for _, tc := range table {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := newSetup(t)
			tc.change(t, b)
			all := b.run()
			for _, f := range all {
				if f.Check == tc.check && f.Status == tc.status && strings.Contains(f.Found, tc.found) {
					if !strings.Contains(f.Remedy, tc.remedy) || (tc.remedy == "") != (f.Remedy == "") {
						t.Errorf("the remedy is %q, want %q", f.Remedy, tc.remedy)
					}
					return
				}
			}
			t.Errorf("no %s of %s with %q in %+v", tc.status, tc.check, tc.found, all)
		})
	}
}

func TestRun_Credentials(t *testing.T) {
	t.Parallel()
	later := func(d time.Duration) func(*testing.T, *setup) {
		return func(_ *testing.T, b *setup) { b.deps.Now = func() time.Time { return time.Now().Add(d) } }
	}
	other := func(t *testing.T, domain string) string {
		t.Helper()
		dir := t.TempDir()
		if _, err := identity.LoadOrCreate(dir, domain, time.Now); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	try(t, []broken{
		{"no certificate", func(_ *testing.T, b *setup) { b.deps.Cert = "nonesuch.pem" }, doctor.Failed, "our certificate", "there is no file nonesuch.pem", "--cert"},
		{"no key", func(_ *testing.T, b *setup) { b.deps.Key = "nonesuch.pem" }, doctor.Failed, "our key", "there is no file nonesuch.pem", "--key"},
		{"no CA", func(_ *testing.T, b *setup) { b.deps.CA = "nonesuch.pem" }, doctor.Failed, "CA", "there is no file nonesuch.pem", "--ca"},
		{"a key of another", func(_ *testing.T, b *setup) { b.deps.Key = filepath.Join(b.dir, "gateway-key.pem") }, doctor.Failed, "our certificate", "do not make an identity", "its own key"},
		{"a key that all can read", func(t *testing.T, b *setup) {
			t.Helper()
			if err := os.Chmod(b.deps.Key, 0o644); err != nil {
				t.Fatal(err)
			}
		}, doctor.Warning, "our key", "can be read by other users (mode 0644)", "chmod 600 "},
		{"a certificate that ends soon", later(70 * day), doctor.Warning, "our certificate", "expires in ", "issued again"},
		{"a certificate that has ended", later(100 * day), doctor.Failed, "our certificate", "expired ", "issued again"},
		{"a certificate of the future", later(-day), doctor.Failed, "our certificate", "is valid only in", "set the clock"},
		{"a CA that ends soon", later(340 * day), doctor.Warning, "CA", "expires in ", "CA certificate of now"},
		{"a CA in its last third, for months", later(300 * day), doctor.OK, "CA", "valid for ", ""},
		{"a CA that has ended", later(400 * day), doctor.Failed, "CA", "expired ", "CA certificate of now"},
		{"no CA certificate", func(_ *testing.T, b *setup) { b.deps.CA = b.write("empty.pem", "") }, doctor.Failed, "CA", "cannot be used", "PEM, with --ca"},
		{"a CA that is not ours", func(t *testing.T, b *setup) { t.Helper(); b.deps.CA = filepath.Join(other(t, "aepb.dev"), "ca.pem") }, doctor.Warning, "CA", "did not issue our certificate", "with --ca"},
		{"a CA that is not the gateway's", func(t *testing.T, b *setup) { t.Helper(); b.deps.CA = filepath.Join(other(t, "aepb.dev"), "ca.pem") }, doctor.Failed, "public listener", "a certificate of spiffe://aepb.dev/gateway, which ", "name the CA of this gateway with --ca"},
		{"a certificate of another trust domain", func(t *testing.T, b *setup) {
			t.Helper()
			dir := other(t, "other.dev")
			b.deps.Cert, b.deps.Key = filepath.Join(dir, "client.pem"), filepath.Join(dir, "client-key.pem")
		}, doctor.Warning, "CA", "did not issue our certificate", "a certificate of this CA with --cert"},
		{"a certificate that is no file", func(_ *testing.T, b *setup) { b.deps.Cert = filepath.Join(b.deps.CA, "x") }, doctor.Failed, "our certificate", "not a directory", "--cert"},
		{"without a certificate the listener is reached", func(_ *testing.T, b *setup) { b.deps.Cert = "nonesuch.pem" }, doctor.Warning, "admin listener", "can be reached", "mend what is said above"},
	})
}

func TestRun_Listeners(t *testing.T) {
	t.Parallel()
	shown := func(t *testing.T, b *setup, request identity.SVIDRequest) string {
		t.Helper()
		svid, err := b.dev.Authority.Issue("/gateway", request)
		if err != nil {
			t.Fatal(err)
		}
		return b.serve(&tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{svid.Certificate()}})
	}
	local := []net.IP{net.IPv4(127, 0, 0, 1)}
	try(t, []broken{
		{"no address", func(_ *testing.T, b *setup) { b.deps.Unknown = errors.New("no gateway has run here") }, doctor.Failed, "addresses", "no gateway has run here", "--dir"},
		{"no URL", func(_ *testing.T, b *setup) { b.deps.Admin = "localhost:9443" }, doctor.Failed, "admin listener", `"localhost:9443" is no https URL`, "--admin, such as https://127.0.0.1:9443"},
		{"no such name", func(_ *testing.T, b *setup) { b.deps.Public = "https://gateway.invalid" }, doctor.Failed, "public listener", "no address is known for the name gateway.invalid", "--gateway"},
		{"nobody there", func(t *testing.T, b *setup) {
			t.Helper()
			gone := httptest.NewServer(http.NotFoundHandler())
			gone.Close()
			b.deps.Public = strings.Replace(gone.URL, "http:", "https:", 1)
		}, doctor.Failed, "public listener", "connection refused", "start it with aepb-gateway"},
		{"a listener without TLS", func(_ *testing.T, b *setup) { b.deps.Admin = b.serve(nil) }, doctor.Failed, "admin listener", "does not speak TLS", "listen.metrics does not"},
		{"a certificate for other names", func(t *testing.T, b *setup) {
			t.Helper()
			b.deps.Public = shown(t, b, identity.SVIDRequest{DNSNames: []string{"gw.example"}})
		}, doctor.Failed, "public listener", "for other names: gw.example", "put 127.0.0.1 into its certificate"},
		{"a certificate that has ended", func(t *testing.T, b *setup) {
			t.Helper()
			b.deps.Public = shown(t, b, identity.SVIDRequest{IPs: local, TTL: time.Nanosecond})
		}, doctor.Failed, "public listener", "which expired ", "put a renewed certificate in place"},
		{"a certificate that ends soon", func(t *testing.T, b *setup) {
			t.Helper()
			b.deps.Public = shown(t, b, identity.SVIDRequest{IPs: local, TTL: 20 * time.Second})
		}, doctor.Warning, "public listener", "expires in ", "put a renewed certificate in place"},
		{"a program that is silent", func(t *testing.T, b *setup) {
			t.Helper()
			listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = listener.Close() })
			b.deps.Public, b.deps.Patience = "https://"+listener.Addr().String(), impatience
		}, doctor.Failed, "public listener", "no handshake within 300 ms", "how busy"},
		{"another program", func(t *testing.T, b *setup) {
			t.Helper()
			listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			old := tls.NewListener(listener, &tls.Config{MaxVersion: tls.VersionTLS12, Certificates: []tls.Certificate{b.dev.Gateway.Certificate()}})
			s := &http.Server{ReadHeaderTimeout: time.Second, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
			var served sync.WaitGroup
			t.Cleanup(func() { _ = s.Close(); served.Wait() })
			served.Go(func() { _ = s.Serve(old) })
			b.deps.Public = "https://" + listener.Addr().String()
		}, doctor.Failed, "public listener", "no handshake", "TLS 1.3"},
		{"a gateway that does not take our certificate", func(_ *testing.T, b *setup) {
			b.deps.Public = b.serve(&tls.Config{
				MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{b.dev.Gateway.Certificate()}, ClientAuth: tls.RequestClientCert,
				VerifyConnection: func(tls.ConnectionState) error { return errors.New("nobody of ours") },
			})
		}, doctor.Failed, "clocks", "does not take our certificate", "--cert and --key"},
		{"no clock", func(_ *testing.T, b *setup) { b.undated = true }, doctor.Warning, "clocks", "without a date", "what stands before it"},
		{"a clock that is ahead", func(_ *testing.T, b *setup) { b.date = time.Minute }, doctor.Warning, "clocks", "ahead of ours", "NTP"},
		{"a clock that is behind", func(_ *testing.T, b *setup) { b.date = -time.Minute }, doctor.Warning, "clocks", "behind ours", "NTP"},
		{"a clock that is hardly ahead", func(_ *testing.T, b *setup) { b.date = 20 * time.Second }, doctor.OK, "clocks", "differ by ", ""},
	})
}

// TestRun_CertificateForOtherNames: the wrong name is told of both listeners, and everything else is checked under a name
// that the certificate has; a token is not sent there.
func TestRun_CertificateForOtherNames(t *testing.T) {
	t.Parallel()
	b := newSetup(t)
	svid, err := b.dev.Authority.Issue("/gateway", identity.SVIDRequest{DNSNames: []string{"localhost"}})
	if err != nil {
		t.Fatal(err)
	}
	source, err := identity.NewSource(svid, b.dev.Bundle)
	if err != nil {
		t.Fatal(err)
	}
	b.deps.Public, b.deps.Admin, b.deps.Token = b.serve(source.ServerConfig()), b.serve(source.ServerConfig()), "secret"
	found := map[string]doctor.Status{}
	for _, f := range b.run() {
		if found[f.Check] != doctor.Failed {
			found[f.Check] = f.Status
		}
	}
	for check, want := range map[string]doctor.Status{"public listener": doctor.Failed, "admin listener": doctor.Failed, "clocks": doctor.OK, "readiness": doctor.OK, "operator": doctor.OK, "agent": doctor.OK} {
		if found[check] != want {
			t.Errorf("%s: got %q, want %q", check, found[check], want)
		}
	}
	if b.tokened.Load() {
		t.Error("the token was sent to a server under another name")
	}
}

func TestRun_Gateway(t *testing.T) {
	t.Parallel()
	answers := func(path string, status int, body string) func(*testing.T, *setup) {
		return func(_ *testing.T, b *setup) { b.pages[path] = page{status, body} }
	}
	notReady := func(reason string) func(*testing.T, *setup) {
		return answers("/readyz", http.StatusServiceUnavailable, reason+"\n")
	}
	says := func(name, value string) func(*testing.T, *setup) {
		return func(_ *testing.T, b *setup) { b.metrics(map[string]string{name: value}) }
	}
	const svid, bundle = `aepb_identity_expiry_timestamp_seconds{kind="svid"}`, `aepb_bundle_expiry_timestamp_seconds{trust_domain="aepb.dev"}`
	try(t, []broken{
		{"stopping", notReady("stopping"), doctor.Failed, "readiness", "not ready: stopping (HTTP 503)", "wait until it has ended"},
		{"an expired SVID", notReady("the SVID of this gateway expired at 2026-01-01"), doctor.Failed, "readiness", "expired at 2026", "put renewed files"},
		{"a state that is not kept", notReady("state cannot be kept now"), doctor.Failed, "readiness", "state cannot be kept", "state.path"},
		{"a Redis that forgets", notReady(`state cannot be kept now: Redis at r:6379: maxmemory-policy is "allkeys-lru", not noeviction`), doctor.Failed, "readiness", "allkeys-lru", "CONFIG SET maxmemory-policy noeviction"},
		{"a Redis without a log", notReady("state cannot be kept now: Redis at r:6379: appendonly is off"), doctor.Failed, "readiness", "appendonly", "CONFIG SET appendonly yes"},
		{"a Redis that is not there", notReady("state cannot be kept now: Redis at r:6379 cannot be reached"), doctor.Failed, "readiness", "cannot be reached", "see that Redis runs"},
		{"a reason that nobody knows", notReady("tired"), doctor.Failed, "readiness", "tired", "look at the log"},
		{"late", func(_ *testing.T, b *setup) {
			b.deps.Patience, b.pages["/readyz"] = impatience, page{status: slow}
		}, doctor.Failed, "readiness", "no answer within 300 ms", "ask again"},
		{"cut off", answers("/readyz", cut, ""), doctor.Failed, "readiness", "no answer: ", "what stands between"},
		{"no metrics", answers("/metrics", http.StatusNotFound, ""), doctor.Warning, "metrics", "HTTP 404", "admin listener"},
		{"an SVID that ends in minutes", says(svid, stampIn(5*time.Minute)), doctor.Warning, "gateway identity", "SVID expires in ", "SPIFFE agent"},
		{"an SVID that has ended", says(svid, stampIn(-time.Hour)), doctor.Failed, "gateway identity", "SVID expired ", "SPIFFE agent"},
		{"a bundle that ends soon", says(bundle, stampIn(3*day)), doctor.Warning, "gateway identity", "trust bundle of aepb.dev expires in ", "identity.bundle"},
		{"no bundle", says(bundle, "0"), doctor.Failed, "gateway identity", "trust bundle of aepb.dev: the gateway knows none", "identity.bundle"},
		{"another certificate for the web that ends soon", says(`aepb_identity_expiry_timestamp_seconds{kind="public"}`, stampIn(day)), doctor.Warning, "gateway identity", "tls.certificate expires in ", "tls.key"},
		{"a file that cannot be written", says(`aepb_state_backend_up{backend="bolt"}`, "0"), doctor.Failed, "state", "cannot be written", "disk"},
		{"state in memory", says(`aepb_state_backend_up{backend="memory"}`, "1"), doctor.OK, "state", "in memory", ""},
		{"Redis is down", func(_ *testing.T, b *setup) {
			b.metrics(map[string]string{`aepb_state_backend_up{backend="bolt"}`: "", `aepb_state_backend_up{backend="redis"}`: "0"})
			b.pages["/readyz"] = page{http.StatusServiceUnavailable, `Redis at r:6379: maxmemory-policy is "allkeys-lru", not noeviction`}
		}, doctor.Failed, "state", "allkeys-lru", "CONFIG SET maxmemory-policy noeviction"},
		{"records that fill up", says(`aepb_state_usage_ratio{kind="lasting_entries"}`, "0.72"), doctor.Warning, "state", "72 % of the records", "raise state.records"},
		{"Redis that fills up", says(`aepb_state_usage_ratio{kind="memory"}`, "0.8"), doctor.Warning, "state", "80 % of the Redis memory", "raise maxmemory"},
		{"no operator", answers("/api/operator", http.StatusForbidden, `{"code":"forbidden","detail":"the client certificate is no operator's"}`), doctor.Failed, "operator", "spiffe://aepb.dev/client is no operator of this gateway", "operators: {NAME: {id: \"spiffe://aepb.dev/client\", roles: [operator]}}"},
		{"a name that is not its own", answers("/api/operator", http.StatusForbidden, `{"code":"forbidden","detail":"callers"}`), doctor.Failed, "operator", "refuses requests to", "admin.hosts"},
		{"a token of another gateway", func(_ *testing.T, b *setup) {
			b.deps.Token = "another's"
			b.pages["/api/operator"] = page{http.StatusUnauthorized, `{"code":"unauthenticated"}`}
		}, doctor.Failed, "operator", "is not this gateway's", "--dir"},
		{"no token", answers("/api/operator", http.StatusUnauthorized, `{"code":"unauthenticated"}`), doctor.Failed, "operator", "wants its token", "--dir"},
		{"an admin API that fails", answers("/api/operator", http.StatusInternalServerError, ""), doctor.Failed, "operator", "HTTP 500", "log"},
		{"another page", answers("/api/operator", http.StatusOK, "<html>"), doctor.Failed, "operator", "not one of a gateway", "admin listener"},
		{"one who may look", answers("/api/operator", http.StatusOK, `{"name":"bob","roles":["viewer"]}`), doctor.Warning, "operator", "known as bob, who may look and not change anything: viewer", "role operator"},
		{"an older gateway", answers("/api/operator", http.StatusNotFound, ""), doctor.OK, "operator", "does not say with which roles", ""},
	})
}

func TestRun_Agents(t *testing.T) {
	t.Parallel()
	is := func(a admindoc.Agent) func(*testing.T, *setup) { return func(_ *testing.T, b *setup) { b.agent(a) } }
	breaker := func(name, state string) func(*testing.T, *setup) {
		return func(_ *testing.T, b *setup) {
			b.pages["/api/breakers"] = page{http.StatusOK, `{"breakers":[{"agent":"` + name + `","state":"` + state + `"}]}`}
		}
	}
	try(t, []broken{
		{"it is well", is(admindoc.Agent{}), doctor.OK, "agent", "answers as calc 1.2, mcp-v1 2025-11-25, 2 tools or skills", ""},
		{"none", func(_ *testing.T, b *setup) { b.pages["/api/agents"] = page{http.StatusOK, `{"agents":[]}`} }, doctor.Warning, "agents", "none is listed", "aepbctl agents add"},
		{"no list", func(_ *testing.T, b *setup) { b.pages["/api/agents"] = page{http.StatusInternalServerError, "{}"} }, doctor.Failed, "agents", "HTTP 500", "log"},
		{"dead", is(admindoc.Agent{Description: &admindoc.Summary{Error: "connection refused: is it running"}}), doctor.Failed, "agent", "connection refused: is it running", "aepbctl agents show calculator"},
		{"slow", func(_ *testing.T, b *setup) {
			b.deps.Patience = impatience
			b.agent(admindoc.Agent{Name: "slow"})
		}, doctor.Failed, "agent", "no answer within 300 ms", "waits longer"},
		{"gone meanwhile", func(_ *testing.T, b *setup) { delete(b.pages, "/api/agents/calculator") }, doctor.Failed, "agent", "HTTP 404", "log"},
		{"not described", func(_ *testing.T, b *setup) { b.pages["/api/agents/calculator"] = page{http.StatusOK, "{}"} }, doctor.Failed, "agent", "does not describe it", "log"},
		{"useless", is(admindoc.Agent{Description: &admindoc.Summary{Name: "calc", Version: "1.2"}}), doctor.Warning, "agent", "offers nothing", "right URL"},
		{"broken", breaker("calculator", "open"), doctor.Warning, "agent", "circuit breaker is open", "tried again by itself"},
		{"tried", breaker("calculator", "half_open"), doctor.Warning, "agent", "lets a few calls through", "wait"},
		{"broken, by its id", func(t *testing.T, b *setup) {
			t.Helper()
			b.agent(admindoc.Agent{ID: "spiffe://aepb.dev/calc"})
			breaker("spiffe://aepb.dev/calc", "open")(t, b)
		}, doctor.Warning, "agent", "circuit breaker is open", "tried again by itself"},
		{"deprecated", is(admindoc.Agent{Lifecycle: &admindoc.Lifecycle{Status: "deprecated"}}), doctor.Warning, "agent", "deprecated", "lifecycle activate calculator --reason TEXT takes it back"},
		{"draining", is(admindoc.Agent{Lifecycle: &admindoc.Lifecycle{Status: "draining"}}), doctor.Warning, "agent", "draining", "lifecycle activate calculator --reason TEXT takes it back"},
		{"retired", is(admindoc.Agent{Lifecycle: &admindoc.Lifecycle{Status: "retired"}}), doctor.Warning, "agent", "retired", "agents remove calculator"},
		{"for nobody", is(admindoc.Agent{Callers: []string{}}), doctor.Warning, "agent", "no caller may call it", "--caller SPIFFE-ID"},
		{"forgotten", is(admindoc.Agent{From: "process"}), doctor.Warning, "agent", "alone knows it", "state.path"},
		{"changed", is(admindoc.Agent{Descriptions: []admindoc.Pin{{Binding: "mcp-v1", Pending: &admindoc.Pending{}}}}), doctor.Warning, "agent", "a changed description over mcp-v1 waits", "agents accept calculator"},
		{"whose certificate ends soon", func(t *testing.T, b *setup) { t.Helper(); b.certified(t, 20*time.Second) }, doctor.Warning, "agent", "the certificate of spiffe://aepb.dev/agents/calculator expires in ", "renew"},
		{"whose certificate has ended", func(t *testing.T, b *setup) { t.Helper(); b.certified(t, time.Nanosecond) }, doctor.Failed, "agent", "the certificate of spiffe://aepb.dev/agents/calculator expired ", "renew"},
	})
}

// certified lists an agent whose certificate lasts so long.
func (b *setup) certified(t *testing.T, ttl time.Duration) {
	t.Helper()
	svid, err := b.dev.Authority.Issue("/agents/calculator", identity.SVIDRequest{TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	at := b.serve(&tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{svid.Certificate()}})
	b.agent(admindoc.Agent{Endpoints: []admindoc.Endpoint{{Binding: "mcp-v1", URL: at + "/mcp"}}})
}

// Where agents without callers are open to everybody, nothing is found of that.
func TestRun_OpenGateway(t *testing.T) {
	t.Parallel()
	b := newSetup(t)
	b.agent(admindoc.Agent{Callers: []string{}})
	b.pages["/api/operator"] = page{http.StatusOK, `{"name":"developer","roles":["operator"],"open":true}`}
	for _, f := range b.run() {
		if strings.Contains(f.Found, "nobody may call") {
			t.Error(f)
		}
	}
}

func TestRun_Machine(t *testing.T) {
	t.Parallel()
	configured := func(text string, check func(context.Context, string) (string, error)) func(*testing.T, *setup) {
		return func(_ *testing.T, b *setup) { b.deps.Config, b.deps.CheckConfig = b.write("gateway.yaml", text), check }
	}
	says := func(output string) func(context.Context, string) (string, error) {
		return func(context.Context, string) (string, error) { return output, nil }
	}
	try(t, []broken{
		{"no configuration", func(_ *testing.T, b *setup) { b.deps.Config = "nonesuch.yaml" }, doctor.Failed, "configuration", "there is no file nonesuch.yaml", "--config"},
		{"a mistake in it", configured(goodConfig+"limits: {rate: fast}\n", nil), doctor.Failed, "configuration", "[5:", "aepb-gateway check-config"},
		{"something missing", configured("public_url: https://gw.example\n", nil), doctor.Failed, "configuration", "required by serve", "aepb-gateway check-config"},
		{"what the program finds", configured(goodConfig, func(context.Context, string) (string, error) {
			return "config: identity: no such file\n", errors.New("exit status 1")
		}), doctor.Failed, "configuration", "identity: no such file", "correct it there"},
		{"what the program says of a good one", configured(goodConfig, says("ok\nmemory: at most 742 MiB\n")), doctor.OK, "configuration", "gateway.yaml has no mistakes", ""},
		{"what memory it takes", configured(goodConfig, says("ok\nmemory: at most 742 MiB\n")), doctor.OK, "configuration", "memory: at most 742 MiB", ""},
		{"what the program warns of", configured(goodConfig, says("warning: identity.key: all users can read it -> chmod 600 k\nok\n")), doctor.Warning, "configuration", "identity.key: all users can read it", "chmod 600 k"},
		{
			"what waits for a restart", configured(goodConfig+"listen: {public: \":18446\"}\n", nil), doctor.Warning, "configuration",
			"listen.public takes a restart: in force :8443, in the file :18446", "restart the gateway",
		},
		{"a gateway that does not tell its configuration", func(t *testing.T, b *setup) {
			t.Helper()
			configured(goodConfig, nil)(t, b)
			delete(b.pages, "/api/configuration")
		}, doctor.Warning, "configuration", "does not say which configuration is in force", "log of the gateway"},
		{"of a development gateway", func(_ *testing.T, b *setup) {
			b.deps.Token, b.deps.Config = "token", b.write("gateway.yaml", "limits: {rate: 10}\n")
		}, doctor.OK, "configuration", "for aepb-gateway dev", ""},
		{"without the program", configured(goodConfig, nil), doctor.OK, "configuration", "also reads the files that it names", ""},
		{"no folder for state", configured(goodConfig+"state: {path: /nonesuch/state.db}\n", nil), doctor.Failed, "disk", "/nonesuch: no such file", "make the folder"},
		{"more memory than there is", configured(goodConfig+"limits: {memory_mib: 1048576}\n", nil), doctor.Warning, "memory", "and this machine or container has", "lower limits.memory_mib to "},
	})
}

// TestRun_NoSecrets: neither the token nor a key stands in a finding.
func TestRun_NoSecrets(t *testing.T) {
	t.Parallel()
	b := newSetup(t)
	b.deps.Token = "very-secret-token"
	for path := range b.pages {
		if strings.HasPrefix(path, "/api/") {
			b.pages[path] = page{http.StatusUnauthorized, "{}"}
		}
	}
	b.deps.Key = b.write("key.pem", "-----BEGIN PRIVATE KEY-----\nAAAA-very-secret\n-----END PRIVATE KEY-----\n")
	first := b.run()
	b.deps.Key = filepath.Join(b.dir, "client-key.pem")
	first = append(first, b.run()...)
	if b.shown.Load() {
		t.Error("the token is shown to more than the admin API")
	}
	for _, f := range first {
		if strings.Contains(f.Found+f.Remedy, "very-secret") {
			t.Error(f)
		}
	}
}

func TestSpace_Thresholds(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for _, tc := range []struct {
		free, all uint64
		want      doctor.Status
	}{{63 * mib, 1 << 40, doctor.Failed}, {65 * mib, 100 * mib, doctor.Warning}, {1025 * mib, 1 << 40, doctor.Warning}, {1025 * mib, 2048 * mib, doctor.OK}} {
		if got := doctor.Space(tc.free, tc.all); got.Status != tc.want || (got.Remedy == "") != (tc.want == doctor.OK) {
			t.Errorf("%d of %d: %+v", tc.free, tc.all, got)
		}
	}
}
