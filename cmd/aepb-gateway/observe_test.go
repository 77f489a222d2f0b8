package main

import (
	"crypto/tls"
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/config"
	tuacp "github.com/aepb/aepb-gateway/gateway/transport/uacp"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// observing is an OBSERVE of a turn or a call.
func observing(t *testing.T, carriage string, invoke *canonical.Invoke) []byte {
	t.Helper()
	m := &canonical.Message{
		Op: canonical.OpInvoke, Phase: canonical.PhaseRequest, Body: invoke, Correlation: canonical.Correlation{WireID: json.RawMessage(`42`)},
	}
	m.Preferences.Stream = true
	wire, _, err := uacp.New(translators.Config{}).Encode(m, translators.Target{Form: carriage, Stream: true})
	must(t, err)
	return wire.Body
}

// watch reads an observation to its end.
func watch(t *testing.T, conn *tls.Conn) (events []*canonical.Event, hash ect.StreamHash, tokens []string, last uacp.Frame) {
	t.Helper()
	form := uacp.New(translators.Config{})
	for {
		body, err := readFrameOf(conn)
		must(t, err)
		f, err := uacp.ParseFrame(body)
		must(t, err)
		more, err := uacpEvidence(body)
		must(t, err)
		tokens = append(tokens, more...)
		mark := uacp.MarkOf(body)
		if mark == uacp.MarkOpen {
			continue
		}
		if mark != uacp.MarkEnd || uacp.FormOf(body) == uacp.FormBare {
			m, err := form.Decode(translators.Wire{Body: body, Re: canonical.OpInvoke, Event: true})
			must(t, err)
			if e, ok := m.Body.(*canonical.Event); ok {
				events = append(events, e)
			}
			input, err := uacp.HashInput(body)
			must(t, err)
			hash.Add(input)
		}
		if f.Verb != uacp.Tell {
			return events, hash, tokens, f
		}
	}
}

func wordsOf(events []*canonical.Event) (text string, state canonical.State) {
	var said []string
	add := func(parts []canonical.Part) {
		for _, p := range parts {
			said = append(said, p.Text, string(p.Data))
		}
	}
	for _, e := range events {
		switch {
		case e.Artifact != nil:
			add(e.Artifact.Artifact.Parts)
		case e.Turn != nil:
			add(e.Turn.Parts)
		case e.Status != nil:
			state = e.Status.State
			if e.Status.Message != nil {
				add(e.Status.Message.Parts)
			}
		case e.Task != nil:
			state = e.Task.Status.State
			for _, a := range e.Task.Artifacts {
				add(a.Parts)
			}
		}
	}
	return strings.Join(said, ""), state
}

// TestUACPCallersObserve: agents of every protocol are observed, and the
// evidence that closes the stream covers every event that was told.
func TestUACPCallersObserve(t *testing.T) {
	t.Parallel()
	b := five(t)
	for _, carriage := range []string{uacp.FormEnveloped, uacp.FormBare} {
		for dest, invoke := range map[string]*canonical.Invoke{
			"calculator": addition(41), "abacus": addition(41), "scribe": addition(41), "concierge": telling("good day"),
		} {
			conn := b.dialUACP(t, dest, b.dev.Client)
			must(t, writeFrameTo(conn, observing(t, carriage, invoke)))
			events, hash, tokens, last := watch(t, conn)
			text, state := wordsOf(events)
			want := "42"
			if dest == "concierge" {
				want = "You said: good day"
			}
			if !strings.Contains(text, want) || last.Verb != uacp.Observe || last.Code >= 0x40 || state != canonical.StateCompleted && state != "" {
				t.Errorf("%s, %s: heard %q, state %q, then %d/%x", dest, carriage, text, state, last.Verb, last.Code)
			}
			if carriage == uacp.FormBare || dest == "abacus" { // a relay of one answer has no stream
				continue
			}
			covered := false
			for _, compact := range tokens {
				v, err := b.judge.Verify(t.Context(), compact, ect.Check{Purpose: ect.Parent})
				must(t, err)
				state, _ := v.Extension(ect.ExtStream)
				covered = covered || state == "close" && v.Claims().OutputHash == hash.Sum()
			}
			if !covered {
				t.Errorf("%s: no token among %d closes what was told", dest, len(tokens))
			}
		}
	}
	b.works(t)
}

// TestUACPAgentsAreObserved: a caller's stream is what the agent tells, in
// either form of carriage.
func TestUACPAgentsAreObserved(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	b.uacpAgent(t, "abacus", &uacpFake{tells: []string{"first", "second"}}, "")
	b.uacpAgent(t, "beads", &uacpFake{tells: []string{"first", "second"}}, uacp.FormBare)
	for _, dest := range []string{"abacus", "beads"} {
		body := strings.Replace(addBody(1), "SendMessage", "SendStreamingMessage", 1)
		got := b.send(t, letter{at: "/agents/" + dest + "/a2a", body: body})
		text := string(got.body)
		if got.status != http.StatusOK || !strings.Contains(got.header.Get("Content-Type"), "text/event-stream") {
			t.Errorf("%s: got %d %s", dest, got.status, short(got.body))
		}
		first, second, end := strings.Index(text, "first"), strings.Index(text, "second"), strings.Index(text, "TASK_STATE_COMPLETED")
		if first < 0 || second < first || end < second {
			t.Errorf("%s: the stream is %s", dest, text)
		}
		got = b.send(t, letter{at: "/agents/" + dest + "/mcp", body: strings.Replace(callBody("add", ""), `{"message":""}`, `{"a":1,"b":2}`, 1), header: mirror("tools/call", "add")})
		if !strings.Contains(string(got.body), "first") || !strings.Contains(string(got.body), "second") {
			t.Errorf("%s, over MCP: got %d %s", dest, got.status, short(got.body))
		}
	}
	b.works(t)
}

// TestUACPDatagrams: a development gateway is asked, and observed, in datagrams.
func TestUACPDatagrams(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{config: config.Config{Listen: config.Listen{UACPUDP: "127.0.0.1:0", UACPAgent: "calculator"}}})
	conn, err := net.Dial("udp", b.at.UACP)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	must(t, conn.SetDeadline(time.Now().Add(patience)))
	hear := func() (uacp.Frame, []byte) {
		room := make([]byte, tuacp.MaxDatagram)
		n, err := conn.Read(room)
		must(t, err)
		f, err := uacp.ParseFrame(room[:n])
		must(t, err)
		return f, room[:n]
	}
	_, err = conn.Write(frameOf(t, uacp.FormEnveloped, addition(41)))
	must(t, err)
	if f, body := hear(); f.Code != 0 || !strings.Contains(string(body), "42") {
		t.Errorf("asked: %x %q", f.Code, short(body))
	}
	_, err = conn.Write(observing(t, uacp.FormBare, addition(42)))
	must(t, err)
	var heard strings.Builder
	for {
		f, body := hear()
		heard.Write(body)
		if f.Verb == uacp.Observe && f.Code != 2 {
			break
		}
		if f.Verb == uacp.Tell {
			ack, err := uacp.Ack(f).Bytes()
			must(t, err)
			_, err = conn.Write(ack)
			must(t, err)
		}
	}
	if !strings.Contains(heard.String(), "43") {
		t.Errorf("observed: %q", heard.String())
	}
}
