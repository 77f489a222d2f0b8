package sse_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/gateway/transport/sse"
)

func readAll(r io.Reader, l sse.Limits) (events []sse.Event, err error) {
	in := sse.NewReader(r, l)
	for {
		e, err := in.Next()
		if errors.Is(err, io.EOF) {
			return events, nil
		}
		if err != nil {
			return events, err
		}
		events = append(events, e)
	}
}

func event(data string) sse.Event { return sse.Event{Data: []byte(data)} }

func TestReader_Events(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		in   string
		want []sse.Event
	}{
		"one":               {"data: a\n\n", []sse.Event{event("a")}},
		"no space":          {"data:a\n\n", []sse.Event{event("a")}},
		"one space only":    {"data:  a\n\n", []sse.Event{event(" a")}},
		"several lines":     {"data: a\ndata\ndata: b\n\n", []sse.Event{event("a\n\nb")}},
		"type and id":       {"event: x\nid: 7\ndata: a\n\n", []sse.Event{{Type: "x", ID: "7", Data: []byte("a")}}},
		"ids do not stick":  {"id: 7\ndata: a\n\ndata: b\n\n", []sse.Event{{ID: "7", Data: []byte("a")}, event("b")}},
		"id with NUL":       {"id: \x00\ndata: a\n\n", []sse.Event{event("a")}},
		"comments":          {": ping\n\n:\n\ndata: a\n: x\n\n", []sse.Event{event("a")}},
		"unknown field":     {"retry: 5\nfoo: bar\ndata: a\n\n", []sse.Event{event("a")}},
		"no data":           {"event: x\n\ndata: a\n\n", []sse.Event{event("a")}},
		"empty data":        {"data:\n\ndata: a\n\n", []sse.Event{event("a")}},
		"CR":                {"data: a\rdata: b\r\r", []sse.Event{event("a\nb")}},
		"CRLF":              {"data: a\r\ndata: b\r\n\r\n", []sse.Event{event("a\nb")}},
		"mixed":             {"data: a\r\n\rdata: b\n\r\n", []sse.Event{event("a"), event("b")}},
		"BOM":               {"\xEF\xBB\xBFdata: a\n\n", []sse.Event{event("a")}},
		"second BOM":        {"data: a\n\n\xEF\xBB\xBFdata: b\n\n", []sse.Event{event("a")}},
		"incomplete":        {"data: a\n\ndata: b\n", []sse.Event{event("a")}},
		"colon in value":    {"data: {\"a\":1}\n\n", []sse.Event{event(`{"a":1}`)}},
		"nothing":           {"", nil},
		"blank lines alone": {"\n\n\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for how, r := range map[string]io.Reader{
				"at once": strings.NewReader(tc.in), "byte by byte": iotest.OneByteReader(strings.NewReader(tc.in)),
			} {
				got, err := readAll(r, sse.Limits{})
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", how, diff)
				}
			}
		})
	}
}

func TestReader_Limits(t *testing.T) {
	t.Parallel()
	endless := strings.Repeat("data: a\n\n", 50)
	for name, tc := range map[string]struct {
		in     string
		limits sse.Limits
		what   string
	}{
		"one line":             {"data: " + strings.Repeat("x", 100) + "\n\n", sse.Limits{Event: 50, Total: 1000}, "event"},
		"many lines":           {strings.Repeat("data: x\n", 100) + "\n", sse.Limits{Event: 50, Total: 1000}, "event"},
		"many events":          {endless, sse.Limits{Events: 10}, "events"},
		"many bytes":           {endless, sse.Limits{Event: 50, Total: 100}, "stream"},
		"comments without end": {strings.Repeat(": ping\n\n", 50), sse.Limits{Event: 50, Total: 100}, "stream"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := readAll(strings.NewReader(tc.in), tc.limits)
			var limit *sse.LimitError
			if !errors.As(err, &limit) || limit.What != tc.what {
				t.Errorf("got %v, want the bound of %s", err, tc.what)
			}
		})
	}
	if _, err := readAll(strings.NewReader("data: "+strings.Repeat("x", 44)+"\n\n"), sse.Limits{Event: 50}); err != nil {
		t.Errorf("at the bound: %v", err)
	}
}

func TestReader_BrokenStreamIsNoEnd(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	in := sse.NewReader(io.MultiReader(strings.NewReader("data: a\n"), iotest.ErrReader(broken)), sse.Limits{})
	for range 2 {
		if _, err := in.Next(); !errors.Is(err, broken) {
			t.Errorf("got %v, want the reader's error, every time", err)
		}
	}
}

func FuzzReader_BytesInPieces(f *testing.F) {
	for _, seed := range []string{"data: a\n\n", "event:x\r\ndata:\rdata:b\r\n\r\n", ": c\n\nid: \x00\ndata\n\n", "\xEF\xBB\xBF\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		limits := sse.Limits{Event: 64, Events: 4, Total: 256}
		whole, errWhole := readAll(strings.NewReader(in), limits)
		pieces, errPieces := readAll(iotest.OneByteReader(strings.NewReader(in)), limits)
		if diff := cmp.Diff(whole, pieces); diff != "" || (errWhole == nil) != (errPieces == nil) {
			t.Errorf("how the bytes arrive matters: %v %v\n%s", errWhole, errPieces, diff)
		}
		for _, e := range whole {
			if len(e.Data) == 0 || len(e.Data) > limits.Event {
				t.Errorf("%d bytes of data", len(e.Data))
			}
		}
	})
}
