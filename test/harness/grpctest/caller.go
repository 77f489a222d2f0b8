// Package grpctest calls A2A over gRPC in tests, without an SDK, and makes messages of the SDK.
package grpctest

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2apb/v1"
	rpccode "google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// Caller makes calls of A2A over gRPC without an SDK: it sends the bytes that it is given
// and keeps the bytes that it gets.
type Caller struct{ conn *grpc.ClientConn }

// New makes a caller of the server at host:port. Its connection ends with the test.
func New(tb testing.TB, at string, conf *tls.Config) *Caller {
	tb.Helper()
	conn, err := grpc.NewClient(at, grpc.WithTransportCredentials(credentials.NewTLS(conf)), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{})))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := conn.Close(); err != nil {
			tb.Error(err)
		}
	})
	return &Caller{conn}
}

// Reply is what a server answered.
type Reply struct {
	Messages        [][]byte            // serialised
	Header, Trailer map[string][]string // metadata
	Code            string              // of its status, as google.rpc.Code names it; OK: it went well
	Message         string              // of its status
	Reason          string              // of its ErrorInfo
	Details         string              // all that its status says, as text
}

// Call calls a method, by its name alone or with its service, with messages as
// they travel; metadata are names and values in turn.
func (c *Caller) Call(ctx context.Context, method string, messages [][]byte, fields ...string) Reply {
	if !strings.HasPrefix(method, "/") {
		method = "/" + a2apb.A2AService_ServiceDesc.ServiceName + "/" + method
	}
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(ctx, fields...))
	defer cancel()
	var reply Reply
	stream, err := c.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err == nil {
		err = reply.exchange(stream, messages)
	}
	result := status.Convert(err)
	reply.Code, reply.Message, reply.Details = codeName(result.Code()), result.Message(), result.Proto().String()
	for _, detail := range result.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			reply.Reason = info.GetReason()
		}
	}
	return reply
}

func codeName(code codes.Code) string {
	if code == codes.OK {
		return "OK"
	}
	return rpccode.Code(code).String()
}

func (h *Reply) exchange(stream grpc.ClientStream, messages [][]byte) error {
	for _, message := range messages {
		if err := stream.SendMsg(message); err != nil {
			break // what follows says why
		}
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	for {
		var message []byte
		err := stream.RecvMsg(&message)
		if err != nil {
			h.Header, _ = stream.Header()
			h.Trailer = stream.Trailer()
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		h.Messages = append(h.Messages, message)
	}
}

// Request serialises the JSON of a method's request.
func Request(tb testing.TB, method, text string) []byte {
	tb.Helper()
	m := a2apb.File_a2av1_proto.Services().ByName("A2AService").Methods().ByName(protoreflect.Name(method))
	message := dynamicpb.NewMessage(m.Input())
	err := protojson.Unmarshal([]byte(text), message)
	if err != nil {
		tb.Fatal(err)
	}
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(message)
	if err != nil {
		tb.Fatal(err)
	}
	return raw
}

// rawCodec is the codec of messages that are sent and kept as they travel.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	message, ok := v.([]byte)
	if !ok {
		return nil, errors.New("grpctest: the message is no byte slice")
	}
	return mem.BufferSlice{mem.SliceBuffer(message)}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	message, ok := v.(*[]byte)
	if !ok {
		return errors.New("grpctest: the message is no byte slice")
	}
	*message = data.Materialize()
	return nil
}

// SkillMessage is a message of the A2A SDK that asks for a skill with its arguments.
func SkillMessage(skill string, input map[string]any) *a2a.Message {
	return a2a.NewMessage(a2a.MessageRoleUser, a2a.NewDataPart(map[string]any{"skill": skill, "input": input}))
}
