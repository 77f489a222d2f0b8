package stdio_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport/stdio"
	"github.com/aepb/aepb-gateway/policy/quota"
)

const maxLine = 1 << 20

// logged is a log that can be read while it is written.
type logged struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

func newHost(t *testing.T, limits stdio.Limits) (*stdio.Host, *logged) {
	t.Helper()
	var log logged
	host, err := stdio.NewHost(stdio.Deps{Limits: limits, Supervisor: []string{os.Args[0], "supervise"}, Logger: slog.New(slog.NewJSONHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = host.Close() })
	return host, &log
}

func program(words ...string) stdio.Program {
	return stdio.Program{Command: append([]string{os.Args[0], "program"}, words...)}
}

func start(t *testing.T, host *stdio.Host, caller string, p stdio.Program) *stdio.Process {
	t.Helper()
	process, err := host.Start(t.Context(), stdio.Owner{Agent: "files", Caller: ect.Identity(caller)}, p, maxLine)
	if err != nil {
		t.Fatal(err)
	}
	return process
}

// drain reads a process to its end and returns why that came.
func drain(t *testing.T, p *stdio.Process) error {
	t.Helper()
	for {
		if _, err := p.Receive(); err != nil {
			return err
		}
	}
}

func say(t *testing.T, p *stdio.Process, line string) string {
	t.Helper()
	if err := p.Send(t.Context(), []byte(line)); err != nil {
		t.Fatal(err)
	}
	answer, err := p.Receive()
	if err != nil {
		t.Fatal(err)
	}
	return string(answer)
}

// runs reports whether a process runs; one that nobody has waited for yet does not.
func runs(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

// wait waits for a condition of the system, which tells nobody that it came.
func wait(t *testing.T, what string, met func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(30 * time.Second); !met(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("not within 30 s: " + what)
		}
	}
}

func TestProgram_URLAndBack(t *testing.T) {
	t.Parallel()
	want := stdio.Program{
		Command: []string{"npx", "-y", "a b", "", "&=?ü"}, Dir: "/srv/x y", Env: map[string]string{"A": "b=c", "B": ""},
		EnvFiles: map[string]string{"TOKEN": "/run/token"}, Shared: true, MemoryMiB: 64,
	}
	got, err := stdio.Parse(want.URL())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestParse_Refuses(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{
		"another scheme": "https://x", "no command": "stdio:?dir=/x", "an empty command": "stdio:?arg=", "a relative folder": "stdio:?arg=a&dir=x",
		"no name":         "stdio:?arg=a&env=b",
		"a strange name":  "stdio:?arg=a&env=a%20b=c",
		"a member":        "stdio:?arg=a&user=root",
		"memory":          "stdio:?arg=a&memory_mib=lots",
		"too much memory": "stdio:?arg=a&memory_mib=99999999",
		"a zero byte":     "stdio:?arg=a%00",
		"too long":        "stdio:?arg=" + strings.Repeat("a", 9000),
		"no query":        "stdio:?%zz",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var invalid *stdio.InvalidProgramError
			if p, err := stdio.Parse(url); !errors.As(err, &invalid) {
				t.Errorf("got %+v, %v", p, err)
			}
		})
	}
}

func TestProcess_Talks(t *testing.T) {
	t.Parallel()
	host, _ := newHost(t, stdio.Limits{})
	p := start(t, host, "spiffe://a/b", program())
	if got := say(t, p, "say {\"a\":\n\r1}"); got != "{\"a\":  1}" {
		t.Errorf("got %q", got)
	}
	all := host.List()
	if len(all) != 1 || all[0].Owner.Caller != "spiffe://a/b" || all[0].Owner.Agent != "files" || all[0].Uses != 1 || !runs(all[0].PID) {
		t.Errorf("got %+v", all)
	}
	p.Close()
	if err := drain(t, p); !strings.Contains(err.Error(), "its session has ended") {
		t.Error(err)
	}
}

func TestProcess_GetsLittleOfTheEnvironment(t *testing.T) {
	t.Setenv("AEPB_SECRET", "password")
	secret := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(secret, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	host, log := newHost(t, stdio.Limits{})
	p := program()
	p.Dir, p.Env, p.EnvFiles = filepath.Dir(secret), map[string]string{"MODE": "fast"}, map[string]string{"TOKEN": secret}
	process := start(t, host, "", p)
	names := map[string]string{}
	for one := range strings.SplitSeq(say(t, process, "env"), "|") {
		name, value, _ := strings.Cut(one, "=")
		names[name] = value
	}
	if names["MODE"] != "fast" || names["TOKEN"] != "s3cret" || names["PATH"] == "" {
		t.Errorf("got %v", names)
	}
	for name := range names {
		if !slices.Contains([]string{"PATH", "HOME", "USER", "LANG", "TMPDIR", "MODE", "TOKEN"}, name) {
			t.Errorf("it has %s", name)
		}
	}
	if got := say(t, process, "where"); got != p.Dir {
		t.Errorf("it is in %s", got)
	}
	process.Close()
	_ = drain(t, process)
	_ = host.Close()
	if strings.Contains(log.String(), "s3cret") {
		t.Error("the log has the secret")
	}
}

func TestProcess_WritesForPeople(t *testing.T) {
	t.Parallel()
	host, log := newHost(t, stdio.Limits{})
	p := start(t, host, "", program())
	if got := say(t, p, "flood 100000"); got != "flooded" {
		t.Errorf("got %q", got)
	}
	if err := p.Send(t.Context(), []byte("exit 7")); err != nil {
		t.Fatal(err)
	}
	err := drain(t, p)
	if !strings.Contains(err.Error(), "exit status 7") || !strings.Contains(err.Error(), "goodbye") {
		t.Error(err)
	}
	_ = host.Close()
	if lines := strings.Count(log.String(), "program wrote"); lines < 10 || lines > 200 {
		t.Errorf("%d lines of the flood are logged", lines)
	}
}

func TestProcess_EndsBecauseOf(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		program stdio.Program
		send    string
		want    string
	}{
		"a long line":    {program(), "long " + strconv.Itoa(maxLine+1), "a line that is too long"},
		"much memory":    {stdio.Program{Command: program("eat 300").Command, MemoryMiB: 100}, "", "and may take 100"},
		"many processes": {program("bomb"), "", "more than 64 processes"},
		"its own end":    {program(), "exit 3", "exit status 3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host, _ := newHost(t, stdio.Limits{})
			p := start(t, host, "", tc.program)
			if tc.send != "" {
				if err := p.Send(t.Context(), []byte(tc.send)); err != nil {
					t.Fatal(err)
				}
			}
			if err := drain(t, p); !strings.Contains(err.Error(), tc.want) {
				t.Error(err)
			}
		})
	}
}

func TestProcess_LeavesNothing(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*testing.T, *stdio.Process, int){
		"at the end of its session": func(_ *testing.T, p *stdio.Process, _ int) { p.Close() },
		"when it ends by itself": func(t *testing.T, p *stdio.Process, _ int) {
			t.Helper()
			if err := p.Send(t.Context(), []byte("exit 0")); err != nil {
				t.Error(err)
			}
		},
		"when its supervisor is killed": func(t *testing.T, _ *stdio.Process, pid int) {
			t.Helper()
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host, _ := newHost(t, stdio.Limits{})
			p := start(t, host, "", program())
			daemon, err := strconv.Atoi(say(t, p, "fork"))
			if err != nil || !runs(daemon) {
				t.Fatalf("%d %v", daemon, err)
			}
			if name == "when its supervisor is killed" { // and the daemon with it: that one left the group
				left := daemon
				t.Cleanup(func() { _ = syscall.Kill(left, syscall.SIGKILL) })
				daemon = 0
			}
			pid := host.List()[0].PID
			end(t, p, pid)
			_ = drain(t, p)
			wait(t, "the end of the process", func() bool { return !runs(pid) })
			if daemon != 0 && runs(daemon) {
				t.Error("what it started is still there")
			}
		})
	}
}

func TestHost_CallerHasItsShare(t *testing.T) {
	t.Parallel()
	host, _ := newHost(t, stdio.Limits{Total: 4, PerCaller: 2})
	a1, a2 := start(t, host, "a", program()), start(t, host, "a", program())
	var exceeded *quota.ExceededError
	if _, err := host.Start(t.Context(), stdio.Owner{Agent: "files", Caller: "a"}, program(), maxLine); !errors.As(err, &exceeded) || !exceeded.Own {
		t.Fatalf("got %v", err)
	}
	b := start(t, host, "b", program())
	a1.Rest()
	a3 := start(t, host, "a", program()) // in the place of the one that rests
	if err := drain(t, a1); !strings.Contains(err.Error(), "its place was needed") {
		t.Error(err)
	}
	if a1.Use() {
		t.Error("it can be used")
	}
	for _, p := range []*stdio.Process{a2, a3, b} {
		if got := say(t, p, "say here"); got != "here" {
			t.Errorf("got %q", got)
		}
		p.Close()
		_ = drain(t, p)
	}
}

func TestHost_EndsWhatIsIdle(t *testing.T) {
	t.Parallel()
	host, _ := newHost(t, stdio.Limits{Idle: 50 * time.Millisecond})
	p := start(t, host, "", program())
	p.Rest()
	if err := drain(t, p); !strings.Contains(err.Error(), "not used for a while") {
		t.Error(err)
	}
}

func TestHost_DropEndsOtherPrograms(t *testing.T) {
	t.Parallel()
	host, _ := newHost(t, stdio.Limits{})
	old, stays := start(t, host, "a", program("say old")), start(t, host, "a", program())
	host.Drop("other", "")
	host.Drop("files", program().URL())
	if err := drain(t, old); !strings.Contains(err.Error(), "has another program") {
		t.Error(err)
	}
	if got := say(t, stays, "say here"); got != "here" {
		t.Errorf("got %q", got)
	}
	host.Drop("files", "")
	if err := drain(t, stays); !strings.Contains(err.Error(), "not listed any more") {
		t.Error(err)
	}
}

func TestHost_WaitsAfterFailures(t *testing.T) {
	t.Parallel()
	host, _ := newHost(t, stdio.Limits{})
	failing := program("exit 1")
	for range 2 { // the first time it is started again at once
		p := start(t, host, "a", failing)
		_ = drain(t, p)
		wait(t, "the failure", func() bool { return len(host.List()) == 0 })
	}
	var waits *stdio.WaitError
	if _, err := host.Start(t.Context(), stdio.Owner{Agent: "files", Caller: "a"}, failing, maxLine); !errors.As(err, &waits) || waits.After > time.Second || !strings.Contains(err.Error(), "exit status 1") {
		t.Errorf("got %v", err)
	}
	other := start(t, host, "b", failing) // another caller's trouble is none of this one's
	_ = drain(t, other)
}

func TestHost_NoSuchProgram(t *testing.T) {
	t.Parallel()
	host, _ := newHost(t, stdio.Limits{})
	for _, p := range []stdio.Program{
		{Command: []string{"no-such-program-here"}},
		{Command: []string{"sh"}, Dir: "/no/such/folder"},
		{Command: []string{"sh"}, EnvFiles: map[string]string{"A": "/no/such/file"}},
	} {
		if _, err := host.Start(t.Context(), stdio.Owner{Agent: "files"}, p, maxLine); err == nil {
			t.Errorf("%v was started", p.Command)
		}
	}
	if usage := host.Usage(); usage.Used != 0 {
		t.Errorf("places are taken: %+v", usage)
	}
}

func TestHost_CloseEndsAll(t *testing.T) {
	t.Parallel()
	host, _ := newHost(t, stdio.Limits{})
	stubborn, mild := start(t, host, "a", program("say on", "stubborn")), start(t, host, "b", program())
	if line, err := stubborn.Receive(); err != nil || string(line) != "on" {
		t.Fatalf("%s %v", line, err)
	}
	pids := []int{host.List()[0].PID, host.List()[1].PID}
	var reading sync.WaitGroup
	reading.Go(func() { _ = drain(t, stubborn) })
	reading.Go(func() { _ = drain(t, mild) })
	_ = host.Close()
	reading.Wait()
	for _, pid := range pids {
		if runs(pid) {
			t.Errorf("%d runs", pid)
		}
	}
	if _, err := host.Start(t.Context(), stdio.Owner{}, program(), maxLine); !errors.Is(err, stdio.ErrClosed) {
		t.Errorf("got %v", err)
	}
}

// TestSupervise_GatewayKilled: nothing outlives a gateway that had no time to end anything.
func TestSupervise_GatewayKilled(t *testing.T) {
	t.Parallel()
	gateway := exec.CommandContext(t.Context(), os.Args[0], "gateway")
	out, err := gateway.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := gateway.Start(); err != nil {
		t.Fatal(err)
	}
	var supervisor, daemon int
	if _, err := fmt.Fscan(out, &supervisor, &daemon); err != nil || !runs(supervisor) || !runs(daemon) {
		t.Fatalf("%d %d %v", supervisor, daemon, err)
	}
	_ = gateway.Process.Kill()
	_ = gateway.Wait()
	wait(t, "the end of both", func() bool { return !runs(supervisor) && !runs(daemon) })
}

// TestHost_StartsAndKills: whatever ends a process, no process, pipe or file is left of it.
func TestHost_StartsAndKills(t *testing.T) {
	host, _ := newHost(t, stdio.Limits{Total: 8, PerCaller: 8})
	files := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	round := func(i int) {
		p, err := host.Start(t.Context(), stdio.Owner{Agent: "files", Caller: ect.Identity(strconv.Itoa(i))}, program(), maxLine)
		if err != nil {
			t.Error(err)
			return
		}
		switch i % 3 {
		case 0:
			p.Close()
		case 1:
			_ = p.Send(t.Context(), []byte("exit 0"))
		default:
			for _, s := range host.List() {
				if s.Owner.Caller == ect.Identity(strconv.Itoa(i)) {
					_ = syscall.Kill(s.PID, syscall.SIGKILL)
				}
			}
		}
		_ = drain(t, p)
	}
	rounds := 30
	if os.Getenv("AEPB_STARTS") != "" {
		rounds, _ = strconv.Atoi(os.Getenv("AEPB_STARTS"))
	}
	round(0)
	before := files()
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			for i := worker; i < rounds; i += 4 {
				round(i)
			}
		})
	}
	all.Wait()
	wait(t, "the end of all", func() bool { return len(host.List()) == 0 })
	if after := files(); after > before {
		t.Errorf("%d files are open, %d before", after, before)
	}
	children, err := os.ReadFile("/proc/self/task/" + strconv.Itoa(os.Getpid()) + "/children")
	if err != nil {
		t.Fatal(err)
	}
	for child := range strings.FieldsSeq(string(children)) {
		if pid, _ := strconv.Atoi(child); runs(pid) {
			t.Errorf("process %d is left", pid)
		}
	}
}
