package stdio_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport/mcp/channel"
	"github.com/aepb/aepb-gateway/gateway/transport/stdio"
	"github.com/aepb/aepb-gateway/policy/quota"
)

// serveMCP is a server that does one thing after the other.
func serveMCP() {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 16<<20)
	for in.Scan() {
		var message struct {
			ID     json.RawMessage
			Params struct {
				Name string
				Meta struct{ ProgressToken json.RawMessage } `json:"_meta"`
			}
		}
		if json.Unmarshal(in.Bytes(), &message) != nil || message.ID == nil {
			continue
		}
		switch message.Params.Name {
		case "work":
			fmt.Fprintf(os.Stdout, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}`+"\n", message.Params.Meta.ProgressToken)
			<-time.After(12 * time.Second)
		case "exit":
			os.Exit(1)
		case "exit with the next":
			fmt.Fprintf(os.Stdout, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}`+"\n", message.Params.Meta.ProgressToken)
			in.Scan()
			os.Exit(1)
		}
		fmt.Fprintf(os.Stdout, `{"jsonrpc":"2.0","id":%s,"result":{}}`+"\n", message.ID)
	}
}

// sharing is a program that callers share.
type sharing struct {
	t       *testing.T
	host    *stdio.Host
	servers channel.Servers
}

func newSharing(t *testing.T) *sharing {
	t.Helper()
	host, _ := newHost(t, stdio.Limits{})
	s := &sharing{t: t, host: host}
	t.Cleanup(s.servers.Close)
	return s
}

// ask has a caller call a tool.
func (s *sharing) ask(ctx context.Context, caller, tool string) (*http.Response, error) {
	mcp := program("mcp")
	mcp.Shared = true
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":` + strconv.Quote(tool) + `,"_meta":{"progressToken":"p"}}}`
	request, err := http.NewRequestWithContext(stdio.For(ctx, ect.Identity(caller)), http.MethodPost, mcp.URL(), strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Mcp-Protocol-Version", "2026-07-28")
	return s.servers.Do(request, channel.Key{Agent: "files", URL: mcp.URL(), Shared: true}, func(ctx context.Context) (channel.Channel, error) {
		return s.host.Start(ctx, stdio.Owner{Agent: "files"}, mcp, maxLine)
	})
}

// works is a call that succeeds.
func (s *sharing) works(caller string, within time.Duration) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), within)
	defer cancel()
	response, err := s.ask(ctx, caller, "any")
	if err != nil {
		s.t.Errorf("a call of %s: %v", caller, err)
		return
	}
	_, _ = io.ReadAll(response.Body)
	_ = response.Body.Close()
}

// TestAttack_LargeMessageToABusySharedProgram: a caller keeps a program that all share at work
// for 12 seconds, and sends a message that its pipe does not hold. Before, the program was ended
// after ten seconds, and with it the calls of all. Now the messages wait, and each is answered.
func TestAttack_LargeMessageToABusySharedProgram(t *testing.T) {
	t.Parallel()
	s := newSharing(t)
	s.works("victim", time.Minute)
	pid := s.host.List()[0].PID
	work, err := s.ask(t.Context(), "mallory", "work")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = work.Body.Close() }()
	var calls sync.WaitGroup
	calls.Go(func() {
		response, err := s.ask(t.Context(), "mallory", strings.Repeat("x", 200<<10))
		if err != nil {
			t.Errorf("the large message: %v", err)
			return
		}
		_ = response.Body.Close()
	})
	for range 10 { // as many as wait meanwhile
		calls.Go(func() { s.works("victim", time.Minute) })
	}
	calls.Wait()
	s.works("victim", time.Minute)
	if list := s.host.List(); len(list) != 1 || list[0].PID != pid {
		t.Errorf("the program was ended: %+v", list)
	}
}

// TestAttack_ToolThatEndsASharedProgram: a caller calls a tool that makes the program exit,
// again and again. Before, all callers waited before it was started again. Now the one whose
// call was under way first does, and what others hear of it is no failure.
func TestAttack_ToolThatEndsASharedProgram(t *testing.T) {
	t.Parallel()
	s := newSharing(t)
	for range 2 {
		s.works("victim", time.Minute)
		_, err := s.ask(t.Context(), "mallory", "exit")
		if ended, ok := errors.AsType[*stdio.EndedError](err); !ok || ended.Innocent() {
			t.Errorf("the attacker got %v", err)
		}
	}
	var waits *stdio.WaitError
	for range 3 { // with the program to be started, and running
		if _, err := s.ask(t.Context(), "mallory", "exit"); !errors.As(err, &waits) {
			t.Errorf("the attacker got %v", err)
		}
		s.works("victim", time.Minute)
	}
	for range 3 { // nor does a caller wait for what the gateway itself asks
		_, _ = s.ask(t.Context(), "", "exit")
		s.works("victim", time.Minute)
	}
	first, err := s.ask(t.Context(), "oscar", "exit with the next")
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.ask(t.Context(), "victim", "any")
	if ended, ok := errors.AsType[*stdio.EndedError](err); !ok || !ended.Innocent() {
		t.Errorf("a call that another's ended: %v", err)
	}
	_, err = io.ReadAll(first.Body)
	_ = first.Body.Close()
	if ended, ok := errors.AsType[*stdio.EndedError](err); !ok || ended.Innocent() {
		t.Errorf("the call that was first: %v", err)
	}
	s.works("victim", time.Minute)
}

// TestAttack_ElevenIdentitiesHoldAllPrograms: three identities with eight sessions each and
// eight with one. Before, those whose client only listens were in use, and a call of a twelfth
// was refused at once. Now they give way; and while all are at work it waits for the first
// place that is free, and comes before an identity that has several.
func TestAttack_ElevenIdentitiesHoldAllPrograms(t *testing.T) {
	t.Parallel()
	host, _ := newHost(t, stdio.Limits{})
	var processes []*stdio.Process
	for i := range 32 {
		processes = append(processes, start(t, host, fmt.Sprint("identity ", max(i/8, i-21)), program()))
	}
	var reading sync.WaitGroup
	defer reading.Wait()
	defer func() { host.Drop("files", "") }()
	follow := func(p *stdio.Process) { reading.Go(func() { _ = drain(t, p) }) }
	for _, p := range processes {
		follow(p)
	}
	begun := time.Now()
	var exceeded *quota.ExceededError
	if _, err := host.Start(t.Context(), stdio.Owner{Agent: "files", Caller: "victim"}, program(), maxLine); !errors.As(err, &exceeded) || time.Since(begun) < time.Second {
		t.Fatalf("all places are in use: %v after %v", err, time.Since(begun))
	}
	var several sync.WaitGroup
	for i := range 3 { // who has one more already, and waits longer
		several.Go(func() {
			p, err := host.Start(t.Context(), stdio.Owner{Agent: "files", Caller: ect.Identity(fmt.Sprint("identity ", 3+i))}, program(), maxLine)
			if err == nil {
				t.Error("it comes before the victim")
				follow(p)
			}
		})
	}
	rested := make(chan struct{})
	go func() {
		defer close(rested)
		for tick := time.Tick(time.Millisecond); host.Waiting() < 4 && t.Context().Err() == nil; {
			<-tick
		}
		processes[0].Rest()
	}()
	victim := start(t, host, "victim", program()) // in the place that rests since
	several.Wait()
	<-rested
	if got := say(t, victim, "say here"); got != "here" {
		t.Errorf("got %q", got)
	}
	follow(victim)
	processes[1].Listen()
	another := start(t, host, "another victim", program())
	follow(another)
}
