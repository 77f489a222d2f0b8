package telemetry_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/slogtest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/telemetry"
)

func logged(t *testing.T, buffer *bytes.Buffer) map[string]any {
	t.Helper()
	var line map[string]any
	if err := json.Unmarshal(buffer.Bytes(), &line); err != nil {
		t.Fatalf("%v: %s", err, buffer)
	}
	return line
}

func TestLog_LinesAreBounded(t *testing.T) {
	t.Parallel()
	var buffer bytes.Buffer
	long := strings.Repeat("é", 5000)
	telemetry.NewLogger(&buffer, 0).With(slog.String("with", long)).WithGroup("g").InfoContext(t.Context(), long,
		slog.String("text", long),
		slog.Any("error", errors.New(long)),
		slog.Any("body", []byte("a message")),
		slog.Any("raw", json.RawMessage(`{"a":"message"}`)),
		slog.Any("struct", struct{ A string }{long}),
		slog.Any("token", ect.Token{}),
		slog.Group("deep", slog.Group("deeper", slog.String("text", long))),
		slog.Duration("took", time.Second), slog.Int("n", 7), slog.Any("nil", nil),
	)
	if buffer.Len() > 9000 {
		t.Errorf("a line of %d bytes", buffer.Len())
	}
	line := logged(t, &buffer)
	group, ok := line["g"].(map[string]any)
	if !ok {
		t.Fatalf("no group: %v", line)
	}
	want := map[string]any{"body": "[9 bytes]", "raw": "[15 bytes]", "took_ms": 1e3, "n": 7.0, "nil": nil, "token": ""}
	got := map[string]any{}
	for key := range want {
		got[key] = group[key]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, text := range []any{line["msg"], line["with"], group["text"], group["error"]} {
		if s, _ := text.(string); !strings.HasPrefix(s, "éé") || !strings.HasSuffix(s, "é… (8976 more bytes)") {
			t.Errorf("cut badly: %.20q … %q", s, s[max(0, len(s)-30):])
		}
	}
	if strings.Contains(buffer.String(), "message") {
		t.Error("bytes were shown")
	}
}

// However deep the groups are nested.
func TestLog_DepthIsBounded(t *testing.T) {
	t.Parallel()
	attr := slog.String("text", "the bottom")
	for range 100 {
		attr = slog.Attr{Key: "g", Value: slog.GroupValue(attr)}
	}
	var buffer bytes.Buffer
	telemetry.NewLogger(&buffer, 0).LogAttrs(t.Context(), slog.LevelInfo, "deep", attr)
	if strings.Contains(buffer.String(), "bottom") || strings.Count(buffer.String(), `"g":`) > 10 {
		t.Errorf("got %s", buffer.String())
	}
}

func TestLog_Level(t *testing.T) {
	t.Parallel()
	var buffer bytes.Buffer
	logger := telemetry.NewLogger(&buffer, slog.LevelWarn)
	logger.InfoContext(t.Context(), "quiet")
	if buffer.Len() != 0 {
		t.Errorf("got %s", buffer.String())
	}
	logger.WarnContext(t.Context(), "loud")
	if logged(t, &buffer)["msg"] != "loud" {
		t.Errorf("got %s", buffer.String())
	}
}

// The wrapper is a handler like any other.
func TestLog_SlogHandlerContract(t *testing.T) {
	t.Parallel()
	var buffer bytes.Buffer
	slogtest.Run(t, func(*testing.T) slog.Handler {
		buffer.Reset()
		return telemetry.Bounded(slog.NewJSONHandler(&buffer, nil))
	}, func(t *testing.T) map[string]any {
		t.Helper()
		return logged(t, &buffer)
	})
}

// TestLog_Component: a line says which package wrote it, also through the logger of net/http.
func TestLog_Component(t *testing.T) {
	t.Parallel()
	var buffer bytes.Buffer
	logger := telemetry.NewLogger(&buffer, 0)
	logger.InfoContext(t.Context(), "task not saved")
	if got := logged(t, &buffer)["component"]; got != "gateway/telemetry_test" {
		t.Errorf("got %v", got)
	}
	buffer.Reset()
	slog.NewLogLogger(logger.Handler(), slog.LevelWarn).Print("a handshake failed")
	if got := logged(t, &buffer)["component"]; got != "gateway/telemetry_test" {
		t.Errorf("of a log.Logger: got %v", got)
	}
}
