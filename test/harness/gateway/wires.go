package gatewaytest

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/directory"
	tainp "github.com/aepb/aepb-gateway/gateway/transport/ainp"
	"github.com/aepb/aepb-gateway/test/harness/grpctest"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
	"github.com/aepb/aepb-gateway/translators/slim"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// Remote is a caller over gRPC, as the development client or with other settings.
func (b *Fixture) Remote(t *testing.T, conf *tls.Config) *grpctest.Caller {
	t.Helper()
	return grpctest.New(t, b.RPC, conf)
}

// Request serialises a request for an agent.
func Request(t *testing.T, method, text string) []byte {
	t.Helper()
	return grpctest.Request(t, method, text)
}

// MessageTo is a text to an agent, in JSON.
func MessageTo(agent, text string) string {
	return `{"tenant":"` + agent + `","message":{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"` + text + `"}]}}`
}

// AddTo is a message of A2A over gRPC, in JSON, that asks the calculator for 41 + 1.
const AddTo = `{"tenant":"calculator","message":{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"` + Secret + `"},{"data":{"skill":"add","input":{"a":41,"b":1}}}]}}`

// What tests ask of a body or a frame.

func ainpOpened[T any](body []byte, read func(ainp.Envelope) (T, error)) (out T, err error) {
	envelope, err := ainp.Open(body)
	if err != nil {
		return out, err
	}
	return read(envelope)
}

// AINPHead is the head of an envelope. The error says why it cannot be read.
func AINPHead(body []byte) (ainp.Head, error) { return ainpOpened(body, ainp.Envelope.Head) }

// AINPEvidence is the tokens inside an envelope, newest first. The error says why it cannot be read.
func AINPEvidence(body []byte) ([]string, error) { return ainpOpened(body, ainp.Envelope.Evidence) }

// AINPWithEvidence is an envelope with other tokens inside, which is not signed anew. The error says why it cannot be
// read.
func AINPWithEvidence(body []byte, tokens []string) ([]byte, error) {
	return ainpOpened(body, func(e ainp.Envelope) ([]byte, error) { return e.WithEvidence(tokens, "") })
}

func uacpOpened[T any](frame []byte, read func(uacp.Opened) (T, error)) (out T, err error) {
	opened, err := uacp.Open(frame)
	if err != nil {
		return out, err
	}
	return read(opened)
}

// UACPEvidence is the tokens inside a frame, newest first. The error says why it cannot be read.
func UACPEvidence(frame []byte) ([]string, error) { return uacpOpened(frame, uacp.Opened.Evidence) }

// UACPWithEvidence is a frame with other tokens inside. The error says why it cannot be read, or has no place for them.
func UACPWithEvidence(frame []byte, tokens []string) ([]byte, error) {
	return uacpOpened(frame, func(o uacp.Opened) ([]byte, error) { return o.WithEvidence(tokens) })
}

const jobID = "job/1"

// Job is the only task of a µACP agent, which is done as soon as it is observed.
type Job struct {
	mu         sync.Mutex
	state      canonical.State
	note       string
	operations []canonical.Op
}

// answerTo is what the agent answers; other: to what is not about the job.
func (j *Job) answerTo(m *canonical.Message, other canonical.Body) canonical.Body {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.operations = append(j.operations, m.Op)
	switch body := m.Body.(type) {
	case *canonical.Invoke:
		j.state = canonical.StateWorking
	case *canonical.TaskQuery:
		if body.ID != jobID {
			return &canonical.Error{Code: canonical.CodeTaskNotFound, Message: "no such job"}
		}
		if m.Op == canonical.OpTaskCancel {
			j.state = canonical.StateCanceled
		}
	default:
		return other
	}
	task := &canonical.Task{ID: jobID, Status: canonical.Status{State: j.state}}
	if j.note != "" {
		task.Artifacts = []canonical.Artifact{{ID: "note", Parts: []canonical.Part{{Kind: canonical.KindText, Text: j.note}}}}
	}
	return &canonical.Result{Task: task}
}

// observed: whoever observes that hears of events, to the end of the work.
func (j *Job) observed(topic string) bool {
	if j == nil {
		return true
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if topic != uacp.TopicTask+jobID {
		return false
	}
	j.state = canonical.StateCompleted
	return true
}

// Notes gives the job an artifact of one text.
func (j *Job) Notes(text string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.note = text
}

// Was reports whether the agent was asked for an operation.
func (j *Job) Was(op canonical.Op) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Contains(j.operations, op)
}

// MustJSON is a value in JSON. One that has none ends the test.
func MustJSON(t *testing.T, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	Must(t, err)
	return raw
}

// UACPRequest is a request in µACP.
func UACPRequest(t *testing.T, op canonical.Op, task string, body canonical.Body) []byte {
	t.Helper()
	m := &canonical.Message{Op: op, Phase: canonical.PhaseRequest, Body: body, Correlation: canonical.Correlation{WireID: json.RawMessage(`42`)}}
	m.Conversation.TaskID = task
	wire, _, err := uacp.New(translators.Config{}).Encode(m, translators.Target{Form: uacp.FormEnveloped})
	Must(t, err)
	return wire.Body
}

// Traits is what a side can do, as its translator says; what only its way of
// carriage decides is said here.
type Traits struct {
	Side

	Words                canonical.Binding
	Asks                 translators.Asking
	tasks                translators.Tasking
	Shape                translators.Streams // of its words
	Streams              bool                // more than one message answers a request
	Callbacks, Decisions bool
	Toy, Bare            bool
}

// TraitsOf is what a side can do whose translator is form.
func TraitsOf(s Side, form translators.Translator) *Traits {
	n := &Traits{Side: s, Words: s.Words(form), Shape: translators.StreamsOf(form, s.version), Toy: s.Binding == ToyBinding, Bare: s.Form == uacp.FormBare}
	if asker, ok := form.(translators.InputStyler); ok {
		n.Asks = asker.Asks(s.version, s.Form)
	}
	if tasker, ok := form.(translators.TaskStyler); ok {
		n.tasks = tasker.Tasks(s.version)
	}
	if signaler, ok := form.(translators.Signaler); ok {
		at := translators.Target{Version: s.version, Form: s.Form}
		n.Callbacks, n.Decisions = signaler.Signals(canonical.OpInvoke, at), signaler.Signals(canonical.OpDecision, at)
	}
	post, session := s.Binding == ainp.Binding && s.Form == "", s.Binding == slim.Binding && s.Form == ""
	n.Streams = n.Shape != translators.StreamsNone && !post && !session && !n.Bare
	if post { // nobody keeps a connection to be asked on
		n.Asks = translators.AskNone
	}
	return n
}

// Plain: A2A's JSON-RPC in a plain session of SLIM.
func (n *Traits) Plain() bool {
	return n.Binding == slim.Binding && n.Words == a2a.Binding && n.Form == ""
}

// WithinAINP reports whether caller and agent both speak AINP.
func WithinAINP(from, to *Traits) bool {
	return from.Binding == ainp.Binding && to.Binding == ainp.Binding
}

// WithoutTasks: the agent is a server of MCP that has no tasks for such clients.
func WithoutTasks(from, to *Traits) bool {
	return from.Words == mcp.Binding && from.Binding == to.Binding && to.Words == from.Words && to.tasks == translators.TaskingNone
}

// SlowScribe is an AINP agent behind a WebSocket that says how it gets on, asks
// before it spends, and goes on until it is left. It knows nothing of gateways.
type SlowScribe struct {
	who  tainp.Identity
	Left chan struct{} // a caller went away in the middle of work
}

// ServeHTTP accepts a WebSocket and answers what comes over it, until it is closed or something comes that its sender
// has not signed.
func (f *SlowScribe) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer func() { _ = conn.CloseNow() }()
	for {
		_, body, err := conn.Read(r.Context())
		if err != nil {
			return
		}
		head, err := AINPHead(body)
		if err != nil || !Holds(r.Context(), head, body, ainp.SigDraft) {
			return
		}
		if head.Kind == ainp.TypeDiscover {
			f.say(r.Context(), conn, head, "ADVERTISE", `{"capabilities":[{"description":"writes"}]}`)
			continue
		}
		f.work(r.Context(), conn, head, string(body))
	}
}

func (f *SlowScribe) say(ctx context.Context, conn *websocket.Conn, to ainp.Head, kind, payload string) {
	at, err := json.Marshal(time.Now().UnixMilli())
	if err != nil {
		return
	}
	id := string(ect.NewRandomID())
	_ = conn.Write(ctx, websocket.MessageText, Signed(f.who, []byte(`{"version":"0.1.0","msg_type":"`+kind+`","id":"`+id+`","timestamp":`+string(at)+
		`,"ttl":60000,"trace_id":"`+to.Trace+`","from_did":"`+f.who.DID+`","to_did":"`+to.From+`","payload":`+payload+`}`), ainp.SigDraft))
}

func (f *SlowScribe) work(ctx context.Context, conn *websocket.Conn, to ainp.Head, body string) {
	f.say(ctx, conn, to, "RESULT", `{"intent_id":"`+to.ID+`","status":"partial","result":"half of it"}`)
	final := `"all of it"`
	switch {
	case strings.Contains(body, "spend"):
		f.say(ctx, conn, to, "INTENT", `{"@type":"ApprovalRequest","version":"1.0.0","semantics":{"request_type":"spend","description":"may I spend it?","amount":5,"currency":"EUR"}}`)
		_, answer, err := conn.Read(ctx)
		if err != nil {
			return
		}
		var reply struct {
			Payload struct {
				Status string          `json:"status"`
				Result json.RawMessage `json:"result"`
			} `json:"payload"`
		}
		_ = json.Unmarshal(answer, &reply)
		quoted, err := json.Marshal(reply.Payload.Status + " " + string(reply.Payload.Result))
		if err != nil {
			return
		}
		final = string(quoted)
	case strings.Contains(body, "break off"):
		_ = conn.CloseNow()
		return
	case strings.Contains(body, "forever"):
		_, _, _ = conn.Read(ctx)
		f.Left <- struct{}{}
		return
	}
	f.say(ctx, conn, to, "RESULT", `{"intent_id":"`+to.ID+`","status":"success","result":`+final+`}`)
}

// ScribeOverSocket starts one and lists it.
func (b *Fixture) ScribeOverSocket(t *testing.T, name string) *SlowScribe {
	t.Helper()
	svid := b.SVID(t, "/"+name)
	f := &SlowScribe{who: Did(name), Left: make(chan struct{}, 1)}
	server := httptest.NewUnstartedServer(f)
	server.TLS = Serving(svid)
	server.StartTLS()
	t.Cleanup(server.Close)
	b.ListAs(t, name, svid.ID, directory.Endpoint{
		Binding: ainp.Binding, URL: "wss" + strings.TrimPrefix(server.URL, "https") + "/ainp", DID: f.who.DID,
	})
	return f
}

// Connect opens the WebSocket of the endpoint for an agent.
func (b *Fixture) Connect(t *testing.T, agent string) *websocket.Conn {
	t.Helper()
	conn, response, err := websocket.Dial(t.Context(), "wss"+strings.TrimPrefix(b.At.Public, "https")+"/agents/"+agent+"/ainp", &websocket.DialOptions{HTTPClient: b.Client})
	if err != nil {
		t.Fatalf("no WebSocket: %v %v", err, response)
	}
	t.Cleanup(func() { _ = conn.CloseNow() })
	conn.SetReadLimit(4 << 20)
	return conn
}

// Word is what was said over a WebSocket.
type Word struct {
	Raw     string
	Type    string `json:"msg_type"`
	ID      string `json:"id"`
	Trace   string `json:"trace_id"`
	Payload struct {
		Kind   string          `json:"@type"`
		Intent string          `json:"intent_id"`
		Status string          `json:"status"`
		Code   string          `json:"error_code"`
		Result json.RawMessage `json:"result"`
		AEPB   struct {
			ECT []string `json:"ect"`
		} `json:"aepb"`
	} `json:"payload"`
}

// Hear reads the next envelope of a WebSocket, for which it waits [Patience]. The test ends if there is none; a
// signature that does not hold is an error of the test, which goes on.
func Hear(t *testing.T, conn *websocket.Conn) Word {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	_, body, err := conn.Read(ctx)
	if err != nil {
		t.Fatalf("nothing is said: %v", err)
	}
	out := Word{Raw: string(body)}
	Must(t, json.Unmarshal(body, &out))
	head, err := AINPHead(body)
	Must(t, err)
	if !Holds(t.Context(), head, body, ainp.SigDraft) {
		t.Errorf("the signature does not hold: %s", Short(body))
	}
	return out
}

// Tell sends a signed invocation over a WebSocket and returns the id of its envelope. An error ends the test.
func Tell(t *testing.T, conn *websocket.Conn, who tainp.Identity, invoke *canonical.Invoke) string {
	t.Helper()
	body := EnvelopeOf(t, who, invoke)
	head, err := AINPHead(body)
	Must(t, err)
	Must(t, conn.Write(t.Context(), websocket.MessageText, Signed(who, body, ainp.SigDraft)))
	return head.ID
}

// Observing is an OBSERVE of a turn or a call.
func Observing(t *testing.T, carriage string, invoke *canonical.Invoke) []byte {
	t.Helper()
	m := &canonical.Message{
		Op: canonical.OpInvoke, Phase: canonical.PhaseRequest, Body: invoke, Correlation: canonical.Correlation{WireID: json.RawMessage(`42`)},
	}
	m.Preferences.Stream = true
	wire, _, err := uacp.New(translators.Config{}).Encode(m, translators.Target{Form: carriage, Stream: true})
	Must(t, err)
	return wire.Body
}

// Watch reads an observation to its end.
func Watch(t *testing.T, conn *tls.Conn) (events []*canonical.Event, hash ect.StreamHash, tokens []string, last uacp.Frame) {
	t.Helper()
	form := uacp.New(translators.Config{})
	for {
		body, err := ReadFrameOf(conn)
		Must(t, err)
		f, err := uacp.ParseFrame(body)
		Must(t, err)
		more, err := UACPEvidence(body)
		Must(t, err)
		tokens = append(tokens, more...)
		mark := uacp.MarkOf(body)
		if mark == uacp.MarkOpen {
			continue
		}
		if mark != uacp.MarkEnd || uacp.FormOf(body) == uacp.FormBare {
			m, err := form.Decode(translators.Wire{Body: body, Re: canonical.OpInvoke, Event: true})
			Must(t, err)
			if e, ok := m.Body.(*canonical.Event); ok {
				events = append(events, e)
			}
			input, err := uacp.HashInput(body)
			Must(t, err)
			hash.Add(input)
		}
		if f.Verb != uacp.Tell {
			return events, hash, tokens, f
		}
	}
}

// WordsOf are the texts and data of events, one behind the other, and the last state that one of them says.
func WordsOf(events []*canonical.Event) (text string, state canonical.State) {
	var texts []string
	add := func(parts []canonical.Part) {
		for _, p := range parts {
			texts = append(texts, p.Text, string(p.Data))
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
	return strings.Join(texts, ""), state
}
