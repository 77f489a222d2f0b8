package stories

import (
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/directory"
	tuacp "github.com/aepb/aepb-gateway/gateway/transport/uacp"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// inDatagrams starts a µACP fake that is reached in datagrams, of which it never
// gets those that are lost; it says where.
func inDatagrams(t *testing.T, f *gatewaytest.UACPFake, losses func(uacp.Frame) bool) directory.Endpoint {
	t.Helper()
	f.Form = uacp.New(translators.Config{})
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	gatewaytest.Must(t, err)
	var group sync.WaitGroup
	group.Go(func() {
		space := make([]byte, tuacp.MaxDatagram)
		for {
			n, from, err := conn.ReadFrom(space)
			if err != nil {
				return
			}
			body := append([]byte(nil), space[:n]...)
			request, err := uacp.ParseFrame(body)
			if err != nil || request.IsAck() || losses(request) {
				continue
			}
			if request.Verb == uacp.Observe {
				for _, frame := range f.Observed(request, uacp.FormOf(body)) {
					_, _ = conn.WriteTo(frame, from)
				}
			} else if reply := f.Answer(body); reply != nil {
				_, _ = conn.WriteTo(reply, from)
			}
		}
	})
	t.Cleanup(group.Wait)
	t.Cleanup(func() { _ = conn.Close() })
	return directory.Endpoint{Binding: uacp.Binding, URL: tuacp.SchemeDatagram + "://" + conn.LocalAddr().String()}
}

// TestUACPDatagrams_AgentsOfADevelopmentGateway: a development gateway reaches a µACP agent of this machine
// in datagrams, and says again what was lost; production has no such agents, nor
// has who demands a protected way.
func TestUACPDatagrams_AgentsOfADevelopmentGateway(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	var losses atomic.Int32
	fake := &gatewaytest.UACPFake{}
	at := inDatagrams(t, fake, func(f uacp.Frame) bool {
		return f.Verb == uacp.Ask && f.Topic() == uacp.TopicCall && losses.Add(1) == 1
	})
	b.ListAs(t, "abacus", "", at)
	n := b.Number()
	b.Right(t, b.Send(t, gatewaytest.HTTPRequest{At: "/agents/abacus/a2a", Body: gatewaytest.AddBody(n)}), strconv.FormatInt(n+1, 10))
	if losses.Load() != 2 || fake.Calls.Load() != 1 {
		t.Errorf("it was sent %d times, and answered %d times", losses.Load(), fake.Calls.Load())
	}
	b.ListAs(t, "herald", "", inDatagrams(t, &gatewaytest.UACPFake{Tells: []string{"first", "second"}}, func(uacp.Frame) bool { return false }))
	got := b.Send(t, gatewaytest.HTTPRequest{At: "/agents/herald/a2a", Body: strings.Replace(gatewaytest.AddBody(1), "SendMessage", "SendStreamingMessage", 1)})
	text := string(got.Body)
	first, second, end := strings.Index(text, "first"), strings.Index(text, "second"), strings.Index(text, "TASK_STATE_COMPLETED")
	if got.Status != http.StatusOK || first < 0 || second < first || end < second {
		t.Errorf("observed: %d %s", got.Status, text)
	}
	long := b.Send(t, gatewaytest.HTTPRequest{At: "/agents/abacus/a2a", Body: gatewaytest.TextBody(strings.Repeat("x", 20_000))})
	if !strings.Contains(string(long.Body), "does not fit") {
		t.Errorf("too long: %d %s", long.Status, gatewaytest.Short(long.Body))
	}
	b.Works(t)

	var invalid *directory.InvalidAgentError
	production := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true})
	err := production.Directory().Put(directory.Agent{Name: "abacus", Endpoints: []directory.Endpoint{at}})
	if !errors.As(err, &invalid) || !strings.Contains(err.Error(), "only dev") {
		t.Errorf("in production: %v", err)
	}
	careful := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: config.Config{Policy: config.Policy{MinSecurity: "tls-1.3"}}})
	careful.ListAs(t, "abacus", "", at)
	before := fake.Calls.Load()
	refused := careful.Send(t, gatewaytest.HTTPRequest{At: "/aepb/translate?from=a2a-v1&dest=abacus", Body: gatewaytest.AddBody(1), Tokens: []string{careful.Token(t, gatewaytest.AddBody(1))}})
	if refused.Status != http.StatusForbidden || !strings.Contains(string(refused.Body), "policy_violation") || fake.Calls.Load() != before {
		t.Errorf("below the minimum: %d %s", refused.Status, gatewaytest.Short(refused.Body))
	}
}
