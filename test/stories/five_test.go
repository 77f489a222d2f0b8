package stories

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/directory"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// speech is a way to ask: one protocol in one version and form.
type speech struct {
	from, media string
	header      map[string]string
	add         func(n int64) string
	hash        translators.Hasher // of its messages; nil: the bytes
}

func speeches(t *testing.T) []speech {
	t.Helper()
	legacy := func(n int64) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":{"a":` + strconv.FormatInt(n, 10) + `,"b":1}}}`
	}
	old := func(n int64) string {
		return `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"kind":"message","messageId":"m","role":"user",` +
			`"parts":[{"kind":"data","data":{"skill":"add","input":{"a":` + strconv.FormatInt(n, 10) + `,"b":1}}}]}}}`
	}
	modern := func(n int64) string {
		return strings.Replace(legacy(n), `"b":1}}`, `"b":1},`+gatewaytest.ModernMeta+`}`, 1)
	}
	frames := uacp.New(translators.Config{})
	framed := func(carriage string) func(int64) string {
		return func(n int64) string { return string(gatewaytest.FrameOf(t, carriage, gatewaytest.Addition(n))) }
	}
	list := []speech{
		{from: "a2a-v1@1.0", add: gatewaytest.AddBody},
		{from: "a2a-v1@0.3", add: old},
		{from: "mcp-v1@2026-07-28", add: modern, header: gatewaytest.Mirror("tools/call", "add")},
		{from: "slim-v1", add: gatewaytest.AddBody},
		{from: "slim-v1@a2a-1.0", add: gatewaytest.AddBody},
		{from: "slim-v1", add: legacy},
		{from: "slim-v1@mcp-2026-07-28", add: modern},
		{from: "uacp-v1", media: uacp.Media, add: framed(uacp.FormEnveloped), hash: frames},
		{from: "uacp-v1", media: uacp.Media, add: framed(uacp.FormBare), hash: frames},
		{from: "ainp-v1", hash: ainp.New(translators.Config{}), add: func(n int64) string {
			who := gatewaytest.Did("alice")
			return string(gatewaytest.Signed(who, gatewaytest.EnvelopeOf(t, who, gatewaytest.Addition(n)), ainp.SigDraft))
		}},
	}
	for _, version := range []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"} {
		list = append(list, speech{from: "mcp-v1@" + version, add: legacy, header: map[string]string{"Mcp-Protocol-Version": version}})
	}
	return list
}

// TestPairs_AnswersAndEvidence: every protocol's callers reach every protocol's agents, and the
// evidence covers what was sent and what came back, byte by byte or, where it
// stands inside the message, in the form that it names (R5).
func TestPairs_AnswersAndEvidence(t *testing.T) {
	t.Parallel()
	b := gatewaytest.Five(t)
	for _, s := range speeches(t) {
		for _, dest := range []string{"calculator", "abacus", "beads", "scribe", "clerk", "sums", "adder"} {
			n := b.Number()
			if dest == "adder" { // its numbers are doubles
				n = 40
			}
			body := s.add(n)
			recipe := b.Recipe(body)
			content := translators.Wire{Body: []byte(body), Hasher: s.hash}.HashInput()
			recipe.Claims.OutputHash = ect.Hash(content)
			got := b.Send(t, gatewaytest.HTTPRequest{
				At: "/aepb/translate?from=" + s.from + "&dest=" + dest, Media: s.media, Header: s.header, Body: body,
				Tokens: []string{ecttest.Mint(t, b.Me, recipe)},
			})
			if got.Status != http.StatusOK || !strings.Contains(string(got.Body), strconv.FormatInt(n+1, 10)) {
				t.Errorf("%s to %s: got %d %s", s.from, dest, got.Status, gatewaytest.Short(got.Body))
				continue
			}
			directions := b.Proofs(t, got)
			if len(directions) != 2 {
				t.Errorf("%s to %s: %d ECTs", s.from, dest, len(directions))
				continue
			}
			home := translators.Wire{Body: got.Body, Hasher: s.hash}.HashInput()
			if directions[0].InputHash != ect.Hash(content) || directions[1].OutputHash != ect.Hash(home) || !slices.Contains(directions[1].Parents, directions[0].ID) {
				t.Errorf("%s to %s: the evidence is about something else", s.from, dest)
			}
			form, reported := directions[0].Ext.String(ect.ExtHashForm)
			if inside := s.hash != nil || !slices.Contains([]string{"calculator", "sums", "adder"}, dest); reported != inside || inside && form != translators.HashWithoutECT {
				t.Errorf("%s to %s: hash form %q", s.from, dest, form)
			}
		}
	}
}

// TestEnvelopeECT_ReachesTheAgent: an agent of these protocols finds our ECT, and those that
// came along, in the message itself, and its out_hash is that of what arrived.
func TestEnvelopeECT_ReachesTheAgent(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	arrived := make(chan []byte, 2)
	seen := func(body []byte) { arrived <- body }
	b.UACPAgent(t, "abacus", &gatewaytest.UACPFake{Seen: seen}, "")
	b.AINPAgent(t, "scribe", &gatewaytest.AINPFake{Seen: seen}, directory.Endpoint{})
	for dest, inside := range map[string]struct {
		tokens func([]byte) ([]string, error)
		hash   func([]byte) ([]byte, error)
	}{"abacus": {gatewaytest.UACPEvidence, uacp.HashInput}, "scribe": {gatewaytest.AINPEvidence, ainp.HashInput}} {
		const n = 40 // which a double holds, so that sorting is all that RFC 8785 does
		body := gatewaytest.AddBody(n)
		source := b.Token(t, body)
		got := b.Send(t, gatewaytest.HTTPRequest{At: "/aepb/translate?from=a2a-v1&dest=" + dest, Body: body, Tokens: []string{source}})
		b.Right(t, got, strconv.FormatInt(n+1, 10))
		var message []byte
		select {
		case message = <-arrived:
		case <-time.After(gatewaytest.Patience):
			t.Fatalf("%s: nothing has arrived", dest)
		}
		tokens, err := inside.tokens(message)
		gatewaytest.Must(t, err)
		ours := got.Header.Values(ect.HeaderName)[0]
		if len(tokens) != 2 || tokens[0] != ours || tokens[1] != source {
			t.Errorf("%s: it finds %d tokens, and not ours with the source's behind it", dest, len(tokens))
		}
		if !strings.Contains(string(message), `"ect":["`+ours) {
			t.Errorf("%s: ours is not the first in its slot", dest)
		}
		if notified := strings.Count(string(message), ours); dest == "scribe" && notified != 2 {
			t.Errorf("%s: ours stands in %d places, and not among the attestations too", dest, notified)
		}
		input, err := inside.hash(message)
		gatewaytest.Must(t, err)
		directions := b.Proofs(t, got)
		if directions[0].OutputHash != ect.Hash(input) {
			t.Errorf("%s: out_hash is not that of what arrived", dest)
		}
		if dest == "abacus" {
			f, err := uacp.ParseFrame(message)
			gatewaytest.Must(t, err)
			message = f.Payload
		}
		if directions[0].OutputHash != ect.Hash(withoutECT(t, message)) {
			t.Errorf("%s: out_hash is not that of the canonical form without its evidence", dest)
		}
	}
}

// withoutECT is the form of µACP's and AINP's messages that is hashed (R5), made
// without the codecs: RFC 8785 of a message without signature and tokens.
func withoutECT(t *testing.T, message []byte) []byte {
	t.Helper()
	var whole any
	decoder := json.NewDecoder(bytes.NewReader(message))
	decoder.UseNumber()
	gatewaytest.Must(t, decoder.Decode(&whole))
	top, _ := whole.(map[string]any)
	delete(top, "sig")
	payload, ok := top["payload"].(map[string]any)
	if !ok {
		payload = top
	}
	delete(payload, "attestations")
	if object, ok := payload["aepb"].(map[string]any); ok {
		delete(object, "ect")
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	gatewaytest.Must(t, encoder.Encode(whole)) // whose members are sorted
	return bytes.TrimSpace(out.Bytes())
}

// TestUACPCaller_NativeEndpoint and TestAINPCaller_NativeEndpoint: the native endpoints.
func TestUACPCaller_NativeEndpoint(t *testing.T) {
	t.Parallel()
	b := gatewaytest.Five(t)
	b.UACPAgent(t, "till.eu", &gatewaytest.UACPFake{}, uacp.FormEnveloped)
	for _, carriage := range []string{uacp.FormEnveloped, uacp.FormBare} {
		for _, dest := range []string{"calculator", "abacus", "till.eu", "beads", "scribe"} {
			n := b.Number()
			frame := gatewaytest.FrameOf(t, carriage, gatewaytest.Addition(n))
			reply := b.AskUACP(t, dest, frame)
			if !strings.Contains(string(reply), strconv.FormatInt(n+1, 10)) || uacp.FormOf(reply) != carriage {
				t.Errorf("%s, %s: got %q", dest, carriage, gatewaytest.Short(reply))
			}
			b.CoversUACP(t, reply, carriage)
		}
		reply := b.AskUACP(t, "concierge", gatewaytest.FrameOf(t, carriage, gatewaytest.TextInvoke("good day")))
		if !strings.Contains(string(reply), "You said: good day") {
			t.Errorf("concierge, %s: got %q", carriage, gatewaytest.Short(reply))
		}
	}
	b.Works(t)
}

func TestAINPCaller_NativeEndpoint(t *testing.T) {
	t.Parallel()
	b := gatewaytest.Five(t)
	alice := gatewaytest.Did("alice")
	for _, profile := range []ainp.SigProfile{ainp.SigDraft, ainp.SigRaw} {
		for _, dest := range []string{"calculator", "abacus", "beads", "scribe", "clerk"} {
			n := b.Number()
			got := b.Send(t, gatewaytest.HTTPRequest{At: "/agents/" + dest + "/ainp", Body: string(gatewaytest.Signed(alice, gatewaytest.EnvelopeOf(t, alice, gatewaytest.Addition(n)), profile))})
			b.Right(t, got, strconv.FormatInt(n+1, 10))
			tokens, err := gatewaytest.AINPEvidence(got.Body)
			gatewaytest.Must(t, err)
			input, err := ainp.HashInput(got.Body)
			gatewaytest.Must(t, err)
			b.CoversReply(t, tokens, input, true)
			if head, err := gatewaytest.AINPHead(got.Body); err != nil || head.To != alice.DID || head.From == "" || head.Sig == "" {
				t.Errorf("%s: the answer is from %q to %q, signed %t", dest, head.From, head.To, head.Sig != "")
			}
		}
		got := b.Send(t, gatewaytest.HTTPRequest{At: "/agents/concierge/ainp", Body: string(gatewaytest.Signed(alice, gatewaytest.EnvelopeOf(t, alice, gatewaytest.TextInvoke("good day")), profile))})
		b.Right(t, got, "You said: good day")
	}
	b.Works(t)
}

// TestEnvelopeECT_OfTheAgentBecomesParent: an ECT that an agent puts into its answer is
// judged by the answer without it, and becomes the parent of our reply's.
func TestEnvelopeECT_OfTheAgentBecomesParent(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	minted, directions, scribe := make(chan ect.ID, 1), make(chan ect.Claims, 1), b.Party(t, b.SVID(t, "/scribe"))
	b.AINPAgent(t, "scribe", &gatewaytest.AINPFake{Seen: func(body []byte) {
		if tokens, err := gatewaytest.AINPEvidence(body); err == nil && len(tokens) > 0 {
			if direction, _, err := ect.ParseUnverified(tokens[0]); err == nil {
				directions <- direction
			}
		}
	}, Spoil: func(good []byte) []byte {
		input, err := ainp.HashInput(good)
		if err != nil {
			return nil
		}
		recipe := b.Recipe("")
		recipe.Claims.OutputHash = ect.Hash(input)
		direction := <-directions
		recipe.Claims.Workflow, recipe.Claims.Parents = direction.Workflow, []ect.ID{direction.ID}
		token := ecttest.Mint(t, scribe, recipe)
		if claims, _, err := ect.ParseUnverified(token); err == nil {
			minted <- claims.ID
		}
		with, err := gatewaytest.AINPWithEvidence(good, []string{token})
		if err != nil {
			return nil
		}
		return gatewaytest.Signed(gatewaytest.Did("scribe"), with, ainp.SigDraft)
	}}, directory.Endpoint{})
	n := b.Number()
	got := b.Send(t, b.Sealed(t, gatewaytest.HTTPRequest{At: "/aepb/translate?from=a2a-v1&dest=scribe", Body: gatewaytest.AddBody(n)}))
	if got.Status != http.StatusOK {
		t.Fatalf("got %d %s", got.Status, gatewaytest.Short(got.Body))
	}
	if proofs := b.Proofs(t, got); len(proofs) != 2 || !slices.Equal(proofs[1].Parents, []ect.ID{<-minted, proofs[0].ID}) {
		t.Errorf("%d ECTs; the reply's parents are not the agent's and the request's", len(proofs))
	}
}
