package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"
)

// quiet is how long a command works before it says that it does.
const quiet = 2 * time.Second

// isTerminal reports whether a person reads what is written, or types what is read. What writes to several places
// says so itself.
func isTerminal(stream any) bool {
	switch out := stream.(type) {
	case interface{ Terminal() bool }:
		return out.Terminal()
	case *os.File:
		info, err := out.Stat()
		if err != nil || info.Mode()&os.ModeCharDevice == 0 {
			return false
		}
		null, err := os.Stat(os.DevNull)
		return err == nil && !os.SameFile(info, null)
	default:
		return false
	}
}

// progress says on a terminal, after two seconds and then each second, what a command waits for and how
// long it has; the line is gone when stop has returned. Nothing is said elsewhere.
func progress(cmd *cobra.Command, doing string) (stop func()) {
	w := cmd.ErrOrStderr()
	if !isTerminal(w) {
		return func() {}
	}
	began, end := time.Now(), make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		next := time.NewTimer(quiet)
		defer next.Stop()
		shown := false
		for {
			select {
			case <-end:
				if shown {
					fmt.Fprint(w, "\r\x1b[K")
				}
				return
			case <-next.C:
				shown = true
				fmt.Fprintf(w, "\r\x1b[K%s … %s", line(doing), duration(time.Since(began).Truncate(time.Second)))
				next.Reset(time.Second)
			}
		}
	})
	return sync.OnceFunc(func() {
		close(end)
		done.Wait()
	})
}

// good and bad colour a word of ours on a terminal, unless its reader wants none (no-color.org).
func good(w io.Writer, text string) string { return coloured(w, "32", text) }
func bad(w io.Writer, text string) string  { return coloured(w, "1;31", text) }

func coloured(w io.Writer, colour, text string) string {
	if os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" || !isTerminal(w) {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}
