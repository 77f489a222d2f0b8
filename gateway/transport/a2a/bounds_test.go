package a2a

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/inflight"
	"github.com/aepb/aepb-gateway/gateway/transport/transporttest"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/policy/quota"
	"github.com/aepb/aepb-gateway/translators"
	form "github.com/aepb/aepb-gateway/translators/a2a"
)

// bounded serves callers that are known by the metadata "caller".
func bounded(t *testing.T, r transport.Handler) *grpc.ClientConn {
	t.Helper()
	limits, err := inflight.New(inflight.Config{
		Requests: 64, RequestsPerCaller: 2, Streams: 16, StreamsPerCaller: 1, Bytes: 16 << 20, BytesPerCaller: 512 << 10,
		BodyWait: time.Second, WriteWait: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	return overTLS(t, r, func(d *ListenerDeps) {
		d.Form, d.Requests, d.Write = form.New(translators.Config{BodyLimit: 1 << 20}), limits, 200*time.Millisecond
		d.Identify = func(ctx context.Context, a Arrival) context.Context {
			return transport.WithCaller(ctx, identity.Caller{Peer: ect.Peer{ID: ect.Identity("spiffe://a.test/" + strings.Join(a.Fields("caller"), ""))}}, "192.0.2.1")
		}
	})
}

// constant answers every call alike, and remembers none.
type constant struct {
	fakeHandler
	answer transport.Answer
}

func (*constant) Limit(context.Context, transport.CallInfo) (limit.Pass, error) {
	return transporttest.Pass(nil)
}

func (c *constant) Exchange(context.Context, transport.Call) (transport.Answer, error) {
	return c.answer, nil
}

func as(t *testing.T, who string) context.Context {
	t.Helper()
	return metadata.AppendToOutgoingContext(t.Context(), "caller", who)
}

// open begins a call and sends nothing of its message.
func open(t *testing.T, conn *grpc.ClientConn, who string) grpc.ClientStream {
	t.Helper()
	stream, err := conn.NewStream(as(t, who), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, form.ServiceGRPC+"SendMessage")
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// TestAttack_UnfinishedRequestsOverGRPCTakeMemory: finding 5b over gRPC. A caller
// began many requests and finished none; nothing bounded what had arrived of them,
// for a minute. Now a request that does not arrive promptly counts as the largest
// there may be, and is cut off when its caller's share does not hold that. Refused is
// a request more than a caller may have under way. Another caller notices nothing.
func TestAttack_UnfinishedRequestsOverGRPCTakeMemory(t *testing.T) {
	t.Parallel()
	conn := bounded(t, &constant{answer: transporttest.Answer(translators.Wire{Body: []byte{}})})
	begun := time.Now()
	var streams []grpc.ClientStream
	for range 4 {
		streams = append(streams, open(t, conn, "mallory"))
	}
	var body []byte
	if err := begin(as(t, "victim"), t, conn, "SendMessage").RecvMsg(&body); err != nil {
		t.Errorf("a good call of another caller: %v", err)
	}
	got := map[codes.Code]int{}
	for _, stream := range streams {
		got[status.Code(stream.RecvMsg(&body))]++
	}
	if got[codes.ResourceExhausted] < 2 || got[codes.ResourceExhausted]+got[codes.Canceled] != 4 { // gRPC says canceled of one that is cut off
		t.Errorf("unfinished requests ended with %v", got)
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("unfinished requests were held for %v", took)
	}
	for range 3 { // everything was given back
		if err := begin(as(t, "mallory"), t, conn, "SendMessage").RecvMsg(&body); err != nil {
			t.Errorf("a good call of the same caller: %v", err)
		}
	}
}

// TestAttack_StreamsOverGRPCThatAreNotRead: finding 5a over gRPC. A caller asked for
// a stream and read none of it; nothing ended it. Now it ends when its reader takes
// nothing for a while.
func TestAttack_StreamsOverGRPCThatAreNotRead(t *testing.T) {
	t.Parallel()
	large := transport.Event{Wire: translators.Wire{Body: make([]byte, 400<<10)}}
	events := &notified{events: []transport.Event{large, large, large, large}, requested: make(chan struct{}, 16), closed: make(chan struct{})}
	conn := bounded(t, &fakeHandler{answer: transporttest.Stream(events)})
	stream := begin(as(t, "mallory"), t, conn, "SendStreamingMessage")
	select {
	case <-events.closed:
	case <-time.After(30 * time.Second):
		t.Fatal("a stream that its client does not read is not ended")
	}
	var err error
	for err == nil {
		var body []byte
		err = stream.RecvMsg(&body)
	}
	if errors.Is(err, context.Canceled) || status.Code(err) == codes.OK {
		t.Errorf("it ended with %v", err)
	}
}

// TestAttack_UnaryAnswersOverGRPCThatAreNotRead: finding 5 over gRPC. A caller opened
// no window for its answers and asked for many. Each was queued and then counted no
// more, so that a caller could make the gateway keep as many as there are streams,
// until the connection ended. Now an answer counts until it has left, what is over
// the share is refused, and the connection ends when an answer is not read. After
// that the share is free again, and another caller notices nothing.
func TestAttack_UnaryAnswersOverGRPCThatAreNotRead(t *testing.T) {
	t.Parallel()
	const size = 300 << 10 // two are more than a caller may hold
	conn := bounded(t, &constant{answer: transporttest.Answer(translators.Wire{Body: make([]byte, size)})})
	unread := begin(as(t, "mallory"), t, conn, "SendMessage") // gRPC's window is 64 KiB until the client reads
	if _, err := unread.Header(); err != nil {
		t.Fatal(err)
	}
	var body []byte
	if err := begin(as(t, "mallory"), t, conn, "SendMessage").RecvMsg(&body); status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "do not repeat it") {
		t.Errorf("a second answer for a caller that reads none: %v", err)
	}
	if err := begin(as(t, "victim"), t, conn, "SendMessage").RecvMsg(&body); err != nil || len(body) != size {
		t.Errorf("a good call of another caller: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if !conn.WaitForStateChange(ctx, connectivity.Ready) {
		t.Fatal("the connection of a caller that does not read its answer stays open")
	}
	if err := begin(as(t, "mallory"), t, conn, "SendMessage").RecvMsg(&body); err != nil || len(body) != size {
		t.Errorf("a good call of the same caller, later: %v", err)
	}
}

// An answer that is larger than what its caller may hold is refused, not as a call that may be made again.
func TestListener_AnswersTakeTheirLength(t *testing.T) {
	t.Parallel()
	conn := bounded(t, &constant{answer: transporttest.Answer(translators.Wire{Body: make([]byte, 600<<10)})})
	var body []byte
	if err := begin(as(t, "a"), t, conn, "SendMessage").RecvMsg(&body); status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "do not repeat it") {
		t.Errorf("got %v", err)
	}
}

// TestListener_CallsTooManyAreTold: a call beyond what its caller may hold is no call that
// the pipeline refuses, so that the listener says it.
func TestListener_CallsTooManyAreTold(t *testing.T) {
	t.Parallel()
	limits, err := inflight.New(inflight.Config{
		Requests: 64, RequestsPerCaller: 1, Streams: 16, StreamsPerCaller: 1, Bytes: 16 << 20, BytesPerCaller: 512 << 10,
		BodyWait: time.Second, WriteWait: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	refused := make(chan error, 8)
	conn := overTLS(t, &constant{}, func(d *ListenerDeps) {
		d.Requests, d.Refused = limits, func(_ context.Context, _ string, err error) { refused <- err }
	})
	for range 2 {
		open(t, conn, "a")
	}
	select {
	case err := <-refused:
		if _, ok := errors.AsType[*quota.ExceededError](err); !ok {
			t.Errorf("it says %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it says nothing")
	}
}
