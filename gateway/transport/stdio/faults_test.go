package stdio_test

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/aepb/aepb-gateway/gateway/transport/stdio"
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
