package stdio

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

// Bounds of what a program writes for people.
const (
	maxLogLine   = 1 << 10 // bytes of a line that are logged
	logPerSecond = 10
	logBurst     = 50
	firstLines   = 2 // that say what failed, such as the name of a package
	lastLines    = 4 // that say why it ended
)

// writings logs what a program writes for people, and keeps its first and its last lines, which often
// say why the program ended.
type writings struct {
	logger *slog.Logger
	now    func() time.Time
	hidden hidden

	mu      sync.Mutex
	first   []string // lines, at most firstLines
	last    []string // the lines after them, at most lastLines
	between bool     // there were lines between first and last
	dropped int      // lines since the last one that was logged
	tokens  float64
	at      time.Time // when tokens was right
}

func newWritings(logger *slog.Logger, now func() time.Time, h hidden) *writings {
	return &writings{logger: logger, now: now, hidden: h, tokens: logBurst, at: now()}
}

// read logs all of a stream, line by line. Of a long line the rest is left out.
func (w *writings) read(ctx context.Context, from io.Reader) {
	in := bufio.NewReaderSize(from, maxLogLine)
	continued := false
	for {
		line, err := in.ReadSlice('\n')
		if !continued {
			w.say(ctx, "program wrote", line)
		}
		continued = errors.Is(err, bufio.ErrBufferFull)
		if err != nil && !continued {
			return
		}
	}
}

// say logs one line within the bounds.
func (w *writings) say(ctx context.Context, message string, line []byte) {
	text := w.hidden.in(strings.TrimRight(string(line[:min(len(line), maxLogLine)]), "\r\n"), len(line) >= maxLogLine)
	text = strings.ToValidUTF8(text, "\uFFFD")
	if text == "" {
		return
	}
	w.mu.Lock()
	if len(w.first) < firstLines {
		w.first = append(w.first, text)
	} else {
		w.last = append(w.last, text)
	}
	if more := len(w.last) - lastLines; more > 0 {
		w.last, w.between = w.last[more:], true
	}
	now := w.now()
	w.tokens, w.at = min(logBurst, w.tokens+logPerSecond*now.Sub(w.at).Seconds()), now
	if w.tokens--; w.tokens < 0 {
		w.tokens++
		w.dropped++
		w.mu.Unlock()
		return
	}
	dropped := w.dropped
	w.dropped = 0
	w.mu.Unlock()
	attrs := []slog.Attr{slog.String("line", text)}
	if dropped > 0 {
		attrs = append(attrs, slog.Int("lines_left_out", dropped))
	}
	w.logger.LogAttrs(ctx, slog.LevelInfo, message, attrs...)
}

// lines are the first and the last ones that it wrote.
func (w *writings) lines() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := slices.Clone(w.first)
	if w.between {
		list = append(list, "…")
	}
	return strings.Join(append(list, w.last...), "; ")
}

// shortestHidden is the least length of a value that is hidden, in bytes: shorter ones are
// words that stand in any line.
const shortestHidden = 8

// hidden are the values of a program's variables that are not logged, by what stands in their
// place.
type hidden []struct{ value, name string }

// hides takes from the environment of a program the values that its operator gave it. Of a
// value of several lines, such as a key, each line counts.
func (p Program) hides(environment []string) hidden {
	var h hidden
	for _, variable := range environment {
		name, value, _ := strings.Cut(variable, "=")
		_, file := p.EnvFiles[name]
		if _, plain := p.Env[name]; !plain && !file {
			continue
		}
		for line := range strings.Lines(value) {
			if line = strings.TrimRight(line, "\r\n"); len(line) >= shortestHidden {
				h = append(h, struct{ value, name string }{line, "[" + name + "]"})
			}
		}
	}
	slices.SortFunc(h, func(x, y struct{ value, name string }) int { return cmp.Compare(len(y.value), len(x.value)) })
	return h
}

// in replaces the values in a line. cut: the line is the beginning of a longer one, which may
// end within a value.
func (h hidden) in(line string, cut bool) string {
	for _, one := range h {
		line = strings.ReplaceAll(line, one.value, one.name)
	}
	for _, one := range h {
		for n := len(one.value) - 1; cut && n >= shortestHidden; n-- {
			if rest, ok := strings.CutSuffix(line, one.value[:n]); ok {
				return rest + one.name
			}
		}
	}
	return line
}
