package channel_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
)

// TestAttack_AnswerToASharedServer: no caller is asked what a shared server asks, so that what a
// caller says to be the answer, under an id that it guesses, would be consent in another's call.
func TestAttack_AnswerToASharedServer(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	waits := s.ask(t.Context(), shared, "", call("1", ""))
	one := s.latest(1)
	id := idOf(<-one.in)
	for _, message := range []string{
		`{"jsonrpc":"2.0","id":0,"result":{"action":"accept","content":{}}}`,
		`{"jsonrpc":"2.0","id":0,"error":{"code":-32603,"message":"no"}}`,
		`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`,
	} {
		response, err := s.do(t.Context(), shared, http.MethodPost, "", message)
		if err != nil || response.StatusCode != http.StatusAccepted {
			t.Fatal(err)
		}
	}
	one.out <- `{"jsonrpc":"2.0","id":0,"method":"elicitation/create","params":{"message":"Delete?"}}`
	if first := <-one.in; !strings.Contains(first, "no caller can be asked") {
		t.Errorf("it was told %s", first)
	}
	one.out <- reply(id)
	_ = s.whole((<-waits).response)
}

// TestServers_TwoStreamsThatListenAtOnce: one of them is refused.
func TestServers_TwoStreamsThatListenAtOnce(t *testing.T) {
	t.Parallel()
	for range 50 {
		s := newStage(t)
		_, session := s.begin(s.key)
		got, both := make(chan int, 2), make(chan struct{})
		var asking sync.WaitGroup
		for range 2 {
			asking.Go(func() {
				response, err := s.do(t.Context(), s.key, http.MethodGet, session, "")
				if err != nil {
					got <- 0
					return
				}
				got <- response.StatusCode
				<-both
				_ = response.Body.Close()
			})
		}
		a, b := <-got, <-got
		close(both)
		asking.Wait()
		if a == b {
			t.Fatalf("both got %d", a)
		}
		s.servers.Close()
	}
}
