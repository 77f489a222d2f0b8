package server_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/ect/identity/workloadtest"
	"github.com/aepb/aepb-gateway/gateway/server"
	"github.com/aepb/aepb-gateway/gateway/telemetry"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// timed is a gateway in virtual time: all of serve but its listeners.
type timed struct {
	*server.Server
	conf  server.Config
	dev   *identity.Development
	dir   string
	file  string // the configuration
	logs  *gatewaytest.Journal
	agent *workloadtest.Agent // nil: files say who the gateway is
}

// newTimed begins with an SVID of an hour, from the Workload API or from files. edit
// may change the configuration. It ends between two looks at the files: a test that goes
// on by whole looks does nothing at the instant of one, of which each may come first.
func newTimed(t *testing.T, byAPI bool, edit func(dir, text string) string) *timed {
	t.Helper()
	v := &timed{logs: &gatewaytest.Journal{}}
	v.dir, v.file = gatewaytest.Operated(t, "")
	var err error
	v.dev, err = identity.LoadOrCreate(v.dir, gatewaytest.TrustDomain, time.Now)
	gatewaytest.Must(t, err)
	text, err := os.ReadFile(v.file)
	gatewaytest.Must(t, err)
	logger := telemetry.NewLogger(v.logs, 0)
	var workload *identity.Workload
	if byAPI {
		v.agent = workloadtest.NewPipedAgent(t)
		text = gatewaytest.ByWorkloadAPI(text, v.agent)
	}
	if edit != nil {
		text = []byte(edit(v.dir, string(text)))
	}
	gatewaytest.Must(t, os.WriteFile(v.file, text, 0o600))
	v.renewed(t, time.Hour)
	if byAPI {
		failed, err := server.LogFailures(t.Context(), v.agent.Address, logger)
		gatewaytest.Must(t, err)
		workload, err = identity.OpenWorkload(t.Context(), identity.WorkloadDeps{Address: v.agent.Address, Dial: v.agent.Dial, Failed: failed})
		gatewaytest.Must(t, err)
	}
	from, err := server.ReadFile(v.file)
	gatewaytest.Must(t, err)
	s, err := server.Production(from.Config, workload, logger)
	gatewaytest.Must(t, err)
	v.conf = s
	v.Server, err = server.Build(s)
	gatewaytest.Must(t, err)
	stop := server.RunBehind(context.WithoutCancel(t.Context()), v.Server, from)
	t.Cleanup(func() {
		gatewaytest.Must(t, stop())
		if workload != nil {
			gatewaytest.Must(t, workload.Close())
		}
		v.logs.Inspect(t)
	})
	time.Sleep(server.LookEvery / 2)
	return v
}

// renewed has a new SVID come the way that SVIDs come.
func (v *timed) renewed(t *testing.T, ttl time.Duration) *identity.SVID {
	t.Helper()
	s := gatewaytest.Issue(t, v.dev.Authority, "/gateway", identity.SVIDRequest{TTL: ttl})
	if v.agent != nil {
		v.agent.Say(t, gatewaytest.IdentityOf(v.dev, s))
	} else {
		gatewaytest.Must(t, s.WritePEM(filepath.Join(v.dir, "gateway.pem"), filepath.Join(v.dir, "gateway-key.pem")))
	}
	return s
}

// page is one of the pages for probes and Prometheus.
func (v *timed) page(t *testing.T, path string) (status int, text string) {
	t.Helper()
	_, _, monitoring := v.Handlers()
	w := httptest.NewRecorder()
	monitoring.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
	return w.Code, w.Body.String()
}

// notReady expects /readyz to refuse in these words, or without words to be ready.
func (v *timed) notReady(t *testing.T, words string) {
	t.Helper()
	status, text := v.page(t, "/readyz")
	if words == "" && status != http.StatusOK || words != "" && (status != http.StatusServiceUnavailable || !strings.Contains(text, words)) {
		t.Errorf("at %v /readyz: got %d %q, want %q", time.Now(), status, text, words)
	}
}

// number is the value of a metric.
func (v *timed) number(t *testing.T, metric string) float64 {
	t.Helper()
	_, page := v.page(t, "/metrics")
	return gatewaytest.NumberIn(t, page, metric)
}

// ends expects the metric of a kind to be a time.
func (v *timed) ends(t *testing.T, kind string, at time.Time) {
	t.Helper()
	want := float64(0)
	if !at.IsZero() {
		want = float64(at.Unix())
	}
	if got := v.number(t, `aepb_identity_expiry_timestamp_seconds{kind="`+kind+`"}`); got != want {
		t.Errorf("%s ends at %v, want %v", kind, got, want)
	}
}

// The SPIFFE agent dies for longer than the SVID lives, and comes back.
func TestExpiry_WorkloadAPIIsAwayAndComesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := newTimed(t, true, nil)
		until := v.conf.Identity.Source.Life().Until
		v.ends(t, "svid", until)
		v.ends(t, "bundle", v.dev.Bundle.Anchors()[0].NotAfter)
		v.notReady(t, "")
		v.agent.Leave()
		time.Sleep(39 * time.Minute)
		if n := v.number(t, "aepb_identity_watch_errors_total"); n < 1000 {
			t.Errorf("%v failures in 39 minutes", n)
		}
		if n := len(v.logs.Lines(`"level":"WARN"`, "the SPIFFE Workload API failed", `"do":"see that the SPIFFE agent runs`)); n < 30 || n > 41 {
			t.Errorf("%d warnings in 39 minutes, want one a minute", n)
		}
		v.notReady(t, "")
		soon := []string{`"level":"WARN"`, "expires soon", `"kind":"svid"`, "identity.workload_api"}
		if v.logs.Lines(soon...) != nil {
			t.Error("warned before the last third")
		}
		time.Sleep(2 * time.Minute)
		if n := len(v.logs.Lines(soon...)); n != 1 {
			t.Errorf("%d warnings when a third is left, want 1", n)
		}
		time.Sleep(time.Until(until))
		v.notReady(t, "")
		time.Sleep(2 * server.LookEvery)
		v.notReady(t, "the SVID of this gateway expired at "+until.Format(time.RFC3339))
		if n := len(v.logs.Lines(soon...)); n < 4 || n > 8 {
			t.Errorf("%d warnings before the end", n)
		}
		if n := len(v.logs.Lines(`"level":"ERROR"`, "identity expired", `"kind":"svid"`)); n != 1 {
			t.Errorf("%d lines tell of the end, want 1", n)
		}
		v.ends(t, "svid", until)
		time.Sleep(time.Hour)
		if n := len(v.logs.Lines("identity expired")); n < 10 || n > 14 {
			t.Errorf("%d lines tell of the end an hour later, want one every 5 minutes", n)
		}
		fresh := v.renewed(t, time.Hour)
		v.agent.Return(t)
		time.Sleep(3 * time.Second)
		v.notReady(t, "")
		v.ends(t, "svid", fresh.Expires())
		before := v.number(t, "aepb_identity_watch_errors_total")
		time.Sleep(30 * time.Minute)
		if n := v.number(t, "aepb_identity_watch_errors_total"); n != before {
			t.Errorf("%v failures while all is well", n-before)
		}
	})
}

// The agent says that there is no trust bundle of our trust domain any more.
func TestExpiry_WorkloadAPIHasNoBundle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := newTimed(t, true, nil)
		shown := v.conf.Identity.Source.Life().Until
		without := gatewaytest.IdentityOf(v.dev, gatewaytest.Issue(t, v.dev.Authority, "/gateway", identity.SVIDRequest{TTL: 2 * time.Hour}))
		without.Anchors = nil
		v.agent.Say(t, without)
		time.Sleep(2 * server.LookEvery)
		v.notReady(t, "no trust bundle of our own trust domain is known")
		v.ends(t, "bundle", time.Time{})
		v.ends(t, "svid", shown)
		if len(v.bundle().Anchors()) == 0 {
			t.Error("what was trusted is not trusted any more")
		}
		if v.logs.Lines(`"level":"ERROR"`, "no trust bundle is known", `"trust_domain":"aepb.dev"`) == nil {
			t.Error("the log does not tell")
		}
		v.renewed(t, 2*time.Hour)
		time.Sleep(2 * server.LookEvery)
		v.notReady(t, "")
		v.ends(t, "bundle", v.dev.Bundle.Anchors()[0].NotAfter)
	})
}

func (v *timed) bundle() *identity.Bundle { return v.conf.Identity.Bundle }

// Nothing renews the files; then something does. The same for the trust bundle.
func TestExpiry_FilesAreNotRenewed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := newTimed(t, false, nil)
		time.Sleep(41 * time.Minute)
		if v.logs.Lines("expires soon", `"kind":"svid"`, "identity.certificate") == nil {
			t.Error("no warning when a third is left")
		}
		v.notReady(t, "")
		time.Sleep(20 * time.Minute)
		v.notReady(t, "the SVID of this gateway expired at")
		if v.logs.Lines(`"level":"ERROR"`, "identity expired", `"kind":"svid"`) == nil {
			t.Error("the log does not tell of the end")
		}
		fresh := v.renewed(t, time.Hour)
		time.Sleep(2 * server.LookEvery)
		v.notReady(t, "")
		v.ends(t, "svid", fresh.Expires())
		if n := v.number(t, "aepb_identity_watch_errors_total"); n != 0 {
			t.Errorf("%v failures of an API that is not used", n)
		}

		file := filepath.Join(v.dir, "trust-bundle.json")
		text, err := os.ReadFile(file)
		gatewaytest.Must(t, err)
		gatewaytest.Must(t, os.Remove(file))
		time.Sleep(2 * server.LookEvery)
		v.notReady(t, "no trust bundle of our own trust domain is known")
		v.ends(t, "bundle", time.Time{})
		if v.logs.Lines("no trust bundle is known", "identity.bundle") == nil {
			t.Error("the log does not tell of the bundle")
		}
		gatewaytest.Must(t, os.WriteFile(file, text, 0o600))
		time.Sleep(2 * server.LookEvery)
		v.notReady(t, "")
	})
}

// Anchors of another trust domain and the public certificate end too. Only ours make
// the gateway not ready.
func TestExpiry_OtherTrustDomainsAndPublicCertificate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		other := t.TempDir()
		ending := gatewaytest.Authority(t, "partner.example", func() time.Time { return time.Now().Add(time.Hour - 365*24*time.Hour) })
		gatewaytest.Must(t, ending.Save(other))
		v := newTimed(t, false, func(dir, text string) string {
			public := gatewaytest.Issue(t, ending, "/public", identity.SVIDRequest{TTL: 400 * 24 * time.Hour})
			gatewaytest.Must(t, public.WritePEM(filepath.Join(dir, "public.pem"), filepath.Join(dir, "public-key.pem")))
			federated := `, federated: {"partner.example": "` + filepath.Join(other, identity.AnchorFile) + `"}}`
			return strings.Replace(text, "trust-bundle.json}", "trust-bundle.json"+federated, 1) +
				"tls: {certificate: " + dir + "/public.pem, key: " + dir + "/public-key.pem}\n"
		})
		end := v.bundle().Lives()["partner.example"].Until
		for _, kind := range []string{`"kind":"bundle"`, `"kind":"public"`} {
			if v.logs.Lines(`"level":"WARN"`, "expires soon", kind) == nil {
				t.Errorf("no warning of %s at the start, in the last third", kind)
			}
		}
		v.ends(t, "public", end)
		for domain, want := range map[string]time.Time{"partner.example": end, gatewaytest.TrustDomain: v.dev.Bundle.Anchors()[0].NotAfter} {
			if got := v.number(t, `aepb_bundle_expiry_timestamp_seconds{trust_domain="`+domain+`"}`); got != float64(want.Unix()) {
				t.Errorf("%s ends at %v, want %v", domain, got, want)
			}
		}
		time.Sleep(30 * time.Minute)
		v.renewed(t, 24*time.Hour)
		time.Sleep(time.Until(end) + 2*server.LookEvery)
		v.notReady(t, "the certificate of tls.certificate expired at")
		if v.logs.Lines(`"level":"ERROR"`, "identity expired", "partner.example") == nil {
			t.Error("the log does not tell of the partner's end")
		}
		good := gatewaytest.Issue(t, v.dev.Authority, "/public", identity.SVIDRequest{})
		gatewaytest.Must(t, good.WritePEM(filepath.Join(v.dir, "public.pem"), filepath.Join(v.dir, "public-key.pem")))
		time.Sleep(2 * server.LookEvery)
		v.notReady(t, "")
	})
}

// A mistake elsewhere in the configuration, or a file that is gone, does not keep a
// new SVID out.
func TestExpiry_BadConfigurationDoesNotStopRenewal(t *testing.T) {
	t.Parallel()
	for _, byAPI := range []bool{true, false} {
		for name, spoil := range map[string]func(t *testing.T, v *timed){
			"bad": func(t *testing.T, v *timed) {
				t.Helper()
				gatewaytest.Must(t, os.WriteFile(v.file, []byte("agents: ["), 0o600))
			},
			"gone": func(t *testing.T, v *timed) { t.Helper(); gatewaytest.Must(t, os.Remove(v.file)) },
			"lost bundle named": func(t *testing.T, v *timed) {
				t.Helper()
				text, err := os.ReadFile(v.file)
				gatewaytest.Must(t, err)
				gatewaytest.Must(t, os.WriteFile(v.file, append(text, "peers: {\"spiffe://aepb.dev/x\": {keys: /lost.json}}\n"...), 0o600))
			},
		} {
			t.Run(name+" by API "+strconv.FormatBool(byAPI), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					v := newTimed(t, byAPI, nil)
					spoil(t, v)
					time.Sleep(2 * server.LookEvery)
					v.notReady(t, "")
					fresh := v.renewed(t, 2*time.Hour)
					time.Sleep(2 * server.LookEvery)
					v.ends(t, "svid", fresh.Expires())
					time.Sleep(time.Minute)
					if n := len(v.logs.Lines("the new configuration is refused")); n > 2 {
						t.Errorf("the log tells %d times of one mistake", n)
					}
					if n := len(v.logs.Lines("identity in force")); n > 2 { // with the file, and with the SVID
						t.Errorf("the identity is renewed %d times", n)
					}
				})
			})
		}
	}
}

// An SVID that begins a little later, by clocks that differ, is in force when it begins.
func TestExpiry_SVIDThatBeginsLaterIsTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := newTimed(t, true, nil)
		ahead, err := identity.LoadOrCreate(v.dir, gatewaytest.TrustDomain, func() time.Time { return time.Now().Add(90 * time.Second) })
		gatewaytest.Must(t, err)
		later := gatewaytest.Issue(t, ahead.Authority, "/gateway", identity.SVIDRequest{TTL: time.Hour}) // backdated by a minute
		shown := v.conf.Identity.Source.Life().Until
		v.agent.Say(t, gatewaytest.IdentityOf(v.dev, later))
		time.Sleep(10 * time.Second)
		v.ends(t, "svid", shown)
		time.Sleep(25 * time.Second)
		v.ends(t, "svid", later.Expires())
		if n := len(v.logs.Lines("the new configuration is refused")); n != 1 {
			t.Errorf("the log tells %d times of one refusal", n)
		}
	})
}
