package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/ect/identity/workloadtest"
	"github.com/aepb/aepb-gateway/gateway/config"
)

// onFiles is the configuration of a gateway whose identity lies in its folder.
func onFiles(b *bed) config.Config {
	c := b.settings.config
	c.PublicURL = "https://127.0.0.1:8443"
	c.Admin = staff().Admin
	file := func(name string) string { return filepath.Join(b.dir, name) }
	c.Identity = config.Identity{
		TrustDomain: devTrustDomain, Certificate: file("gateway.pem"), Key: file("gateway-key.pem"), Bundle: file("ca.pem"),
	}
	return c
}

// putSVID is what a SPIFFE agent does to our files.
func (b *bed) putSVID(t *testing.T, s *identity.SVID) {
	t.Helper()
	must(t, s.WritePEM(filepath.Join(b.dir, "gateway.pem"), filepath.Join(b.dir, "gateway-key.pem")))
}

// shown is the serial of the certificate that a new connection is shown.
func (b *bed) shown(t *testing.T) string {
	t.Helper()
	d := tls.Dialer{Config: b.clientTLS(t, b.dev.Client)}
	conn, err := d.DialContext(t.Context(), "tcp", strings.TrimPrefix(b.at.Public, "https://"))
	must(t, err)
	defer func() { _ = conn.Close() }()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.String()
}

// issuedBy makes a call and gives the last ECT that the gateway signed for it.
func (b *bed) issuedBy(t *testing.T) string {
	t.Helper()
	n := b.number()
	got := b.send(t, b.sealed(t, letter{body: addBody(n)}))
	tokens := got.header.Values(ect.HeaderName)
	if got.status != http.StatusOK || len(tokens) == 0 {
		t.Fatalf("got %d %s", got.status, got.body)
	}
	return tokens[len(tokens)-1]
}

// A new SVID is in force at once, and nobody is cut off; what the old one signed
// stays good.
func TestSVIDRotates(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{serve: true, config: config.Config{}})
	for name, agent := range b.settings.config.Agents {
		agent.Callers = []string{"spiffe://" + devTrustDomain + "/*"}
		b.settings.config.Agents[name] = agent
	}
	c := onFiles(b)
	must(t, b.reload(t.Context(), c))
	before, old := b.shown(t), b.issuedBy(t)

	next := b.svid(t, "/gateway")
	b.putSVID(t, next)
	must(t, b.reload(t.Context(), c))
	if now := b.shown(t); now == before || now != next.Chain[0].SerialNumber.String() {
		t.Errorf("a new connection is shown %s", now)
	}
	reused := false
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused }})
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, b.at.Public+"/.well-known/aepb", http.NoBody)
	must(t, err)
	if got, err := receive(b.client, request); err != nil || got.status != http.StatusOK || !reused {
		t.Errorf("the connection was dropped: %d, %v", got.status, err)
	}
	fresh := b.issuedBy(t)
	if header := func(token string) string { h, _, _ := strings.Cut(token, "."); return h }; header(fresh) == header(old) {
		t.Error("ECTs are still signed with the old key")
	}
	for _, token := range []string{old, fresh} {
		if _, err := b.judge.Verify(t.Context(), token, ect.Check{Purpose: ect.Parent}); err != nil {
			t.Errorf("no longer verified: %v", err)
		}
	}
	b.refusesPapers(t, c)
	if now := b.shown(t); now != next.Chain[0].SerialNumber.String() {
		t.Errorf("what was refused is in force: %s", now)
	}
	b.issuedBy(t)
}

// refusesPapers: what will not do changes nothing.
func (b *bed) refusesPapers(t *testing.T, c config.Config) {
	t.Helper()
	stranger, err := identity.NewAuthority(identity.AuthorityDeps{TrustDomain: devTrustDomain})
	must(t, err)
	for name, spoil := range map[string]func(){
		"another workload":  func() { b.putSVID(t, b.svid(t, "/somebody")) },
		"another authority": func() { b.putSVID(t, issue(t, stranger, "/gateway", identity.SVIDRequest{})) },
		"an expired SVID":   func() { b.putSVID(t, expired(t, b, "/gateway")) },
		"a key of another": func() {
			must(t, b.svid(t, "/gateway").WritePEM(c.Identity.Certificate, filepath.Join(b.dir, "elsewhere.pem")))
		},
		"half a file": func() { must(t, os.Truncate(c.Identity.Certificate, 100)) },
		"no file":     func() { must(t, os.Remove(c.Identity.Key)) },
	} {
		spoil()
		if err := b.reload(t.Context(), c); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

// Anchors and peers' keys are read again too.
func TestTrustRotates(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{serve: true})
	c := onFiles(b)
	must(t, b.reload(t.Context(), c))
	second, err := identity.NewAuthority(identity.AuthorityDeps{TrustDomain: devTrustDomain})
	must(t, err)
	newcomer, err := identity.NewSource(issue(t, second, "/newcomer", identity.SVIDRequest{}), b.dev.Bundle)
	must(t, err)
	via := b.dialing(t, newcomer.ClientConfig(""))
	look := func() error {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.at.Public+"/.well-known/aepb", http.NoBody)
		must(t, err)
		_, err = receive(via, request)
		return err
	}
	if look() == nil {
		t.Error("a stranger is let in")
	}
	both, err := os.ReadFile(c.Identity.Bundle)
	must(t, err)
	other := t.TempDir()
	must(t, second.Save(other))
	more, err := os.ReadFile(filepath.Join(other, identity.AnchorFile))
	must(t, err)
	must(t, os.WriteFile(c.Identity.Bundle, append(both, more...), 0o600))
	must(t, b.reload(t.Context(), c))
	if err := look(); err != nil {
		t.Errorf("who has the new anchor is refused: %v", err)
	}
	keys := filepath.Join(b.dir, "keys.json")
	c.Peers = map[string]config.Peer{"spiffe://other.example/a": {Keys: keys, Dialect: "01", MinLevel: "L1"}}
	c.Identity.Issuers = map[string]string{"other.example": keys}
	if err := b.reload(t.Context(), c); err == nil || !strings.Contains(err.Error(), "peers.") || !strings.Contains(err.Error(), "identity.issuers.") {
		t.Errorf("keys that are not there: %v", err)
	}
	must(t, os.WriteFile(keys, []byte(`{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"k","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`), 0o600))
	must(t, b.reload(t.Context(), c))
	request := ect.KeyRequest{Issuer: "spiffe://other.example/a", Header: ect.Header{Algorithm: "EdDSA", KeyID: "k"}}
	if _, err := b.keys.Resolve(t.Context(), request); err != nil || b.wimse.Load() == nil {
		t.Errorf("the new keys are not in force: %v", err)
	}
	if b.dialects.For(request.Issuer) != ect.Dialect01 || b.minLevel(request.Issuer) != ect.L1 {
		t.Error("what is special about the peer is not in force")
	}
	c.Peers, c.Identity.Issuers = nil, nil
	must(t, b.reload(t.Context(), c))
	if _, err := b.keys.Resolve(t.Context(), request); err == nil || b.wimse.Load() != nil || b.dialects.For(request.Issuer) != ect.DialectSeed || b.minLevel(request.Issuer) != ect.L2 {
		t.Error("withdrawn keys are still in force")
	}
}

// TestReload_NeverTakesAMixedPair: a renewal has replaced the key and not yet the certificate. The reload refuses
// both, the next look tries again, and takes the pair once it is whole.
func TestReload_NeverTakesAMixedPair(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{serve: true})
	c := onFiles(b)
	must(t, b.reload(t.Context(), c))
	file := filepath.Join(b.dir, "c.yaml")
	text, err := json.Marshal(map[string]any{"identity": map[string]string{"certificate": c.Identity.Certificate, "key": c.Identity.Key}})
	must(t, err)
	must(t, os.WriteFile(file, text, 0o600))
	from, err := load(file)
	must(t, err)
	w := b.watcher(from, nil)
	w.apply = func(ctx context.Context, _ config.Config) error { return b.reload(ctx, c) }
	before, next := b.shown(t), b.svid(t, "/gateway")
	must(t, next.WritePEM(filepath.Join(b.dir, "waits.pem"), c.Identity.Key))
	for range 2 {
		if w.look(t.Context(), false); !w.refused || b.shown(t) != before {
			t.Errorf("a new key with the former certificate: refused %t, shown %s", w.refused, b.shown(t))
		}
	}
	must(t, os.Rename(filepath.Join(b.dir, "waits.pem"), c.Identity.Certificate))
	if w.look(t.Context(), false); w.refused || b.shown(t) != next.Chain[0].SerialNumber.String() {
		t.Errorf("the whole pair: refused %t, shown %s", w.refused, b.shown(t))
	}
}

// The watcher looks at every file that the configuration names.
func TestWatcherSeesNamedFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, named := filepath.Join(dir, "c.yaml"), filepath.Join(dir, "cert.pem")
	text, err := json.Marshal(map[string]any{"identity": map[string]string{"certificate": named}})
	must(t, err)
	must(t, os.WriteFile(file, text, 0o600))
	applied, refused := 0, 0
	var refusal error
	w := &watcher{
		file: file, apply: func(context.Context, config.Config) error { return refusal },
		keep: func(context.Context, bool) error { return nil },
		count: func(ok bool) {
			if applied++; !ok {
				refused++
			}
		},
		logger: slog.New(slog.DiscardHandler),
	}
	step := func(what string, want int, change func()) {
		t.Helper()
		change()
		for range 3 {
			w.look(t.Context(), false)
		}
		if applied != want {
			t.Errorf("%s: looked into %d times, want %d", what, applied, want)
		}
	}
	step("the first time", 1, func() {})
	step("the named file comes", 2, func() { must(t, os.WriteFile(named, []byte("a"), 0o600)) })
	step("and changes", 3, func() { must(t, os.WriteFile(named, []byte("b"), 0o600)) })
	step("its time alone", 3, func() { must(t, os.Chtimes(named, time.Now(), time.Now())) })
	refusal = errors.New("no")
	step("and is bad", 4, func() { must(t, os.WriteFile(named, []byte("c"), 0o600)) })
	refusal = nil
	step("and good again", 5, func() { must(t, os.WriteFile(named, []byte("d"), 0o600)) })
	step("and goes", 6, func() { must(t, os.Remove(named)) })
	if refused != 1 {
		t.Errorf("%d refused", refused)
	}
}

// What changes while a gateway starts is seen by the first look.
func TestWatcher_ChangedWhileStarting(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, named := filepath.Join(dir, "c.yaml"), filepath.Join(dir, "cert.pem")
	write := func(file, text string) { must(t, os.WriteFile(file, []byte(text), 0o600)) }
	text := "timeout: 5s\nidentity: {certificate: " + named + "}\n"
	for name, one := range map[string]struct {
		change func()
		want   int
	}{
		"nothing":           {func() {}, 0},
		"the file":          {func() { write(file, strings.Replace(text, "5s", "6s", 1)) }, 1},
		"one that it names": {func() { write(named, "b") }, 1},
	} {
		write(file, text)
		write(named, "a")
		from, err := load(file)
		must(t, err)
		one.change()
		b := newBed(t, plan{})
		w := b.watcher(from, nil)
		applied := 0
		w.apply = func(context.Context, config.Config) error { applied++; return nil }
		w.look(t.Context(), false)
		w.look(t.Context(), false)
		if applied != one.want {
			t.Errorf("%s changed: applied %d times, want %d", name, applied, one.want)
		}
	}
}

// A gateway that asks the Workload API who it is serves with what it is told, and
// follows.
func TestServeByWorkloadAPI(t *testing.T) {
	t.Parallel()
	dir, file := operated(t, "")
	dev, err := identity.LoadOrCreate(dir, devTrustDomain, time.Now)
	must(t, err)
	agent := workloadtest.NewAgent(t)
	tell := func() string {
		s := issue(t, dev.Authority, "/gateway", identity.SVIDRequest{})
		agent.Say(t, workloadtest.Identity{ID: string(s.ID), Chain: s.Chain, Key: s.Key, Anchors: dev.Bundle.Anchors()})
		return s.Chain[0].SerialNumber.String()
	}
	first := tell()
	text, err := os.ReadFile(file)
	must(t, err)
	before, rest, _ := strings.Cut(string(text), "certificate:")
	_, after, _ := strings.Cut(rest, "trust-bundle.json")
	must(t, os.WriteFile(file, []byte(before+`workload_api: "`+agent.Address+`"`+after), 0o600))

	ctx, stop := context.WithCancel(t.Context())
	out, in := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- serve(ctx, file, in, io.Discard) }()
	lines := bufio.NewScanner(out)
	lines.Scan()
	address := strings.TrimPrefix(lines.Text(), "ready public https://")
	go func() { _, _ = io.Copy(io.Discard, out) }()
	source, err := identity.NewSource(dev.Client, dev.Bundle)
	must(t, err)
	shown := func() string {
		d := tls.Dialer{Config: source.ClientConfig(dev.Gateway.ID)}
		conn, err := d.DialContext(t.Context(), "tcp", address)
		must(t, err)
		defer func() { _ = conn.Close() }()
		return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	if got := shown(); got != first {
		t.Errorf("shown %s, told %s", got, first)
	}
	second := tell()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); shown() != second; <-tick.C {
		if time.Now().After(end) {
			t.Fatal("the new SVID is not in force")
		}
	}
	stop()
	must(t, <-done)
	must(t, in.Close())
}
