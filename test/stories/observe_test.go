package stories

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/config"
	tuacp "github.com/aepb/aepb-gateway/gateway/transport/uacp"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// TestUACPObserve_AgentsOfEveryProtocol: agents of every protocol are observed, and the
// evidence that closes the stream covers every event that was told.
func TestUACPObserve_AgentsOfEveryProtocol(t *testing.T) {
	t.Parallel()
	b := gatewaytest.Five(t)
	for _, carriage := range []string{uacp.FormEnveloped, uacp.FormBare} {
		for dest, invoke := range map[string]*canonical.Invoke{
			"calculator": gatewaytest.Addition(41), "abacus": gatewaytest.Addition(41), "scribe": gatewaytest.Addition(41), "concierge": gatewaytest.TextInvoke("good day"),
		} {
			conn := b.DialUACP(t, dest, b.Dev.Client)
			gatewaytest.Must(t, gatewaytest.WriteFrameTo(conn, gatewaytest.Observing(t, carriage, invoke)))
			events, hash, tokens, last := gatewaytest.Watch(t, conn)
			text, state := gatewaytest.WordsOf(events)
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
				v, err := b.Judge.Verify(t.Context(), compact, ect.Check{Purpose: ect.Parent})
				gatewaytest.Must(t, err)
				state, _ := v.Extension(ect.ExtStream)
				covered = covered || state == "close" && v.Claims().OutputHash == hash.Sum()
			}
			if !covered {
				t.Errorf("%s: no token among %d closes what was told", dest, len(tokens))
			}
		}
	}
	b.Works(t)
}

// TestUACPObserve_UACPAgents: a caller's stream is what the agent tells, in
// either form of carriage.
func TestUACPObserve_UACPAgents(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	b.UACPAgent(t, "abacus", &gatewaytest.UACPFake{Tells: []string{"first", "second"}}, "")
	b.UACPAgent(t, "beads", &gatewaytest.UACPFake{Tells: []string{"first", "second"}}, uacp.FormBare)
	for _, dest := range []string{"abacus", "beads"} {
		body := strings.Replace(gatewaytest.AddBody(1), "SendMessage", "SendStreamingMessage", 1)
		got := b.Send(t, gatewaytest.HTTPRequest{At: "/agents/" + dest + "/a2a", Body: body})
		text := string(got.Body)
		if got.Status != http.StatusOK || !strings.Contains(got.Header.Get("Content-Type"), "text/event-stream") {
			t.Errorf("%s: got %d %s", dest, got.Status, gatewaytest.Short(got.Body))
		}
		first, second, end := strings.Index(text, "first"), strings.Index(text, "second"), strings.Index(text, "TASK_STATE_COMPLETED")
		if first < 0 || second < first || end < second {
			t.Errorf("%s: the stream is %s", dest, text)
		}
		got = b.Send(t, gatewaytest.HTTPRequest{At: "/agents/" + dest + "/mcp", Body: strings.Replace(gatewaytest.CallBody("add", ""), `{"message":""}`, `{"a":1,"b":2}`, 1), Header: gatewaytest.Mirror("tools/call", "add")})
		if !strings.Contains(string(got.Body), "first") || !strings.Contains(string(got.Body), "second") {
			t.Errorf("%s, over MCP: got %d %s", dest, got.Status, gatewaytest.Short(got.Body))
		}
	}
	b.Works(t)
}

// TestUACPDatagrams_RequestAndObserve: a development gateway is asked, and observed, in datagrams.
func TestUACPDatagrams_RequestAndObserve(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: config.Config{Listen: config.Listen{UACPUDP: "127.0.0.1:0", UACPAgent: "calculator"}}})
	conn, err := net.Dial("udp", b.At.UACP)
	gatewaytest.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	gatewaytest.Must(t, conn.SetDeadline(time.Now().Add(gatewaytest.Patience)))
	hear := func() (uacp.Frame, []byte) {
		space := make([]byte, tuacp.MaxDatagram)
		n, err := conn.Read(space)
		gatewaytest.Must(t, err)
		f, err := uacp.ParseFrame(space[:n])
		gatewaytest.Must(t, err)
		return f, space[:n]
	}
	_, err = conn.Write(gatewaytest.FrameOf(t, uacp.FormEnveloped, gatewaytest.Addition(41)))
	gatewaytest.Must(t, err)
	if f, body := hear(); f.Code != 0 || !strings.Contains(string(body), "42") {
		t.Errorf("asked: %x %q", f.Code, gatewaytest.Short(body))
	}
	_, err = conn.Write(gatewaytest.Observing(t, uacp.FormBare, gatewaytest.Addition(42)))
	gatewaytest.Must(t, err)
	var received strings.Builder
	for {
		f, body := hear()
		received.Write(body)
		if f.Verb == uacp.Observe && f.Code != 2 {
			break
		}
		if f.Verb == uacp.Tell {
			ack, err := uacp.Ack(f).Bytes()
			gatewaytest.Must(t, err)
			_, err = conn.Write(ack)
			gatewaytest.Must(t, err)
		}
	}
	if !strings.Contains(received.String(), "43") {
		t.Errorf("observed: %q", received.String())
	}
}
