package stdio_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport/stdio"
	"github.com/aepb/aepb-gateway/policy/quota"
)

// TestHost_NoSuchProgramLeavesNoFile: not even until the garbage collector comes.
func TestHost_NoSuchProgramLeavesNoFile(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	host, _ := newHost(t, stdio.Limits{})
	before, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		name := "no-such-program-" + string(rune('a'+i)) // each fails for the first time
		if _, err := host.Start(t.Context(), stdio.Owner{Agent: "files"}, stdio.Program{Command: []string{name}}, maxLine); err == nil {
			t.Fatal("it was started")
		}
	}
	after, _ := os.ReadDir("/proc/self/fd")
	if len(after) > len(before)+3 {
		t.Errorf("%d files are open, %d before", len(after), len(before))
	}
}

// TestHost_SecretThatDoesNotCome: who waits for the file of one program keeps no other waiting.
func TestHost_SecretThatDoesNotCome(t *testing.T) {
	t.Parallel()
	host, _ := newHost(t, stdio.Limits{})
	file := filepath.Join(t.TempDir(), "secret")
	if err := syscall.Mkfifo(file, 0o600); err != nil {
		t.Fatal(err)
	}
	slow := program()
	slow.EnvFiles = map[string]string{"SECRET": file}
	begun := make(chan *stdio.Process, 1)
	var starting sync.WaitGroup
	defer starting.Wait()
	starting.Go(func() {
		p, _ := host.Start(t.Context(), stdio.Owner{Agent: "slow"}, slow, maxLine)
		begun <- p
	})
	p := start(t, host, "a", program())
	if got := say(t, p, "say here"); got != "here" {
		t.Errorf("got %q", got)
	}
	w, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	if p := <-begun; p == nil {
		t.Error("it was not started")
	}
}

// TestSupervise_SignalsAreTheProgramsOwn: it can be asked to end, since it does not inherit
// that its supervisor cannot.
func TestSupervise_SignalsAreTheProgramsOwn(t *testing.T) {
	t.Parallel()
	host, _ := newHost(t, stdio.Limits{})
	_, rest, _ := strings.Cut(say(t, start(t, host, "a", stdio.Program{Command: []string{"sh", "-c", "read x; tr '\\n' '|' < /proc/self/status; echo"}}), ""), "SigIgn:")
	ignored, _, _ := strings.Cut(strings.TrimSpace(rest), "|")
	mask, err := strconv.ParseUint(ignored, 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		if mask&(1<<(one-1)) != 0 {
			t.Errorf("%v is ignored", one)
		}
	}
}

// TestProcess_ClosesItsInput: what can be told nothing any more is ended, so that the next
// one can be started.
func TestProcess_ClosesItsInput(t *testing.T) {
	t.Parallel()
	host, _ := newHost(t, stdio.Limits{})
	p := start(t, host, "a", program())
	if got := say(t, p, "shut"); got != "shut" {
		t.Fatalf("got %q", got)
	}
	err := p.Send(t.Context(), []byte("say anything"))
	if err == nil || !strings.Contains(err.Error(), "closed its input") {
		t.Errorf("got %v", err)
	}
	if p.Use() {
		t.Error("it can be used")
	}
	if err := drain(t, p); !strings.Contains(err.Error(), "closed its input") {
		t.Error(err)
	}
}

// TestProcess_UsedAfterItsEnd: whoever finds one that ends is told so before anything is sent.
func TestProcess_UsedAfterItsEnd(t *testing.T) {
	t.Parallel()
	host, _ := newHost(t, stdio.Limits{})
	for name, end := range map[string]func(*stdio.Process){
		"closed":  func(p *stdio.Process) { p.Close() },
		"dropped": func(*stdio.Process) { host.Drop("files", "") },
		"by itself": func(p *stdio.Process) {
			_ = p.Send(t.Context(), []byte("exit 0"))
			_ = drain(t, p)
		},
	} {
		p := start(t, host, name, program())
		end(p)
		if p.Use() {
			t.Errorf("%s: it can be used", name)
		}
		_ = drain(t, p)
	}
}

// TestHost_WaitsAfterFaults: one that was ended for what it did has failed as well.
func TestHost_WaitsAfterFaults(t *testing.T) {
	t.Parallel()
	host, _ := newHost(t, stdio.Limits{})
	failing := program("long " + strconv.Itoa(maxLine+1))
	for range 2 {
		p := start(t, host, "a", failing)
		_ = drain(t, p)
		wait(t, "the failure", func() bool { return len(host.List()) == 0 })
	}
	var waits *stdio.WaitError
	if p, err := host.Start(t.Context(), stdio.Owner{Agent: "files", Caller: "a"}, failing, maxLine); !errors.As(err, &waits) {
		t.Errorf("got %v", err)
		_ = drain(t, p)
	}
}

// TestSend_CallerLeavesTheQueue: nobody waits longer than he wants for a program that reads
// slowly.
func TestSend_CallerLeavesTheQueue(t *testing.T) {
	t.Parallel()
	host, _ := newHost(t, stdio.Limits{})
	p := start(t, host, "a", program("say on", "deaf"))
	if _, err := p.Receive(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var sending sync.WaitGroup
	defer sending.Wait()
	sending.Go(func() { _ = p.Send(t.Context(), make([]byte, 1<<20)) })
	left := make(chan error, 4)
	for range 4 {
		sending.Go(func() { left <- p.Send(ctx, make([]byte, 1<<20)) })
	}
	cancel()
	begun := time.Now()
	for range 3 { // one may be writing already
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	}
	if passed := time.Since(begun); passed > 5*time.Second {
		t.Errorf("they left after %v", passed)
	}
	p.Close()
	_ = drain(t, p)
}

// TestHost_ProcessesThatAreSlowToEnd: they count, although they have no place any more.
func TestHost_ProcessesThatAreSlowToEnd(t *testing.T) {
	t.Parallel()
	host, _ := newHost(t, stdio.Limits{Total: 8, PerCaller: 2})
	var reading sync.WaitGroup
	defer reading.Wait()
	owner := stdio.Owner{Agent: "files", Caller: "a"}
	started, refused := 0, 0
	for range 10 {
		p, err := host.Start(t.Context(), owner, program("stubborn"), maxLine)
		var exceeded *quota.ExceededError
		if errors.As(err, &exceeded) && exceeded.Own {
			refused++
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		started++
		reading.Go(func() { _ = drain(t, p) })
		p.Rest() // its place is the next one's
	}
	if started > 4 || refused == 0 {
		t.Errorf("%d were started, %d refused", started, refused)
	}
	other := start(t, host, "b", program())
	if got := say(t, other, "say here"); got != "here" {
		t.Errorf("got %q", got)
	}
	host.Drop("files", "")
	_ = drain(t, other)
}

// TestHost_SharedProgramsHaveTheirOwnShare: agents whose callers share a program do not take
// the places of each other.
func TestHost_SharedProgramsHaveTheirOwnShare(t *testing.T) {
	t.Parallel()
	host, _ := newHost(t, stdio.Limits{Total: 8, PerCaller: 1})
	for _, agent := range []string{"one", "two", "three"} {
		p, err := host.Start(t.Context(), stdio.Owner{Agent: agent}, program(), maxLine)
		if err != nil {
			t.Fatalf("%s: %v", agent, err)
		}
		defer func() { _ = drain(t, p) }()
		defer p.Close()
	}
}

// TestProcess_SupervisorHasTime: one that the machine lets wait still ends all that it has to.
func TestProcess_SupervisorHasTime(t *testing.T) {
	t.Parallel()
	host, _ := newHost(t, stdio.Limits{})
	p := start(t, host, "a", program())
	daemon, err := strconv.Atoi(say(t, p, "fork"))
	if err != nil {
		t.Fatal(err)
	}
	supervisor := host.List()[0].PID
	if err := syscall.Kill(supervisor, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	p.Close()
	until := time.Now().Add(5 * time.Second) // longer than a program has that nobody supervises
	wait(t, "some time", func() bool { return time.Now().After(until) })
	_ = syscall.Kill(supervisor, syscall.SIGCONT)
	_ = drain(t, p)
	if runs(daemon) {
		_ = syscall.Kill(daemon, syscall.SIGKILL)
		t.Error("what it started is still there")
	}
}
