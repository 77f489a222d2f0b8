package channel_test

import (
	"net/http"
	"strings"
	"testing"
)

// TestAttack_SharedServerIsToldNoAnswer: nobody is asked what a shared server asks, so that what a
// caller says to be the answer, under an id that it guesses, would be consent in another's call.
func TestAttack_SharedServerIsToldNoAnswer(t *testing.T) {
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
	if first := <-one.in; !strings.Contains(first, "nobody can be asked") {
		t.Errorf("it was told %s", first)
	}
	one.out <- reply(id)
	_ = s.whole((<-waits).response)
}
