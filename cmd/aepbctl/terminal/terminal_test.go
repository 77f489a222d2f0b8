package terminal

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"
)

// tty is a terminal.
type tty struct{ bytes.Buffer }

func (*tty) Terminal() bool { return true }

// TestProgress_OnTerminalsAfterTwoSeconds: who waits sees for what; a script sees nothing, and neither does
// who does not wait.
func TestProgress_OnTerminalsAfterTwoSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var screen tty
		var file bytes.Buffer
		cmd := &cobra.Command{}
		wait := func(d time.Duration) {
			stop := Progress(cmd, "waiting for\x1b[8m the agent")
			time.Sleep(d)
			stop()
			stop()
		}
		cmd.SetErr(&file)
		wait(time.Minute)
		if file.Len() > 0 {
			t.Errorf("a script reads %q", &file)
		}
		cmd.SetErr(&screen)
		wait(1900 * time.Millisecond)
		if screen.Len() > 0 {
			t.Errorf("before two seconds: %q", &screen)
		}
		wait(3500 * time.Millisecond)
		const want = "\r\x1b[Kwaiting for\\x1b[8m the agent … 2 s\r\x1b[Kwaiting for\\x1b[8m the agent … 3 s\r\x1b[K"
		if screen.String() != want {
			t.Errorf("got %q, want %q", &screen, want)
		}
	})
}

func TestDuration_IsForPeople(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		333476: "333 µs", 12 * time.Millisecond: "12 ms", 3400 * time.Millisecond: "3.4 s", 3 * time.Second: "3 s", 59900 * time.Millisecond: "59 s",
		125 * time.Second: "2 min 5 s", 5 * time.Minute: "5 min", 185 * time.Minute: "3 h 5 min", 24 * time.Hour: "24 h", 52 * time.Hour: "2 d 4 h", -time.Second: "-1 s", 0: "0 s",
	} {
		if got := Duration(d); got != want {
			t.Errorf("%d: %q, want %q", d, got, want)
		}
	}
}
