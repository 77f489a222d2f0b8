package main

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	a2apb "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"github.com/google/uuid"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/aepb/aepb-gateway/gateway/transport/slim"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/name"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/rpc"
	"github.com/aepb/aepb-gateway/test/bench/slimnode"
)

// Who is on the node: org/SPACE/NAME.
const (
	slimGateway = "gateway"  // the gateway's namespace
	slimFormer  = formerName // that of the other build
	slimFloor   = "floor"
	slimBridge  = "bridge"
	slimAgent   = "org/agents/echo"
	slimCaller  = "org/callers/bench"
	slimSelf    = "caller" // of a bridge's own calls
)

// place is the stage's part that is on SLIM.
type place struct {
	dir    string // where the node is run; empty: where this module keeps it
	at     string // host:port of the node; empty: there is none
	why    string // there is none
	secret string // file of the node's secret
	node   *slimnode.Node
	here   *slimnode.Member
	caller *slim.Peer
}

// reserve finds out whether there can be a node, and where it will be. The gateway
// makes the certificates, so it is there first.
func (s *stage) reserve(ctx context.Context, dir string) error {
	var err error
	if s.slim.dir == "" {
		s.slim.dir, err = slimnode.Folder(ctx)
	}
	if err == nil {
		err = slimnode.Installed(s.slim.dir)
	}
	if errors.Is(err, slimnode.ErrMissing) {
		s.slim.why = err.Error()
		return nil
	}
	if err == nil {
		s.slim.at, err = slimnode.FreeAddress()
	}
	s.slim.secret = filepath.Join(dir, "slim-secret")
	if err == nil {
		err = os.WriteFile(s.slim.secret, []byte(slimnode.Secret), 0o600)
	}
	return err
}

// config tells a gateway of the node, on which it has a namespace of its own.
func (p *place) config(space string) string {
	if p.at == "" {
		return ""
	}
	return fmt.Sprintf("slim: {nodes: [{url: %q, id: %q, organization: org, namespace: %s, shared_secret_file: %q, caller: %q}]}\n",
		"https://"+p.at, devDomain+"/peer/node", space, p.secret, devDomain+"/client")
}

// devDomain is the trust domain of development gateways, whose client calls here.
const devDomain = "spiffe://aepb.dev"

// settle starts the node, and the caller on it.
func (s *stage) settle(ctx context.Context) error {
	if s.slim.at == "" {
		return nil
	}
	var err error
	if s.slim.node, err = slimnode.Start(ctx, s.slim.dir, s.slim.at, s.trust); err != nil {
		return err
	}
	if s.slim.here, err = slimnode.Enter(ctx, s.slim.at, s.trust.Roots()); err == nil {
		s.slim.caller, err = s.slim.here.As(slimCaller, nil)
	}
	return err
}

// leave takes the caller off the node.
func (p *place) leave() {
	if p.here != nil {
		p.here.Leave()
	}
}

// end ends the node.
func (p *place) end() error {
	if p.node == nil {
		return nil
	}
	return p.node.Stop()
}

// on puts a child on the node; the function takes it off again.
func (s script) on(role string, handler http.Handler) (func(), error) {
	if s.Node == "" {
		return func() {}, nil
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(s.Roots) {
		return nil, errors.New("bench: no roots")
	}
	m, err := slimnode.Enter(context.Background(), s.Node, roots)
	if err != nil {
		return nil, err
	}
	if p, carries := handler.(*pairs); carries {
		err = p.on(m, s.Space)
	} else {
		_, err = m.As(slimAgent, echoSLIM(newVoice(s.Seed).speak(slimBinding)))
	}
	if err != nil {
		m.Leave()
		return nil, fmt.Errorf("bench: %s on SLIM: %w", role, err)
	}
	return m.Leave, nil
}

// on puts a floor on the node: the server that is called for each of the others,
// and the client that calls the agent.
func (p *pairs) on(m *slimnode.Member, space string) (err error) {
	if p.slim, err = m.As("org/"+space+"/"+slimSelf, nil); err != nil {
		return err
	}
	if p.agent, err = name.Parse(slimAgent); err != nil {
		return err
	}
	for _, to := range bindings() {
		_, err := m.As("org/"+space+"/"+to, answering(func(ctx context.Context, call rpc.Call) ([]byte, string, error) {
			body, evidence, err := p.exchange(ctx, p.voice.speak(slimBinding), p.voice.speak(to), call.Body, call.Metadata[slimEvidence])
			return body, strings.Join(evidence, ","), err
		}))
		if err != nil {
			return err
		}
	}
	return nil
}

// call asks the agent on SLIM.
func (p *pairs) call(ctx context.Context, body []byte, evidence string) ([]byte, error) {
	f, err := askSLIM(ctx, p.slim, p.agent, body, evidence)
	return f.Body, err
}

// relay carries the text and nothing else.
func (p *pairs) relay(ctx context.Context, from, to words, asked said) ([]byte, error) {
	there := said{id: asked.id, text: asked.text, at: time.Now()}
	if there.id == "" {
		there.id = uuid.NewString()
	}
	answer, err := p.send(ctx, to, to.ask(there), "")
	if err != nil {
		return nil, err
	}
	heard, err := to.replied(answer)
	return from.reply(said{id: asked.id, own: uuid.NewString(), text: heard.text, at: time.Now()}), err
}

// calling calls one name on SLIM.
func (s *stage) calling(r road, to string) (func(context.Context, call) error, error) {
	at, err := name.Parse("org/" + r.space + "/" + to)
	return func(ctx context.Context, c call) error {
		f, err := askSLIM(ctx, s.slim.caller, at, []byte(c.body), c.token)
		if err == nil && (!strings.Contains(string(f.Body), echoed) || !r.bare && f.Metadata[slimEvidence] == "") {
			err = fmt.Errorf("bench: SLIM to %s answered %.500q", to, f.Body)
		}
		return err
	}, err
}

// SLIM: A2A's messages in protobuf, by the types that A2A's own library has for
// them, in calls of SLIMRPC.

const (
	slimBinding  = "slim-v1"
	slimEvidence = "execution-context" // the metadata that ECTs stand in
	slimSend     = "SendMessage"
	slimCard     = "GetExtendedAgentCard"
)

// packed is a message on the wire; nil: it cannot be.
func packed(m proto.Message) []byte {
	octets, err := proto.Marshal(m)
	if err != nil {
		return nil
	}
	return octets
}

func slimAsk(s said) []byte {
	text := func(words string) *structpb.Value { return structpb.NewStringValue(words) }
	input := &structpb.Struct{Fields: map[string]*structpb.Value{"message": text(s.text)}}
	data := &structpb.Struct{Fields: map[string]*structpb.Value{"skill": text("echo"), "input": structpb.NewStructValue(input)}}
	return packed(&a2apb.SendMessageRequest{Message: &a2apb.Message{
		MessageId: s.id, Role: a2apb.Role_ROLE_USER,
		Parts: []*a2apb.Part{{Content: &a2apb.Part_Data{Data: structpb.NewStructValue(data)}, MediaType: "application/json"}},
	}})
}

func slimAsked(body []byte) (said, error) {
	var m a2apb.SendMessageRequest
	if err := proto.Unmarshal(body, &m); err != nil {
		return said{}, err
	}
	if len(m.GetMessage().GetParts()) != 1 {
		return said{}, errWords
	}
	data := m.GetMessage().GetParts()[0].GetData().GetStructValue().GetFields()
	text, ok := data["input"].GetStructValue().GetFields()["message"].GetKind().(*structpb.Value_StringValue)
	if !ok {
		return said{}, errWords
	}
	return said{id: m.GetMessage().GetMessageId(), text: text.StringValue}, nil
}

func slimReply(s said) []byte {
	return packed(&a2apb.SendMessageResponse{Payload: &a2apb.SendMessageResponse_Task{Task: &a2apb.Task{
		Id: uuid.NewString(), ContextId: uuid.NewString(),
		Status:    &a2apb.TaskStatus{State: a2apb.TaskState_TASK_STATE_COMPLETED, Timestamp: timestamppb.New(time.Now())},
		Artifacts: []*a2apb.Artifact{{ArtifactId: "result", Parts: []*a2apb.Part{{Content: &a2apb.Part_Text{Text: s.text}}}}},
	}}})
}

func slimReplied(body []byte) (said, error) {
	var m a2apb.SendMessageResponse
	if err := proto.Unmarshal(body, &m); err != nil {
		return said{}, err
	}
	made := m.GetTask().GetArtifacts()
	if len(made) != 1 || len(made[0].GetParts()) != 1 {
		return said{}, errWords
	}
	return said{text: made[0].GetParts()[0].GetText()}, nil
}

// carrying is the metadata of a message with its evidence.
func carrying(evidence string) map[string]string {
	if evidence == "" {
		return nil
	}
	return map[string]string{slimEvidence: evidence}
}

// askSLIM calls an agent, whose one response it gives.
func askSLIM(ctx context.Context, by *slim.Peer, to name.Name, body []byte, evidence string) (rpc.Frame, error) {
	call, err := by.Call(ctx, to, rpc.Request{Service: slim.ServiceA2A, Method: slimSend, Metadata: carrying(evidence), Body: body})
	if err != nil {
		return rpc.Frame{}, err
	}
	defer call.Close()
	f, err := call.Next(ctx)
	if errors.Is(err, io.EOF) {
		err = errWords
	}
	return f, err
}

// answering answers calls of SendMessage.
type answering func(ctx context.Context, call rpc.Call) (body []byte, evidence string, err error)

// Serve is rpc.Handler's.
func (a answering) Serve(ctx context.Context, call rpc.Call, out rpc.Responder) error {
	body, evidence, err := a(ctx, call)
	if err != nil {
		return &rpc.StatusError{Code: rpc.Internal, Message: err.Error()}
	}
	return out.Send(ctx, rpc.Frame{Body: body, Metadata: carrying(evidence)})
}

// echoSLIM is the agent.
func echoSLIM(w words) answering {
	return func(_ context.Context, call rpc.Call) ([]byte, string, error) {
		if call.Method == slimCard {
			body, err := cardSLIM(slimAgent)
			return body, "", err
		}
		s, err := w.asked(call.Body)
		return w.reply(s), "", err
	}
}

// cardSLIM is the agent's card in protobuf.
func cardSLIM(at string) ([]byte, error) {
	text, err := json.Marshal(card(at, slim.BindingURI))
	if err != nil {
		return nil, err
	}
	var m a2apb.AgentCard
	if err := protojson.Unmarshal(text, &m); err != nil {
		return nil, err
	}
	return packed(&m), nil
}
