//go:build unix

package stdio_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport/stdio"
)

// TestHost_DropEndsWhatIsStarting: an agent is removed while its program is being started, and
// the program does not run on.
func TestHost_DropEndsWhatIsStarting(t *testing.T) {
	t.Parallel()
	host, _ := newHost(t, stdio.Limits{})
	secret := filepath.Join(t.TempDir(), "secret")
	if err := syscall.Mkfifo(secret, 0o600); err != nil {
		t.Fatal(err)
	}
	slow := program()
	slow.EnvFiles = map[string]string{"SECRET": secret}
	started := make(chan *stdio.Process)
	go func() {
		p, err := host.Start(t.Context(), stdio.Owner{Agent: "files", Caller: "a"}, slow, maxLine)
		if err != nil {
			t.Error(err)
		}
		started <- p
	}()
	value, err := os.OpenFile(secret, os.O_WRONLY, 0) // waits until the start reads it
	if err != nil {
		t.Fatal(err)
	}
	host.Drop("files", "")
	if _, err := value.WriteString("x"); err != nil {
		t.Fatal(err)
	}
	_ = value.Close()
	if p := <-started; p != nil {
		defer time.AfterFunc(10*time.Second, func() { _ = host.Close() }).Stop() // one that runs on ends then
		if err := drain(t, p); !strings.Contains(err.Error(), "not listed any more") {
			t.Error(err)
		}
	}
}
