package gateway_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/lifecycle/compensation"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
	"github.com/aepb/aepb-gateway/translators/rollback"
)

// hotel is an MCP server that knows nothing of rollbacks.
type hotel struct {
	mu     sync.Mutex
	serial int
	booked map[string]string // guests by the id of their booking
	calls  []string          // tool and arguments
	fail   func(tool string) error
	twice  bool                     // what is canceled can be canceled again
	hold   map[string]chan struct{} // tools that wait for it
}

// undoRules say how the hotel's tools are undone.
func undoRules(t testing.TB) directory.Undo {
	t.Helper()
	rule, err := compensation.ParseRule(json.RawMessage(`{"tool":"cancel_booking","arguments":{"id":{"result":"/id"},"guest":{"call":"/guest"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	rename, err := compensation.ParseRule(json.RawMessage(`{"before":{"tool":"get_booking","arguments":{"id":{"call":"/id"}}},"tool":"rename_guest","arguments":{"id":{"call":"/id"},"guest":{"before":"/guest"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	return directory.Undo{ReadOnly: []string{"get_booking"}, Compensate: map[string]compensation.Rule{"create_booking": rule, "rename_guest": rename}}
}

func (h *hotel) call(tool string, args json.RawMessage) (string, error) {
	if hold := h.hold[tool]; hold != nil {
		<-hold
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, tool+" "+string(args))
	if h.fail != nil {
		if err := h.fail(tool); err != nil {
			return "", err
		}
	}
	var in struct{ ID, Guest string }
	if err := json.Unmarshal(args, &in); err != nil {
		return "", err
	}
	result := func(v any) (string, error) {
		text, err := json.Marshal(v)
		return fmt.Sprintf(`{"resultType":"complete","content":[{"type":"text","text":%s}],"structuredContent":%s}`, strconv.Quote(string(text)), text), err
	}
	failed := `{"resultType":"complete","isError":true,"content":[{"type":"text","text":"no"}]}`
	switch _, there := h.booked[in.ID]; {
	case tool == "create_booking":
		h.serial++
		id := "b" + strconv.Itoa(h.serial)
		h.booked[id] = in.Guest
		return result(map[string]string{"id": id})
	case tool == "send_mail":
		return result(map[string]string{"sent": "yes"})
	case tool == "get_booking" && there:
		return result(map[string]string{"guest": h.booked[in.ID]})
	case tool == "rename_guest" && there:
		h.booked[in.ID] = in.Guest
		return result(map[string]bool{"ok": true})
	case tool == "cancel_booking" && (there || h.twice):
		delete(h.booked, in.ID)
		return result(map[string]bool{"ok": true})
	}
	return failed, nil
}

// guests is what is booked.
func (h *hotel) guests() map[string]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.booked)
}

// called are the calls so far.
func (h *hotel) called() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.calls)
}

func (h *hotel) count(tool string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.calls {
		if len(c) > len(tool) && c[:len(tool)] == tool {
			n++
		}
	}
	return n
}

// bookingGateway is a bed whose agent is a hotel.
type bookingGateway struct {
	*fixture
	hotel *hotel
	wid   string
	last  ect.ID // what the next call names as its parent
}

func newBookings(t testing.TB, settings gateway.Settings, edits ...func(*gateway.Deps)) *bookingGateway {
	t.Helper()
	b := &bookingGateway{hotel: &hotel{booked: map[string]string{}}}
	b.fixture = newFixture(t, settings, policy.Rules{Open: true}, append(edits, func(d *gateway.Deps) {
		agent, _ := d.Directory.Find("calculator")
		agent.Undo = undoRules(t)
		if err := d.Directory.Put(agent); err != nil {
			t.Fatal(err)
		}
		d.Network.Rollbacks = map[canonical.Binding]transport.Dialer{mcp.Binding: nil, a2a.Binding: nil}
	})...)
	b.agent.called = b.hotel.call
	for _, tool := range []string{"create_booking", "cancel_booking", "get_booking", "rename_guest", "send_mail", "pay"} {
		b.agent.more = append(b.agent.more, canonical.Capability{ID: tool, Profile: canonical.ProfileTyped, InputSchema: json.RawMessage(`{"type":"object"}`)})
	}
	return b
}

// opened begins a workflow.
func (b *bookingGateway) opened(t *testing.T) *bookingGateway {
	t.Helper()
	wid, start := b.begin(t)
	b.wid, b.last = wid, start.ID
	return b
}

// does has the caller call a tool, after what it did before, and returns the checkpoint of the call.
func (b *bookingGateway) does(t *testing.T, tool, input string) ect.Claims {
	t.Helper()
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":"SendMessage","params":{"message":{"messageId":%q,"role":"ROLE_USER","parts":[{"data":{"skill":%q,"input":%s}}]}}}`, ect.NewID(), tool, input)
	call := b.call(body)
	call.Parent = string(b.last)
	answer, err := b.Exchange(t.Context(), call)
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	var made ect.Claims
	for _, compact := range answer.Evidence {
		c := claims(t, compact)
		b.last = c.ID
		if c.Act == ect.ActCheckpoint {
			made = c
		}
	}
	return made
}

// request signs a rollback request to a checkpoint.
func (b *bookingGateway) request(t *testing.T, who *ecttest.Party, to ect.ID, cascade bool) string {
	t.Helper()
	ext := ect.Ext{}
	ext.SetString(ect.ExtATDReason, "the trip is off")
	ext.SetBool(ect.ExtCascade, cascade)
	token, err := who.Signer(t, func() time.Time { return b.now() }).Sign(ect.Claims{
		Audience: []string{string(b.self.ID)}, Workflow: b.wid, Act: ect.ActRollbackRequest, Parents: []ect.ID{to}, Ext: ext,
	})
	if err != nil {
		t.Fatal(err)
	}
	return token.Compact()
}

// rollBack posts a rollback request.
func (b *bookingGateway) rollBack(t *testing.T, who *ecttest.Party, token string) (transport.Answer, error) {
	t.Helper()
	caller := identity.Caller{Peer: who.Peer()}
	pass, err := b.Limit(t.Context(), transport.CallInfo{Caller: caller, Address: "127.0.0.1"})
	if err != nil {
		return transport.Answer{}, err
	}
	return b.Parts().Rollbacks.Rollback(t.Context(), transport.Call{
		Caller: caller, Address: "127.0.0.1", Evidence: []string{token}, Pass: pass,
		Wire: translators.Wire{
			Form: rollback.Name, Media: rollback.Media, Header: http.Header{rollback.Field: {token}}, Verb: http.MethodPost, Path: rollback.Path,
		},
	}, token)
}

// undoes rolls back and returns the result.
func (b *bookingGateway) undoes(t *testing.T, to ect.ID, cascade bool) ect.Claims {
	t.Helper()
	answer, err := b.rollBack(t, b.caller, b.request(t, b.caller, to, cascade))
	if err != nil {
		t.Fatal(err)
	}
	return claims(t, answer.Wire().Header.Get(rollback.Field))
}

// TestRollback_CompensatesInReverse: a booking is made and changed over an MCP server that knows nothing of rollbacks, a
// later step fails, and a rollback to the first checkpoint undoes both in reverse order, each once, and says so in a
// token that names the checkpoint (ATD, Basic Rollback; R22).
func TestRollback_CompensatesInReverse(t *testing.T) {
	t.Parallel()
	b := newBookings(t, gateway.Settings{}).opened(t)
	first := b.does(t, "create_booking", `{"guest":"Ada"}`)
	second := b.does(t, "rename_guest", `{"id":"b1","guest":"Grace"}`)
	failed := b.does(t, "pay", `{"amount":100}`)
	if first.Act == "" || second.Act == "" || failed.Act == "" {
		t.Fatalf("the checkpoints are %v, %v, %v", first.ID, second.ID, failed.ID)
	}
	if b.hotel.booked["b1"] != "Grace" {
		t.Fatalf("booked is %v", b.hotel.booked)
	}
	result := b.undoes(t, first.ID, true)
	status, _ := result.Ext.String(ect.ExtStatus)
	of, _ := result.Ext.String(ect.ExtCheckpointID)
	if result.Act != ect.ActRollbackResult || status != "completed" || of != string(first.ID) || result.OutputHash == "" || string(result.Ext[ect.ExtCascaded]) != `[{"agent":"calculator","status":"completed"},{"agent":"calculator","status":"completed"}]` {
		t.Errorf("the result is %+v", result)
	}
	if len(b.hotel.booked) != 0 {
		t.Errorf("booked is %v", b.hotel.booked)
	}
	want := []string{
		`create_booking {"guest":"Ada"}`, `get_booking {"id":"b1"}`, `rename_guest {"id":"b1","guest":"Grace"}`, `pay {"amount":100}`,
		`rename_guest {"guest":"Ada","id":"b1"}`, `cancel_booking {"guest":"Ada","id":"b1"}`,
	}
	if !slices.Equal(b.hotel.calls, want) {
		t.Errorf("the agent got\n%q, expected\n%q", b.hotel.calls, want)
	}
}

// statusOf is the status of a rollback result.
func statusOf(result ect.Claims) string {
	status, _ := result.Ext.String(ect.ExtStatus)
	return status
}

// TestRollback_AgentThatStreams: an agent that logs in a stream before each reply is undone as any other: what its calls returned, and what was
// read before them, comes from the replies in the streams.
func TestRollback_AgentThatStreams(t *testing.T) {
	t.Parallel()
	b := newBookings(t, gateway.Settings{}).opened(t)
	b.agent.stream = func(reply translators.Wire) transport.Events {
		log := translators.Wire{Media: reply.Media, Body: []byte(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"slow"}}`)}
		return &events{left: []transport.Event{{Wire: log}, {Wire: reply}}, end: io.EOF}
	}
	first := b.does(t, "create_booking", `{"guest":"Ada"}`)
	b.does(t, "rename_guest", `{"id":"b1","guest":"Grace"}`)
	if result := b.undoes(t, first.ID, true); statusOf(result) != "completed" || len(b.hotel.booked) != 0 {
		t.Errorf("the result is %+v, booked is %v", result, b.hotel.booked)
	}
	if renamed := `rename_guest {"guest":"Ada","id":"b1"}`; !slices.Contains(b.hotel.calls, renamed) {
		t.Errorf("the agent got %q, expected %q among them", b.hotel.calls, renamed)
	}
}
