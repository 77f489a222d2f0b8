package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/directory"
	tainp "github.com/aepb/aepb-gateway/gateway/transport/ainp"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// slowScribe is an AINP agent behind a WebSocket that says how it gets on, asks
// before it spends, and goes on until it is left. It knows nothing of gateways.
type slowScribe struct {
	who  tainp.Identity
	left chan struct{} // a caller went away in the middle of work
}

func (f *slowScribe) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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
		head, err := ainpHead(body)
		if err != nil || !holds(r.Context(), head, body, ainp.SigDraft) {
			return
		}
		if head.Kind == ainp.TypeDiscover {
			f.say(r.Context(), conn, head, "ADVERTISE", `{"capabilities":[{"description":"writes"}]}`)
			continue
		}
		f.work(r.Context(), conn, head, string(body))
	}
}

func (f *slowScribe) say(ctx context.Context, conn *websocket.Conn, to ainp.Head, kind, payload string) {
	at, err := json.Marshal(time.Now().UnixMilli())
	if err != nil {
		return
	}
	id := string(ect.NewID())
	_ = conn.Write(ctx, websocket.MessageText, signed(f.who, []byte(`{"version":"0.1.0","msg_type":"`+kind+`","id":"`+id+`","timestamp":`+string(at)+
		`,"ttl":60000,"trace_id":"`+to.Trace+`","from_did":"`+f.who.DID+`","to_did":"`+to.From+`","payload":`+payload+`}`), ainp.SigDraft))
}

func (f *slowScribe) work(ctx context.Context, conn *websocket.Conn, to ainp.Head, body string) {
	f.say(ctx, conn, to, "RESULT", `{"intent_id":"`+to.ID+`","status":"partial","result":"half of it"}`)
	final := `"all of it"`
	switch {
	case strings.Contains(body, "spend"):
		f.say(ctx, conn, to, "INTENT", `{"@type":"ApprovalRequest","version":"1.0.0","semantics":{"request_type":"spend","description":"may I spend it?","amount":5,"currency":"EUR"}}`)
		_, answer, err := conn.Read(ctx)
		if err != nil {
			return
		}
		var said struct {
			Payload struct {
				Status string          `json:"status"`
				Result json.RawMessage `json:"result"`
			} `json:"payload"`
		}
		_ = json.Unmarshal(answer, &said)
		quoted, err := json.Marshal(said.Payload.Status + " " + string(said.Payload.Result))
		if err != nil {
			return
		}
		final = string(quoted)
	case strings.Contains(body, "break off"):
		_ = conn.CloseNow()
		return
	case strings.Contains(body, "forever"):
		_, _, _ = conn.Read(ctx)
		f.left <- struct{}{}
		return
	}
	f.say(ctx, conn, to, "RESULT", `{"intent_id":"`+to.ID+`","status":"success","result":`+final+`}`)
}

// scribeOverSocket starts one and lists it.
func (b *bed) scribeOverSocket(t *testing.T, name string) *slowScribe {
	t.Helper()
	svid := b.svid(t, "/"+name)
	f := &slowScribe{who: did(name), left: make(chan struct{}, 1)}
	server := httptest.NewUnstartedServer(f)
	server.TLS = serving(svid)
	server.StartTLS()
	t.Cleanup(server.Close)
	b.listAs(t, name, svid.ID, directory.Endpoint{
		Binding: ainp.Binding, URL: "wss" + strings.TrimPrefix(server.URL, "https") + "/ainp", DID: f.who.DID,
	})
	return f
}

// connect opens the door's WebSocket for an agent.
func (b *bed) connect(t *testing.T, agent string) *websocket.Conn {
	t.Helper()
	conn, response, err := websocket.Dial(t.Context(), "wss"+strings.TrimPrefix(b.at.Public, "https")+"/agents/"+agent+"/ainp", &websocket.DialOptions{HTTPClient: b.client})
	if err != nil {
		t.Fatalf("no WebSocket: %v %v", err, response)
	}
	t.Cleanup(func() { _ = conn.CloseNow() })
	conn.SetReadLimit(4 << 20)
	return conn
}

// word is what was said over a WebSocket.
type word struct {
	raw     string
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

func hear(t *testing.T, conn *websocket.Conn) word {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, body, err := conn.Read(ctx)
	if err != nil {
		t.Fatalf("nothing is said: %v", err)
	}
	out := word{raw: string(body)}
	must(t, json.Unmarshal(body, &out))
	head, err := ainpHead(body)
	must(t, err)
	if !holds(t.Context(), head, body, ainp.SigDraft) {
		t.Errorf("the signature does not hold: %s", short(body))
	}
	return out
}

func tell(t *testing.T, conn *websocket.Conn, who tainp.Identity, invoke *canonical.Invoke) string {
	t.Helper()
	body := envelopeOf(t, who, invoke)
	head, err := ainpHead(body)
	must(t, err)
	must(t, conn.Write(t.Context(), websocket.MessageText, signed(who, body, ainp.SigDraft)))
	return head.ID
}

// TestALongIntent: an AINP agent that works for long is seen at work by callers
// of A2A, MCP and AINP, each in its own way.
func TestALongIntent(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	b.scribeOverSocket(t, "slow")
	t.Run("A2A", func(t *testing.T) {
		got := b.send(t, letter{at: "/agents/slow/a2a", header: map[string]string{"A2A-Version": "1.0"}, body: strings.Replace(textBody("write"), "SendMessage", "SendStreamingMessage", 1)})
		text := string(got.body)
		for _, part := range []string{`"task":{`, "half of it", "all of it", "TASK_STATE_COMPLETED"} {
			if !strings.Contains(text, part) {
				t.Errorf("%s is not told: %s", part, text)
			}
		}
		if strings.Index(text, "half of it") > strings.Index(text, "all of it") {
			t.Error("told in another order")
		}
	})
	t.Run("A2A, waiting", func(t *testing.T) {
		got := b.send(t, letter{at: "/agents/slow/a2a", header: map[string]string{"A2A-Version": "1.0"}, body: textBody("write")})
		if text := string(got.body); !strings.Contains(text, "all of it") || !strings.Contains(text, "TASK_STATE_COMPLETED") {
			t.Errorf("got %s", text)
		}
	})
	t.Run("MCP", func(t *testing.T) {
		body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"message","arguments":{"message":"write"},` + strings.Replace(modernMeta, `"_meta":{`, `"_meta":{"progressToken":7,`, 1) + `}}`
		header := mirror("tools/call", "message")
		header["Accept"] = "application/json, text/event-stream"
		got := b.send(t, letter{at: "/agents/slow/mcp", header: header, body: body})
		text := string(got.body)
		for _, part := range []string{"notifications/progress", `"progressToken":7`, "half of it", "all of it"} {
			if !strings.Contains(text, part) {
				t.Errorf("%s is not told: %s", part, text)
			}
		}
	})
	t.Run("AINP", func(t *testing.T) {
		conn := b.connect(t, "slow")
		id := tell(t, conn, did("alice"), telling("write"))
		first, last := hear(t, conn), hear(t, conn)
		if first.Payload.Status != "partial" || string(first.Payload.Result) != `"half of it"` || first.Payload.Intent != id {
			t.Errorf("first %s", first.raw)
		}
		if last.Payload.Status != "success" || string(last.Payload.Result) != `"all of it"` || last.Payload.Intent != id || len(last.Payload.AEPB.ECT) == 0 {
			t.Errorf("last %s", last.raw)
		}
	})
}

// TestApproval: what an AINP agent asks reaches its caller as input-required or
// as an ApprovalRequest, and the decision goes back.
func TestApproval(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	b.scribeOverSocket(t, "slow")
	t.Run("A2A", func(t *testing.T) {
		header := map[string]string{"A2A-Version": "1.0"}
		got := string(b.send(t, letter{at: "/agents/slow/a2a", header: header, body: textBody("spend")}).body)
		if !strings.Contains(got, "TASK_STATE_INPUT_REQUIRED") || !strings.Contains(got, "may I spend it?") || !strings.Contains(got, `"amount":5`) {
			t.Fatalf("it is not asked: %s", got)
		}
		id := regexp.MustCompile(`"task":\{"id":"([^"]+)"`).FindStringSubmatch(got)
		if id == nil {
			t.Fatalf("no task: %s", got)
		}
		answer := strings.Replace(textBody("approve"), `"role"`, `"taskId":"`+id[1]+`","role"`, 1)
		got = string(b.send(t, letter{at: "/agents/slow/a2a", header: header, body: answer}).body)
		if !strings.Contains(got, "TASK_STATE_COMPLETED") || !strings.Contains(got, `success {\"decision\":\"approve\"}`) {
			t.Errorf("the decision did not arrive: %s", got)
		}
	})
	t.Run("AINP", func(t *testing.T) {
		conn := b.connect(t, "slow")
		tell(t, conn, did("alice"), telling("spend"))
		if first := hear(t, conn); first.Payload.Status != "partial" {
			t.Errorf("first %s", first.raw)
		}
		asked := hear(t, conn)
		if asked.Type != ainp.TypeIntent || asked.Payload.Kind != "ApprovalRequest" || !strings.Contains(asked.raw, "may I spend it?") {
			t.Fatalf("it is not asked: %s", asked.raw)
		}
		id, err := json.Marshal(asked.ID)
		must(t, err)
		wire, _, err := ainp.New(translators.Config{}).Encode(&canonical.Message{
			Op: canonical.OpAnswer, Phase: canonical.PhaseRequest, Correlation: canonical.Correlation{WireID: json.RawMessage(`"` + string(ect.NewID()) + `"`)},
			Body: &canonical.Reply{ID: id, Answer: canonical.Answer{Action: canonical.Accept, Value: json.RawMessage(`{"decision":"reject"}`)}},
		}, translators.Target{Form: ainp.FormSocket, Stamp: translators.Addressing{From: did("alice").DID, At: time.Now()}})
		must(t, err)
		must(t, conn.Write(t.Context(), websocket.MessageText, signed(did("alice"), wire.Body, ainp.SigDraft)))
		if last := hear(t, conn); last.Payload.Status != "success" || !strings.Contains(last.raw, `success {\"decision\":\"reject\"}`) {
			t.Errorf("the decision did not arrive: %s", last.raw)
		}
	})
}

// TestAnIntentIsStopped: a caller that goes away, or says so, stops the agent.
func TestAnIntentIsStopped(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	scribe := b.scribeOverSocket(t, "slow")
	gone := func(t *testing.T) {
		t.Helper()
		select {
		case <-scribe.left:
		case <-time.After(patience):
			t.Error("the agent goes on")
		}
	}
	conn := b.connect(t, "slow")
	id := tell(t, conn, did("alice"), telling("forever"))
	hear(t, conn)
	wire, _, err := ainp.New(translators.Config{}).Encode(&canonical.Message{
		Op: canonical.OpAbort, Phase: canonical.PhaseRequest, Correlation: canonical.Correlation{WireID: json.RawMessage(`"` + string(ect.NewID()) + `"`)},
		Body: &canonical.Abort{Request: json.RawMessage(`"` + id + `"`)},
	}, translators.Target{Form: ainp.FormSocket, Stamp: translators.Addressing{From: did("alice").DID, At: time.Now()}})
	must(t, err)
	must(t, conn.Write(t.Context(), websocket.MessageText, signed(did("alice"), wire.Body, ainp.SigDraft)))
	for range 2 {
		switch m := hear(t, conn); {
		case m.Payload.Intent == id && (m.Payload.Status != "failed" || !strings.Contains(m.raw, "canceled")):
			t.Errorf("the end: %s", m.raw)
		case m.Payload.Intent != id && m.Payload.Status != "success":
			t.Errorf("the acknowledgement: %s", m.raw)
		}
	}
	gone(t)
	tell(t, conn, did("alice"), telling("forever"))
	hear(t, conn)
	_ = conn.CloseNow()
	gone(t)
}

// TestALongIntentThatBreaksOff: a caller hears that the agent was lost in the middle
// of its work.
func TestALongIntentThatBreaksOff(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	b.scribeOverSocket(t, "slow")
	conn := b.connect(t, "slow")
	id := tell(t, conn, did("alice"), telling("break off"))
	if half := hear(t, conn); half.Payload.Intent != id || half.Payload.Status != "partial" {
		t.Errorf("it begins with %s", half.raw)
	}
	if end := hear(t, conn); end.Type != "ERROR" || end.Payload.Intent != id || end.Payload.Code == "" || len(end.Payload.AEPB.ECT) == 0 {
		t.Errorf("it ends with %s", end.raw)
	}
}

// TestSocketToOthers: a connection that stays open serves several intents, to
// agents of other protocols too.
func TestSocketToOthers(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	conn := b.connect(t, "calculator")
	for range 3 {
		id := tell(t, conn, did("alice"), addition(41))
		got := hear(t, conn)
		if got.Payload.Status != "success" || !strings.Contains(string(got.Payload.Result), "42") || got.Payload.Intent != id {
			t.Errorf("got %s", got.raw)
		}
	}
}

// TestAStreamThroughTwoGateways: what closes a stream travels in its last
// message, and the next gateway verifies it against what it heard.
func TestAStreamThroughTwoGateways(t *testing.T) {
	t.Parallel()
	first := newBed(t, plan{})
	second := first.beside(t, "gateway-2", config.Config{})
	second.scribeOverSocket(t, "slow")
	calculator, _ := first.directory.Find("calculator")
	must(t, second.directory.Put(calculator))
	for _, agent := range []string{"slow", "calculator"} {
		first.listAs(t, agent+"-there", second.dev.Gateway.ID, directory.Endpoint{
			Binding: ainp.Binding, URL: "wss" + strings.TrimPrefix(second.at.Public, "https") + "/agents/" + agent + "/ainp",
		})
	}
	header := map[string]string{"A2A-Version": "1.0"}
	got := string(first.send(t, letter{at: "/agents/slow-there/a2a", header: header, body: strings.Replace(textBody("write"), "SendMessage", "SendStreamingMessage", 1)}).body)
	for _, part := range []string{"half of it", "all of it", "TASK_STATE_COMPLETED"} {
		if !strings.Contains(got, part) {
			t.Errorf("%s is not told: %s", part, got)
		}
	}
	for _, method := range []string{"SendMessage", "SendStreamingMessage"} {
		body := strings.Replace(addBody(41), "SendMessage", method, 1)
		if got := string(first.send(t, letter{at: "/agents/calculator-there/a2a", header: header, body: body}).body); !strings.Contains(got, "42") {
			t.Errorf("%s: got %s", method, got)
		}
	}
}
