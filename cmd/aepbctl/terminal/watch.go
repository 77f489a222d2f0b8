package terminal

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// watchEvery is the pause between two looks at what is watched. A look that takes longer makes the pause as long.
const watchEvery = time.Second

// Row is a line of text. Its key says the same without what changes by itself, the time.
type Row struct{ Key, Text string }

// PrintRows prints rows as lines.
func PrintRows(w io.Writer, rows []Row) error {
	for _, r := range rows {
		if _, err := fmt.Fprintln(w, r.Text); err != nil {
			return err
		}
	}
	return nil
}

// ShowChanges shows what changed since rows with some keys were shown, and returns the keys that are shown now:
// on a terminal all rows in place, else those that changed; as JSON one value in a line, if any changed.
func ShowChanges(out io.Writer, output string, before map[string]bool, rows []Row, value any) (shown map[string]bool, err error) {
	var changed []Row
	shown = map[string]bool{}
	for _, r := range rows {
		if shown[r.Key] = true; !before[r.Key] {
			changed = append(changed, r)
		}
	}
	switch {
	case output == "json" && changed != nil:
		err = json.NewEncoder(out).Encode(value)
	case output == "json":
	case Is(out):
		if _, err = io.WriteString(out, "\x1b[H\x1b[2J"); err == nil {
			err = PrintRows(out, rows)
		}
	default:
		err = PrintRows(out, changed)
	}
	return shown, err
}

// Pause waits between two looks, of which the last one began then, or ends earlier with the error of the context.
func Pause(ctx context.Context, began time.Time) error {
	return WaitUntil(ctx, time.Now().Add(max(watchEvery, time.Since(began))))
}

// WaitUntil returns at a moment, or earlier with the error of the context.
func WaitUntil(ctx context.Context, at time.Time) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Until(at)):
		return nil
	}
}

// maxAnswer bounds what is read of an answer, in bytes.
const maxAnswer = 64

// Interactive reports whether a person reads what is printed and can answer.
func Interactive(cmd *cobra.Command) bool {
	return Is(cmd.InOrStdin()) && Is(cmd.ErrOrStderr())
}

// Confirm asks about what was printed; refused is its error unless the answer is yes. An interrupt ends the process
// from here on: it would not end the read of an answer.
func Confirm(cmd *cobra.Command, question, refused string) error {
	signal.Reset(os.Interrupt, syscall.SIGTERM)
	fmt.Fprint(cmd.ErrOrStderr(), question+" type yes: ")
	text, err := bufio.NewReader(io.LimitReader(cmd.InOrStdin(), maxAnswer)).ReadString('\n')
	if err != nil || strings.TrimSpace(text) != "yes" {
		return errors.New(refused)
	}
	return nil
}
