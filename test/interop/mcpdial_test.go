package interop

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/transport"
	tmcp "github.com/aepb/aepb-gateway/gateway/transport/mcp"
	"github.com/aepb/aepb-gateway/gateway/transport/transporttest"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	form "github.com/aepb/aepb-gateway/translators/mcp"
)

// Our MCP wire against the official SDK, without a gateway between: the dialer
// calls its server in every way that it can be run, and its client knocks at
// our door in both eras.

// unguarded lets the dialer out without the guard of package egress.
type unguarded struct{ transport *http.Transport }

func (u unguarded) DoAs(r *http.Request, _ ect.Identity) (*http.Response, error) {
	return u.transport.RoundTrip(r)
}

// sdkServer is an SDK server with a tool that says its arguments back, one that
// fails, and so many others that they fill several pages.
func sdkServer(t *testing.T, options *mcp.StreamableHTTPOptions) *httptest.Server {
	t.Helper()
	server := mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1.8.0"}, &mcp.ServerOptions{PageSize: 10})
	schema := json.RawMessage(`{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}`)
	server.AddTool(&mcp.Tool{Name: "echo", InputSchema: schema}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(r.Params.Arguments)}}}, nil
	})
	server.AddTool(&mcp.Tool{Name: "fail", InputSchema: schema}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: "no"}}}, nil
	})
	for i := range 25 {
		server.AddTool(&mcp.Tool{Name: fmt.Sprintf("more-%02d", i), InputSchema: schema}, nil)
	}
	listener := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, options))
	t.Cleanup(listener.Close)
	return listener
}

func TestDialer_AgainstTheSDKServer(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		options *mcp.StreamableHTTPOptions
		version string
	}{
		"stateless":        {&mcp.StreamableHTTPOptions{Stateless: true}, form.Modern},
		"stateless, JSON":  {&mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true}, form.Modern},
		"stateful":         {&mcp.StreamableHTTPOptions{}, form.Legacy},
		"stateful, JSON":   {&mcp.StreamableHTTPOptions{JSONResponse: true}, form.Legacy},
		"asked for legacy": {&mcp.StreamableHTTPOptions{Stateless: true}, form.Legacy},
		"asked for June":   {&mcp.StreamableHTTPOptions{}, form.LegacyJune},
		"asked for March":  {&mcp.StreamableHTTPOptions{JSONResponse: true}, form.LegacyMarch},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := sdkServer(t, tc.options)
			out := unguarded{&http.Transport{}}
			t.Cleanup(out.transport.CloseIdleConnections)
			dialer, err := tmcp.NewDialer(tmcp.DialerDeps{Client: out, Form: form.New(translators.Config{})})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(dialer.Close)
			ep := transport.Endpoint{Agent: "sdk", Binding: form.Binding, URL: server.URL, Caller: "spiffe://td/alice", Timeout: 10 * time.Second}
			if strings.HasPrefix(name, "asked for") {
				ep.Version = tc.version
			}
			description, ep, err := dialer.Describe(t.Context(), ep)
			if err != nil {
				t.Fatal(err)
			}
			if ep.Version != tc.version || description.Name != "sdk" || len(description.Capabilities) != 27 {
				t.Fatalf("version %s, name %s, %d tools", ep.Version, description.Name, len(description.Capabilities))
			}
			echoAndFail(t, dialer, ep, description)
		})
	}
}

func echoAndFail(t *testing.T, dialer *tmcp.Dialer, ep transport.Endpoint, description *canonical.Description) {
	t.Helper()
	const args = `{"n":9007199254740993,"region":"zürich"}`
	for i := range description.Capabilities {
		capability := &description.Capabilities[i]
		if capability.ID != "echo" && capability.ID != "fail" {
			continue
		}
		reply, err := dialer.Dial(t.Context(), ep, sealCall(t, ep.Version, capability, args))
		if err != nil {
			t.Fatalf("%s: %v", capability.ID, err)
		}
		m, err := form.New(translators.Config{}).Decode(reply.Wire)
		if err != nil {
			t.Fatalf("%s: %v: %s", capability.ID, err, reply.Wire.Body)
		}
		result, ok := m.Body.(*canonical.Result)
		if !ok {
			t.Fatalf("%s: %s", capability.ID, reply.Wire.Body)
		}
		out := result.Output
		if capability.ID == "echo" && (out.Failed || out.Parts[0].Text != args) || capability.ID == "fail" && !out.Failed {
			t.Errorf("%s: got %+v", capability.ID, out)
		}
	}
}

func sealCall(t *testing.T, version string, capability *canonical.Capability, args string) transport.Sealed {
	t.Helper()
	wire, _, err := form.New(translators.Config{}).Encode(&canonical.Message{
		Op: canonical.OpInvoke, Phase: canonical.PhaseRequest,
		Correlation: canonical.Correlation{WireID: json.RawMessage(`"call-1"`)},
		Body:        &canonical.Invoke{Call: &canonical.Call{Name: capability.ID, Args: json.RawMessage(args)}},
	}, translators.Target{Version: version, Capability: capability})
	if err != nil {
		t.Fatal(err)
	}
	recorder, err := ect.NewRecorder(ect.RecorderDeps{Store: ecttest.NewStore(), Retention: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	token, err := ecttest.NewParty(t, "spiffe://td/gw").Signer(t, time.Now).Sign(ect.Claims{
		Act: ect.ActTranslate, Audience: []string{"x"}, OutputHash: ect.Hash(wire.Body),
	})
	if err != nil {
		t.Fatal(err)
	}
	receipt, err := recorder.Record(t.Context(), token, ect.Filing{})
	if err != nil {
		t.Fatal(err)
	}
	attested, err := transport.Attest(receipt, wire)
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := attested.Seal()
	if err != nil {
		t.Fatal(err)
	}
	return sealed
}

// parrot is a road that ends at once: it says the arguments back.
type parrot struct {
	mu    sync.Mutex
	calls []transport.Call
}

func (p *parrot) Exchange(_ context.Context, c transport.Call) (transport.Answer, error) {
	p.mu.Lock()
	p.calls = append(p.calls, c)
	p.mu.Unlock()
	codec := form.New(translators.Config{})
	m, err := codec.Decode(c.Wire)
	if err != nil {
		return transport.Answer{}, err
	}
	invoke, _ := m.Body.(*canonical.Invoke)
	m.Phase = canonical.PhaseResponse
	m.Body = &canonical.Result{Task: &canonical.Task{
		ID: "t", ContextID: "c", Status: canonical.Status{State: canonical.StateCompleted},
		Artifacts: []canonical.Artifact{{ID: "a", Parts: []canonical.Part{{Kind: canonical.KindText, Text: string(invoke.Call.Args)}}}},
	}}
	wire, _, err := codec.Encode(m, translators.Target{Version: m.Origin.Version})
	return transporttest.Answer(wire), err
}

func (*parrot) Limit(context.Context, transport.CallInfo) (limit.Pass, error) {
	return transporttest.Pass(nil)
}

func (*parrot) Admit(context.Context, transport.CallInfo) error { return nil }

func (*parrot) Describe(context.Context, transport.CallInfo) (*canonical.Description, error) {
	return &canonical.Description{Name: "Parrot", Description: "repeats", Capabilities: []canonical.Capability{
		{ID: "repeat after me", Profile: canonical.ProfileMessage, Title: "Repeat", Examples: []string{"say hello"}},
	}}, nil
}

func TestSDKClient_AtOurMCPServer(t *testing.T) {
	t.Parallel()
	endpoint, err := tmcp.NewServer(tmcp.ServerDeps{Form: form.New(translators.Config{})})
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{form.Modern, form.Legacy, form.LegacyJune, form.LegacyMarch} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			handler := &parrot{}
			mux := http.NewServeMux()
			mux.Handle("/agents/{agent}/mcp", endpoint.Handler(handler))
			server := httptest.NewServer(mux)
			defer server.Close()
			out := &http.Transport{}
			defer out.CloseIdleConnections()
			client := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil)
			session, err := client.Connect(t.Context(),
				&mcp.StreamableClientTransport{Endpoint: server.URL + "/agents/parrot/mcp", HTTPClient: &http.Client{Transport: out}, DisableStandaloneSSE: true},
				&mcp.ClientSessionOptions{ProtocolVersion: version})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = session.Close() }()
			if got := session.InitializeResult(); got.ProtocolVersion != version || got.ServerInfo.Name != "Parrot" {
				t.Errorf("initialized: %+v %+v", got, got.ServerInfo)
			}
			tools, err := session.ListTools(t.Context(), nil)
			if err != nil || len(tools.Tools) != 1 || tools.Tools[0].Name != "repeat_after_me" || !strings.Contains(tools.Tools[0].Description, "say hello") {
				t.Fatalf("tools: %+v %v", tools, err)
			}
			result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "repeat_after_me", Arguments: json.RawMessage(`{"message":"hello"}`)})
			if err != nil {
				t.Fatal(err)
			}
			text, ok := result.Content[0].(*mcp.TextContent)
			if !ok || text.Text != `{"message":"hello"}` || result.IsError {
				t.Errorf("got %+v", result)
			}
			if len(handler.calls) != 1 || handler.calls[0].Agent != "parrot" || handler.calls[0].Wire.Version != version {
				t.Errorf("calls: %+v", handler.calls)
			}
		})
	}
}
