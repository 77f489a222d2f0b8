package uacp_test

import (
	"bytes"
	"testing"

	wire "github.com/aepb/aepb-gateway/gateway/transport/uacp"
	"github.com/aepb/aepb-gateway/translators/canonical"
	form "github.com/aepb/aepb-gateway/translators/uacp"
)

// TestListener_RepeatedFrameGetsItsFirstAnswer: what is said again is answered as it was,
// however much was said meanwhile, and is not done again.
func TestListener_RepeatedFrameGetsItsFirstAnswer(t *testing.T) {
	t.Parallel()
	r := &road{exchange: echo}
	l := connect(t, open(t, r, wire.Config{}))
	var asked, answers [][]byte
	for id, text := range []string{"one", "two", "three"} {
		asked = append(asked, octets(t, form.Frame{Verb: form.Ask, QoS: 1, ID: uint32(7 + id), Options: topic(form.TopicSend), Payload: []byte(text)}))
	}
	hear := func(body []byte) []byte {
		t.Helper()
		l.send(body)
		f, err := l.receive()
		if err != nil {
			t.Fatal(err)
		}
		return octets(t, f)
	}
	for _, body := range asked {
		answers = append(answers, hear(body))
	}
	for i, body := range asked {
		if again := hear(body); !bytes.Equal(again, answers[i]) {
			t.Errorf("%d is answered with %x, and was with %x", i, again, answers[i])
		}
	}
	if n := len(r.seen()); n != len(asked) {
		t.Errorf("%d went into the pipeline", n)
	}
}

// TestListener_RefusedNoticeIsNotAcknowledged is not acknowledged: it was not for whoever sent it
// to give. One that is taken is.
func TestListener_RefusedNoticeIsNotAcknowledged(t *testing.T) {
	t.Parallel()
	notice := form.Frame{Verb: form.Tell, QoS: 1, ID: 9, Options: topic("/weather"), Payload: []byte("rain")}
	for name, tc := range map[string]struct {
		road *road
		want uint32 // the id of what is heard first
	}{
		"taken":   {&road{}, 9},
		"refused": {&road{refusal: &canonical.Error{Code: canonical.CodeForbidden, Message: "no"}}, 10},
	} {
		l := connect(t, open(t, tc.road, wire.Config{InFlight: 1}))
		l.send(octets(t, notice))
		l.send(octets(t, form.Frame{ID: 10}))
		if got, err := l.receive(); err != nil || got.ID != tc.want {
			t.Errorf("%s: heard %+v first, %v", name, got, err)
		}
	}
}
