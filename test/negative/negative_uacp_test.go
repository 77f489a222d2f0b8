package negative

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	tuacp "github.com/aepb/aepb-gateway/gateway/transport/uacp"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// hung is the outcome of what cannot be answered: it has no id that could be.
const hung = -1

// uacpRefusal is a frame that is refused, and the status that says so.
type uacpRefusal struct {
	name  string
	agent string // "": calculator
	frame func(t *testing.T, b *gatewaytest.Fixture) []byte
	code  int // of the reply; hung: the connection ends
}

// ask is an ASK of a topic with a payload, id 42.
func ask(topic string, kind uint32, payload string) func(*testing.T, *gatewaytest.Fixture) []byte {
	return func(t *testing.T, _ *gatewaytest.Fixture) []byte {
		t.Helper()
		f := uacp.Frame{Verb: uacp.Ask, QoS: 1, ID: 42, Payload: []byte(payload), Options: []uacp.Option{
			{Type: uacp.OptTopic, Value: []byte(topic)}, {Type: uacp.OptContentType, Value: binary.BigEndian.AppendUint32(nil, kind)},
		}}
		data, err := f.Bytes()
		gatewaytest.Must(t, err)
		return data
	}
}

func digits(text string) func(*testing.T, *gatewaytest.Fixture) []byte {
	return func(t *testing.T, _ *gatewaytest.Fixture) []byte {
		t.Helper()
		data, err := hex.DecodeString(text)
		gatewaytest.Must(t, err)
		return data
	}
}

// withTokens is a good frame with tokens inside.
func withTokens(tokens ...string) func(*testing.T, *gatewaytest.Fixture) []byte {
	return func(t *testing.T, b *gatewaytest.Fixture) []byte {
		t.Helper()
		out, err := gatewaytest.UACPWithEvidence(gatewaytest.Good(uacp.FormEnveloped)(t, b), tokens)
		gatewaytest.Must(t, err)
		return out
	}
}

func uacpRefusals() []uacpRefusal {
	const asJSON, asText = 1, 3
	call := func(text string) func(*testing.T, *gatewaytest.Fixture) []byte {
		return ask(uacp.TopicCall, asJSON, text)
	}
	return []uacpRefusal{
		{name: "one byte", frame: digits("40"), code: hung},
		{name: "the other uACP", frame: digits("010000002a0000018bcfe5680000066e6f64652d3100000000"), code: hung},
		{name: "HTTP", frame: func(*testing.T, *gatewaytest.Fixture) []byte { return []byte("GET / HTTP/1.1\r\n\r\n") }, code: hung},
		{name: "OBSERVE of what is not there", frame: digits("740000001c0400000308616c657274732f23"), code: 0x43},
		{name: "exactly once", frame: digits("680000001c000000"), code: 0x81},
		{name: "a rollback by what is no token", frame: ask(uacp.TopicRollback, asText, "x.y.z"), code: 0x42},
		{name: "a rollback by a token for something else", frame: func(t *testing.T, b *gatewaytest.Fixture) []byte {
			t.Helper()
			return ask(uacp.TopicRollback, asText, b.Token(t, ""))(t, b)
		}, code: 0x42},
		{name: "a decision about nothing", frame: ask(uacp.TopicDecision, asText, "x.y.z"), code: 0x44},
		{name: "a callback that may not be called", frame: ask(uacp.TopicCall, asJSON,
			`{"body":{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":{"a":1,"b":2}}},"aepb":{"hitl_callback":"gopher://x"}}`), code: 0x42},
		{name: "a call that is no JSON", frame: call("hello"), code: 0x40},
		{name: "no such tool", frame: call(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"fly","arguments":{}}}`), code: 0x43},
		{name: "words for an agent with several tools", frame: ask(uacp.TopicSend, asText, "hello"), code: 0x40},
		{name: "a text that is no UTF-8", frame: ask(uacp.TopicSend, asText, "\xff\xfe"), code: 0x40},
		{name: "no such agent", agent: "nobody", frame: gatewaytest.Good(uacp.FormBare), code: 0x43},
		{name: "no such agent, enveloped", agent: "nobody", frame: gatewaytest.Good(uacp.FormEnveloped), code: 0x43},
		{name: "an agent for others", agent: "closed", frame: gatewaytest.Good(uacp.FormBare), code: 0x42},
		{name: "an agent that wants an ECT", agent: "strict", frame: gatewaytest.Good(uacp.FormEnveloped), code: 0x42},
		{name: "and has no place for one", agent: "strict", frame: gatewaytest.Good(uacp.FormBare), code: 0x42},
		{name: "an ECT that is none", frame: withTokens("x.y.z"), code: 0x42},
		{name: "an ECT of another message", frame: func(t *testing.T, b *gatewaytest.Fixture) []byte {
			t.Helper()
			return withTokens(b.Token(t, "another"))(t, b)
		}, code: 0x42},
	}
}

// TestUACPListener_Refuses: each refusal by its status, and good calls work afterwards.
func TestUACPListener_Refuses(t *testing.T) {
	t.Parallel()
	b := shared()
	t.Run("refused", func(t *testing.T) {
		for _, c := range uacpRefusals() {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				if c.agent == "" {
					c.agent = "calculator"
				}
				conn := b.DialUACP(t, c.agent, b.Dev.Client)
				gatewaytest.Must(t, gatewaytest.WriteFrameTo(conn, c.frame(t, b)))
				reply, err := gatewaytest.ReadFrameOf(conn)
				if c.code == hung {
					if err == nil {
						t.Errorf("got %x, want nothing", reply)
					}
					return
				}
				gatewaytest.Must(t, err)
				f, err := uacp.ParseFrame(reply)
				gatewaytest.Must(t, err)
				if int(f.Code) != c.code {
					t.Errorf("got %02x, want %02x: %s", f.Code, c.code, f.Payload)
				}
				if bytes.Contains(reply, []byte(gatewaytest.Secret)) {
					t.Error("the refusal quotes the message")
				}
			})
		}
	})
	t.Run("good calls afterwards", func(t *testing.T) {
		n := b.Number()
		if reply := b.AskUACP(t, "calculator", gatewaytest.FrameOf(t, uacp.FormBare, gatewaytest.Addition(n))); !strings.Contains(string(reply), strconv.FormatInt(n+1, 10)) {
			t.Errorf("got %q", gatewaytest.Short(reply))
		}
		b.Works(t)
	})
}

// TestUACPListener_Handshake: TLS 1.3 and the name of the framing, or nothing; and in
// production a certificate.
func TestUACPListener_Handshake(t *testing.T) {
	t.Parallel()
	b := sharedServe()
	for name, change := range map[string]func(*tls.Config){
		"TLS 1.2":          func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS12, tls.VersionTLS12 },
		"another protocol": func(c *tls.Config) { c.NextProtos = []string{"h2"} },
	} {
		conf := b.ClientTLS(t, b.Dev.Client)
		conf.NextProtos, conf.ServerName = []string{tuacp.Protocol}, "127.0.0.1"
		change(conf)
		if conn, err := tls.Dial("tcp", strings.TrimPrefix(b.At.UACP, "uacps://"), conf); err == nil {
			_ = conn.Close()
			t.Errorf("%s: the handshake held", name)
		}
	}
	conn := b.DialUACP(t, "calculator", nil) // in TLS 1.3 the client hears of a failure only when it reads
	if reply, err := gatewaytest.ReadFrameOf(conn); err == nil || !strings.Contains(err.Error(), "certificate required") {
		t.Errorf("without a certificate: got %x, %v, want a handshake that fails", reply, err)
	}
}

// TestUACPListener_SourceEvidence: a µACP caller brings its ECT in the envelope, and it
// is judged by the envelope without it.
func TestUACPListener_SourceEvidence(t *testing.T) {
	t.Parallel()
	b := shared()
	n := b.Number()
	frame := gatewaytest.FrameOf(t, uacp.FormEnveloped, gatewaytest.Addition(n))
	input, err := uacp.HashInput(frame)
	gatewaytest.Must(t, err)
	recipe := b.Recipe("")
	recipe.Claims.OutputHash = ect.Hash(input)
	frame, err = gatewaytest.UACPWithEvidence(frame, []string{ecttest.Mint(t, b.Me, recipe)})
	gatewaytest.Must(t, err)
	for range 2 { // the second gets the answer that was kept (R6)
		reply := b.AskUACP(t, "strict", frame)
		if !strings.Contains(string(reply), strconv.FormatInt(n+1, 10)) {
			t.Fatalf("got %q", gatewaytest.Short(reply))
		}
		b.CoversUACP(t, reply, uacp.FormEnveloped)
	}
}

// TestUACPAgent_InvalidAnswers: what an agent answers that is no answer.
func TestUACPAgent_InvalidAnswers(t *testing.T) {
	t.Parallel()
	b := shared()
	raw := func(text string) gatewaytest.Spoil {
		return func([]byte) []byte {
			data, err := hex.DecodeString(text)
			if err != nil {
				return nil
			}
			return data
		}
	}
	change := func(edit func(*uacp.Frame)) gatewaytest.Spoil {
		return func(good []byte) []byte {
			f, err := uacp.ParseFrame(good)
			if err != nil {
				return nil
			}
			edit(&f)
			data, err := f.Bytes()
			if err != nil {
				return nil
			}
			return data
		}
	}
	payload := func(text string) gatewaytest.Spoil { return change(func(f *uacp.Frame) { f.Payload = []byte(text) }) }
	token := ecttest.Mint(t, b.Me, b.Recipe("another body"))
	bad := gatewaytest.Want{Status: http.StatusBadGateway, Code: "bad_upstream_reply", Proof: "internal_error"}
	gone := gatewaytest.Want{Status: http.StatusBadGateway, Code: "upstream_unreachable", Proof: "internal_error"}
	for name, c := range map[string]struct {
		spoil gatewaytest.Spoil
		want  gatewaytest.Want
	}{
		"one byte":                  {raw("40"), bad},
		"hangs up":                  {func([]byte) []byte { return nil }, gone},
		"no JSON":                   {payload("hello"), bad},
		"evidence of another shape": {payload(`{"body":{"jsonrpc":"2.0","id":1,"result":{"content":[]}},"aepb":{"ect":7}}`), bad},
		"evidence of another body": {func(good []byte) []byte {
			out, err := gatewaytest.UACPWithEvidence(good, []string{token})
			if err != nil {
				return nil
			}
			return out
		}, bad},
		"evidence that is none": {func(good []byte) []byte {
			out, err := gatewaytest.UACPWithEvidence(good, []string{"x.y.z"})
			if err != nil {
				return nil
			}
			return out
		}, bad},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			agent := "odd-" + strings.ReplaceAll(strings.ToLower(name), " ", "-")
			b.UACPAgent(t, agent, &gatewaytest.UACPFake{Spoil: c.spoil}, "")
			body := gatewaytest.AddBody(b.Number())
			l := gatewaytest.HTTPRequest{At: "/aepb/translate?from=a2a-v1&dest=" + agent, Body: body, Tokens: []string{b.Token(t, body)}}
			b.Refused(t, l, b.Send(t, l), c.want)
		})
	}
}

// TestUACPListener_HalfFramesBlockOnlyTheirSender: whoever sends half a frame and waits holds up
// nobody but himself.
func TestUACPListener_HalfFramesBlockOnlyTheirSender(t *testing.T) {
	t.Parallel()
	b := shared()
	for range 20 {
		conn := b.DialUACP(t, "calculator", b.Dev.Client)
		_, err := conn.Write([]byte{0xff, 0xff, 0x40})
		gatewaytest.Must(t, err)
	}
	reply := b.AskUACP(t, "calculator", gatewaytest.FrameOf(t, uacp.FormBare, gatewaytest.Addition(1)))
	if !strings.Contains(string(reply), "2") {
		t.Errorf("got %q", gatewaytest.Short(reply))
	}
}
