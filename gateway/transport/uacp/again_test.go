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
	r := &handler{exchange: echo}
	l := connect(t, open(t, r, wire.Config{}))
	var request, answers [][]byte
	for id, text := range []string{"one", "two", "three"} {
		request = append(request, content(t, form.Frame{Verb: form.Ask, QoS: 1, ID: uint32(7 + id), Options: topic(form.TopicSend), Payload: []byte(text)}))
	}
	hear := func(body []byte) []byte {
		t.Helper()
		l.send(body)
		f, err := l.receive()
		if err != nil {
			t.Fatal(err)
		}
		return content(t, f)
	}
	for _, body := range request {
		answers = append(answers, hear(body))
	}
	for i, body := range request {
		if again := hear(body); !bytes.Equal(again, answers[i]) {
			t.Errorf("%d is answered with %x, and was with %x", i, again, answers[i])
		}
	}
	if n := len(r.seen()); n != len(request) {
		t.Errorf("%d went into the pipeline", n)
	}
}

// TestListener_RefusedNoticeIsNotAcknowledged is not acknowledged: it was not for whoever sent it
// to give. One that is taken is.
func TestListener_RefusedNoticeIsNotAcknowledged(t *testing.T) {
	t.Parallel()
	notice := form.Frame{Verb: form.Tell, QoS: 1, ID: 9, Options: topic("/weather"), Payload: []byte("rain")}
	for name, tc := range map[string]struct {
		handler *handler
		want    uint32 // the id of what is heard first
	}{
		"taken":   {&handler{}, 9},
		"refused": {&handler{refusal: &canonical.Error{Code: canonical.CodeForbidden, Message: "no"}}, 10},
	} {
		l := connect(t, open(t, tc.handler, wire.Config{InFlight: 1}))
		l.send(content(t, notice))
		l.send(content(t, form.Frame{ID: 10}))
		if got, err := l.receive(); err != nil || got.ID != tc.want {
			t.Errorf("%s: heard %+v first, %v", name, got, err)
		}
	}
}
