package channel_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/aepb/aepb-gateway/gateway/transport/mcp/channel"
	"github.com/aepb/aepb-gateway/gateway/transport/sse"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errOver = errors.New("the server ended")

// server is a channel to a server that the test plays.
type server struct {
	in    chan string // what it was sent
	out   chan string // what it says
	over  chan struct{}
	once  sync.Once
	mu    sync.Mutex
	uses  int
	notes int

	ending bool // it can be used no more
}

func newServer() *server {
	return &server{in: make(chan string, 64), out: make(chan string), over: make(chan struct{}), uses: 1}
}

func (s *server) Send(_ context.Context, message []byte) error {
	select {
	case s.in <- string(message):
		return nil
	case <-s.over:
		return errOver
	}
}

func (s *server) Receive() ([]byte, error) {
	select {
	case message := <-s.out:
		return []byte(message), nil
	case <-s.over:
		return nil, errOver
	}
}

func (s *server) Note([]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notes++
}

func (s *server) Close() { s.once.Do(func() { close(s.over) }) }

func (s *server) Use() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending {
		return false
	}
	s.uses++
	return true
}

func (s *server) Rest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uses--
}

// stage is what a test works with.
type stage struct {
	t       *testing.T
	servers channel.Servers
	key     channel.Key

	narrow bool // its servers take nothing that they do not read

	mu     sync.Mutex
	opened []*server
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{t: t, key: channel.Key{Agent: "files", URL: "stdio:?arg=x", Caller: "spiffe://a/b"}}
	t.Cleanup(s.servers.Close)
	return s
}

func (s *stage) open(context.Context) (channel.Channel, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := newServer()
	if s.narrow {
		one.in = make(chan string)
	}
	s.opened = append(s.opened, one)
	return one, nil
}

func (s *stage) do(ctx context.Context, key channel.Key, method, session, body string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, key.URL, strings.NewReader(body))
	if err != nil {
		s.t.Error(err)
	}
	if session != "" {
		request.Header.Set("Mcp-Session-Id", session)
	} else {
		request.Header.Set("Mcp-Protocol-Version", "2026-07-28")
	}
	return s.servers.Do(request, key, s.open)
}

// answered is a response that is on its way.
type answered struct {
	response *http.Response
	err      error
}

// ask sends a request and does not wait for the response.
func (s *stage) ask(ctx context.Context, key channel.Key, session, body string) <-chan answered {
	out := make(chan answered, 1)
	var begun sync.WaitGroup
	begun.Go(func() {
		response, err := s.do(ctx, key, http.MethodPost, session, body)
		out <- answered{response, err}
	})
	s.t.Cleanup(begun.Wait)
	return out
}

const (
	hello   = `{"jsonrpc":"2.0","id":"h","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}},"clientInfo":{"name":"a","version":"1"}}}`
	welcome = `{"jsonrpc":"2.0","id":"h","result":{"protocolVersion":"2025-11-25"}}`
)

// begin begins a session with a server that the test then plays.
func (s *stage) begin(key channel.Key) (*server, string) {
	s.t.Helper()
	begins := s.ask(s.t.Context(), key, "", hello)
	var one *server
	for one == nil {
		s.mu.Lock()
		if n := len(s.opened); n > 0 {
			one = s.opened[n-1]
		}
		s.mu.Unlock()
	}
	<-one.in
	one.out <- welcome
	got := <-begins
	if got.err != nil {
		s.t.Fatal(got.err)
	}
	if body := s.whole(got.response); body != welcome {
		s.t.Fatalf("got %s", body)
	}
	return one, got.response.Header.Get("Mcp-Session-Id")
}

func (s *stage) whole(response *http.Response) string {
	s.t.Helper()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	_ = response.Body.Close()
	return string(body)
}

func call(id, extra string) string {
	return `{"jsonrpc":"2.0","id":` + strconv.Quote(id) + `,"method":"tools/call","params":{"name":"t"` + extra + `}}`
}

func reply(id string) string {
	return `{"jsonrpc":"2.0","id":` + strconv.Quote(id) + `,"result":{"to":` + strconv.Quote(id) + `}}`
}

// events reads the events of a response.
func events(response *http.Response) *sse.Reader {
	return sse.NewReader(response.Body, sse.Limits{Event: 1 << 20, Events: 1000, Total: 64 << 20})
}

func next(t *testing.T, in *sse.Reader, want string) {
	t.Helper()
	event, err := in.Next()
	if err != nil || string(event.Data) != want {
		t.Fatalf("got %s %v, want %s", event.Data, err, want)
	}
}

func TestServers_RepliesByID(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	one, session := s.begin(s.key)
	first, second := s.ask(t.Context(), s.key, session, call("1", "")), s.ask(t.Context(), s.key, session, call("2", ""))
	<-one.in
	<-one.in
	one.out <- "no message"
	one.out <- reply("2")
	one.out <- reply("1")
	if got := s.whole((<-first).response); got != reply("1") {
		t.Errorf("got %s", got)
	}
	if got := s.whole((<-second).response); got != reply("2") {
		t.Errorf("got %s", got)
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.uses != 0 || one.notes != 1 {
		t.Errorf("%d uses, %d notes", one.uses, one.notes)
	}
}

func TestServers_ProgressAndQuestionsInTheStream(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	one, session := s.begin(s.key)
	watched := s.ask(t.Context(), s.key, session, call("1", `,"_meta":{"progressToken":"p"}`))
	<-one.in
	progress := `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}}`
	question := `{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{}}`
	one.out <- `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"other","progress":1}}`
	one.out <- progress
	response := (<-watched).response
	in := events(response)
	next(t, in, progress)
	one.out <- question
	next(t, in, question)
	answer := `{"jsonrpc":"2.0","id":7,"result":{}}`
	if got, err := s.do(t.Context(), s.key, http.MethodPost, session, answer); err != nil || got.StatusCode != http.StatusAccepted {
		t.Errorf("got %v %v", got, err)
	}
	if got := <-one.in; got != answer {
		t.Errorf("it got %s", got)
	}
	one.out <- `{"jsonrpc":"2.0","id":8,"method":"ping"}`
	if got := <-one.in; got != `{"jsonrpc":"2.0","id":8,"result":{}}` {
		t.Errorf("its ping got %s", got)
	}
	one.out <- reply("1")
	next(t, in, reply("1"))
	if _, err := in.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("after the reply: %v", err)
	}
	_ = response.Body.Close()
	select {
	case got := <-one.in:
		t.Errorf("it got %s", got)
	default:
	}
}

func TestServers_QuestionNobodyCanBeChosenFor(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	one, session := s.begin(s.key)
	a, b := s.ask(t.Context(), s.key, session, call("1", "")), s.ask(t.Context(), s.key, session, call("2", ""))
	<-one.in
	<-one.in
	one.out <- `{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{}}`
	if got := <-one.in; !strings.Contains(got, `"id":7,"error":{"code":-32603`) {
		t.Errorf("it got %s", got)
	}
	listens, err := s.do(t.Context(), s.key, http.MethodGet, session, "")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := s.do(t.Context(), s.key, http.MethodGet, session, ""); err != nil || again.StatusCode != http.StatusConflict {
		t.Errorf("a second stream: %v %v", again, err)
	}
	question := `{"jsonrpc":"2.0","id":8,"method":"roots/list"}`
	one.out <- question
	next(t, events(listens), question)
	_ = listens.Body.Close()
	one.out <- reply("1")
	one.out <- reply("2")
	<-a
	<-b
}

// A question goes to the only request that does not wait for an answer already.
func TestServers_QuestionWhileAnotherIsOpen(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	one, session := s.begin(s.key)
	question := func(id string) string { return `{"jsonrpc":"2.0","id":` + id + `,"method":"roots/list"}` }
	a := s.ask(t.Context(), s.key, session, call("1", ""))
	<-one.in
	one.out <- question("7")
	first := (<-a).response
	next(t, events(first), question("7"))
	b := s.ask(t.Context(), s.key, session, call("2", ""))
	<-one.in
	one.out <- question("8")
	second := (<-b).response
	next(t, events(second), question("8"))
	one.out <- question("9")
	if got := <-one.in; !strings.Contains(got, `"id":9,"error":{"code":-32603`) {
		t.Errorf("with two that wait it got %s", got)
	}
	for _, one := range []*http.Response{first, second} {
		_ = one.Body.Close()
	}
	<-one.in
	<-one.in
}

// A request that has its reply is not under way any more, although its caller has not read that
// to its end: what the server asks and logs next is about the request that came after it.
func TestServers_QuestionAfterAReplyThatIsNotRead(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	one, session := s.begin(s.key)
	question := func(id string) string {
		return `{"jsonrpc":"2.0","id":` + id + `,"method":"elicitation/create","params":{}}`
	}
	a := s.ask(t.Context(), s.key, session, call("1", ""))
	<-one.in
	one.out <- question("7")
	first := (<-a).response
	next(t, events(first), question("7"))
	answer := `{"jsonrpc":"2.0","id":7,"result":{}}`
	if got, err := s.do(t.Context(), s.key, http.MethodPost, session, answer); err != nil || got.StatusCode != http.StatusAccepted || <-one.in != answer {
		t.Errorf("got %v %v", got, err)
	}
	one.out <- reply("1")
	b := s.ask(t.Context(), s.key, session, call("2", ""))
	<-one.in
	one.out <- question("8")
	var second *http.Response
	select {
	case got := <-one.in:
		t.Fatalf("its question got %s", got)
	case got := <-b:
		second = got.response
	}
	in := events(second)
	next(t, in, question("8"))
	text := `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}`
	one.out <- text
	next(t, in, text)
	_ = first.Body.Close()
	one.out <- reply("2")
	next(t, in, reply("2"))
	_ = second.Body.Close()
	select {
	case got := <-one.in:
		t.Errorf("it got %s", got)
	default:
	}
}

func TestServers_ClosedStreamCancels(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	one, session := s.begin(s.key)
	ctx, cancel := context.WithCancel(t.Context())
	gone := s.ask(ctx, s.key, session, call("1", ""))
	<-one.in
	cancel()
	if got := <-gone; !errors.Is(got.err, context.Canceled) {
		t.Errorf("got %v", got.err)
	}
	if got := <-one.in; got != `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"1"}}` {
		t.Errorf("it got %s", got)
	}
	one.out <- reply("1") // which nobody waits for
	later := s.ask(t.Context(), s.key, session, call("2", ""))
	<-one.in
	one.out <- reply("2")
	if got := s.whole((<-later).response); got != reply("2") {
		t.Errorf("got %s", got)
	}
}

func TestServers_EndOfServer(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	one, session := s.begin(s.key)
	waits := s.ask(t.Context(), s.key, session, call("1", ""))
	<-one.in
	one.Close()
	if got := <-waits; !errors.Is(got.err, errOver) {
		t.Errorf("got %v", got.err)
	}
	if got, err := s.do(t.Context(), s.key, http.MethodPost, session, call("2", "")); err != nil || got.StatusCode != http.StatusNotFound {
		t.Errorf("the session: %v %v", got, err)
	}
}

func TestServers_SessionOfAnotherCaller(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	one, session := s.begin(s.key)
	other := s.key
	other.Caller = "spiffe://a/mallory"
	for _, method := range []string{http.MethodPost, http.MethodGet} {
		if got, err := s.do(t.Context(), other, method, session, call("1", "")); err != nil || got.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %v %v", method, got, err)
		}
	}
	if _, err := s.do(t.Context(), other, http.MethodDelete, session, ""); err != nil {
		t.Error(err)
	}
	select {
	case <-one.over:
		t.Error("another caller ended the session")
	case got := <-one.in:
		t.Errorf("it got %s", got)
	default:
	}
	if _, err := s.do(t.Context(), s.key, http.MethodDelete, session, ""); err != nil {
		t.Error(err)
	}
	<-one.over
}

func TestServers_SlowReader(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	one, session := s.begin(s.key)
	slow := s.ask(t.Context(), s.key, session, call("1", `,"_meta":{"progressToken":1}`))
	quick := s.ask(t.Context(), s.key, session, call("2", ""))
	<-one.in
	<-one.in
	long := `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1,"message":"` + strings.Repeat("x", 1<<20) + `"}}`
	for range 12 {
		one.out <- long
	}
	one.out <- reply("2")
	if got := s.whole((<-quick).response); got != reply("2") {
		t.Errorf("got %s", got)
	}
	got := <-slow
	err := got.err // it may have read the first before
	if got.response != nil {
		_, err = io.Copy(io.Discard, got.response.Body)
		_ = got.response.Body.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "more than the caller read") {
		t.Errorf("got %v", err)
	}
}

func TestServers_Shared(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	key := channel.Key{Agent: "files", URL: "stdio:?arg=x", Shared: true}
	first := s.ask(t.Context(), key, "", hello)
	second := s.ask(t.Context(), key, "", strings.Replace(hello, `"h"`, `"h2"`, 1))
	var one *server
	for one == nil {
		s.mu.Lock()
		if len(s.opened) > 0 {
			one = s.opened[0]
		}
		s.mu.Unlock()
	}
	begun := <-one.in
	var request struct {
		ID     string
		Params struct{ Capabilities json.RawMessage }
	}
	if err := json.Unmarshal([]byte(begun), &request); err != nil || string(request.Params.Capabilities) != "{}" {
		t.Errorf("it was promised %s", begun)
	}
	one.out <- strings.Replace(welcome, `"h"`, strconv.Quote(request.ID), 1)
	if got := <-one.in; !strings.Contains(got, "notifications/initialized") {
		t.Errorf("after the answer it got %s", got)
	}
	a, b := <-first, <-second
	if x, y := s.whole(a.response), s.whole(b.response); x != welcome || !strings.Contains(y, `"id":"h2","result":{"protocolVersion"`) {
		t.Errorf("got %s and %s", x, y)
	}
	session := a.response.Header.Get("Mcp-Session-Id")
	if session == "" || session != b.response.Header.Get("Mcp-Session-Id") || len(s.opened) != 1 {
		t.Errorf("%d channels", len(s.opened))
	}
	x := s.ask(t.Context(), key, session, call("1", `,"_meta":{"progressToken":1}`))
	idX := idOf(<-one.in)
	one.out <- `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"secret"}}`
	one.out <- `{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{}}`
	if got := <-one.in; !strings.Contains(got, `"error"`) {
		t.Errorf("its question got %s", got)
	}
	y := s.ask(t.Context(), key, session, call("2", `,"_meta":{"progressToken":1}`))
	idY := idOf(<-one.in)
	one.out <- `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`
	one.out <- reply(idX)
	one.out <- reply(idY)
	for i, waits := range []<-chan answered{x, y} {
		if got := s.whole((<-waits).response); !strings.Contains(got, `"id":"`+strconv.Itoa(i+1)+`"`) {
			t.Errorf("got %s", got)
		}
	}
	got, err := s.do(t.Context(), key, http.MethodPost, session, `{"jsonrpc":"2.0","id":"s","method":"resources/subscribe","params":{"uri":"a:1"}}`)
	if err != nil || !strings.Contains(s.whole(got), "-32601") {
		t.Errorf("subscribing: %v", err)
	}
	if _, err := s.do(t.Context(), key, http.MethodDelete, session, ""); err != nil {
		t.Error(err)
	}
	select {
	case <-one.over:
		t.Error("one caller ended the session of all")
	default:
	}
}

func TestServers_WithoutSessions(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	listens := s.ask(t.Context(), s.key, "", `{"jsonrpc":"2.0","id":"l","method":"subscriptions/listen","params":{}}`)
	a := s.ask(t.Context(), s.key, "", call("1", ""))
	var one *server
	for one == nil {
		s.mu.Lock()
		if len(s.opened) > 0 {
			one = s.opened[0]
		}
		s.mu.Unlock()
	}
	sent := []string{<-one.in, <-one.in}
	if strings.Contains(sent[1], "tools/call") {
		sent[0], sent[1] = sent[1], sent[0]
	}
	id, subscription := idOf(sent[0]), idOf(sent[1])
	changed := `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l"}}}`
	one.out <- strings.Replace(changed, `"l"`, strconv.Quote(subscription), 1)
	one.out <- reply(id) // clients of one caller may use the same ids
	if got := s.whole((<-a).response); !strings.Contains(got, `"id":"1"`) || id == "1" || len(s.opened) != 1 {
		t.Errorf("got %s, %d channels", got, len(s.opened))
	}
	response := (<-listens).response
	next(t, events(response), changed)
	_ = response.Body.Close()
	if got := <-one.in; !strings.Contains(got, `"requestId":`+strconv.Quote(subscription)) || subscription == "l" {
		t.Errorf("it got %s", got)
	}
}

// FuzzServers_AnyOutput: whatever a server says, its channel ends in peace and no other request fails.
func FuzzServers_AnyOutput(f *testing.F) {
	for _, text := range []string{reply("1"), `{"jsonrpc":"2.0","id":null,"error":{}}`, `{"jsonrpc":"2.0","id":7,"method":"a"}`, `{"jsonrpc":"2.0","method":"notifications/progress","params":[]}`, "[]", "\x00"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s := newStage(t)
		one, session := s.begin(s.key)
		waits := s.ask(t.Context(), s.key, session, call("1", ""))
		<-one.in
		one.out <- string(text)
		one.out <- reply("1")
		got := <-waits
		if got.err != nil {
			t.Fatal(got.err)
		}
		var last bytes.Buffer
		if _, err := io.Copy(&last, got.response.Body); err != nil && !errors.Is(err, io.EOF) {
			t.Error(err)
		}
		_ = got.response.Body.Close()
	})
}
