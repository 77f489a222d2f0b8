package slim_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport/slim/rpc"
)

func limited(t *testing.T, limit time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// TestRPC_OfficialServer: each shape of call, and each way to fail.
func TestRPC_OfficialServer(t *testing.T) {
	t.Parallel()
	_, at := startNode(t)
	startApp(t, at, "org/ns/rpcsrv", true)
	client, to := join(t, at, "org/ns/gogate", plaintext(at)).client(t), parse(t, "org/ns/rpcsrv")

	t.Run("unary", func(t *testing.T) {
		got, err := client.Unary(limited(t, 20*time.Second), to, rpc.Request{Service: "test.Echo", Method: "Echo", Body: []byte("hello")})
		if err != nil || string(got.Body) != "hello" {
			t.Errorf("%q %v", got.Body, err)
		}
	})
	t.Run("empty response", func(t *testing.T) {
		got, err := client.Unary(limited(t, 20*time.Second), to, rpc.Request{Service: "test.Echo", Method: "Empty"})
		if err != nil || len(got.Body) != 0 {
			t.Errorf("%q %v", got.Body, err)
		}
	})
	t.Run("metadata with an ECT of 4 KB, and a deadline", func(t *testing.T) {
		ect := strings.Repeat("e", 4096)
		got, err := client.Unary(limited(t, 20*time.Second), to, rpc.Request{
			Service: "test.Echo", Method: "Metadata", Metadata: map[string]string{"execution-context": ect, "slimrpc-code": "13"},
		})
		if err != nil {
			t.Fatal(err)
		}
		var seen struct {
			Metadata map[string]string
			Left     float64
		}
		if err := json.Unmarshal(got.Body, &seen); err != nil {
			t.Fatal(err)
		}
		if seen.Metadata["execution-context"] != ect || seen.Metadata["slimrpc-code"] != "" {
			t.Errorf("metadata %.200v", seen.Metadata)
		}
		if seen.Left <= 0 || seen.Left > 20_000 {
			t.Errorf("time left %v", seen.Left)
		}
	})
	t.Run("stream", func(t *testing.T) {
		ctx := limited(t, 30*time.Second)
		stream, err := client.Call(ctx, to, rpc.Request{Service: "test.Echo", Method: "Count", Body: []byte("200")})
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Close()
		for i := range 200 {
			f, err := stream.Next(ctx)
			if err != nil || string(f.Body) != fmt.Sprintf("item %d", i) {
				t.Fatalf("%d: %q %v", i, f.Body, err)
			}
		}
		if _, err := stream.Next(ctx); !errors.Is(err, io.EOF) {
			t.Errorf("at the end: %v", err)
		}
	})
	for _, failure := range []struct {
		service, method string
		code            rpc.Code
		says            string // empty: anything
	}{
		{"test.Echo", "Fail", rpc.NotFound, ""},
		{"test.Echo", "Nothing", rpc.Unimplemented, "Method not found: test.Echo/Nothing"},
		{"test.None", "Echo", rpc.Unimplemented, "Method not found: test.None/Echo"}, // a service in the words for a method
	} {
		t.Run(failure.service+" "+failure.method, func(t *testing.T) {
			_, err := client.Unary(limited(t, 20*time.Second), to, rpc.Request{Service: failure.service, Method: failure.method})
			var status *rpc.StatusError
			if !errors.As(err, &status) || status.Code != failure.code || status.Message == "" || failure.says != "" && status.Message != failure.says {
				t.Errorf("%v %+v", err, status)
			}
		})
	}
	t.Run("deadline", func(t *testing.T) {
		_, err := client.Unary(limited(t, time.Second), to, rpc.Request{Service: "test.Echo", Method: "Slow"})
		var status *rpc.StatusError
		if !errors.Is(err, context.DeadlineExceeded) && (!errors.As(err, &status) || status.Code != rpc.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	})
}
