package main

import (
	"context"
	"strings"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2aclient/agentcard"
	a2agrpc "github.com/a2aproject/a2a-go/v2/a2agrpc/v1"
	"github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/policy"
)

// official is the A2A SDK's own client of an agent, over gRPC alone, as anybody
// makes it from the card.
func (b *bed) official(t *testing.T, agent string) *a2aclient.Client {
	t.Helper()
	card, err := agentcard.NewResolver(b.client).Resolve(t.Context(), b.at.Public+"/agents/"+agent)
	must(t, err)
	client, err := a2aclient.NewFromCard(t.Context(), card, a2aclient.WithDefaultsDisabled(),
		a2agrpc.WithGRPCTransport(grpc.WithTransportCredentials(credentials.NewTLS(b.clientTLS(t, b.dev.Client)))))
	must(t, err)
	t.Cleanup(func() { must(t, client.Destroy()) })
	return client
}

// dial is a connection as nobody's library makes it, to see each octet.
func (b *bed) dial(t *testing.T) a2apb.A2AServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(b.rpc, grpc.WithTransportCredentials(credentials.NewTLS(b.clientTLS(t, b.dev.Client))))
	must(t, err)
	t.Cleanup(func() { must(t, conn.Close()) })
	return a2apb.NewA2AServiceClient(conn)
}

// overGRPC starts an agent that speaks gRPC alone and lists it as "caller".
func (b *bed) overGRPC(t *testing.T) {
	t.Helper()
	agent, err := peers.NewA2AGRPCAgent(t.Context(), peers.Deps{TLS: serving(b.svid(t, "/caller"))})
	must(t, err)
	t.Cleanup(func() { stopWithin(t, agent.Stop) })
	must(t, b.directory.Put(directory.Agent{
		Name: "caller", ID: b.svid(t, "/caller").ID, Rules: policy.Rules{Open: true},
		Endpoints: []directory.Endpoint{{Binding: "a2a-v1", URL: agent.URL(), GRPC: agent.GRPC()}},
	}))
}

func data(t *testing.T, value map[string]any) *a2apb.Part {
	t.Helper()
	v, err := structpb.NewValue(value)
	must(t, err)
	return &a2apb.Part{Content: &a2apb.Part_Data{Data: v}}
}

func adding(t *testing.T, tenant string, n float64) *a2apb.SendMessageRequest {
	t.Helper()
	return &a2apb.SendMessageRequest{Tenant: tenant, Message: &a2apb.Message{
		MessageId: "m1", Role: a2apb.Role_ROLE_USER,
		Parts: []*a2apb.Part{data(t, map[string]any{"skill": "add", "input": map[string]any{"a": n, "b": 1}})},
	}}
}

func TestGRPCDoor(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	b.overGRPC(t)
	t.Run("to MCP, with evidence for the octets that travelled", func(t *testing.T) {
		request := adding(t, "calculator", 41)
		sent, err := proto.Marshal(request)
		must(t, err)
		var header metadata.MD
		ctx := metadata.AppendToOutgoingContext(t.Context(), ect.HeaderName, b.token(t, string(sent)))
		got, err := b.dial(t).SendMessage(ctx, request, grpc.Header(&header))
		must(t, err)
		said, err := proto.MarshalOptions{Deterministic: true}.Marshal(got)
		must(t, err)
		if !strings.Contains(got.String(), "42") {
			t.Errorf("no sum in %v", got)
		}
		b.hashes(t, header.Get(ect.HeaderName), ect.Hash(sent), ect.Hash(said))
	})
	for _, agent := range []string{"concierge", "caller"} {
		t.Run("to A2A: "+agent, func(t *testing.T) { talks(t, b.official(t, agent)) })
	}
	t.Run("a stream's evidence is in its trailer", func(t *testing.T) {
		request := &a2apb.SendMessageRequest{Tenant: "concierge", Message: &a2apb.Message{
			MessageId: "m2", Role: a2apb.Role_ROLE_USER, Parts: []*a2apb.Part{{Content: &a2apb.Part_Text{Text: "good evening"}}},
		}}
		stream, err := b.dial(t).SendStreamingMessage(t.Context(), request)
		must(t, err)
		var told ect.StreamHash
		for {
			event, err := stream.Recv()
			if err != nil {
				break
			}
			octets, err := proto.MarshalOptions{Deterministic: true}.Marshal(event)
			must(t, err)
			told.Add(octets)
		}
		header, err := stream.Header()
		must(t, err)
		if len(header.Get(ect.HeaderName)) == 0 || told.Count() < 2 {
			t.Errorf("%d events, opened with %v", told.Count(), header)
		}
		b.hashes(t, stream.Trailer().Get(ect.HeaderName), "", told.Sum())
	})
	t.Run("the agent by metadata", func(t *testing.T) {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "aepb-agent", "calculator")
		if _, err := b.dial(t).SendMessage(ctx, adding(t, "", 1)); err != nil {
			t.Error(err)
		}
	})
	t.Run("from MCP to gRPC", func(t *testing.T) {
		got := b.send(t, letter{at: "/agents/caller/mcp", body: callBody("concierge", "hello"), header: mirror("tools/call", "concierge")})
		b.right(t, got, "You said: hello")
	})
	b.works(t)
}

// hashes demands tokens of ours, among them one for what came in and one for
// what went out.
func (b *bed) hashes(t *testing.T, tokens []string, in, out string) {
	t.Helper()
	sawIn, sawOut := in == "", false
	for _, compact := range tokens {
		v, err := b.judge.Verify(context.WithoutCancel(t.Context()), compact, ect.Check{Purpose: ect.Parent})
		if err != nil {
			t.Errorf("an ECT does not verify: %v", err)
			continue
		}
		sawIn = sawIn || v.Claims().InputHash == in
		sawOut = sawOut || v.Claims().OutputHash == out
	}
	if !sawIn || !sawOut {
		t.Errorf("%d tokens: one for the request %t, one for the reply %t", len(tokens), sawIn, sawOut)
	}
}

// talks has the official client send, stream, ask and be refused.
func talks(t *testing.T, client *a2aclient.Client) {
	t.Helper()
	said := func(text string) *a2a.SendMessageRequest {
		return &a2a.SendMessageRequest{Message: a2a.NewMessage(a2a.MessageRoleUser, a2a.NewTextPart(text))}
	}
	got, err := client.SendMessage(t.Context(), said("hello"))
	must(t, err)
	task, ok := got.(*a2a.Task)
	if !ok || task.Status.State != a2a.TaskStateCompleted {
		t.Fatalf("got %+v", got)
	}
	var state a2a.TaskState
	var id a2a.TaskID
	artifacts := 0
	for event, err := range client.SendStreamingMessage(t.Context(), said("good evening")) {
		must(t, err)
		switch e := event.(type) {
		case *a2a.Task:
			id, state = e.ID, e.Status.State
		case *a2a.TaskStatusUpdateEvent:
			state = e.Status.State
		case *a2a.TaskArtifactUpdateEvent:
			artifacts++
		}
	}
	if state != a2a.TaskStateCompleted || artifacts == 0 {
		t.Errorf("the stream ended at %s with %d artifacts", state, artifacts)
	}
	again, err := client.GetTask(t.Context(), &a2a.GetTaskRequest{ID: id})
	if err != nil || again.ID != id || again.Status.State != a2a.TaskStateCompleted {
		t.Errorf("asked again: %+v %v", again, err)
	}
	waits, err := client.SendMessage(t.Context(), said("ask: which?"))
	must(t, err)
	open, ok := waits.(*a2a.Task)
	if !ok || open.Status.State != a2a.TaskStateInputRequired {
		t.Fatalf("got %+v", waits)
	}
	ended, err := client.CancelTask(t.Context(), &a2a.CancelTaskRequest{ID: open.ID})
	if err != nil || ended.Status.State != a2a.TaskStateCanceled {
		t.Errorf("cancel: %+v %v", ended, err)
	}
	if _, err := client.GetTask(t.Context(), &a2a.GetTaskRequest{ID: "nobody's"}); err == nil || !strings.Contains(err.Error(), "task") {
		t.Errorf("a task that nobody began: %v", err)
	}
	page, err := client.ListTasks(t.Context(), &a2a.ListTasksRequest{})
	if err != nil {
		t.Errorf("list: %+v %v", page, err)
	}
	card, err := client.GetExtendedAgentCard(t.Context(), &a2a.GetExtendedAgentCardRequest{})
	if err == nil && len(card.Skills) == 0 {
		t.Errorf("card: %+v", card)
	}
}
