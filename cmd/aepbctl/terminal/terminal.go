// Package terminal writes what others have written to a terminal: escaped, on one line, with
// lengths of time as people say them and a line about what is waited for.
package terminal

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// What others have written may hold terminal escapes, line breaks, and marks
// that turn the direction of text. Everything that is printed as text goes
// through one of these three, and -o json through Printable.

// Word is foreign text as one field of a line: as it is if it is ASCII without
// spaces and quotes, else in double quotes with everything unusual escaped.
func Word[T ~string](text T) string {
	plain := func(r rune) bool { return r > ' ' && r < unicode.MaxASCII && r != '"' && r != '\\' }
	if strings.IndexFunc(string(text), func(r rune) bool { return !plain(r) }) < 0 {
		return string(text)
	}
	return strconv.QuoteToASCII(string(text))
}

// Words are several, with commas.
func Words[T ~string](list []T) string {
	out := make([]string, len(list))
	for i, text := range list {
		out[i] = Word(text)
	}
	return strings.Join(out, ", ")
}

// Line is a sentence that may quote others, such as an error: one line, with
// everything escaped that is not printed as a character of its own.
func Line(text string) string {
	var out strings.Builder
	for _, r := range strings.ReplaceAll(text, "\n", "; ") {
		if strconv.IsPrint(r) {
			out.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRuneToASCII(r)
		out.WriteString(quoted[1 : len(quoted)-1])
	}
	return out.String()
}

// Visible is JSON as one line with the same meaning: the terminal would obey some
// characters that JSON lets stand as they are.
func Visible(text []byte) []byte { return Escaped(bytes.Map(spaced, text)) }

// spaced turns the line breaks and tabs between the tokens of JSON into spaces.
// Within its strings there are none.
func spaced(r rune) rune {
	if r == '\n' || r == '\r' || r == '\t' {
		return ' '
	}
	return r
}

// Escaped writes what is neither printed as a character of its own nor a line break
// as JSON escapes: control characters, and marks that turn the direction of text.
func Escaped(text []byte) []byte {
	var out bytes.Buffer
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		text = text[size:]
		switch {
		case r == '\n' || strconv.IsPrint(r):
			out.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.Bytes()
}

// Printable writes JSON of our own encoder, lines and all, as escaped does.
type Printable struct{ To io.Writer }

// Write implements io.Writer. The encoder writes whole characters.
func (a Printable) Write(text []byte) (int, error) {
	if _, err := a.To.Write(Escaped(text)); err != nil {
		return 0, err
	}
	return len(text), nil
}

// Complain prints why a command failed.
func Complain(w io.Writer, err error) { fmt.Fprintln(w, "aepbctl:", Line(err.Error())) }

// Instant is a time as RFC 3339 writes it, in UTC.
func Instant(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// Duration is a length of time as people say it: the two largest units of it, such
// as 12 ms, 3.4 s, 2 min 5 s, 3 h 5 min and 2 d 4 h.
func Duration(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < 0:
		return "-" + Duration(-d)
	case d == 0:
		return "0 s"
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second && d%time.Second >= 100*time.Millisecond:
		return fmt.Sprintf("%d.%d s", d/time.Second, d%time.Second/(100*time.Millisecond))
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return units(d, time.Minute, "min", time.Second, "s")
	case d < 2*day:
		return units(d, time.Hour, "h", time.Minute, "min")
	default:
		return units(d, day, "d", time.Hour, "h")
	}
}

func units(d, large time.Duration, largeName string, small time.Duration, smallName string) string {
	text := fmt.Sprintf("%d %s", d/large, largeName)
	if rest := d % large / small; rest > 0 {
		text += fmt.Sprintf(" %d %s", rest, smallName)
	}
	return text
}

// quiet is how long a command works before it says that it does.
const quiet = 2 * time.Second

// Is reports whether a person reads what is written, or types what is read. What writes to several places
// says so itself.
func Is(stream any) bool {
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

// Progress says on a terminal, after two seconds and then each second, what a command waits for and how
// long it has; the line is gone when stop has returned. Nothing is said elsewhere.
func Progress(cmd *cobra.Command, doing string) (stop func()) {
	w := cmd.ErrOrStderr()
	if !Is(w) {
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
				fmt.Fprintf(w, "\r\x1b[K%s … %s", Line(doing), Duration(time.Since(began).Truncate(time.Second)))
				next.Reset(time.Second)
			}
		}
	})
	return sync.OnceFunc(func() {
		close(end)
		done.Wait()
	})
}

// Good colours a word of ours on a terminal, unless its reader wants no colours (no-color.org).
func Good(w io.Writer, text string) string { return coloured(w, "32", text) }

// Bad is Good for what is wrong.
func Bad(w io.Writer, text string) string { return coloured(w, "1;31", text) }

func coloured(w io.Writer, colour, text string) string {
	if os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" || !Is(w) {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// Plural is a noun after a number.
func Plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
