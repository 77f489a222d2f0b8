package channel_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport/mcp/channel"
)

// latest waits for the nth server.
func (s *stage) latest(n int) *server {
	for {
		s.mu.Lock()
		if len(s.opened) >= n {
			defer s.mu.Unlock()
			return s.opened[n-1]
		}
		s.mu.Unlock()
	}
}

var shared = channel.Key{Agent: "files", URL: "stdio:?arg=x", Shared: true}

// TestShared_RefusedInitializeHarmsNoCall: a server without sessions refuses one; the calls of
// others at it go on, and whoever asked reads the refusal.
func TestShared_RefusedInitializeHarmsNoCall(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	waits := s.ask(t.Context(), shared, "", call("1", ""))
	one := s.latest(1)
	id := idOf(<-one.in)
	begins := s.ask(t.Context(), shared, "", hello)
	<-one.in
	refusal := `{"jsonrpc":"2.0","id":"h","error":{"code":-32022,"message":"no"}}`
	one.out <- refusal
	got := <-begins
	if got.err != nil {
		t.Fatal(got.err)
	}
	if body := s.whole(got.response); body != refusal || got.response.Header.Get("Mcp-Session-Id") != "" {
		t.Errorf("got %s", body)
	}
	select {
	case <-one.over:
		t.Fatal("its channel was closed")
	case one.out <- reply(id):
	}
	if answer := <-waits; answer.err != nil || !strings.Contains(s.whole(answer.response), `"id":"1"`) {
		t.Errorf("got %v", answer.err)
	}
}

// TestShared_InitializeThatIsGivenUp: neither does one whose caller leaves.
func TestShared_InitializeThatIsGivenUp(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	waits := s.ask(t.Context(), shared, "", call("1", ""))
	one := s.latest(1)
	id := idOf(<-one.in)
	ctx, cancel := context.WithCancel(t.Context())
	begins := s.ask(ctx, shared, "", hello)
	<-one.in
	cancel()
	if got := <-begins; got.err == nil {
		t.Error("it got an answer")
	}
	select {
	case <-one.over:
		t.Fatal("its channel was closed")
	case one.out <- reply(id):
	}
	if answer := <-waits; answer.err != nil || !strings.Contains(s.whole(answer.response), `"id":"1"`) {
		t.Errorf("got %v", answer.err)
	}
}

// TestShared_HandshakeEndsAtOnce: the server knows that its client is ready before anybody can
// ask it anything, whatever becomes of the one who came first.
func TestShared_HandshakeEndsAtOnce(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	begins := s.ask(t.Context(), shared, "", hello)
	one := s.latest(1)
	<-one.in
	one.out <- welcome
	got := <-begins
	_ = s.whole(got.response)
	session := got.response.Header.Get("Mcp-Session-Id")
	waits := s.ask(t.Context(), shared, session, call("1", ""))
	if first := <-one.in; !strings.Contains(first, "notifications/initialized") {
		t.Errorf("it got %s", first)
		one.out <- reply("1")
		_ = s.whole((<-waits).response)
		return
	}
	one.out <- reply(idOf(<-one.in))
	_ = s.whole((<-waits).response)
	if _, err := s.do(t.Context(), shared, http.MethodPost, session, `{"jsonrpc":"2.0","method":"notifications/initialized"}`); err != nil {
		t.Error(err)
	}
	if len(one.in) > 0 {
		t.Errorf("it was told again: %s", <-one.in)
	}
}

// TestServers_ChannelThatIsAboutToEnd: whoever finds it by its key gets another.
func TestServers_ChannelThatIsAboutToEnd(t *testing.T) {
	t.Parallel()
	for i, key := range []channel.Key{shared, {Agent: "files", URL: "stdio:?arg=x", Caller: "spiffe://a/b"}} {
		s := newStage(t)
		ask := func(n int) {
			id := strconv.Itoa(n)
			waits := s.ask(t.Context(), key, "", call(id, ""))
			one := s.latest(n)
			select {
			case got := <-one.in:
				one.out <- reply(idOf(got))
			case got := <-waits:
				t.Fatalf("%d: %+v", i, got.response)
			}
			if got := <-waits; got.err != nil || !strings.Contains(s.whole(got.response), `"id":"`+id+`"`) {
				t.Errorf("got %v", got.err)
			}
		}
		ask(1)
		one := s.latest(1)
		one.mu.Lock()
		if one.uses != 0 {
			t.Errorf("%d uses", one.uses)
		}
		one.ending = true
		one.mu.Unlock()
		ask(2)
	}
}

// speaks says something as the server, which must be heard although it reads nothing.
func (s *stage) speaks(one *server, message string) {
	s.t.Helper()
	select {
	case one.out <- message:
	case <-time.After(20 * time.Second):
		s.t.Fatal("nobody listens to the server")
	}
}

// TestServers_ServerThatWritesBeforeItReads: what it is told besides does not keep its own
// messages waiting.
func TestServers_ServerThatWritesBeforeItReads(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.narrow = true
	one, session := s.begin(s.key)
	waits := s.ask(t.Context(), s.key, session, `{"jsonrpc":"2.0","id":"1","method":"tools/list"}`)
	<-one.in
	s.speaks(one, `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	s.speaks(one, `{"jsonrpc":"2.0","id":2,"method":"elicitation/create","params":{}}`)
	s.speaks(one, reply("1"))
	if got := s.whole((<-waits).response); got != reply("1") {
		t.Errorf("got %s", got)
	}
	if got := <-one.in; got != `{"jsonrpc":"2.0","id":1,"result":{}}` {
		t.Errorf("its ping got %s", got)
	}
	if got := <-one.in; !strings.Contains(got, `"id":2,"error"`) {
		t.Errorf("its question got %s", got)
	}
}

// TestAttack_ServerThatNeverReads: what waits for it is bounded.
func TestAttack_ServerThatNeverReads(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.narrow = true
	one, _ := s.begin(s.key)
	for range 1 << 16 {
		select {
		case one.out <- `{"jsonrpc":"2.0","id":1,"method":"ping"}`:
			continue
		case <-one.over:
		}
		return
	}
	t.Error("its channel is open")
}

// TestServers_IDsInAnotherForm: a reply and progress are found however the server writes the
// id and the token.
func TestServers_IDsInAnotherForm(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	one, session := s.begin(s.key)
	waits := s.ask(t.Context(), s.key, session, call("a/1", `,"_meta":{"progressToken":1}`))
	<-one.in
	progress := `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1.0,"progress":1}}`
	one.out <- progress
	in := events((<-waits).response)
	next(t, in, progress)
	answer := `{"jsonrpc":"2.0","id":"\u0061\/1","result":{}}`
	one.out <- answer
	next(t, in, answer)
}

func TestSameID_NumbersAndStrings(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		a, b string
		same bool
	}{
		{`1`, `1.0`, true},
		{`1`, `10e-1`, true},
		{`-1`, `-1`, true},
		{`1`, `"1"`, false},
		{`1`, `1.5`, false},
		{`"a"`, `"\u0061"`, true},
		{`"a/b"`, `"a\/b"`, true},
		{`"a"`, `"A"`, false},
		{`9007199254740993`, `9007199254740992`, false},
		{`9007199254740993`, `9007199254740992.0`, false},
		{`1e400`, `1e401`, false},
		{`null`, ``, false},
	} {
		if got := channel.SameID([]byte(tc.a), []byte(tc.b)); got != tc.same {
			t.Errorf("%s and %s: %v", tc.a, tc.b, got)
		}
	}
}

// TestServers_SlowReaderIsCanceled: the server learns that what it does is for nobody.
func TestServers_SlowReaderIsCanceled(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	one, session := s.begin(s.key)
	waits := s.ask(t.Context(), s.key, session, call("1", `,"_meta":{"progressToken":1}`))
	<-one.in
	one.out <- `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`
	response := (<-waits).response
	for range 9 {
		one.out <- `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1,"message":"` + strings.Repeat("x", 1<<20) + `"}}`
	}
	_ = response.Body.Close()
	select {
	case got := <-one.in:
		if !strings.Contains(got, "notifications/cancelled") {
			t.Errorf("it got %s", got)
		}
	case <-time.After(20 * time.Second):
		t.Error("it was not told")
	}
}

// TestServers_InitializeWithoutSession: no channel is left of one that was refused, or given
// up, after the server had already said something.
func TestServers_InitializeWithoutSession(t *testing.T) {
	t.Parallel()
	for _, refused := range []bool{false, true} {
		s := newStage(t)
		begins := s.ask(t.Context(), s.key, "", strings.Replace(hello, `"params":{`, `"params":{"_meta":{"progressToken":"p"},`, 1))
		one := s.latest(1)
		<-one.in
		one.out <- `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}}`
		got := <-begins
		if refused {
			one.out <- `{"jsonrpc":"2.0","id":"h","error":{"code":-32602,"message":"no"}}`
			_ = s.whole(got.response)
		}
		_ = got.response.Body.Close()
		<-one.over
	}
}

// TestShared_ReplyWithoutIDToARequestThatWasGivenUp: it is not taken for the reply to another
// caller's.
func TestShared_ReplyWithoutIDToARequestThatWasGivenUp(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	ctx, cancel := context.WithCancel(t.Context())
	left := s.ask(ctx, shared, "", call("1", ""))
	one := s.latest(1)
	<-one.in
	cancel()
	<-left
	<-one.in
	waits := s.ask(t.Context(), shared, "", call("2", ""))
	id := idOf(<-one.in)
	one.out <- `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no"}}`
	one.out <- reply(id)
	if got := s.whole((<-waits).response); !strings.Contains(got, `"id":"2"`) {
		t.Errorf("got %s", got)
	}
}

// idOf is the id of what a server was sent.
func idOf(message string) string {
	var request struct{ ID string }
	_ = json.Unmarshal([]byte(message), &request)
	return request.ID
}

// TestAttack_SharedIDs: callers who use the same id do not stand in the way of each other, and
// a reply that comes after its caller left is nobody's.
func TestAttack_SharedIDs(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	ctx, cancel := context.WithCancel(t.Context())
	left := s.ask(ctx, shared, "", call("1", ""))
	one := s.latest(1)
	first := idOf(<-one.in)
	a := s.ask(t.Context(), shared, "", call("1", ""))
	second := idOf(<-one.in)
	cancel()
	<-left
	if got := <-one.in; !strings.Contains(got, "notifications/cancelled") || !strings.Contains(got, strconv.Quote(first)) {
		t.Errorf("it got %s", got)
	}
	if _, err := s.do(t.Context(), shared, http.MethodPost, "", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+strconv.Quote(second)+`}}`); err != nil {
		t.Error(err)
	}
	one.out <- `{"jsonrpc":"2.0","id":` + strconv.Quote(first) + `,"result":{"to":"another"}}`
	one.out <- `{"jsonrpc":"2.0","id":` + strconv.Quote(second) + `,"result":{"to":"1"}}`
	if got := s.whole((<-a).response); got != `{"id":"1","jsonrpc":"2.0","result":{"to":"1"}}` {
		t.Errorf("got %s", got)
	}
	if len(one.in) > 0 {
		t.Errorf("it was told %s", <-one.in)
	}
}

// TestAttack_SharedProgressTokens: neither does the progress of one caller's request reach another.
func TestAttack_SharedProgressTokens(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	extra := `,"_meta":{"progressToken":1}`
	var waits [2]<-chan answered
	var ids [2]string
	waits[0] = s.ask(t.Context(), shared, "", call("1", extra))
	one := s.latest(1)
	ids[0] = idOf(<-one.in)
	waits[1] = s.ask(t.Context(), shared, "", call("1", extra))
	ids[1] = idOf(<-one.in)
	for i, id := range ids {
		one.out <- `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + strconv.Quote(id) + `,"progress":` + strconv.Itoa(i) + `}}`
		response := (<-waits[i]).response
		next(t, events(response), `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":`+strconv.Itoa(i)+`,"progressToken":1}}`)
		one.out <- reply(id)
		_ = response.Body.Close()
	}
}

// TestAttack_SharedSubscriptions: a caller that listens under an id does not keep another from
// listening under the same, and each has what is its own.
func TestAttack_SharedSubscriptions(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	key := channel.Key{Agent: "files", URL: "stdio:?arg=x", Shared: true}
	listen := `{"jsonrpc":"2.0","id":"1","method":"subscriptions/listen","params":{}}`
	changed := `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"1"}}}`
	first, second := s.ask(t.Context(), key, "", listen), s.ask(t.Context(), key, "", listen)
	var one *server
	for one == nil {
		s.mu.Lock()
		if len(s.opened) > 0 {
			one = s.opened[0]
		}
		s.mu.Unlock()
	}
	for range 2 {
		one.out <- strings.Replace(changed, `"1"`, strconv.Quote(idOf(<-one.in)), 1)
	}
	for _, waits := range []<-chan answered{first, second} {
		got := <-waits
		if got.err != nil {
			t.Fatal(got.err)
		}
		next(t, events(got.response), changed)
		_ = got.response.Body.Close()
	}
}
