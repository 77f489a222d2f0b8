package hosts

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/transport/stdio"
)

const (
	unitName = "aepb-gateway.service"
	binary   = "/usr/bin/aepb-gateway"
	// exposure is what `systemd-analyze security` may find, in tenths: 10.0 is no protection at all.
	exposure         = 14
	exposurePrograms = 15
)

// unit is a systemd unit: values by "Section.Key", in their order.
type unit map[string][]string

// keysOf are the keys that a unit may have: those of systemd 247 and later that the unit needs.
var keysOf = map[string][]string{
	"Unit": {"Description", "Documentation", "Wants", "After", "StartLimitIntervalSec"},
	"Service": {
		"Type", "User", "Group", "StateDirectory", "StateDirectoryMode", "UMask", "ExecStartPre", "ExecStart", "ExecReload",
		"Restart", "RestartSec", "TimeoutStopSec", "KillMode", "MemoryMax", "MemorySwapMax", "LimitCORE", "LimitNOFILE", "TasksMax",
		"CapabilityBoundingSet", "AmbientCapabilities", "NoNewPrivileges", "PrivateUsers", "ProtectSystem", "ProtectHome", "PrivateTmp",
		"PrivateDevices", "ProtectClock", "ProtectControlGroups", "ProtectHostname", "ProtectKernelLogs", "ProtectKernelModules",
		"ProtectKernelTunables", "ProtectProc", "LockPersonality", "MemoryDenyWriteExecute", "RemoveIPC", "RestrictNamespaces",
		"RestrictRealtime", "RestrictSUIDSGID", "RestrictAddressFamilies", "SystemCallArchitectures", "SystemCallFilter",
		"SystemCallErrorNumber", "OOMPolicy", "LoadCredential",
	},
	"Install": {"WantedBy"},
}

// parseUnit reads a unit as systemd does, but for continued lines, which the units do not have.
func parseUnit(text string) (unit, error) {
	u, section := unit{}, ""
	for i, line := range strings.Split(text, "\n") {
		switch line = strings.TrimSpace(line); {
		case line == "" || line[0] == '#' || line[0] == ';':
		case line[0] == '[' && strings.HasSuffix(line, "]"):
			if section = strings.Trim(line, "[]"); keysOf[section] == nil {
				return nil, fmt.Errorf("line %d: section %q: expected Unit, Service or Install", i+1, section)
			}
		default:
			key, value, found := strings.Cut(line, "=")
			if !found || !slices.Contains(keysOf[section], key) {
				return nil, fmt.Errorf("line %d: %q is no KEY=VALUE with a known key of [%s]", i+1, line, section)
			}
			u[section+"."+key] = append(u[section+"."+key], value)
		}
	}
	return u, nil
}

// loadUnit reads the service with additions of aepb-gateway.service.d.
func loadUnit(t *testing.T, additions ...string) unit {
	t.Helper()
	files := []string{filepath.Join(systemd, unitName)}
	for _, name := range additions {
		files = append(files, filepath.Join(systemd, unitName+".d", name+".conf"))
	}
	all := unit{}
	for _, file := range files {
		u, err := parseUnit(read(t, file))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for key, values := range u {
			all[key] = append(all[key], values...)
		}
	}
	return all
}

// last returns the value in force of a key that has one.
func (u unit) last(t *testing.T, key string) string {
	t.Helper()
	values := u["Service."+key]
	if len(values) == 0 {
		t.Fatalf("the service has no %s", key)
	}
	return values[len(values)-1]
}

// number returns a number with an optional suffix K, M or G.
func (u unit) number(t *testing.T, key string) int64 {
	t.Helper()
	text := u.last(t, key)
	digits := strings.TrimRight(text, "KMG")
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		t.Fatalf("%s=%s: %v", key, text, err)
	}
	return n << map[string]int{"": 0, "K": 10, "M": 20, "G": 30}[text[len(digits):]]
}

// seconds returns a duration in seconds, as the units write it.
func (u unit) seconds(t *testing.T, key string) time.Duration {
	t.Helper()
	return time.Duration(u.number(t, key)) * time.Second
}

// TestUnit_Parse: what systemd would ignore with a warning is an error here.
func TestUnit_Parse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"[Service]\nTimeoutStopSecs=30\n": `line 2: "TimeoutStopSecs=30" is no KEY=VALUE`,
		"[Unit]\nMemoryMax=1G\n":          `line 2: "MemoryMax=1G" is no KEY=VALUE`,
		"[Services]\nType=exec\n":         `line 1: section "Services"`,
		"Type=exec\n":                     `line 1: "Type=exec" is no KEY=VALUE`,
	} {
		if _, err := parseUnit(text); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// TestUnit_AgreesWithTheProgram: times, memory, files and paths of the unit are those that the defaults need.
func TestUnit_AgreesWithTheProgram(t *testing.T) {
	t.Parallel()
	u, defaults := loadUnit(t), config.Config{}
	stop, timeout := stopTime(defaults), u.seconds(t, "TimeoutStopSec")
	if timeout <= stop || timeout > stop+5*time.Second {
		t.Errorf("TimeoutStopSec=%v, want up to 5s more than shutdown_delay + shutdown_grace + 2s = %v", timeout, stop)
	}
	// A bound that follows from limits.memory_mib shows what its default is.
	memory := u.number(t, "MemoryMax") >> 20 / 4 * 3
	if sized := (config.Config{Limits: config.Limits{MemoryMiB: int(memory)}}); sized.MemoryBound() != defaults.MemoryBound() {
		t.Errorf("three quarters of MemoryMax are %d MiB, which is not the default of limits.memory_mib", memory)
	}
	if single := example(t, "single"); int64(single.Limits.MemoryMiB) != memory {
		t.Errorf("single.yaml has limits.memory_mib %d, want %d", single.Limits.MemoryMiB, memory)
	} else if want := filepath.Join("/var/lib", u.last(t, "StateDirectory")); filepath.Dir(single.State.Path) != want {
		t.Errorf("single.yaml has state.path %s, want it in %s", single.State.Path, want)
	}
	for _, name := range []string{"single", "balancer", "stdio"} {
		if need := files(example(t, name)); u.number(t, "LimitNOFILE") < need {
			t.Errorf("LimitNOFILE=%d, and %s.yaml may need %d", u.number(t, "LimitNOFILE"), name, need)
		}
	}
	for key, want := range map[string]string{
		"Type": "exec", "Restart": "on-failure", "KillMode": "mixed",
		"ExecStartPre": binary + " check-config /etc/aepb/gateway.yaml",
		"ExecStart":    binary + " serve --config /etc/aepb/gateway.yaml",
	} {
		if got := u["Service."+key]; !slices.Equal(got, []string{want}) {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	if got, want := u["Service.ExecReload"], []string{u.last(t, "ExecStartPre"), "/bin/kill -HUP $MAINPID"}; !slices.Equal(got, want) {
		t.Errorf("ExecReload is %q, want %q", got, want)
	}
	if got := u["Install.WantedBy"]; !slices.Equal(got, []string{"multi-user.target"}) {
		t.Errorf("WantedBy is %q, want multi-user.target", got)
	}
	user := "u " + u.last(t, "User") + " - \"AEPB gateway\" /var/lib/" + u.last(t, "StateDirectory") + " /usr/sbin/nologin\n"
	if sysusers := read(t, filepath.Join(systemd, "aepb-gateway.sysusers.conf")); !strings.Contains(sysusers, "\n"+user) {
		t.Errorf("sysusers has no line %q", user)
	}
}

// files is how many files a process may have open: connections of both HTTP listeners, to agents for each request
// and stream, of µACP and AINP, and three pipes for each program.
func files(c config.Config) int64 {
	accept, flight := c.Accept(false), c.InFlight()
	sockets := c.Sockets(c.Listen.UACPConnections).Total + c.Sockets(c.Listen.UACPConnections).Unidentified +
		c.Sockets(c.AINP.Sockets).Total + c.Sockets(c.AINP.Sockets).Unidentified
	return int64(2*accept.Connections*3/2+flight.Requests+flight.Streams+sockets+3*c.Limits.Processes().Total) + 1024
}

// TestUnit_Hardening: what protects the host is there, and what the gateway needs is not taken from it.
func TestUnit_Hardening(t *testing.T) {
	t.Parallel()
	u := loadUnit(t)
	for _, key := range []string{
		"NoNewPrivileges", "PrivateUsers", "ProtectHome", "PrivateTmp", "PrivateDevices", "ProtectClock", "ProtectControlGroups", "ProtectHostname",
		"ProtectKernelLogs", "ProtectKernelModules", "ProtectKernelTunables", "LockPersonality", "MemoryDenyWriteExecute", "RemoveIPC",
		"RestrictNamespaces", "RestrictRealtime", "RestrictSUIDSGID",
	} {
		if got := u.last(t, key); got != "yes" {
			t.Errorf("%s=%s, want yes", key, got)
		}
	}
	for key, want := range map[string][]string{
		"ProtectSystem": {"strict"}, "ProtectProc": {"invisible"}, "CapabilityBoundingSet": {""}, "AmbientCapabilities": {""},
		"UMask": {"0077"}, "StateDirectoryMode": {"0700"}, "LimitCORE": {"0"}, "MemorySwapMax": {"0"}, "SystemCallArchitectures": {"native"},
		// Without AF_NETLINK the gateway cannot tell its own addresses, and takes webhooks that name them.
		"RestrictAddressFamilies": {"AF_INET AF_INET6 AF_UNIX AF_NETLINK"},
		"SystemCallFilter":        {"@system-service", "~@privileged @resources"},
		"SystemCallErrorNumber":   {"EPERM"},
	} {
		if got := u["Service."+key]; !slices.Equal(got, want) {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
}

// TestUnit_Programs: the addition for programs of agents has space for as many as the limits allow.
func TestUnit_Programs(t *testing.T) {
	t.Parallel()
	base, u := loadUnit(t), loadUnit(t, "programs")
	limits := config.Limits{}.Processes()
	if got, want := u.number(t, "MemoryMax"), base.number(t, "MemoryMax")+int64(limits.Total)*stdio.DefaultMemoryMiB<<20; got != want {
		t.Errorf("MemoryMax is %d, want %d: the gateway and %d programs of %d MiB", got, want, limits.Total, stdio.DefaultMemoryMiB)
	}
	const processes = 64 // of one program (gateway/transport/stdio)
	if got, least := u.number(t, "TasksMax"), base.number(t, "TasksMax")+int64(limits.Total)*processes; got < least {
		t.Errorf("TasksMax is %d, want at least %d", got, least)
	}
	for key, want := range map[string]string{"MemoryDenyWriteExecute": "no", "OOMPolicy": "continue", "SystemCallFilter": "@resources"} {
		if got := u.last(t, key); got != want {
			t.Errorf("%s=%s, want %s", key, got, want)
		}
	}
	relaxed := []string{"Service.MemoryDenyWriteExecute", "Service.SystemCallFilter", "Service.MemoryMax", "Service.OOMPolicy", "Service.TasksMax"}
	for key := range u {
		if !slices.Equal(u[key], base[key]) && !slices.Contains(relaxed, key) {
			t.Errorf("programs.conf changes %s", key)
		}
	}
}

// TestUnit_Credentials: each credential is one that replicas.yaml reads, by the name that it has there.
func TestUnit_Credentials(t *testing.T) {
	t.Parallel()
	text := read(t, filepath.Join(examples, "replicas.yaml"))
	credentials := loadUnit(t, "credentials")["Service.LoadCredential"]
	if len(credentials) == 0 {
		t.Fatal("no credentials")
	}
	for _, credential := range credentials {
		name, source, _ := strings.Cut(credential, ":")
		if !strings.Contains(text, "/run/secrets/"+name+"\n") && !strings.Contains(text, "/run/secrets/"+name+" ") {
			t.Errorf("replicas.yaml does not read %s", name)
		}
		if source != "/etc/aepb/secrets/"+name {
			t.Errorf("%s comes from %q, want it in /etc/aepb/secrets", name, source)
		}
	}
}

// TestUnit_SystemdAccepts: systemd itself knows every key and value, and finds no more exposure than is written here.
// Where systemd-analyze is not installed, the other tests of this file judge the unit alone.
func TestUnit_SystemdAccepts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		additions []string
		exposure  int
	}{{nil, exposure}, {[]string{"credentials"}, exposure}, {[]string{"credentials", "programs"}, exposurePrograms}} {
		file := installUnit(t, loadUnit(t, c.additions...))
		if out, err := analyze(t, "verify", file); err != nil || out != "" {
			t.Errorf("verify with %v: %v\n%s", c.additions, err, out)
		}
		if out, err := analyze(t, "security", "--offline=true", "--threshold="+strconv.Itoa(c.exposure), file); err != nil {
			t.Errorf("security with %v: %v\n%s", c.additions, err, out)
		}
	}
}

// installUnit writes a unit with a program that is there, and returns its file.
func installUnit(t *testing.T, u unit) string {
	t.Helper()
	var text strings.Builder
	for _, section := range []string{"Unit", "Service", "Install"} {
		fmt.Fprintf(&text, "[%s]\n", section)
		for _, key := range slices.Sorted(maps.Keys(u)) {
			if name, found := strings.CutPrefix(key, section+"."); found {
				for _, value := range u[key] {
					fmt.Fprintf(&text, "%s=%s\n", name, strings.Replace(value, binary, gateway, 1))
				}
			}
		}
	}
	file := filepath.Join(t.TempDir(), unitName)
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// analyze runs systemd-analyze. Without it, nothing is wrong.
func analyze(t *testing.T, args ...string) (string, error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "systemd-analyze", args...).CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return "", nil
	}
	return string(out), err
}
