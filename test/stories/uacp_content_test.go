package stories

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// everyPart is a message of every kind of part (profile P1).
func everyPart() []canonical.Part {
	return []canonical.Part{
		{Kind: canonical.KindText, Text: "look at these"},
		{Kind: canonical.KindData, Data: json.RawMessage(`{"exact":9007199254740993,"list":[1.50,null]}`)},
		{Kind: canonical.KindFile, Bytes: []byte{0, 255, 16}, Media: "image/png", Name: "ü.png"},
		{Kind: canonical.KindRef, URI: "https://files.example/report.pdf", Media: "application/pdf"},
	}
}

const everyPartBody = `{"jsonrpc":"2.0","id":"p1","method":"SendMessage","params":{"message":{"messageId":"m1","role":"ROLE_USER","parts":[` +
	`{"text":"look at these"},{"data":{"exact":9007199254740993,"list":[1.50,null]}},` +
	`{"raw":"AP8Q","mediaType":"image/png","filename":"ü.png"},{"url":"https://files.example/report.pdf","mediaType":"application/pdf"}]}}}`

// turnOf is the parts that an agent heard.
func turnOf(t *testing.T, body []byte) []canonical.Part {
	t.Helper()
	m, err := uacp.New(translators.Config{}).Decode(translators.Wire{Body: body})
	gatewaytest.Must(t, err)
	answer, ok := m.Body.(*canonical.Invoke)
	if !ok {
		t.Fatalf("the agent heard %s", gatewaytest.Short(body))
	}
	return plainly(answer.Turn.Parts)
}

// plainly is parts without what a protocol says beside them.
func plainly(parts []canonical.Part) []canonical.Part {
	for i := range parts {
		parts[i].Extensions = nil
	}
	return parts
}

// TestUACP_MessagesWithFiles: a message with text, data, a file and the
// address of one arrives whole at a µACP agent, and from a µACP caller (profile
// P1); a bare agent is told nothing less, or nothing.
func TestUACP_MessagesWithFiles(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	bodies := make(chan []byte, 8)
	seen := func(body []byte) { bodies <- bytes.Clone(body) }
	b.UACPAgent(t, "abacus", &gatewaytest.UACPFake{Seen: seen}, uacp.FormEnveloped)
	b.UACPAgent(t, "beads", &gatewaytest.UACPFake{Seen: seen}, uacp.FormBare)

	if got := b.Send(t, gatewaytest.HTTPRequest{At: "/agents/abacus/a2a", Body: everyPartBody}); !strings.Contains(string(got.Body), "You said: look at these") {
		t.Fatalf("abacus: got %d %s", got.Status, gatewaytest.Short(got.Body))
	}
	if len(bodies) == 0 {
		t.Fatal("abacus heard nothing")
	}
	if diff := cmp.Diff(everyPart(), turnOf(t, <-bodies)); diff != "" {
		t.Errorf("a µACP agent heard (-said +heard):\n%s", diff)
	}

	turn := &canonical.Invoke{Turn: canonical.Content{ID: "m1", Role: canonical.RoleCaller, Parts: everyPart()}}
	reply := b.AskUACP(t, "concierge", gatewaytest.FrameOf(t, uacp.FormEnveloped, turn))
	var echo []canonical.Part // the official SDK's: a number is a float64 there
	for _, a := range taskOf(t, heard(t, reply, canonical.OpInvoke)).Artifacts {
		echo = append(echo, a.Parts...)
	}
	if len(echo) != 4 || echo[0].Text != "You said: look at these" || !strings.Contains(string(echo[1].Data), `"list":[1.5,null]`) {
		t.Fatalf("an A2A agent heard %s", gatewaytest.MustJSON(t, echo))
	}
	if diff := cmp.Diff(everyPart()[2:], plainly(echo[2:])); diff != "" {
		t.Errorf("of a µACP caller was heard (-said +heard):\n%s", diff)
	}

	files := strings.Replace(everyPartBody, `{"text":"look at these"},{"data":{"exact":9007199254740993,"list":[1.50,null]}},`, "", 1)
	got := b.Send(t, gatewaytest.HTTPRequest{At: "/agents/beads/a2a", Body: files})
	if !strings.Contains(string(got.Body), "-32005") || !strings.Contains(string(got.Body), "one text, one value or one file") || len(bodies) != 0 {
		t.Errorf("beads: got %d %s", got.Status, gatewaytest.Short(got.Body))
	}
	file := strings.Replace(files, `,{"url":"https://files.example/report.pdf","mediaType":"application/pdf"}`, "", 1)
	// A bare payload has no place for what a file is called and is.
	if got := b.Send(t, gatewaytest.HTTPRequest{At: "/agents/beads/a2a", Body: file}); !strings.Contains(string(got.Body), "L33") || len(bodies) != 0 {
		t.Errorf("beads, one file: got %d %s", got.Status, gatewaytest.Short(got.Body))
	}
	b.Works(t)
}
