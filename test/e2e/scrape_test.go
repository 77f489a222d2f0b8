package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/aepb/aepb-gateway/test/harness/redisserver"
	"github.com/aepb/aepb-gateway/test/harness/wait"
	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// monitored is a gateway of production with listen.metrics, as Prometheus finds it.
type monitored struct {
	process              *devgateway.Process
	metricsPort, adminAt string // the admin listener's port, too
}

// scraped: a real Prometheus scrapes three gateways by address and by name, over
// both listeners, and sees when one ends; promtool finds nothing wrong with the pages.
func scraped(t *testing.T, root, bin string) {
	t.Parallel()
	dir := t.TempDir()
	trust, err := devgateway.NewTrust("prod.example")
	must(t, err)
	bundle := filepath.Join(dir, "bundle.pem")
	must(t, os.WriteFile(bundle, trust.RootsPEM(), 0o600))
	var gateways []monitored
	for _, name := range []string{"one", "two", "three"} {
		gateways = append(gateways, startMonitored(t, trust, filepath.Join(dir, name), bundle, filepath.Join(bin, "aepb-gateway")))
	}
	var byAddress, byName, admin []string
	for i, g := range gateways {
		byAddress = append(byAddress, fmt.Sprintf("127.0.0.%d:%s", i+1, g.metricsPort))
		byName = append(byName, "localhost:"+g.metricsPort)
		admin = append(admin, fmt.Sprintf("127.0.0.%d:%s", i+2, g.adminAt))
	}
	file := filepath.Join(dir, "prometheus.yml")
	must(t, os.WriteFile(file, []byte(fmt.Sprintf(`
global: {scrape_interval: 500ms, scrape_timeout: 500ms}
scrape_configs:
  - {job_name: address, static_configs: [{targets: %s}]}
  - {job_name: name, static_configs: [{targets: %s}]}
  - {job_name: admin, scheme: https, tls_config: {ca_file: %q, server_name: localhost}, static_configs: [{targets: %s}]}
`, list(byAddress), list(byName), bundle, list(admin))), 0o600))
	run(t, nil, tool(t, root, "promtool"), "check", "config", file)
	p := startPrometheus(t, tool(t, root, "prometheus"), file, filepath.Join(dir, "data"))

	up := map[string]string{}
	for _, at := range slices.Concat(byAddress, byName, admin) {
		up[at] = "1"
	}
	p.await(t, "up", up)
	p.await(t, "aepb_build_info", up)
	for _, at := range byAddress {
		run(t, page(t, "http://"+at+"/metrics"), tool(t, root, "promtool"), "check", "metrics")
		run(t, nil, filepath.Join(bin, "aepbctl"), "healthz", "http://"+at)
	}

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	must(t, gateways[0].process.Stop(ctx))
	up[byAddress[0]], up[byName[0]], up[admin[0]] = "0", "0", "0"
	p.await(t, "up", up)
	if err := exec.CommandContext(ctx, filepath.Join(bin, "aepbctl"), "healthz", "http://"+byAddress[0]).Run(); err == nil {
		t.Error("healthz finds a gateway that has ended")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// list is texts as YAML has a list of them.
func list(texts []string) string {
	data, _ := json.Marshal(texts)
	return string(data)
}

// tool is a program of Prometheus: the one that the Makefile unpacked, or that of the
// machine.
func tool(t *testing.T, root, name string) string {
	t.Helper()
	unpacked := filepath.Join(root, ".tmp", "bin", name)
	if _, err := os.Stat(unpacked); err == nil {
		return unpacked
	}
	found, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%s is needed (make tools): %v", name, err)
	}
	return found
}

// run expects a program to end with 0 and to print no complaint.
func run(t *testing.T, stdin []byte, program string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	var complaints bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(stdin), &complaints
	out, err := cmd.Output()
	if err != nil || complaints.Len() > 0 {
		t.Errorf("%s %q: %v\n%s%s", filepath.Base(program), args, err, out, complaints.String())
	}
}

// page is what stands at a URL.
func page(t *testing.T, at string) []byte {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at, http.NoBody)
	must(t, err)
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	must(t, err)
	body, err := io.ReadAll(response.Body)
	must(t, errors.Join(err, response.Body.Close()))
	return body
}

// startMonitored runs a gateway that all addresses of this machine reach.
func startMonitored(t *testing.T, trust *devgateway.Trust, dir, bundle, program string) monitored {
	t.Helper()
	pair, err := trust.PeerTLS("gateway")
	must(t, err)
	must(t, os.Mkdir(dir, 0o700))
	must(t, writePair(dir, "cert.pem", "key.pem", pair.Certificates[0]))
	file := filepath.Join(dir, "gateway.yaml")
	must(t, os.WriteFile(file, []byte(fmt.Sprintf(`
listen: {public: "127.0.0.1:0", admin: ":0", metrics: ":0"}
public_url: https://gw.prod.example
identity: {trust_domain: prod.example, certificate: %[1]s/cert.pem, key: %[1]s/key.pem, bundle: %[2]s}
admin: {operators: {ann: {id: "spiffe://prod.example/client", roles: [operator]}}}
`, dir, bundle)), 0o600))
	p, err := devgateway.Serve(t.Context(), devgateway.ServeDeps{Binary: program, Config: file, Trust: trust})
	must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		if err := p.Stop(ctx); err != nil {
			t.Errorf("%v\n%s", err, p.Output())
		}
	})
	const begins = "ready metrics "
	must(t, wait.Until(t.Context(), "the metrics are served", func() bool { return strings.Contains(p.Output(), begins) }))
	_, rest, _ := strings.Cut(p.Output(), begins)
	line, _, _ := strings.Cut(rest, "\n")
	return monitored{p, portOf(t, line), portOf(t, p.Admin)}
}

func portOf(t *testing.T, at string) string {
	t.Helper()
	u, err := url.Parse(at)
	must(t, err)
	return u.Port()
}

// prometheus is a running Prometheus.
type prometheus struct{ at string }

func startPrometheus(t *testing.T, program, file, data string) prometheus {
	t.Helper()
	port, err := redisserver.FreePort()
	must(t, err)
	p := prometheus{"http://127.0.0.1:" + port}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program,
		"--config.file", file, "--storage.tsdb.path", data, "--web.listen-address", "127.0.0.1:"+port, "--log.level", "warn")
	var logs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &logs, &logs
	must(t, cmd.Start())
	t.Cleanup(func() {
		if err := errors.Join(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait()); err != nil || t.Failed() {
			t.Logf("prometheus: %v\n%s", err, logs.String())
		}
	})
	return p
}

// await waits until a query has these values, by instance, and no others.
func (p prometheus) await(t *testing.T, query string, want map[string]string) {
	t.Helper()
	var got map[string]string
	err := wait.Until(t.Context(), "Prometheus has seen "+query, func() bool {
		got = p.ask(t, query)
		return maps.Equal(got, want)
	})
	if err != nil {
		t.Fatalf("%v: got %v, want %v", err, got, want)
	}
}

// ask is a query's values by instance; none: Prometheus does not answer yet.
func (p prometheus) ask(t *testing.T, query string) map[string]string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.at+"/api/v1/query?query="+url.QueryEscape(query), http.NoBody)
	must(t, err)
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil
	}
	var answer struct {
		Data struct {
			Result []struct {
				Metric struct{ Instance string }
				Value  [2]any
			}
		}
	}
	err = json.NewDecoder(response.Body).Decode(&answer)
	if errors.Join(err, response.Body.Close()) != nil {
		return nil
	}
	out := map[string]string{}
	for _, result := range answer.Data.Result {
		out[result.Metric.Instance], _ = result.Value[1].(string)
	}
	return out
}
