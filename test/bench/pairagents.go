package main

import (
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"

	tuacp "github.com/aepb/aepb-gateway/gateway/transport/uacp"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// The agents of the pairs: everybody's echo. Those of µACP and AINP read and write
// with the codecs, which are tested against the known answers of the reference codes.

// echoes answers what is asked of one in the words of the codecs.
func echoes(m *canonical.Message) canonical.Body {
	echo := canonical.Capability{
		ID: "echo", Title: "Echo", Description: "Says the message back.", Profile: canonical.ProfileTyped,
		InputSchema: json.RawMessage(`{"type":"object","properties":{"message":{"type":"string"}},"required":["message"]}`),
	}
	switch body := m.Body.(type) {
	case *canonical.DescribeRequest:
		return &canonical.Description{Name: "echo", Version: "1", Capabilities: []canonical.Capability{echo}}
	case *canonical.Page:
		return &canonical.CapabilityList{Capabilities: []canonical.Capability{echo}}
	case *canonical.Invoke:
		var args struct{ Message string }
		if body.Call != nil && json.Unmarshal(body.Call.Args, &args) == nil {
			return &canonical.Result{Output: &canonical.Output{Parts: []canonical.Part{{Kind: canonical.KindText, Text: args.Message}}}}
		}
	}
	return &canonical.Error{Code: canonical.CodeNoMethod, Message: "only echo"}
}

// agents serve all protocols on one place each.
func (s script) agents() (http.Handler, framed) {
	v := newVoice(s.Seed)
	mux := http.NewServeMux()
	mux.HandleFunc("/mcp", serveTool)
	mux.HandleFunc("POST /a2a", func(w http.ResponseWriter, r *http.Request) { echoA2A(v.speak("a2a-v1"), w, r) })
	mux.HandleFunc("GET /a2a/.well-known/agent-card.json", func(w http.ResponseWriter, r *http.Request) { serveCard(w, "https://"+r.Host+"/a2a") })
	mux.HandleFunc("GET /.well-known/agent-card.json", func(w http.ResponseWriter, r *http.Request) { serveCard(w, "https://"+r.Host+"/a2a") })
	form := ainp.New(translators.Config{})
	mux.HandleFunc("POST /ainp", func(w http.ResponseWriter, r *http.Request) { v.echoAINP(form, w, r) }) //nolint:contextcheck // a did:key is resolved without a network
	frames := uacp.New(translators.Config{})
	return mux, func(_ string, body []byte) ([]byte, error) { return echoUACP(frames, body) }
}

func echoA2A(a words, w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	s, err := a.asked(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	setJSON(w.Header())
	_, _ = w.Write(a.reply(s))
}

func serveCard(w http.ResponseWriter, at string) {
	setJSON(w.Header())
	_ = json.NewEncoder(w).Encode(card(at, a2a.TransportProtocolJSONRPC))
}

// card is the agent's, in A2A.
func card(at string, by a2a.TransportProtocol) *a2a.AgentCard {
	return &a2a.AgentCard{
		Name: "Echo", Description: "Says the message back.", Version: "1.0.0",
		SupportedInterfaces: []*a2a.AgentInterface{a2a.NewAgentInterface(at, by)},
		DefaultInputModes:   []string{"application/json"}, DefaultOutputModes: []string{"text/plain"},
		Capabilities: a2a.AgentCapabilities{Extensions: []a2a.AgentExtension{{URI: "urn:aepb:translation:1", Params: map[string]any{"skills": map[string]any{
			"echo": map[string]any{"inputSchema": json.RawMessage(`{"type":"object","properties":{"message":{"type":"string"}},"required":["message"]}`)},
		}}}}},
		Skills: []a2a.AgentSkill{{ID: "echo", Name: "Echo", Description: "Says the message back.", Tags: []string{"echo"}}},
	}
}

// echoAINP answers an envelope. Whether its signature holds is judged by the gateway
// and the floor, which is what is compared; the agent verifies it as well.
func (v voice) echoAINP(form *ainp.Translator, w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	m, err := form.Decode(translators.Wire{Binding: ainp.Binding, Body: body})
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	head, err := headOf(body)
	if err == nil {
		err = v.holds(body)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}
	wire, _, err := form.Encode(&canonical.Message{
		Op: m.Op, Phase: canonical.PhaseResponse, Correlation: m.Correlation, Body: echoes(m),
	}, translators.Target{Stamp: translators.Addressing{From: v.did, To: head.From, At: time.Now()}})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	setJSON(w.Header())
	_, _ = w.Write(v.seal(wire.Body))
}

func echoUACP(form *uacp.Translator, body []byte) ([]byte, error) {
	m, err := form.Decode(translators.Wire{Binding: uacp.Binding, Body: body})
	if err != nil {
		return nil, err
	}
	reply := &canonical.Message{Op: m.Op, Phase: canonical.PhaseResponse, Correlation: m.Correlation, Body: echoes(m)}
	if _, failed := reply.Body.(*canonical.Error); failed {
		reply.Phase = canonical.PhaseError
	}
	wire, _, err := form.Encode(reply, translators.Target{Form: uacp.FormOf(body)})
	return wire.Body, err
}

// framed answers one frame of µACP; server is the name that its client called.
type framed func(server string, body []byte) ([]byte, error)

// serveFrames answers frames until the listener is closed, several connections at once.
func serveFrames(l net.Listener, conf *tls.Config, answer framed) {
	conf = conf.Clone()
	conf.NextProtos = []string{tuacp.Protocol}
	var group sync.WaitGroup
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	defer func() {
		mu.Lock()
		for conn := range open {
			_ = conn.Close()
		}
		mu.Unlock()
		group.Wait()
	}()
	for {
		plain, err := l.Accept()
		if err != nil {
			return
		}
		mu.Lock()
		open[plain] = true
		mu.Unlock()
		group.Go(func() {
			conn := tls.Server(plain, conf)
			defer func() {
				mu.Lock()
				delete(open, plain)
				mu.Unlock()
				_ = conn.Close()
			}()
			for {
				body, err := readFrame(conn)
				if err != nil {
					return
				}
				reply, err := answer(conn.ConnectionState().ServerName, body)
				if err != nil || writeFrame(conn, reply) != nil {
					return
				}
			}
		})
	}
}

var errFrame = errors.New("bench: a frame of more than 65535 bytes")

func readFrame(r io.Reader) ([]byte, error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	body := make([]byte, binary.BigEndian.Uint16(head[:]))
	_, err := io.ReadFull(r, body)
	return body, err
}

func writeFrame(w io.Writer, body []byte) error {
	if len(body) > 1<<16-1 {
		return errFrame
	}
	_, err := w.Write(append([]byte{byte(len(body) >> 8), byte(len(body))}, body...))
	return err
}

// headOf reads the head of an envelope.
func headOf(body []byte) (ainp.Head, error) {
	envelope, err := ainp.Open(body)
	if err != nil {
		return ainp.Head{}, err
	}
	return envelope.Head()
}
