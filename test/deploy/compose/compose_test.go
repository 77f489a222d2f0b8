package compose

import (
	"context"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	"sigs.k8s.io/yaml"

	"github.com/aepb/aepb-gateway/gateway/config"
)

const (
	root   = "../../.."
	folder = root + "/deploy/compose"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// project is the set-up, with all its profiles.
func project(t *testing.T) *types.Project {
	t.Helper()
	p, err := loader.LoadWithContext(context.Background(), types.ConfigDetails{
		WorkingDir:  folder,
		ConfigFiles: []types.ConfigFile{{Filename: folder + "/compose.yaml", Content: []byte(read(t, folder+"/compose.yaml"))}},
	}, func(o *loader.Options) { o.Profiles = []string{"*"}; o.SetProjectName("aepb", true) })
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// gateway is the configuration of the replicas.
func gateway(t *testing.T) config.Config {
	t.Helper()
	text := read(t, folder+"/gateway.yaml")
	c, err := config.Parse([]byte(text))
	if err = config.Place(c, err, c.Serve()); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCompose_Services(t *testing.T) {
	p := project(t)
	for name, s := range p.Services {
		for _, port := range s.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s is reached from other machines: port %s at %q", name, port.Published, port.HostIP)
			}
		}
		for _, v := range s.Volumes {
			if v.Type != types.VolumeTypeBind {
				continue
			}
			if _, err := os.Stat(v.Source); err != nil {
				t.Errorf("%s mounts what is not there: %v", name, err)
			}
			if !v.ReadOnly {
				t.Errorf("%s may write to %s", name, v.Source)
			}
		}
		if s.Privileged || len(s.CapAdd) > 0 {
			t.Errorf("%s has privileges", name)
		}
		if s.User == "0:0" && (name != "setup" || s.NetworkMode != "none") {
			t.Errorf("%s is root and has a network", name)
		}
		if strings.HasSuffix(s.Image, ":latest") || s.Image == "" || !strings.Contains(s.Image, ":") {
			t.Errorf("%s has an image of no fixed version: %q", name, s.Image)
		}
	}
}

// TestCompose_EachReadsItsOwn: an agent reads no key but its own, and so does each other service.
func TestCompose_EachReadsItsOwn(t *testing.T) {
	want := map[string][]string{
		"setup": {""}, "redis": {"redis", "secrets/redis"}, "concierge": {"concierge"}, "calculator": {"calculator"},
		"gateway": {"svid", "secrets"}, "aepbctl": {"client"}, "prometheus": nil, "grafana": nil,
	}
	for name, s := range project(t).Services {
		var parts []string
		for _, v := range s.Volumes {
			if v.Type != types.VolumeTypeVolume {
				continue
			}
			part := ""
			if v.Volume != nil {
				part = v.Volume.Subpath
			}
			parts = append(parts, part)
		}
		if !slices.Equal(parts, want[name]) {
			t.Errorf("%s reads %q, want %q", name, parts, want[name])
		}
	}
}

// TestCompose_FitsTheConfiguration: hosts, ports, times and sizes of gateway.yaml are those
// that the services have.
func TestCompose_FitsTheConfiguration(t *testing.T) {
	p, c := project(t), gateway(t)
	s := p.Services["gateway"]
	if replicas := *s.Deploy.Replicas; replicas != c.State.Redis.Replicas {
		t.Errorf("%d replicas, max_replicas is %d", replicas, c.State.Redis.Replicas)
	}
	hosts := []string{c.State.Redis.Addresses[0]}
	for _, a := range c.Agents {
		for _, e := range a.Endpoints {
			at, err := url.Parse(e.URL)
			if err != nil {
				t.Fatal(err)
			}
			hosts = append(hosts, at.Host)
		}
	}
	for _, at := range hosts {
		host, port, err := net.SplitHostPort(at)
		if err != nil {
			t.Fatal(err)
		}
		peer, ok := p.Services[host]
		if !ok || !strings.Contains(strings.Join(peer.Command, " "), port) {
			t.Errorf("no service is at %s", at)
		}
	}
	for _, want := range []string{c.Listen.Public, c.Listen.Admin} {
		if !slices.ContainsFunc(s.Ports, func(port types.ServicePortConfig) bool { return want == ":"+itoa(port.Target) }) {
			t.Errorf("%s is not published", want)
		}
	}
	delay, grace := c.Shutdown(false)
	if got := time.Duration(*s.StopGracePeriod); got <= delay+grace+2*time.Second {
		t.Errorf("stop_grace_period is %s, the gateway may take %s", got, delay+grace+2*time.Second)
	}
	if bound := c.MemoryBound(); int64(s.MemLimit)*3/4 < bound {
		t.Errorf("mem_limit is %d, three quarters of which must be %d, for the limits", s.MemLimit, bound)
	}
	if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Contains(s.SecurityOpt, "no-new-privileges:true") {
		t.Error("the gateway may do more than it needs")
	}
}

func itoa(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

// TestCompose_Prometheus scrapes the port of metrics by the name of the service, with the
// rules that the chart ships.
func TestCompose_Prometheus(t *testing.T) {
	var settings struct {
		RuleFiles     []string `json:"rule_files"`
		ScrapeConfigs []struct {
			JobName string `json:"job_name"`
			DNS     []struct {
				Names []string
				Port  int
				Type  string
			} `json:"dns_sd_configs"`
		} `json:"scrape_configs"`
	}
	if err := yaml.Unmarshal([]byte(read(t, folder+"/prometheus.yml")), &settings); err != nil {
		t.Fatal(err)
	}
	p, c := project(t), gateway(t)
	job := settings.ScrapeConfigs[0]
	if dns := job.DNS[0]; job.JobName != "aepb-gateway" || p.Services[dns.Names[0]].Deploy == nil || c.Listen.Metrics != ":"+itoa(uint32(dns.Port)) {
		t.Errorf("Prometheus scrapes %+v as %s; metrics are at %s", dns, job.JobName, c.Listen.Metrics)
	}
	mounted := map[string]string{}
	for _, v := range p.Services["prometheus"].Volumes {
		mounted[v.Target] = filepath.Base(v.Source)
	}
	for _, file := range settings.RuleFiles {
		if mounted[file] != "rules.yaml" {
			t.Errorf("%s is %q", file, mounted[file])
		}
	}
}

// TestDockerfile_FitsTheRest: the image from source is that of a release, and its Go is that
// of go.mod.
func TestDockerfile_FitsTheRest(t *testing.T) {
	dockerfile, release, module := read(t, root+"/Dockerfile"), read(t, root+"/.goreleaser.yaml"), read(t, root+"/go.mod")
	one := func(text, pattern string) string {
		t.Helper()
		found := regexp.MustCompile(pattern).FindStringSubmatch(text)
		if found == nil {
			t.Fatalf("%s is not there", pattern)
		}
		return found[1]
	}
	if got, want := one(dockerfile, `FROM golang:(\d+\.\d+)\.\d+@sha256:[0-9a-f]{64} AS build`), one(module, `(?m)^go (\d+\.\d+)`); got != want {
		t.Errorf("the Dockerfile builds with Go %s, go.mod has %s", got, want)
	}
	if got, want := one(dockerfile, `ARG TAGS=(\S+)`), strings.ReplaceAll(one(release, `(?m)^    tags: \[(.*)\]`), ", ", ","); got != want {
		t.Errorf("the Dockerfile builds with the tags %s, a release with %s", got, want)
	}
	image := read(t, root+"/test/release/image.go")
	for _, both := range []string{"65532:65532", `"serve", "--config", "/etc/aepb/gateway.yaml"`, `"/aepb-gateway"`, `"/aepbctl", "healthz"`} {
		if !strings.Contains(dockerfile, both) || !strings.Contains(image, both) {
			t.Errorf("%s is not in both the Dockerfile and the image of a release", both)
		}
	}
	for name, s := range project(t).Services {
		if s.Build != nil && !strings.Contains(dockerfile, " AS "+s.Build.Target+"\n") {
			t.Errorf("%s builds the target %q, which the Dockerfile does not have", name, s.Build.Target)
		}
	}
}
