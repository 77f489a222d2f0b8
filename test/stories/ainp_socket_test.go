package stories

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/directory"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// TestAINPIntent_ProgressReachesEveryCaller: an AINP agent that works for long is seen at work by callers
// of A2A, MCP and AINP, each in its own way.
func TestAINPIntent_ProgressReachesEveryCaller(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	b.ScribeOverSocket(t, "slow")
	t.Run("A2A", func(t *testing.T) {
		got := b.Send(t, gatewaytest.HTTPRequest{At: "/agents/slow/a2a", Header: map[string]string{"A2A-Version": "1.0"}, Body: strings.Replace(gatewaytest.TextBody("write"), "SendMessage", "SendStreamingMessage", 1)})
		text := string(got.Body)
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
		got := b.Send(t, gatewaytest.HTTPRequest{At: "/agents/slow/a2a", Header: map[string]string{"A2A-Version": "1.0"}, Body: gatewaytest.TextBody("write")})
		if text := string(got.Body); !strings.Contains(text, "all of it") || !strings.Contains(text, "TASK_STATE_COMPLETED") {
			t.Errorf("got %s", text)
		}
	})
	t.Run("MCP", func(t *testing.T) {
		body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"message","arguments":{"message":"write"},` + strings.Replace(gatewaytest.ModernMeta, `"_meta":{`, `"_meta":{"progressToken":7,`, 1) + `}}`
		header := gatewaytest.Mirror("tools/call", "message")
		header["Accept"] = "application/json, text/event-stream"
		got := b.Send(t, gatewaytest.HTTPRequest{At: "/agents/slow/mcp", Header: header, Body: body})
		text := string(got.Body)
		for _, part := range []string{"notifications/progress", `"progressToken":7`, "half of it", "all of it"} {
			if !strings.Contains(text, part) {
				t.Errorf("%s is not told: %s", part, text)
			}
		}
	})
	t.Run("AINP", func(t *testing.T) {
		conn := b.Connect(t, "slow")
		id := gatewaytest.Tell(t, conn, gatewaytest.Did("alice"), gatewaytest.TextInvoke("write"))
		first, last := gatewaytest.Hear(t, conn), gatewaytest.Hear(t, conn)
		if first.Payload.Status != "partial" || string(first.Payload.Result) != `"half of it"` || first.Payload.Intent != id {
			t.Errorf("first %s", first.Raw)
		}
		if last.Payload.Status != "success" || string(last.Payload.Result) != `"all of it"` || last.Payload.Intent != id || len(last.Payload.AEPB.ECT) == 0 {
			t.Errorf("last %s", last.Raw)
		}
	})
}

// TestAINPIntent_ApprovalReachesTheCaller: what an AINP agent asks reaches its caller as input-required or
// as an ApprovalRequest, and the decision goes back.
func TestAINPIntent_ApprovalReachesTheCaller(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	b.ScribeOverSocket(t, "slow")
	t.Run("A2A", func(t *testing.T) {
		header := map[string]string{"A2A-Version": "1.0"}
		got := string(b.Send(t, gatewaytest.HTTPRequest{At: "/agents/slow/a2a", Header: header, Body: gatewaytest.TextBody("spend")}).Body)
		if !strings.Contains(got, "TASK_STATE_INPUT_REQUIRED") || !strings.Contains(got, "may I spend it?") || !strings.Contains(got, `"amount":5`) {
			t.Fatalf("it is not asked: %s", got)
		}
		id := regexp.MustCompile(`"task":\{"id":"([^"]+)"`).FindStringSubmatch(got)
		if id == nil {
			t.Fatalf("no task: %s", got)
		}
		answer := strings.Replace(gatewaytest.TextBody("approve"), `"role"`, `"taskId":"`+id[1]+`","role"`, 1)
		got = string(b.Send(t, gatewaytest.HTTPRequest{At: "/agents/slow/a2a", Header: header, Body: answer}).Body)
		if !strings.Contains(got, "TASK_STATE_COMPLETED") || !strings.Contains(got, `success {\"decision\":\"approve\"}`) {
			t.Errorf("the decision did not arrive: %s", got)
		}
	})
	t.Run("AINP", func(t *testing.T) {
		conn := b.Connect(t, "slow")
		gatewaytest.Tell(t, conn, gatewaytest.Did("alice"), gatewaytest.TextInvoke("spend"))
		if first := gatewaytest.Hear(t, conn); first.Payload.Status != "partial" {
			t.Errorf("first %s", first.Raw)
		}
		request := gatewaytest.Hear(t, conn)
		if request.Type != ainp.TypeIntent || request.Payload.Kind != "ApprovalRequest" || !strings.Contains(request.Raw, "may I spend it?") {
			t.Fatalf("it is not asked: %s", request.Raw)
		}
		id, err := json.Marshal(request.ID)
		gatewaytest.Must(t, err)
		wire, _, err := ainp.New(translators.Config{}).Encode(&canonical.Message{
			Op: canonical.OpAnswer, Phase: canonical.PhaseRequest, Correlation: canonical.Correlation{WireID: json.RawMessage(`"` + string(ect.NewRandomID()) + `"`)},
			Body: &canonical.Reply{ID: id, Answer: canonical.Answer{Action: canonical.Accept, Value: json.RawMessage(`{"decision":"reject"}`)}},
		}, translators.Target{Form: ainp.FormSocket, Stamp: translators.Addressing{From: gatewaytest.Did("alice").DID, At: time.Now()}})
		gatewaytest.Must(t, err)
		gatewaytest.Must(t, conn.Write(t.Context(), websocket.MessageText, gatewaytest.Signed(gatewaytest.Did("alice"), wire.Body, ainp.SigDraft)))
		if last := gatewaytest.Hear(t, conn); last.Payload.Status != "success" || !strings.Contains(last.Raw, `success {\"decision\":\"reject\"}`) {
			t.Errorf("the decision did not arrive: %s", last.Raw)
		}
	})
}

// TestAINPIntent_IsStoppedByTheCaller: a caller that goes away, or says so, stops the agent.
func TestAINPIntent_IsStoppedByTheCaller(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	scribe := b.ScribeOverSocket(t, "slow")
	gone := func(t *testing.T) {
		t.Helper()
		select {
		case <-scribe.Left:
		case <-time.After(gatewaytest.Patience):
			t.Error("the agent goes on")
		}
	}
	conn := b.Connect(t, "slow")
	id := gatewaytest.Tell(t, conn, gatewaytest.Did("alice"), gatewaytest.TextInvoke("forever"))
	gatewaytest.Hear(t, conn)
	wire, _, err := ainp.New(translators.Config{}).Encode(&canonical.Message{
		Op: canonical.OpAbort, Phase: canonical.PhaseRequest, Correlation: canonical.Correlation{WireID: json.RawMessage(`"` + string(ect.NewRandomID()) + `"`)},
		Body: &canonical.Abort{Request: json.RawMessage(`"` + id + `"`)},
	}, translators.Target{Form: ainp.FormSocket, Stamp: translators.Addressing{From: gatewaytest.Did("alice").DID, At: time.Now()}})
	gatewaytest.Must(t, err)
	gatewaytest.Must(t, conn.Write(t.Context(), websocket.MessageText, gatewaytest.Signed(gatewaytest.Did("alice"), wire.Body, ainp.SigDraft)))
	for range 2 {
		switch m := gatewaytest.Hear(t, conn); {
		case m.Payload.Intent == id && (m.Payload.Status != "failed" || !strings.Contains(m.Raw, "canceled")):
			t.Errorf("the end: %s", m.Raw)
		case m.Payload.Intent != id && m.Payload.Status != "success":
			t.Errorf("the acknowledgement: %s", m.Raw)
		}
	}
	gone(t)
	gatewaytest.Tell(t, conn, gatewaytest.Did("alice"), gatewaytest.TextInvoke("forever"))
	gatewaytest.Hear(t, conn)
	_ = conn.CloseNow()
	gone(t)
}

// TestAINPIntent_LostAgentIsReported: a caller hears that the agent was lost in the middle
// of its work.
func TestAINPIntent_LostAgentIsReported(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	b.ScribeOverSocket(t, "slow")
	conn := b.Connect(t, "slow")
	id := gatewaytest.Tell(t, conn, gatewaytest.Did("alice"), gatewaytest.TextInvoke("break off"))
	if half := gatewaytest.Hear(t, conn); half.Payload.Intent != id || half.Payload.Status != "partial" {
		t.Errorf("it begins with %s", half.Raw)
	}
	if end := gatewaytest.Hear(t, conn); end.Type != "ERROR" || end.Payload.Intent != id || end.Payload.Code == "" || len(end.Payload.AEPB.ECT) == 0 {
		t.Errorf("it ends with %s", end.Raw)
	}
}

// TestAINPSocket_SeveralIntentsToOtherProtocols: a connection that stays open serves several intents, to
// agents of other protocols too.
func TestAINPSocket_SeveralIntentsToOtherProtocols(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	conn := b.Connect(t, "calculator")
	for range 3 {
		id := gatewaytest.Tell(t, conn, gatewaytest.Did("alice"), gatewaytest.Addition(41))
		got := gatewaytest.Hear(t, conn)
		if got.Payload.Status != "success" || !strings.Contains(string(got.Payload.Result), "42") || got.Payload.Intent != id {
			t.Errorf("got %s", got.Raw)
		}
	}
}

// TestAINPStream_ThroughTwoGateways: what closes a stream travels in its last
// message, and the next gateway verifies it against what it heard.
func TestAINPStream_ThroughTwoGateways(t *testing.T) {
	t.Parallel()
	first := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	second := first.Beside(t, "gateway-2", config.Config{})
	second.ScribeOverSocket(t, "slow")
	calculator, _ := first.Directory().Find("calculator")
	gatewaytest.Must(t, second.Directory().Put(calculator))
	for _, agent := range []string{"slow", "calculator"} {
		first.ListAs(t, agent+"-there", second.Dev.Gateway.ID, directory.Endpoint{
			Binding: ainp.Binding, URL: "wss" + strings.TrimPrefix(second.At.Public, "https") + "/agents/" + agent + "/ainp",
		})
	}
	header := map[string]string{"A2A-Version": "1.0"}
	got := string(first.Send(t, gatewaytest.HTTPRequest{At: "/agents/slow-there/a2a", Header: header, Body: strings.Replace(gatewaytest.TextBody("write"), "SendMessage", "SendStreamingMessage", 1)}).Body)
	for _, part := range []string{"half of it", "all of it", "TASK_STATE_COMPLETED"} {
		if !strings.Contains(got, part) {
			t.Errorf("%s is not told: %s", part, got)
		}
	}
	for _, method := range []string{"SendMessage", "SendStreamingMessage"} {
		body := strings.Replace(gatewaytest.AddBody(41), "SendMessage", method, 1)
		if got := string(first.Send(t, gatewaytest.HTTPRequest{At: "/agents/calculator-there/a2a", Header: header, Body: body}).Body); !strings.Contains(got, "42") {
			t.Errorf("%s: got %s", method, got)
		}
	}
}
