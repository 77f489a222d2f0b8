package gatewaytest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/httpapi"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/server"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// ToyBinding names a protocol that nobody speaks: {"id":1,"say":"…"} is answered with
// {"id":1,"said":"…"} or {"id":1,"sorry":"…"}. It is all in this file, and the
// gateway learns of it by the one line that names [SpeakToy].
const ToyBinding canonical.Binding = "toy-v1"

// ToyWords is a message of the toy protocol: a request has say, its answer said or sorry.
type ToyWords struct {
	ID     json.RawMessage `json:"id"`
	Say    string          `json:"say,omitempty"`
	Answer string          `json:"said,omitempty"`
	Sorry  string          `json:"sorry,omitempty"`
}

type toyForm struct{}

func (toyForm) Info() translators.Info {
	return translators.Info{
		Binding: ToyBinding, Name: "Toy", Versions: []string{"1"}, Media: []string{"application/json"}, BodyLimit: 1 << 16, Depth: 8,
	}
}

func (toyForm) Decode(w translators.Wire) (*canonical.Message, error) {
	var words ToyWords
	if json.Unmarshal(w.Body, &words) != nil || words.ID == nil {
		return nil, &translators.MalformedError{Reason: "no words"}
	}
	m := &canonical.Message{
		Op: canonical.OpInvoke, Phase: canonical.PhaseRequest, Correlation: canonical.Correlation{WireID: words.ID},
		Origin: canonical.Origin{Binding: ToyBinding, Version: "1", Raw: w.Body},
	}
	part := func(text string) []canonical.Part { return []canonical.Part{{Kind: canonical.KindText, Text: text}} }
	switch {
	case w.Re == "":
		m.Body = &canonical.Invoke{Turn: canonical.Content{Role: canonical.RoleCaller, Parts: part(words.Say)}}
	case words.Sorry != "":
		m.Phase, m.Body = canonical.PhaseError, &canonical.Error{Code: canonical.CodeInternal, Message: words.Sorry}
	default:
		m.Phase, m.Body = canonical.PhaseResponse, &canonical.Result{Output: &canonical.Output{Parts: part(words.Answer)}}
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
	toy := ToyWords{ID: m.Correlation.WireID}
	switch body := m.Body.(type) {
	case *canonical.Invoke:
		toy.Say = words(body.Turn.Parts)
		if body.Call != nil {
			toy.Say = toyCall(body.Call.Args)
		}
	case *canonical.Result:
		toy.Answer, toy.Sorry = toyResult(body, words)
	case *canonical.Error:
		toy.Sorry = body.Message
	default:
		return translators.Wire{}, nil, &canonical.Error{Code: canonical.CodeUnsupportedOp, Message: "no words for that"}
	}
	text, err := json.Marshal(toy)
	return translators.Wire{Binding: ToyBinding, Version: "1", Media: "application/json", Body: text}, losses, err
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
func toyResult(r *canonical.Result, words func([]canonical.Part) string) (text, sorry string) {
	failed := false
	if r.Task != nil {
		failed = r.Task.Status.State == canonical.StateFailed
		if r.Task.Status.Message != nil {
			text = words(r.Task.Status.Message.Parts)
		}
		var all strings.Builder
		for _, a := range r.Task.Artifacts {
			all.WriteString(words(a.Parts))
		}
		text += all.String()
	}
	if r.Turn != nil {
		text = words(r.Turn.Parts)
	}
	if r.Output != nil {
		text, failed = words(r.Output.Parts)+string(r.Output.Structured), r.Output.Failed
	}
	if failed {
		return "", text
	}
	return text, ""
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
	return transport.Reply{Wire: translators.Wire{Binding: ToyBinding, Body: body}}, err
}

func (d toyDialer) Describe(_ context.Context, ep transport.Endpoint) (*canonical.Description, transport.Endpoint, error) {
	ep.Version = "1"
	return &canonical.Description{Name: "toy", Capabilities: []canonical.Capability{{ID: "play", Profile: canonical.ProfileMessage}}}, ep, nil
}

func toyEndpoint(handler transport.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pass, err := handler.Limit(r.Context(), transport.CallInfoFrom(r.Context(), r.PathValue("agent"), ToyBinding))
		if err != nil {
			problem.Write(w, r, err)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<16))
		if err != nil {
			problem.Write(w, r, err)
			return
		}
		answer, err := handler.Exchange(r.Context(), transport.Call{
			Agent: r.PathValue("agent"), Wire: translators.Wire{Binding: ToyBinding, Body: body}, Pass: pass,
			Caller: transport.CallerFrom(r.Context()), Address: transport.AddressFrom(r.Context()),
		})
		for _, token := range answer.Evidence {
			w.Header().Add(ect.HeaderName, token)
		}
		if err != nil {
			var request ToyWords
			_ = json.Unmarshal(body, &request)
			_ = json.NewEncoder(w).Encode(ToyWords{ID: request.ID, Sorry: problem.Native(err).Message})
			return
		}
		_, _ = w.Write(answer.Wire().Body)
	})
}

// SpeakToy lets a gateway speak the toy protocol. It never fails.
func SpeakToy(env server.Env) (server.Protocol, error) {
	return server.Protocol{Codec: toyForm{}, Dialer: toyDialer{env.Guards.Agents}, Endpoints: func(handler transport.Handler) httpapi.Endpoints {
		return httpapi.Endpoints{"/toy": toyEndpoint(handler)}
	}}, nil
}
