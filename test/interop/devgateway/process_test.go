package devgateway

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// impostor writes a shell script that behaves like a gateway in what this
// package sees of one, and the files it would leave.
func impostor(t *testing.T, script string) Deps {
	t.Helper()
	dir := t.TempDir()
	trust, err := NewTrust("impostor.test")
	if err != nil {
		t.Fatal(err)
	}
	gateway, err := trust.issue("gateway")
	if err != nil {
		t.Fatal(err)
	}
	caKey, ok := trust.caKey.(*ecdsa.PrivateKey)
	if !ok {
		t.Fatal("the CA's key is not ECDSA")
	}
	write(t, dir, "ca.pem", "CERTIFICATE", trust.ca.Raw)
	write(t, dir, "ca-key.pem", "EC PRIVATE KEY", marshal(t, caKey))
	write(t, dir, "gateway.pem", "CERTIFICATE", gateway.Certificate[0])
	write(t, dir, "client.pem", "CERTIFICATE", trust.client.Certificate[0])
	clientKey, err := x509.MarshalPKCS8PrivateKey(trust.client.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, "client-key.pem", "PRIVATE KEY", clientKey)
	if err := os.WriteFile(filepath.Join(dir, "admin-token"), []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "gateway.sh")
	if err := os.WriteFile(binary, []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	return Deps{Binary: binary, Dir: dir}
}

func marshal(t *testing.T, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func write(t *testing.T, dir, name, kind string, der []byte) {
	t.Helper()
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

const (
	ready  = "echo and more >&2; echo ready public https://127.0.0.1:1/; echo ready admin https://127.0.0.1:2\n"
	linger = "while :; do sleep 0.05; done\n"
)

func TestProcess_StartReadsAndStopWaits(t *testing.T) {
	t.Parallel()
	p, err := Start(t.Context(), impostor(t, "trap 'echo bye; exit 0' TERM\n"+ready+linger))
	if err != nil {
		t.Fatal(err)
	}
	if p.Public != "https://127.0.0.1:1" || p.Admin != "https://127.0.0.1:2" || p.PID() == 0 || p.token != "secret" {
		t.Errorf("%q %q %d", p.Public, p.Admin, p.PID())
	}
	if p.GatewayID() != "spiffe://impostor.test/gateway" || p.TrustDomain() != "impostor.test" {
		t.Errorf("gateway %s of %s", p.GatewayID(), p.TrustDomain())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := p.Stop(ctx); err != nil {
		t.Error(err)
	}
	if out := p.Output(); !strings.Contains(out, "bye") || !strings.Contains(out, "and more") {
		t.Errorf("output %q", out)
	}
}

func TestAwait_ReturnsWhenItIsPrinted(t *testing.T) {
	t.Parallel()
	p, err := Start(t.Context(), impostor(t, "trap 'echo bye; exit 0' TERM\n"+ready+"echo welcome\n"+linger))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := p.Await(ctx, "welcome"); err != nil {
		t.Error(err)
	}
	over, end := context.WithCancel(ctx)
	end()
	if err := p.Await(over, "bye"); !errors.Is(err, context.Canceled) {
		t.Errorf("before it is printed: %v", err)
	}
	if err := p.Stop(ctx); err != nil {
		t.Error(err)
	}
	if err := p.Await(ctx, "bye"); err != nil {
		t.Error(err)
	}
	if err := p.Await(ctx, "good morning"); err == nil || ctx.Err() != nil {
		t.Errorf("what can no more be printed: %v", err)
	}
}

func TestStop_ReportsABadEnd(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"another exit code": "trap 'exit 3' TERM\n" + ready + linger,
		"deaf to SIGTERM":   "trap '' TERM\n" + ready + linger,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := Start(t.Context(), impostor(t, script))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			if err := p.Stop(ctx); err == nil {
				t.Error("Stop is content")
			}
		})
	}
}

func TestStart_GivesUp(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"on a process that ends":         "echo no port left >&2; exit 1\n",
		"on a process that stays silent": linger,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			if _, err := Start(ctx, impostor(t, script)); !errors.Is(err, ErrNotReady) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestAddAgent_RequestAndRefusal(t *testing.T) {
	t.Parallel()
	trust, err := NewTrust("admin.test")
	if err != nil {
		t.Fatal(err)
	}
	conf, err := trust.PeerTLS("admin")
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- r.Method + " " + r.URL.Path + " " + r.Header.Get("Authorization") + " " + string(body)
		if strings.Contains(string(body), "refused") {
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	server.TLS = conf
	server.StartTLS()
	defer server.Close()
	p := &Process{Admin: server.URL, Trust: trust, token: "secret"}
	if err := p.AddAgent(t.Context(), "bench", "mcp-v1", "https://127.0.0.1:7/mcp"); err != nil {
		t.Fatal(err)
	}
	const want = `POST /api/agents Bearer secret {"name":"bench","endpoints":[{"binding":"mcp-v1","url":"https://127.0.0.1:7/mcp"}]}`
	if line := <-got; line != want {
		t.Errorf("got  %s\nwant %s", line, want)
	}
	if err := p.AddAgent(t.Context(), "refused", "mcp-v1", ""); err == nil {
		t.Error("a refusal went unnoticed")
	}
	<-got
}

func TestTrust_CertificatesServeAndIdentify(t *testing.T) {
	t.Parallel()
	trust, err := NewTrust("certs.test")
	if err != nil {
		t.Fatal(err)
	}
	conf, err := trust.PeerTLS("somebody")
	if err != nil {
		t.Fatal(err)
	}
	conf.ClientCAs, conf.ClientAuth = trust.Roots(), tls.RequireAndVerifyClientCert
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.TLS.PeerCertificates[0].URIs[0].String())
	}))
	server.TLS = conf
	server.StartTLS()
	defer server.Close()
	client := trust.Client(trust.ClientSVID())
	defer client.CloseIdleConnections()
	resp, err := client.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil || string(body) != "spiffe://certs.test/client" {
		t.Errorf("%s, %v", body, err)
	}
	if peer := resp.TLS.PeerCertificates[0].URIs[0].String(); peer != "spiffe://certs.test/peer/somebody" {
		t.Errorf("peer %s", peer)
	}
}

// TestBuild_TakesWhatIsBuilt: where a folder is named nothing is compiled, and what is
// not in it is not replaced in silence.
func TestBuild_TakesWhatIsBuilt(t *testing.T) { //nolint:paralleltest // it sets a variable of the environment
	built, dir := t.TempDir(), t.TempDir()
	t.Setenv(builtVariable, built)
	if _, err := Build(t.Context(), dir); !errors.Is(err, ErrNotBuilt) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without the program: %v", err)
	}
	gateway := filepath.Join(built, "aepb-gateway")
	if err := os.WriteFile(gateway, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := Build(t.Context(), dir); err != nil || got != gateway {
		t.Errorf("with it: %q, %v", got, err)
	}
	if _, err := BuildAll(t.Context(), dir); !errors.Is(err, ErrNotBuilt) {
		t.Errorf("without aepbctl: %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("compiled all the same: %v, %v", left, err)
	}
}
