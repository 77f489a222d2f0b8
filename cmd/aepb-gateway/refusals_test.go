package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/rpc"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// way says something at a door with the evidence that hash makes for it, and how
// the door answered: the HTTP status (0: it has none) and the text of the error in
// the protocol's own shape; "": it is none.
type way func(t *testing.T, evidence func(octets []byte) []string) (status int, told string)

// failed is the error of a reply in a form; "": it is another message.
func failed(t *testing.T, form translators.Translator, wire translators.Wire) string {
	t.Helper()
	wire.Re = canonical.OpInvoke
	m, err := form.Decode(wire)
	must(t, err)
	if told, ok := m.Body.(*canonical.Error); ok && m.Phase == canonical.PhaseError {
		return told.Message
	}
	return ""
}

// doors are the five protocols' doors, A2A's in both forms. who is the caller.
func (b *bed) doors(via *http.Client, frames func(*testing.T, []byte) []byte) map[string]way {
	overHTTP := func(l letter, told func([]byte) string) way {
		return func(t *testing.T, evidence func([]byte) []string) (int, string) {
			t.Helper()
			l.via, l.tokens = via, evidence([]byte(l.body))
			got := b.send(t, l)
			return got.status, told(got.body)
		}
	}
	jsonRPC := func(body []byte) string {
		var reply struct {
			JSONRPC string
			Error   struct{ Message string }
		}
		if json.Unmarshal(body, &reply) != nil || reply.JSONRPC != "2.0" {
			return ""
		}
		return reply.Error.Message
	}
	rest := func(body []byte) string {
		var reply struct {
			Error struct{ Message string }
		}
		_ = json.Unmarshal(body, &reply)
		return reply.Error.Message
	}
	alice := did("alice")
	return map[string]way{
		"a2a-v1":      overHTTP(letter{at: doorA2A, body: addBody(1)}, jsonRPC),
		"a2a-v1 REST": overHTTP(letter{at: doorA2A + "/v1/message:send", body: rest03}, rest),
		"mcp-v1":      overHTTP(letter{at: doorMCP, body: callBody("concierge", "x"), header: mirror("tools/call", "concierge")}, jsonRPC),
		"uacp-v1": func(t *testing.T, evidence func([]byte) []string) (int, string) {
			t.Helper()
			frame := frameOf(t, uacp.FormEnveloped, addition(1))
			input, err := uacp.HashInput(frame)
			must(t, err)
			frame, err = uacpWithEvidence(frame, evidence(input))
			must(t, err)
			return 0, failed(t, uacp.New(translators.Config{}), translators.Wire{Binding: uacp.Binding, Body: frames(t, frame)})
		},
		"ainp-v1": func(t *testing.T, evidence func([]byte) []string) (int, string) {
			t.Helper()
			body := envelopeOf(t, alice, addition(1))
			input, err := ainp.HashInput(body)
			must(t, err)
			if tokens := evidence(input); len(tokens) > 0 {
				body, err = ainpWithEvidence(body, tokens)
				must(t, err)
			}
			got := b.send(t, letter{via: via, at: "/agents/calculator/ainp", body: string(signed(alice, body, ""))})
			return got.status, failed(t, ainp.New(translators.Config{}), translators.Wire{Binding: ainp.Binding, Body: got.body})
		},
	}
}

// TestTooManyHopsAtEveryDoor: a message that would be translated once too often is
// refused at each door in the words of its protocol, and so is one that comes back
// to a gateway which has translated it (R1).
func TestTooManyHopsAtEveryDoor(t *testing.T) {
	t.Parallel()
	far := "spiffe://" + devTrustDomain + "/gateway-2"
	one := 1
	for name, p := range map[string]struct {
		hops  *int
		loops bool
		told  string
	}{
		"hops": {&one, false, "refused by constraint aepb.max_translation_hops"},
		"loop": {nil, true, "refused by constraint loop: this message has already passed this gateway"},
	} {
		plan := plan{config: config.Config{
			Policy: config.Policy{MaxHops: p.hops}, AINP: config.AINP{Callers: map[string]string{did("alice").DID: far}},
		}}
		net := newSLIMNet(t, &plan)
		plan.config.SLIM.Nodes[0].Caller = far
		b := newBed(t, plan)
		other := b.svid(t, "/gateway-2")
		gateway, us := b.party(t, other), b.party(t, b.dev.Gateway)
		evidence := func(octets []byte) []string {
			wid := string(ect.NewID())
			first := us
			if !p.loops {
				first = b.me // it was somebody else who translated first
			}
			ext := ect.Ext{}
			ext.SetString(ect.ExtLeg, "request")
			root := ecttest.Mint(t, first, ecttest.Recipe{Claims: ect.Claims{Act: ect.ActTranslate, Audience: []string{far, b.self()}, Workflow: wid, Ext: ext}})
			claims, _, err := ect.ParseUnverified(root)
			must(t, err)
			return []string{ecttest.Mint(t, gateway, ecttest.Recipe{Claims: ect.Claims{
				Act: ect.ActTranslate, Audience: []string{b.self()}, Workflow: wid, Parents: []ect.ID{claims.ID}, OutputHash: ect.Hash(octets), Ext: ext,
			}}), root}
		}
		frames := func(t *testing.T, frame []byte) []byte {
			t.Helper()
			conn := b.dialUACP(t, "calculator", other)
			must(t, writeFrameTo(conn, frame))
			reply, err := readFrameOf(conn)
			must(t, err)
			return reply
		}
		for door, say := range b.doors(b.caller(t, other), frames) {
			status, told := say(t, evidence)
			if !strings.HasSuffix(told, p.told) || status != 0 && status != http.StatusForbidden && status != http.StatusOK {
				t.Errorf("%s at %s: %d %q", name, door, status, told)
			}
		}
		caller := net.join(t, "org/agents/far", nil)
		net.exposed(t, caller, "calculator")
		body := inProtobuf(t, addBody(1))
		_, err := askSLIM(t, caller, "calculator", "SendMessage", body, map[string]string{"execution-context": strings.Join(evidence(body), ",")})
		var status *rpc.StatusError
		if !errors.As(err, &status) || status.Code != 7 || // PERMISSION_DENIED
			!strings.HasSuffix(status.Message, p.told) {
			t.Errorf("%s at slim-v1: %v", name, err)
		}
		b.works(t)
	}
}
