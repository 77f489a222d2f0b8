package uacp_test

import (
	"encoding/hex"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// TestFrame_KnownAnswers: bytes of the reference implementations' rules.
func TestFrame_KnownAnswers(t *testing.T) {
	t.Parallel()
	topic := func(text string) uacp.Option { return option(uacp.OptTopic, text) }
	for name, tc := range map[string]struct {
		frame uacp.Frame
		hex   string
	}{
		"PING id 1":       {uacp.Frame{ID: 1}, "4000000004000000"},
		"C++ pong":        {uacp.Frame{ID: 1, Payload: []byte("pong")}, "4000000004000000706f6e67"},
		"TELL":            {uacp.Frame{Verb: uacp.Tell, ID: 0x010203, Options: []uacp.Option{topic("a/b")}, Payload: []byte("hi")}, "500004080c0400000303612f626869"},
		"ASK":             {uacp.Frame{Verb: uacp.Ask, QoS: 1, ID: 42, Options: []uacp.Option{topic("sensors/temp"), option(uacp.OptContentType, typeJSON)}, Payload: []byte("{}")}, "64000000a8080000030c73656e736f72732f74656d700404000000017b7d"},
		"C++ 0x43":        {uacp.Frame{Verb: uacp.Ask, QoS: 1, Code: 0x43, ID: 42, Payload: []byte("No handler for topic")}, "650c0000a80000004e6f2068616e646c657220666f7220746f706963"},
		"Python 0x00":     {uacp.Frame{Verb: uacp.Ask, QoS: 1, ID: 1_000_042, Options: []uacp.Option{topic("sensors/temp"), option(uacp.OptContentType, typeJSON), option(uacp.OptCorrelation, "\x00\x00\x00\x2a")}, Payload: []byte("{}")}, "64003d09a80c0000030c73656e736f72732f74656d7004040000000102040000002a7b7d"},
		"OBSERVE":         {uacp.Frame{Verb: uacp.Observe, QoS: 1, ID: 7, Options: []uacp.Option{topic("alerts/#")}}, "740000001c0400000308616c657274732f23"},
		"C++ test_basic":  {uacp.Frame{Verb: uacp.Tell, QoS: 1, ID: 12345}, "540000c0e4000000"},
		"a code is whole": {uacp.Frame{Verb: uacp.Ask, Code: 0xC7, ID: 1}, "631c000004000000"},
	} {
		data, err := tc.frame.Bytes()
		if err != nil || hex.EncodeToString(data) != tc.hex {
			t.Errorf("%s: got %x %v, want %s", name, data, err, tc.hex)
		}
		want, err := hex.DecodeString(tc.hex)
		if err != nil {
			t.Fatal(err)
		}
		back, err := uacp.ParseFrame(want)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(back.Payload) == 0 {
			back.Payload = nil
		}
		if diff := cmp.Diff(tc.frame, back); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestFrame_LargestHeader: the header with every field at its most, but for the
// options that it counts.
func TestFrame_LargestHeader(t *testing.T) {
	t.Parallel()
	f := uacp.Frame{Verb: uacp.Observe, QoS: 2, Code: 255, ID: 1<<24 - 1, Options: make([]uacp.Option, 255)}
	data, err := f.Bytes()
	if err != nil || hex.EncodeToString(data[:8]) != "7bfffffffffc0000" {
		t.Errorf("got %x %v", data[:8], err)
	}
	if back, err := uacp.ParseFrame(data); err != nil || len(back.Options) != 255 {
		t.Errorf("got %d options, %v", len(back.Options), err)
	}
}

func TestFrame_OutOfRange(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]uacp.Frame{
		"id":       {ID: 1 << 24},
		"verb":     {Verb: 4},
		"qos":      {QoS: 3},
		"options":  {Options: make([]uacp.Option, 256)},
		"option":   {Options: []uacp.Option{{Type: 3, Value: make([]byte, 256)}}},
		"payload":  {Payload: make([]byte, uacp.MaxPayload+1)},
		"in total": {Payload: make([]byte, uacp.MaxPayload), Options: []uacp.Option{{Type: 3}}},
	} {
		if _, err := f.Bytes(); !errors.Is(err, translators.ErrMalformed) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if data, err := (uacp.Frame{Payload: make([]byte, uacp.MaxPayload)}).Bytes(); err != nil || len(data) != uacp.MaxFrame {
		t.Errorf("the largest payload: %d bytes, %v", len(data), err)
	}
}

// TestFrame_ReplyPairing: the three ways in which the references pair replies.
func TestFrame_ReplyPairing(t *testing.T) {
	t.Parallel()
	correlated := func(value string, id uint32) uacp.Frame {
		return uacp.Frame{ID: id, Options: []uacp.Option{option(uacp.OptCorrelation, value)}}
	}
	for name, tc := range map[string]struct {
		reply   uacp.Frame
		request uint32
		want    uacp.Match
	}{
		"C++":                           {uacp.Frame{ID: 42}, 42, uacp.MatchID},
		"Python":                        {correlated("\x00\x00\x00\x2a", 1_000_042), 42, uacp.MatchCorrelation},
		"three bytes":                   {correlated("\x00\x00\x2a", 9), 42, uacp.MatchCorrelation},
		"shifted":                       {uacp.Frame{ID: 1_000_042}, 42, uacp.MatchShifted},
		"shifted around":                {uacp.Frame{ID: (1<<24 - 1 + 1_000_000) & (1<<24 - 1)}, 1<<24 - 1, uacp.MatchShifted},
		"of another":                    {uacp.Frame{ID: 43}, 42, uacp.MatchNone},
		"same id, names another":        {correlated("\x00\x00\x00\x2b", 42), 42, uacp.MatchNone},
		"a correlation beyond 24 bits":  {correlated("\x01\x00\x00\x2a", 42), 42, uacp.MatchID},
		"a correlation of two bytes":    {correlated("\x00\x2a", 42), 42, uacp.MatchID},
		"a correlation of five bytes":   {correlated("\x00\x00\x00\x00\x2a", 7), 42, uacp.MatchNone},
		"an empty correlation":          {correlated("", 42), 42, uacp.MatchID},
		"a shift that is not theirs":    {uacp.Frame{ID: 1_000_041}, 42, uacp.MatchNone},
		"zero":                          {uacp.Frame{}, 0, uacp.MatchID},
		"zero shifted":                  {uacp.Frame{ID: 1_000_000}, 0, uacp.MatchShifted},
		"correlation zero, id of other": {correlated("\x00\x00\x00\x00", 5), 0, uacp.MatchCorrelation},
	} {
		if got := tc.reply.Answers(tc.request); got != tc.want {
			t.Errorf("%s: got %d, want %d", name, got, tc.want)
		}
	}
}
