package stdio_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/aepb/aepb-gateway/gateway/transport/stdio"
)

// TestAttack_ProgramReadsTheGateway: a program reads the environment and memory of the
// gateway, whose user it has, and uses descriptors that the gateway's own starter left open.
// The kernel refuses the first to a process without privileges once the gateway is not
// dumpable, and the second are closed.
func TestAttack_ProgramReadsTheGateway(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "of-the-starter")
	left, err := syscall.Open(file, syscall.O_CREAT|syscall.O_RDWR, 0o600) // inherited, as without O_CLOEXEC
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(left) }()
	for name, supervisor := range map[string][]string{"supervised": {os.Args[0], "supervise"}, "by itself": nil} {
		host, err := stdio.NewHost(stdio.Deps{Supervisor: supervisor, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = host.Close() })
		p := start(t, host, "spiffe://example.com/a", program())
		if open := say(t, p, "open"); strings.Contains(open, file) {
			t.Errorf("%s: the program has %s", name, open)
		}
		p.Rest()
	}
	const getDumpable = 3 // PR_GET_DUMPABLE
	if dumpable, _, failed := syscall.RawSyscall(syscall.SYS_PRCTL, getDumpable, 0, 0); dumpable != 0 || failed != 0 {
		t.Errorf("the gateway is dumpable: %d, %v", dumpable, failed)
	}
}
