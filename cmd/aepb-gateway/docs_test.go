package main

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/ect/identity"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

func docs(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", name))
	gatewaytest.Must(t, err)
	return string(text)
}

// describedPath is a path of docs/openapi.yaml: its listeners and its methods.
type describedPath struct {
	listeners  []string
	methods    []string
	allMethods bool // each method reaches the protocol server
}

// describedPaths reads the lines of docs/openapi.yaml that begin a path or one of its members.
func describedPaths(t *testing.T) map[string]*describedPath {
	t.Helper()
	paths := map[string]*describedPath{}
	var at *describedPath
	for _, line := range regexp.MustCompile(`(?m)^(  /\S*|    [a-z-]+): ?(.*)$`).FindAllStringSubmatch(docs(t, "openapi.yaml"), -1) {
		switch name := strings.TrimSpace(line[1]); {
		case strings.HasPrefix(line[1], "  /"):
			at = &describedPath{}
			paths[name] = at
		case at == nil:
		case name == "x-listener":
			at.listeners = strings.Split(strings.Trim(line[2], "[]"), ", ")
		case name == "x-all-methods":
			at.allMethods = true
		case slices.Contains([]string{"get", "put", "post", "delete", "options", "head", "patch", "trace"}, name):
			at.methods = append(at.methods, strings.ToUpper(name))
		}
	}
	return paths
}

// TestOpenAPI_HasThePathsOfTheGateway: the paths of docs/openapi.yaml are those of the gateway as the program
// builds it, with its protocols. A method of a protocol server that is not described is not served.
func TestOpenAPI_HasThePathsOfTheGateway(t *testing.T) {
	t.Parallel()
	b, paths := gatewaytest.NewFixture(t, gatewaytest.Plan{}), describedPaths(t)
	parameter := regexp.MustCompile(`[:*]([a-z]+)`)
	public, admin, metrics := b.Handlers()
	for listener, handler := range map[string]http.Handler{"public": public, "admin": admin, "metrics": metrics} {
		routes := reflect.ValueOf(handler).MethodByName("Routes")
		if !routes.IsValid() {
			t.Fatalf("%s: the routes of the handler cannot be listed", listener)
		}
		registered, described := map[string]bool{}, map[string]bool{}
		for _, route := range routes.Call(nil)[0].Seq2() {
			registered[parameter.ReplaceAllString(route.FieldByName("Path").String(), "{$1}")] = true
		}
		for path, is := range paths {
			if slices.Contains(is.listeners, listener) {
				described[path] = true
			}
		}
		if diff := cmp.Diff(registered, described); diff != "" {
			t.Errorf("%s (-registered +described):\n%s", listener, diff)
		}
	}
	for path, is := range paths {
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"} {
			if !is.allMethods || slices.Contains(is.methods, method) {
				continue
			}
			target := b.At.Public + strings.NewReplacer("{agent}", "calculator", "{rest}", "tasks/x").Replace(path)
			request, err := http.NewRequestWithContext(t.Context(), method, target, http.NoBody)
			gatewaytest.Must(t, err)
			got, err := gatewaytest.Receive(b.Client, request)
			gatewaytest.Must(t, err)
			if got.Status != http.StatusMethodNotAllowed {
				t.Errorf("%s %s is not described, and answers %d", method, path, got.Status)
			}
		}
	}
}

// TestDocs_ConfigurationsPassTheCheck: check-config accepts the whole files of docs/configuration.md, with the
// files that they name.
func TestDocs_ConfigurationsPassTheCheck(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := identity.LoadOrCreate(dir, "example.com", time.Now)
	gatewaytest.Must(t, err)
	_, key, err := ed25519.GenerateKey(rand.Reader)
	gatewaytest.Must(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	gatewaytest.Must(t, err)
	for name, content := range map[string]string{
		"state.key": strings.Repeat("0123456789abcdef", 4), "redis-password": "secret", "slim-secret": strings.Repeat("s", 32),
		"ainp-key.pem": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
	} {
		gatewaytest.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	there := strings.NewReplacer(
		"/run/svid/cert.pem", dir+"/gateway.pem", "/run/svid/key.pem", dir+"/gateway-key.pem", "/run/svid/bundle.pem", dir+"/trust-bundle.json",
		"/run/secrets/redis-ca.pem", dir+"/ca.pem", "/run/secrets", dir, "/var/lib/aepb", dir,
	)
	examples := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```").FindAllStringSubmatch(docs(t, "configuration.md"), -1)
	examples = slices.DeleteFunc(examples, func(example []string) bool { return !strings.Contains(example[1], "\nidentity:") }) // a part of a file
	if len(examples) < 3 {
		t.Errorf("found %d examples, expected at least 3", len(examples))
	}
	for _, example := range examples {
		file := filepath.Join(t.TempDir(), "gateway.yaml")
		gatewaytest.Must(t, os.WriteFile(file, []byte(there.Replace(example[1])), 0o600))
		if _, err := checked(file); err != nil {
			t.Errorf("%v\n%s", err, example[1])
		}
	}
}
