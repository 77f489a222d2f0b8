package main

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
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// inDatagrams starts a µACP fake that is reached in datagrams, of which it never
// gets those that are lost; it says where.
func inDatagrams(t *testing.T, f *uacpFake, lost func(uacp.Frame) bool) directory.Endpoint {
	t.Helper()
	f.form = uacp.New(translators.Config{})
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	must(t, err)
	var group sync.WaitGroup
	group.Go(func() {
		room := make([]byte, tuacp.MaxDatagram)
		for {
			n, from, err := conn.ReadFrom(room)
			if err != nil {
				return
			}
			body := append([]byte(nil), room[:n]...)
			request, err := uacp.ParseFrame(body)
			if err != nil || request.IsAck() || lost(request) {
				continue
			}
			if request.Verb == uacp.Observe {
				for _, frame := range f.told(request, uacp.FormOf(body)) {
					_, _ = conn.WriteTo(frame, from)
				}
			} else if reply := f.answer(body); reply != nil {
				_, _ = conn.WriteTo(reply, from)
			}
		}
	})
	t.Cleanup(group.Wait)
	t.Cleanup(func() { _ = conn.Close() })
	return directory.Endpoint{Binding: uacp.Binding, URL: tuacp.SchemeDatagram + "://" + conn.LocalAddr().String()}
}

// TestAgentsOfDatagrams: a development gateway reaches a µACP agent of this machine
// in datagrams, and says again what was lost; production has no such agents, nor
// has who demands a protected way.
func TestAgentsOfDatagrams(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	var lost atomic.Int32
	fake := &uacpFake{}
	at := inDatagrams(t, fake, func(f uacp.Frame) bool {
		return f.Verb == uacp.Ask && f.Topic() == uacp.TopicCall && lost.Add(1) == 1
	})
	b.listAs(t, "abacus", "", at)
	n := b.number()
	b.right(t, b.send(t, letter{at: "/agents/abacus/a2a", body: addBody(n)}), strconv.FormatInt(n+1, 10))
	if lost.Load() != 2 || fake.calls.Load() != 1 {
		t.Errorf("it was sent %d times, and answered %d times", lost.Load(), fake.calls.Load())
	}
	b.listAs(t, "herald", "", inDatagrams(t, &uacpFake{tells: []string{"first", "second"}}, func(uacp.Frame) bool { return false }))
	got := b.send(t, letter{at: "/agents/herald/a2a", body: strings.Replace(addBody(1), "SendMessage", "SendStreamingMessage", 1)})
	text := string(got.body)
	first, second, end := strings.Index(text, "first"), strings.Index(text, "second"), strings.Index(text, "TASK_STATE_COMPLETED")
	if got.status != http.StatusOK || first < 0 || second < first || end < second {
		t.Errorf("observed: %d %s", got.status, text)
	}
	long := b.send(t, letter{at: "/agents/abacus/a2a", body: textBody(strings.Repeat("x", 20_000))})
	if !strings.Contains(string(long.body), "does not fit") {
		t.Errorf("too long: %d %s", long.status, short(long.body))
	}
	b.works(t)

	var invalid *directory.InvalidAgentError
	production := newBed(t, plan{serve: true})
	err := production.directory.Put(directory.Agent{Name: "abacus", Endpoints: []directory.Endpoint{at}})
	if !errors.As(err, &invalid) || !strings.Contains(err.Error(), "only dev") {
		t.Errorf("in production: %v", err)
	}
	careful := newBed(t, plan{config: config.Config{Policy: config.Policy{MinSecurity: "tls-1.3"}}})
	careful.listAs(t, "abacus", "", at)
	before := fake.calls.Load()
	refused := careful.send(t, letter{at: "/aepb/translate?from=a2a-v1&dest=abacus", body: addBody(1), tokens: []string{careful.token(t, addBody(1))}})
	if refused.status != http.StatusForbidden || !strings.Contains(string(refused.body), "policy_violation") || fake.calls.Load() != before {
		t.Errorf("below the minimum: %d %s", refused.status, short(refused.body))
	}
}
