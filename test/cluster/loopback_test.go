package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const root = "../.."

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path ...string) []byte {
	t.Helper()
	name := filepath.Join(path...)
	if !filepath.IsAbs(name) {
		name = filepath.Join(root, name)
	}
	text, err := os.ReadFile(name)
	must(t, err)
	return text
}

// TestLoopback_ChangesPlacesAlone: but for public_url, ports, hosts and folders the
// replicas have the configuration of deploy/compose.
func TestLoopback_ChangesPlacesAlone(t *testing.T) {
	t.Parallel()
	compose := read(t, "deploy", "compose", "gateway.yaml")
	here := loopback{dir: "/here", names: map[string]string{"redis:6379": "127.0.0.1:1", "concierge:9001": "127.0.0.1:2", "calculator:9002": "127.0.0.1:3"}}
	text, err := here.gateway(compose, "https://localhost:4", map[string]string{"public": "127.0.0.1:5", "admin": "127.0.0.1:6", "metrics": "127.0.0.1:7"})
	must(t, err)
	back := strings.NewReplacer("/here/", "/run/", "127.0.0.1:1", "redis:6379", "127.0.0.1:2", "concierge:9001", "127.0.0.1:3", "calculator:9002",
		"https://localhost:4", "https://localhost:8443", "127.0.0.1:5", ":8443", "127.0.0.1:6", ":9443", "127.0.0.1:7", ":9464").Replace(string(text))
	if strings.Contains(string(text), "/run/") || strings.Contains(string(text), "redis:6379") {
		t.Errorf("a place of containers is left:\n%s", text)
	}
	var want, got map[string]any
	must(t, yaml.Unmarshal(compose, &want))
	must(t, yaml.Unmarshal([]byte(back), &got))
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

func TestLoopback_RefusesWhatIsNoCluster(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"no listeners": "public_url: https://a.example", "a listener without a port here": "listen: {grpc: \":1\"}",
	} {
		if _, err := (loopback{}).gateway([]byte(text), "", map[string]string{"public": "127.0.0.1:1"}); !errors.Is(err, errNotCluster) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	for name, text := range map[string]string{
		"no job": "scrape_configs: []", "fixed targets": "scrape_configs: [{job_name: a, static_configs: []}]",
	} {
		if _, err := (loopback{}).prometheus([]byte(text), "rules", nil); !errors.Is(err, errNotCluster) {
			t.Errorf("Prometheus, %s: got %v", name, err)
		}
	}
}

// TestSetup_LeavesNoKeyOfTheCA: who reads all that was written cannot make another identity.
func TestSetup_LeavesNoKeyOfTheCA(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, setup(dir, "https://gateway:8443", "https://gateway:9443"))
	ca, err := x509.ParseCertificate(first(t, filepath.Join(dir, "ca.pem")).Bytes)
	must(t, err)
	keys := 0
	must(t, filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(name, "key.pem") {
			return err
		}
		keys++
		key, err := x509.ParsePKCS8PrivateKey(first(t, name).Bytes)
		must(t, err)
		if public, ok := key.(crypto.Signer).Public().(*ecdsa.PublicKey); !ok || public.Equal(ca.PublicKey) {
			t.Errorf("%s is the key of the CA, or none that is known", name)
		}
		return nil
	}))
	if keys != 5 {
		t.Errorf("%d keys, want those of the gateway, Redis, two agents and the client", keys)
	}
}

// first is the first PEM block of a file.
func first(t *testing.T, file string) *pem.Block {
	t.Helper()
	block, _ := pem.Decode(read(t, file))
	if block == nil {
		t.Fatalf("%s is no PEM", file)
	}
	return block
}
