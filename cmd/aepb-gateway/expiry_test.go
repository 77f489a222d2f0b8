package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/ect/identity/workloadtest"
	"github.com/aepb/aepb-gateway/gateway/telemetry"
)

// timed is a gateway in virtual time: all of serve but its listeners.
type timed struct {
	*service
	dev   *identity.Development
	dir   string
	file  string // the configuration
	logs  *journal
	agent *workloadtest.Agent // nil: files say who the gateway is
}

// newTimed begins with an SVID of an hour, from the Workload API or from files. edit
// may change the configuration.
func newTimed(t *testing.T, byAPI bool, edit func(dir, text string) string) *timed {
	t.Helper()
	v := &timed{logs: &journal{}}
	v.dir, v.file = operated(t, "")
	var err error
	v.dev, err = identity.LoadOrCreate(v.dir, devTrustDomain, time.Now)
	must(t, err)
	text, err := os.ReadFile(v.file)
	must(t, err)
	logger := telemetry.NewLogger(v.logs, 0)
	var workload *identity.Workload
	if byAPI {
		v.agent = workloadtest.NewPipedAgent(t)
		text = byWorkloadAPI(text, v.agent)
	}
	if edit != nil {
		text = []byte(edit(v.dir, string(text)))
	}
	must(t, os.WriteFile(v.file, text, 0o600))
	v.renewed(t, time.Hour)
	if byAPI {
		failed, err := logFailures(t.Context(), v.agent.Address, logger)
		must(t, err)
		workload, err = identity.OpenWorkload(t.Context(), identity.WorkloadDeps{Address: v.agent.Address, Dial: v.agent.Dial, Failed: failed})
		must(t, err)
	}
	from, err := load(v.file)
	must(t, err)
	s, err := production(from.config, workload, logger)
	must(t, err)
	v.service, err = wire(s)
	must(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { must(t, v.expiry.run(ctx)) })
	running.Go(func() { must(t, v.watcher(from, nil).run(ctx)) })
	t.Cleanup(func() {
		stop()
		running.Wait()
		must(t, v.shut())
		if workload != nil {
			must(t, workload.Close())
		}
		v.logs.inspect(t)
	})
	synctest.Wait()
	return v
}

// byWorkloadAPI is a configuration of files whose identity comes from an agent instead.
func byWorkloadAPI(text []byte, agent *workloadtest.Agent) []byte {
	before, rest, _ := strings.Cut(string(text), "certificate:")
	_, after, _ := strings.Cut(rest, "trust-bundle.json")
	return []byte(before + `workload_api: "` + agent.Address + `"` + after)
}

// identityOf is what an agent says of the gateway.
func identityOf(dev *identity.Development, s *identity.SVID) workloadtest.Identity {
	return workloadtest.Identity{ID: string(s.ID), Chain: s.Chain, Key: s.Key, Anchors: dev.Bundle.Anchors()}
}

// renewed has a new SVID come the way that SVIDs come.
func (v *timed) renewed(t *testing.T, ttl time.Duration) *identity.SVID {
	t.Helper()
	s := issue(t, v.dev.Authority, "/gateway", identity.SVIDRequest{TTL: ttl})
	if v.agent != nil {
		v.agent.Say(t, identityOf(v.dev, s))
	} else {
		must(t, s.WritePEM(filepath.Join(v.dir, "gateway.pem"), filepath.Join(v.dir, "gateway-key.pem")))
	}
	return s
}

// page is one of the pages for probes and Prometheus.
func (v *timed) page(t *testing.T, path string) (status int, text string) {
	t.Helper()
	w := httptest.NewRecorder()
	v.monitoring.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
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
	return numberIn(t, page, metric)
}

func numberIn(t *testing.T, page, metric string) float64 {
	t.Helper()
	_, rest, ok := strings.Cut(page, "\n"+metric+" ")
	line, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.ParseFloat(line, 64)
	if !ok || err != nil {
		t.Fatalf("no number for %s: %v", metric, err)
	}
	return n
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

// lines are the log lines that hold all of the words.
func (j *journal) lines(words ...string) (found []string) {
next:
	for line := range strings.Lines(j.String()) {
		for _, word := range words {
			if !strings.Contains(line, word) {
				continue next
			}
		}
		found = append(found, line)
	}
	return found
}

// The SPIFFE agent dies for longer than the SVID lives, and comes back.
func TestExpiry_WorkloadAPIIsAwayAndComesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := newTimed(t, true, nil)
		until := v.source.Life().Until
		v.ends(t, "svid", until)
		v.ends(t, "bundle", v.dev.Bundle.Anchors()[0].NotAfter)
		v.notReady(t, "")
		v.agent.Leave()
		time.Sleep(39 * time.Minute)
		if n := v.number(t, "aepb_identity_watch_errors_total"); n < 1000 {
			t.Errorf("%v failures in 39 minutes", n)
		}
		if n := len(v.logs.lines(`"level":"WARN"`, "the SPIFFE Workload API failed", `"do":"see that the SPIFFE agent runs`)); n < 30 || n > 41 {
			t.Errorf("%d warnings in 39 minutes, want one a minute", n)
		}
		v.notReady(t, "")
		soon := []string{`"level":"WARN"`, "expires soon", `"kind":"svid"`, "identity.workload_api"}
		if v.logs.lines(soon...) != nil {
			t.Error("warned before the last third")
		}
		time.Sleep(2 * time.Minute)
		if n := len(v.logs.lines(soon...)); n != 1 {
			t.Errorf("%d warnings when a third is left, want 1", n)
		}
		time.Sleep(time.Until(until))
		v.notReady(t, "")
		time.Sleep(2 * lookEvery)
		v.notReady(t, "the SVID of this gateway expired at "+until.Format(time.RFC3339))
		if n := len(v.logs.lines(soon...)); n < 4 || n > 8 {
			t.Errorf("%d warnings before the end", n)
		}
		if n := len(v.logs.lines(`"level":"ERROR"`, "identity expired", `"kind":"svid"`)); n != 1 {
			t.Errorf("%d lines tell of the end, want 1", n)
		}
		v.ends(t, "svid", until)
		time.Sleep(time.Hour)
		if n := len(v.logs.lines("identity expired")); n < 10 || n > 14 {
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
		shown := v.source.Life().Until
		without := identityOf(v.dev, issue(t, v.dev.Authority, "/gateway", identity.SVIDRequest{TTL: 2 * time.Hour}))
		without.Anchors = nil
		v.agent.Say(t, without)
		time.Sleep(2 * lookEvery)
		v.notReady(t, "no trust bundle of our own trust domain is known")
		v.ends(t, "bundle", time.Time{})
		v.ends(t, "svid", shown)
		if len(v.bundle().Anchors()) == 0 {
			t.Error("what was trusted is not trusted any more")
		}
		if v.logs.lines(`"level":"ERROR"`, "no trust bundle is known", `"trust_domain":"aepb.dev"`) == nil {
			t.Error("the log does not tell")
		}
		v.renewed(t, 2*time.Hour)
		time.Sleep(2 * lookEvery)
		v.notReady(t, "")
		v.ends(t, "bundle", v.dev.Bundle.Anchors()[0].NotAfter)
	})
}

func (v *timed) bundle() *identity.Bundle { return v.settings.bundle }

// Nothing renews the files; then something does. The same for the trust bundle.
func TestExpiry_FilesAreNotRenewed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := newTimed(t, false, nil)
		time.Sleep(41 * time.Minute)
		if v.logs.lines("expires soon", `"kind":"svid"`, "identity.certificate") == nil {
			t.Error("no warning when a third is left")
		}
		v.notReady(t, "")
		time.Sleep(20 * time.Minute)
		v.notReady(t, "the SVID of this gateway expired at")
		if v.logs.lines(`"level":"ERROR"`, "identity expired", `"kind":"svid"`) == nil {
			t.Error("the log does not tell of the end")
		}
		fresh := v.renewed(t, time.Hour)
		time.Sleep(2 * lookEvery)
		v.notReady(t, "")
		v.ends(t, "svid", fresh.Expires())
		if n := v.number(t, "aepb_identity_watch_errors_total"); n != 0 {
			t.Errorf("%v failures of an API that is not used", n)
		}

		file := filepath.Join(v.dir, "trust-bundle.json")
		text, err := os.ReadFile(file)
		must(t, err)
		must(t, os.Remove(file))
		time.Sleep(2 * lookEvery)
		v.notReady(t, "no trust bundle of our own trust domain is known")
		v.ends(t, "bundle", time.Time{})
		if v.logs.lines("no trust bundle is known", "identity.bundle") == nil {
			t.Error("the log does not tell of the bundle")
		}
		must(t, os.WriteFile(file, text, 0o600))
		time.Sleep(2 * lookEvery)
		v.notReady(t, "")
	})
}

// Anchors of another trust domain and the public certificate end too. Only ours make
// the gateway not ready.
func TestExpiry_OtherTrustDomainsAndPublicCertificate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		other := t.TempDir()
		ending := authority(t, "partner.example", func() time.Time { return time.Now().Add(time.Hour - 365*24*time.Hour) })
		must(t, ending.Save(other))
		v := newTimed(t, false, func(dir, text string) string {
			public := issue(t, ending, "/public", identity.SVIDRequest{TTL: 400 * 24 * time.Hour})
			must(t, public.WritePEM(filepath.Join(dir, "public.pem"), filepath.Join(dir, "public-key.pem")))
			federated := `, federated: {"partner.example": "` + filepath.Join(other, identity.AnchorFile) + `"}}`
			return strings.Replace(text, "trust-bundle.json}", "trust-bundle.json"+federated, 1) +
				"tls: {certificate: " + dir + "/public.pem, key: " + dir + "/public-key.pem}\n"
		})
		end := v.bundle().Lives()["partner.example"].Until
		for _, kind := range []string{`"kind":"bundle"`, `"kind":"public"`} {
			if v.logs.lines(`"level":"WARN"`, "expires soon", kind) == nil {
				t.Errorf("no warning of %s at the start, in the last third", kind)
			}
		}
		v.ends(t, "public", end)
		for domain, want := range map[string]time.Time{"partner.example": end, devTrustDomain: v.dev.Bundle.Anchors()[0].NotAfter} {
			if got := v.number(t, `aepb_bundle_expiry_timestamp_seconds{trust_domain="`+domain+`"}`); got != float64(want.Unix()) {
				t.Errorf("%s ends at %v, want %v", domain, got, want)
			}
		}
		time.Sleep(30 * time.Minute)
		v.renewed(t, 24*time.Hour)
		time.Sleep(time.Until(end) + 2*lookEvery)
		v.notReady(t, "the certificate of tls.certificate expired at")
		if v.logs.lines(`"level":"ERROR"`, "identity expired", "partner.example") == nil {
			t.Error("the log does not tell of the partner's end")
		}
		good := issue(t, v.dev.Authority, "/public", identity.SVIDRequest{})
		must(t, good.WritePEM(filepath.Join(v.dir, "public.pem"), filepath.Join(v.dir, "public-key.pem")))
		time.Sleep(2 * lookEvery)
		v.notReady(t, "")
	})
}

// A mistake elsewhere in the configuration, or a file that is gone, does not keep a
// new SVID out.
func TestExpiry_BadConfigurationDoesNotStopRenewal(t *testing.T) {
	t.Parallel()
	for _, byAPI := range []bool{true, false} {
		for name, spoil := range map[string]func(t *testing.T, v *timed){
			"bad":  func(t *testing.T, v *timed) { t.Helper(); must(t, os.WriteFile(v.file, []byte("agents: ["), 0o600)) },
			"gone": func(t *testing.T, v *timed) { t.Helper(); must(t, os.Remove(v.file)) },
			"lost bundle named": func(t *testing.T, v *timed) {
				t.Helper()
				text, err := os.ReadFile(v.file)
				must(t, err)
				must(t, os.WriteFile(v.file, append(text, "peers: {\"spiffe://aepb.dev/x\": {keys: /lost.json}}\n"...), 0o600))
			},
		} {
			t.Run(name+" by API "+strconv.FormatBool(byAPI), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					v := newTimed(t, byAPI, nil)
					spoil(t, v)
					time.Sleep(2*lookEvery + time.Second) // between two looks
					v.notReady(t, "")
					fresh := v.renewed(t, 2*time.Hour)
					time.Sleep(2 * lookEvery)
					v.ends(t, "svid", fresh.Expires())
					time.Sleep(time.Minute)
					if n := len(v.logs.lines("the new configuration is refused")); n > 2 {
						t.Errorf("the log tells %d times of one mistake", n)
					}
					if n := len(v.logs.lines("identity in force")); n > 2 { // with the file, and with the SVID
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
		ahead, err := identity.LoadOrCreate(v.dir, devTrustDomain, func() time.Time { return time.Now().Add(90 * time.Second) })
		must(t, err)
		later := issue(t, ahead.Authority, "/gateway", identity.SVIDRequest{TTL: time.Hour}) // backdated by a minute
		shown := v.source.Life().Until
		v.agent.Say(t, identityOf(v.dev, later))
		time.Sleep(10 * time.Second)
		v.ends(t, "svid", shown)
		time.Sleep(25 * time.Second)
		v.ends(t, "svid", later.Expires())
		if n := len(v.logs.lines("the new configuration is refused")); n != 1 {
			t.Errorf("the log tells %d times of one refusal", n)
		}
	})
}
