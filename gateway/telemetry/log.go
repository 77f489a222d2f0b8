package telemetry

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"path"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/aepb/aepb-gateway/gateway/transport"
)

const (
	maxAttr  = 1024 // bytes of one attribute's value, or of the message
	maxDepth = 6    // groups within groups
)

// NewLogger writes JSON lines, bounded (see [Bounded]), each with the component that wrote it:
// its package below the module's root. The zero level is info.
func NewLogger(w io.Writer, level slog.Level) *slog.Logger {
	return slog.New(Bounded(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, AddSource: true, ReplaceAttr: component})))
}

// component puts the package in place of the source of a line. Other attributes stay as they are.
func component(_ []string, a slog.Attr) slog.Attr {
	if a.Key != slog.SourceKey { // the usual case, without an allocation
		return a
	}
	if source, ok := a.Value.Any().(*slog.Source); ok {
		folder, function := path.Split(source.Function)
		name, _, _ := strings.Cut(function, ".")
		return slog.String("component", strings.TrimPrefix(folder+name, "github.com/aepb/aepb-gateway/"))
	}
	return a
}

// Bounded wraps a handler so that each line of a request has its id, and no attribute is long: texts
// are cut at 1024 bytes, byte slices are counted and not shown, other values become text.
func Bounded(next slog.Handler) slog.Handler { return bounded{next} }

type bounded struct{ next slog.Handler }

func (b bounded) Enabled(ctx context.Context, level slog.Level) bool {
	return b.next.Enabled(ctx, level)
}

func (b bounded) Handle(ctx context.Context, r slog.Record) error {
	short := slog.NewRecord(r.Time, r.Level, cut(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		short.AddAttrs(boundAttr(a, maxDepth))
		return true
	})
	if id := transport.RequestID(ctx); id != "" {
		short.AddAttrs(slog.String("request_id", id))
	}
	return b.next.Handle(ctx, short)
}

func (b bounded) WithAttrs(attrs []slog.Attr) slog.Handler {
	return bounded{b.next.WithAttrs(boundAttrs(attrs, maxDepth))}
}

func (b bounded) WithGroup(name string) slog.Handler { return bounded{b.next.WithGroup(name)} }

func boundAttrs(attrs []slog.Attr, depth int) []slog.Attr {
	out := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		out[i] = boundAttr(a, depth)
	}
	return out
}

func boundAttr(a slog.Attr, depth int) slog.Attr {
	value := a.Value.Resolve()
	switch value.Kind() {
	case slog.KindString:
		value = slog.StringValue(cut(value.String()))
	case slog.KindGroup:
		if depth == 0 {
			return slog.String(a.Key, "…")
		}
		value = slog.GroupValue(boundAttrs(value.Group(), depth-1)...)
	case slog.KindDuration: // in a unit that people read, and its name with it
		return slog.Float64(a.Key+"_ms", float64(value.Duration().Microseconds())/1000)
	case slog.KindAny:
		value = boundAny(value.Any())
	default: // numbers, booleans and times are short
	}
	return slog.Attr{Key: a.Key, Value: value}
}

// boundAny turns what a caller handed over as a whole into a short text.
func boundAny(v any) slog.Value {
	switch v := v.(type) {
	case nil:
		return slog.AnyValue(nil)
	case []byte:
		return redacted(len(v))
	case json.RawMessage:
		return redacted(len(v))
	default:
		return slog.StringValue(cut(fmt.Sprint(v)))
	}
}

func redacted(n int) slog.Value { return slog.StringValue("[" + strconv.Itoa(n) + " bytes]") }

// cut shortens a text at a character and says by how much.
func cut(text string) string {
	if len(text) <= maxAttr {
		return text
	}
	end := maxAttr
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "… (" + strconv.Itoa(len(text)-end) + " more bytes)"
}
