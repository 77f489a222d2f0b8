package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/httpapi"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// A protocol that nobody speaks: {"id":1,"say":"…"} is answered with
// {"id":1,"said":"…"} or {"id":1,"sorry":"…"}. It is all in this file, and the
// gateway learns of it by the one line that names speakToy.
const toyBinding canonical.Binding = "toy-v1"

type toyWords struct {
	ID    json.RawMessage `json:"id"`
	Say   string          `json:"say,omitempty"`
	Said  string          `json:"said,omitempty"`
	Sorry string          `json:"sorry,omitempty"`
}

type toyForm struct{}

func (toyForm) Info() translators.Info {
	return translators.Info{
		Binding: toyBinding, Name: "Toy", Versions: []string{"1"}, Media: []string{"application/json"}, BodyLimit: 1 << 16, Depth: 8,
	}
}

func (toyForm) Decode(w translators.Wire) (*canonical.Message, error) {
	var said toyWords
	if json.Unmarshal(w.Body, &said) != nil || said.ID == nil {
		return nil, &translators.MalformedError{Reason: "no words"}
	}
	m := &canonical.Message{
		Op: canonical.OpInvoke, Phase: canonical.PhaseRequest, Correlation: canonical.Correlation{WireID: said.ID},
		Origin: canonical.Origin{Binding: toyBinding, Version: "1", Raw: w.Body},
	}
	part := func(text string) []canonical.Part { return []canonical.Part{{Kind: canonical.KindText, Text: text}} }
	switch {
	case w.Re == "":
		m.Body = &canonical.Invoke{Turn: canonical.Content{Role: canonical.RoleCaller, Parts: part(said.Say)}}
	case said.Sorry != "":
		m.Phase, m.Body = canonical.PhaseError, &canonical.Error{Code: canonical.CodeInternal, Message: said.Sorry}
	default:
		m.Phase, m.Body = canonical.PhaseResponse, &canonical.Result{Output: &canonical.Output{Parts: part(said.Said)}}
	}
	return m, nil
}

func (toyForm) Encode(m *canonical.Message, _ translators.Target) (translators.Wire, []canonical.Loss, error) {
	var losses []canonical.Loss
	words := func(parts []canonical.Part) string {
		var out []string
		for _, p := range parts {
			if p.Kind != canonical.KindText && p.Kind != canonical.KindData {
				losses = append(losses, canonical.Loss{Code: canonical.LossContent, Path: "/body", Fate: canonical.Dropped})
			}
			out = append(out, p.Text+string(p.Data))
		}
		return strings.Join(out, " ")
	}
	said := toyWords{ID: m.Correlation.WireID}
	switch body := m.Body.(type) {
	case *canonical.Invoke:
		said.Say = words(body.Turn.Parts)
		if body.Call != nil {
			said.Say = toyCall(body.Call.Args)
		}
	case *canonical.Result:
		said.Said, said.Sorry = toyResult(body, words)
	case *canonical.Error:
		said.Sorry = body.Message
	default:
		return translators.Wire{}, nil, &canonical.Error{Code: canonical.CodeUnsupportedOp, Message: "no words for that"}
	}
	text, err := json.Marshal(said)
	return translators.Wire{Binding: toyBinding, Version: "1", Media: "application/json", Body: text}, losses, err
}

// toyCall is the words of a call for words, else its arguments.
func toyCall(args json.RawMessage) string {
	var words struct{ Message string }
	if json.Unmarshal(args, &words) == nil && words.Message != "" {
		return words.Message
	}
	return string(args)
}

// toyResult is what came of it, or that nothing did.
func toyResult(r *canonical.Result, words func([]canonical.Part) string) (said, sorry string) {
	failed := false
	if r.Task != nil {
		failed = r.Task.Status.State == canonical.StateFailed
		if r.Task.Status.Message != nil {
			said = words(r.Task.Status.Message.Parts)
		}
		var all strings.Builder
		for _, a := range r.Task.Artifacts {
			all.WriteString(words(a.Parts))
		}
		said += all.String()
	}
	if r.Turn != nil {
		said = words(r.Turn.Parts)
	}
	if r.Output != nil {
		said, failed = words(r.Output.Parts)+string(r.Output.Structured), r.Output.Failed
	}
	if failed {
		return "", said
	}
	return said, ""
}

type toyDialer struct{ guard *egress.Guard }

func (d toyDialer) Dial(ctx context.Context, ep transport.Endpoint, sealed transport.Sealed) (transport.Reply, error) {
	wire, tokens, err := sealed.Open()
	if err != nil {
		return transport.Reply{}, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, ep.URL, bytes.NewReader(wire.Body))
	if err != nil {
		return transport.Reply{}, err
	}
	request.Header[ect.HeaderName] = tokens
	response, err := d.guard.DoAs(request, ep.ID)
	if err != nil {
		return transport.Reply{}, &transport.UnreachableError{Agent: ep.Agent, Err: err}
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<16))
	return transport.Reply{Wire: translators.Wire{Binding: toyBinding, Body: body}}, err
}

func (d toyDialer) Describe(_ context.Context, ep transport.Endpoint) (*canonical.Description, transport.Endpoint, error) {
	ep.Version = "1"
	return &canonical.Description{Name: "toy", Capabilities: []canonical.Capability{{ID: "play", Profile: canonical.ProfileMessage}}}, ep, nil
}

func toyDoor(road transport.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pass, err := road.Limit(r.Context(), transport.CallInfoFrom(r.Context(), r.PathValue("agent"), toyBinding))
		if err != nil {
			problem.Write(w, r, err)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<16))
		if err != nil {
			problem.Write(w, r, err)
			return
		}
		answer, err := road.Exchange(r.Context(), transport.Call{
			Agent: r.PathValue("agent"), Wire: translators.Wire{Binding: toyBinding, Body: body}, Pass: pass,
			Caller: transport.CallerFrom(r.Context()), Address: transport.AddressFrom(r.Context()),
		})
		for _, token := range answer.Evidence {
			w.Header().Add(ect.HeaderName, token)
		}
		if err != nil {
			var asked toyWords
			_ = json.Unmarshal(body, &asked)
			_ = json.NewEncoder(w).Encode(toyWords{ID: asked.ID, Sorry: problem.Native(err).Message})
			return
		}
		_, _ = w.Write(answer.Wire().Body)
	})
}

func speakToy(out *service) (protocol, error) {
	return protocol{form: toyForm{}, dialer: toyDialer{out.guards.agents}, endpoints: func(road transport.Handler) httpapi.Endpoints {
		return httpapi.Endpoints{"/toy": toyDoor(road)}
	}}, nil
}

// TestASixthProtocol: a protocol is a folder, here a file, and a line, here in
// the plan; every pair with it is then served, with evidence.
func TestASixthProtocol(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{also: []protocolFactory{speakToy}})
	b.uacpAgent(t, "abacus", &uacpFake{}, "")
	b.ainpAgent(t, "scribe", &ainpFake{}, directory.Endpoint{})
	b.toyAgent(t, b.svid(t, "/toy"))
	for _, to := range []string{"a2a-v1", "mcp-v1", "uacp-v1", "ainp-v1"} {
		for _, pair := range []string{"from=toy-v1&to=" + to, "from=" + to + "&to=toy-v1"} {
			if got := b.send(t, letter{method: http.MethodGet, at: "/.well-known/aepb/gateway?" + pair}); got.status != http.StatusOK {
				t.Errorf("%s is not served", pair)
			}
		}
	}
	for _, dest := range []string{"concierge", "toy"} {
		got := b.send(t, letter{at: "/agents/" + dest + "/toy", body: `{"id":1,"say":"good day"}`})
		b.right(t, got, "You said: good day")
		if legs := b.proofs(t, got); len(legs) != 2 || !slices.Contains(legs[1].Parents, legs[0].ID) {
			t.Errorf("%s: %d ECTs", dest, len(legs))
		}
	}
	b.right(t, b.send(t, b.sealed(t, letter{at: "/aepb/translate?from=a2a-v1&dest=toy", body: textBody("good day")})), "You said: good day")
	if reply := b.askUACP(t, "toy", frameOf(t, "", telling("good day"))); !strings.Contains(string(reply), "You said: good day") {
		t.Errorf("from µACP: %q", short(reply))
	}
	alice := did("alice")
	b.right(t, b.send(t, letter{at: "/agents/toy/ainp", body: string(signed(alice, envelopeOf(t, alice, telling("good day")), ""))}), "You said: good day")
}

func (b *bed) toyAgent(t *testing.T, svid *identity.SVID) {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var said toyWords
		if json.NewDecoder(r.Body).Decode(&said) != nil {
			return
		}
		_ = json.NewEncoder(w).Encode(toyWords{ID: said.ID, Said: "You said: " + said.Say})
	}))
	server.TLS = serving(svid)
	server.StartTLS()
	t.Cleanup(server.Close)
	b.listAs(t, "toy", svid.ID, directory.Endpoint{Binding: toyBinding, URL: server.URL})
}
