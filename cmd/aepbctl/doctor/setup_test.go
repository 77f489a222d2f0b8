package doctor_test

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/doctor"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/directory/admindoc"
)

// setup is a gateway as a doctor sees it, in good health until a test changes it.
type setup struct {
	t     *testing.T
	dir   string
	dev   *identity.Development
	pages map[string]page // of both listeners, by path
	date  time.Duration   // by which the gateway's clock is ahead
	slow  chan struct{}   // ends answers of /api/agents/slow, and of slow pages

	undated bool        // its answers have no date
	shown   atomic.Bool // the token, outside the admin API
	tokened atomic.Bool // anything, with the token

	deps doctor.Deps
}

// Pages that are not answered: late, and not at all.
const (
	slow = -1
	cut  = -2
)

type page struct {
	status int
	body   string
}

func newSetup(t *testing.T) *setup {
	t.Helper()
	dir := t.TempDir()
	dev, err := identity.LoadOrCreate(dir, "aepb.dev", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	b := &setup{t: t, dir: dir, dev: dev, slow: make(chan struct{})}
	b.pages = map[string]page{
		"/.well-known/aepb":  {http.StatusOK, "{}"},
		"/readyz":            {http.StatusOK, "ready\n"},
		"/api/operator":      {http.StatusOK, `{"name":"ann","id":"spiffe://aepb.dev/client","roles":["operator","auditor"],"open":false}`},
		"/api/configuration": {http.StatusOK, `{"restart_keys":{"identity.trust_domain":"aepb.dev","listen.admin":"127.0.0.1:9443","listen.public":":8443","public_url":"https://gw.example"}}`},
		"/api/breakers":      {http.StatusOK, `{"breakers":[]}`},
	}
	b.metrics(map[string]string{})
	b.agent(admindoc.Agent{})
	source, err := identity.NewSource(dev.Gateway, dev.Bundle)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { close(b.slow) })
	b.deps = doctor.Deps{
		Public: b.serve(source.ServerConfig()), Admin: b.serve(source.ServerConfig()),
		Cert: filepath.Join(dir, "client.pem"), Key: filepath.Join(dir, "client-key.pem"), CA: filepath.Join(dir, "ca.pem"),
		Dir: dir, Now: time.Now, Patience: doctor.Patience,
	}
	return b
}

// serve starts a listener of the gateway.
func (b *setup) serve(config *tls.Config) string {
	s := httptest.NewUnstartedServer(http.HandlerFunc(b.answer))
	if config != nil {
		s.Listener = tls.NewListener(s.Listener, config)
	}
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.Start()
	b.t.Cleanup(s.Close)
	return strings.Replace(s.URL, "http:", "https:", 1)
}

func (b *setup) answer(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "" {
		b.tokened.Store(true)
	}
	if r.Header.Get("Authorization") != "" && !strings.HasPrefix(r.URL.Path, "/api/") {
		b.shown.Store(true)
	}
	if b.pages[r.URL.Path].status == cut {
		panic(http.ErrAbortHandler)
	}
	if r.URL.Path == "/api/agents/slow" || b.pages[r.URL.Path].status == slow {
		select {
		case <-b.slow:
		case <-r.Context().Done():
		}
		return
	}
	p, ok := b.pages[r.URL.Path]
	if !ok {
		p.status = http.StatusNotFound
	}
	if w.Header()["Date"] = nil; !b.undated {
		w.Header().Set("Date", time.Now().Add(b.date).UTC().Format(http.TimeFormat))
	}
	w.WriteHeader(p.status)
	_, _ = io.WriteString(w, p.body)
}

// metrics has the gateway say these instead of what is well.
func (b *setup) metrics(changed map[string]string) {
	month, year := fmt.Sprint(b.dev.Gateway.Expires().Unix()), fmt.Sprint(b.dev.Bundle.Anchors()[0].NotAfter.Unix())
	lines := map[string]string{
		`aepb_identity_expiry_timestamp_seconds{kind="svid"}`:            month,
		`aepb_identity_expiry_timestamp_seconds{kind="bundle"}`:          year,
		`aepb_bundle_expiry_timestamp_seconds{trust_domain="aepb.dev"}`:  year,
		`aepb_state_backend_up{backend="bolt"}`:                          "1",
		`aepb_state_usage_ratio{kind="lasting_entries"}`:                 "0.1",
		`aepb_translations_total{from="a2a-v1",result="ok",to="mcp-v1"}`: "3",
		"aepb_inflight": "0",
	}
	maps.Copy(lines, changed)
	var text strings.Builder
	text.WriteString("# HELP aepb_inflight Now.\n# TYPE aepb_inflight gauge\n")
	for name, value := range lines {
		if value != "" {
			text.WriteString(name + " " + value + "\n")
		}
	}
	b.pages["/metrics"] = page{http.StatusOK, text.String()}
}

// agent lists one, which is well but for what is given.
func (b *setup) agent(a admindoc.Agent) {
	if a.Name == "" {
		a.Name = "calculator"
	}
	if a.Callers == nil {
		a.Callers = []string{"spiffe://aepb.dev/*"}
	}
	if a.Endpoints == nil {
		a.Endpoints = []admindoc.Endpoint{{Binding: "mcp-v1", URL: "stdio:?arg=calculator"}}
	}
	list := a
	list.Description, list.Descriptions = nil, nil
	b.pages["/api/agents"] = page{http.StatusOK, b.json(map[string][]admindoc.Agent{"agents": {list}})}
	if a.Description == nil {
		a.Description = &admindoc.Summary{Name: "calc", Version: "1.2", Protocol: "2025-11-25", Capabilities: []string{"add", "sub"}}
	}
	b.pages["/api/agents/"+a.Name] = page{http.StatusOK, b.json(a)}
}

func (b *setup) json(value any) string {
	b.t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		b.t.Fatal(err)
	}
	return string(text)
}

func (b *setup) write(name, text string) string {
	b.t.Helper()
	file := filepath.Join(b.dir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
	return file
}

// run is what the doctor finds.
func (b *setup) run() []doctor.Finding {
	b.t.Helper()
	var found []doctor.Finding
	b.deps.Emit = func(f doctor.Finding) { found = append(found, f) }
	doctor.Run(b.t.Context(), b.deps)
	return found
}

// stampIn is a moment as metrics give it.
func stampIn(d time.Duration) string { return fmt.Sprint(time.Now().Add(d).Unix()) }
