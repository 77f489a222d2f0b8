package peers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	a2agrpc "github.com/a2aproject/a2a-go/v2/a2agrpc/v1"
	"github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
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

// calls is a gRPC server that owns its one goroutine.
type calls struct {
	at      string // host:port
	server  *grpc.Server
	serving sync.WaitGroup
}

// NewA2AGRPCAgent starts the agent without JSON-RPC: only gRPC is served, on a
// port of its own, and the card names nothing else. The card is read over HTTP.
func NewA2AGRPCAgent(ctx context.Context, d Deps, options ...grpc.ServerOption) (*A2AAgent, error) {
	if d.TLS == nil {
		return nil, ErrNoTLS
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("peers: listen: %w", err)
	}
	conf := d.TLS.Clone()
	conf.MinVersion = tls.VersionTLS13
	c := &calls{at: ln.Addr().String(), server: grpc.NewServer(append(options, grpc.Creds(credentials.NewTLS(conf)))...)}
	a := &A2AAgent{calls: c}
	a2agrpc.NewHandler(a2asrv.NewHandler(concierge{}, a2asrv.WithLogger(d.logger()))).RegisterWith(c.server)
	err = a.server.listen(ctx, d, func(string) http.Handler {
		mux := http.NewServeMux()
		mux.Handle(a2asrv.WellKnownAgentCardPath, a2asrv.NewStaticAgentCardHandler(conciergeCard(c.at, a2a.TransportProtocolGRPC)))
		return mux
	})
	if err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	c.serving.Go(func() { _ = c.server.Serve(ln) }) // it ends when it is stopped
	return a, nil
}

func (c *calls) stop() {
	c.server.GracefulStop()
	c.serving.Wait()
}

// GRPC is host:port of the agent over gRPC; empty: it does not speak that.
func (a *A2AAgent) GRPC() string {
	if a.calls == nil {
		return ""
	}
	return a.calls.at
}

// Caller makes calls of A2A over gRPC without an SDK: it sends the octets that
// it is given and keeps those that it gets.
type Caller struct{ conn *grpc.ClientConn }

// NewCaller makes a caller of the server at host:port.
func NewCaller(at string, conf *tls.Config, options ...grpc.DialOption) (*Caller, error) {
	options = append(options, grpc.WithTransportCredentials(credentials.NewTLS(conf)), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(octets{})))
	conn, err := grpc.NewClient(at, options...)
	if err != nil {
		return nil, err
	}
	return &Caller{conn}, nil
}

// Close ends the connection.
func (c *Caller) Close() error { return c.conn.Close() }

// Heard is what a server answered.
type Heard struct {
	Messages        [][]byte            // serialised
	Header, Trailer map[string][]string // metadata
	Code            string              // of its status, as google.rpc.Code names it; OK: it went well
	Message         string              // of its status
	Reason          string              // of its ErrorInfo
	Details         string              // all that its status says, as text
}

// Call calls a method, by its name alone or with its service, with messages as
// they travel; metadata are names and values in turn.
func (c *Caller) Call(ctx context.Context, method string, messages [][]byte, fields ...string) Heard {
	if !strings.HasPrefix(method, "/") {
		method = "/" + a2apb.A2AService_ServiceDesc.ServiceName + "/" + method
	}
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(ctx, fields...))
	defer cancel()
	var heard Heard
	stream, err := c.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err == nil {
		err = heard.talk(stream, messages)
	}
	said := status.Convert(err)
	heard.Code, heard.Message, heard.Details = codeName(said.Code()), said.Message(), said.Proto().String()
	for _, detail := range said.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			heard.Reason = info.GetReason()
		}
	}
	return heard
}

func codeName(code codes.Code) string {
	if code == codes.OK {
		return "OK"
	}
	return rpccode.Code(code).String() //nolint:gosec // small
}

func (h *Heard) talk(stream grpc.ClientStream, messages [][]byte) error {
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
func Request(method, text string) ([]byte, error) {
	m := a2apb.File_a2av1_proto.Services().ByName("A2AService").Methods().ByName(protoreflect.Name(method))
	message := dynamicpb.NewMessage(m.Input())
	if err := protojson.Unmarshal([]byte(text), message); err != nil {
		return nil, err
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(message)
}

// octets is the codec of messages that are sent and kept as they travel.
type octets struct{}

func (octets) Name() string { return "proto" }

func (octets) Marshal(v any) (mem.BufferSlice, error) {
	message, ok := v.([]byte)
	if !ok {
		return nil, errors.New("peers: not octets")
	}
	return mem.BufferSlice{mem.SliceBuffer(message)}, nil
}

func (octets) Unmarshal(data mem.BufferSlice, v any) error {
	message, ok := v.(*[]byte)
	if !ok {
		return errors.New("peers: not octets")
	}
	*message = data.Materialize()
	return nil
}

// WithGRPC is a transport of the A2A SDK's client.
func WithGRPC(conf *tls.Config) a2aclient.FactoryOption {
	return a2agrpc.WithGRPCTransport(grpc.WithTransportCredentials(credentials.NewTLS(conf)))
}
