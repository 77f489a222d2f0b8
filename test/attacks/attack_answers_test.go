package attacks

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/policy"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// largeAgent is an A2A agent whose answers have so many bytes. It answers when so many calls have come,
// and then all at once. wrote counts the answers that have left it.
func largeAgent(t *testing.T, b *gatewaytest.Fixture, name string, size, together int) (f *gatewaytest.Fake, wrote *atomic.Int32) {
	t.Helper()
	f, wrote = &gatewaytest.Fake{}, &atomic.Int32{}
	var came sync.WaitGroup
	came.Add(together)
	text := strings.Repeat("x", size)
	f.Conduct = func(w http.ResponseWriter, r *http.Request, good []byte) {
		if int(f.Calls.Load()) <= together {
			came.Done()
		}
		came.Wait()
		gatewaytest.Replacing(`"done"`, `"`+text+`"`)(w, r, good)
		wrote.Add(1)
	}
	b.Serve(t, name, "a2a-v1", f, gatewaytest.Host{Timeout: gatewaytest.Patience})
	return f, wrote
}

// TestAttack_LargeAnswersAtOnce: one caller has an agent answer many of its calls at the same moment, each
// with 12 MB. Before, all of them were read into memory at once, and the answers for which the caller had no
// share were thrown away, although the agent had done the work, with the advice to try again. Now what is
// read takes its caller's share while it is read: two answers are in the gateway at once, the others wait at
// the agent, each call has its answer, and large answers to others come meanwhile.
func TestAttack_LargeAnswersAtOnce(t *testing.T) {
	t.Parallel()
	const calls, size = 6, 12 << 20
	b := sharedGateway(t, config.Config{})
	_, wrote := largeAgent(t, b, "large", size, calls)
	largeAgent(t, b, "other", 3<<20, 1)
	mallory, _ := b.ClientOf(t, "/mallory")
	victim, _ := b.ClientOf(t, "/victim")
	var done, inside atomic.Int32
	var all sync.WaitGroup
	for range calls {
		all.Go(func() {
			got := b.Send(t, gatewaytest.A2ATo(mallory, "large", gatewaytest.AddBody(7)))
			for now := wrote.Load() - done.Add(1) + 1; ; {
				if before := inside.Load(); now <= before || inside.CompareAndSwap(before, now) {
					break
				}
			}
			if got.Status != http.StatusOK || len(got.Body) < size {
				t.Errorf("an answer of the work that was done: %d, Retry-After %q, %d bytes, %.300s", got.Status, got.Header.Get("Retry-After"), len(got.Body), got.Body)
			}
		})
	}
	for n := range 3 {
		if got := b.Send(t, gatewaytest.A2ATo(victim, "other", gatewaytest.AddBody(7))); got.Status != http.StatusOK {
			t.Errorf("another caller's large answer %d: %d %.300s", n, got.Status, got.Body)
		}
	}
	all.Wait()
	if n := inside.Load(); n > calls/2 { // a caller may have its answer a while before it is counted
		t.Errorf("%d answers of %d bytes were in the gateway at once, expected what the caller's share has room for", n, size)
	}
}

// TestAttack_LargeBodiesOfACallerOnNoList: an identity that may call no agent sends large bodies to the
// endpoints of agents, slowly. Before, all of each was read, and held bytes that others need, until its message was
// refused. Now nothing is read of a large body before it is known that its caller may call the agent, and a
// small one is refused in the words of its protocol as before.
func TestAttack_LargeBodiesOfACallerOnNoList(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true})
	f := &gatewaytest.Fake{Conduct: gatewaytest.Well}
	b.Serve(t, "closed", "a2a-v1", f, gatewaytest.Host{})
	agent, _ := b.Directory().Find("closed")
	agent.Rules = policy.Rules{Callers: []string{"spiffe://aepb.test/another"}}
	gatewaytest.Must(t, b.Directory().Put(agent))
	mallory, _ := b.ClientOf(t, "/mallory")
	for _, place := range []string{"/agents/closed/a2a", "/agents/closed/mcp"} {
		in, out := io.Pipe()
		request := b.Request(t, gatewaytest.HTTPRequest{At: place, Body: "{}", Header: map[string]string{"A2A-Version": "1.0", "Accept": "application/json, text/event-stream"}})
		request.Body, request.ContentLength = in, 8<<20
		var read atomic.Int64
		go func() {
			for range 8 << 20 / (64 << 10) {
				if _, err := out.Write(make([]byte, 64<<10)); err != nil {
					return
				}
				if read.Add(64<<10) >= 4<<20 {
					return // the rest never comes
				}
			}
		}()
		response, err := mallory.Do(request)
		if err != nil {
			t.Errorf("%s: %v", place, err)
			continue
		}
		gatewaytest.Must(t, response.Body.Close())
		gatewaytest.Must(t, in.Close())
		if response.StatusCode != http.StatusForbidden {
			t.Errorf("%s: a large body is answered with %d", place, response.StatusCode)
		}
	}
	if got := b.Send(t, gatewaytest.A2ATo(mallory, "closed", gatewaytest.AddBody(7))); got.Status != http.StatusForbidden || !strings.Contains(string(got.Body), `"id":"7"`) {
		t.Errorf("a small message is answered with %d %s", got.Status, got.Body)
	}
}
