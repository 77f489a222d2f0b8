package gatewaytest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
)

// HTTPRequest is one request to the gateway. Zero fields make the good call: an A2A
// message for the calculator, over the client's own connection. Its tokens
// must be given.
type HTTPRequest struct {
	Via    *http.Client // nil: the development client
	Method string       // "": POST
	At     string       // path and query; "": the translate endpoint, from A2A to the calculator; or a whole URL
	Media  string       // "": application/json; "-": none
	Body   string
	Header map[string]string
	Tokens []string
	Host   string
}

// The ways in.
const (
	ToCalculator = "/aepb/translate?from=a2a-v1&dest=calculator"
	ToConcierge  = "/aepb/translate?from=mcp-v1&dest=concierge"
	ToNobody     = "/aepb/translate?from=a2a-v1&to=mcp-v1"
	EndpointA2A  = "/agents/calculator/a2a"
	EndpointMCP  = "/agents/concierge/mcp"
)

// Reply is an answer, read to its end.
type Reply struct {
	Status int
	Header http.Header
	Body   []byte
}

// Send sends a request and returns the answer. If there is none, the test ends.
func (b *Fixture) Send(t *testing.T, l HTTPRequest) Reply {
	t.Helper()
	got, err := b.Try(t, l)
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	return got
}

// Try is [Fixture.Send] for requests that may have no answer: the error says why. Only what HTTP does not allow ends
// the test.
func (b *Fixture) Try(t *testing.T, l HTTPRequest) (Reply, error) {
	t.Helper()
	if l.Via == nil {
		l.Via = b.Client
	}
	return Receive(l.Via, b.Request(t, l))
}

// Receive sends a request and reads at most 32 MiB of the body of its answer. The error is that of the client or of
// reading.
func Receive(via *http.Client, request *http.Request) (Reply, error) {
	response, err := via.Do(request)
	if err != nil {
		return Reply{}, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, 32<<20))
	return Reply{response.StatusCode, response.Header, body}, err
}

// Request is what [Fixture.Send] would send, of which nothing is sent. What HTTP does not allow ends the test.
func (b *Fixture) Request(t *testing.T, l HTTPRequest) *http.Request {
	t.Helper()
	if l.Method == "" {
		l.Method = http.MethodPost
	}
	if l.At == "" {
		l.At = ToCalculator
	}
	if !strings.HasPrefix(l.At, "https://") {
		l.At = b.At.Public + l.At
	}
	request, err := http.NewRequestWithContext(t.Context(), l.Method, l.At, strings.NewReader(l.Body))
	Must(t, err)
	if l.Media == "" {
		l.Media = "application/json"
	}
	if l.Media != "-" {
		request.Header.Set("Content-Type", l.Media)
	}
	for name, value := range l.Header {
		request.Header.Set(name, value)
	}
	for _, token := range l.Tokens {
		request.Header.Add(ect.HeaderName, token)
	}
	request.Host = l.Host
	return request
}

// Recipe is a good token for a body.
func (b *Fixture) Recipe(body string) ecttest.Recipe {
	return ecttest.Recipe{Claims: ect.Claims{
		Audience: []string{b.Self()}, Workflow: string(ect.NewID()), OutputHash: ect.Hash([]byte(body)),
	}}
}

// Token mints a good token of the development client.
func (b *Fixture) Token(t *testing.T, body string) string {
	t.Helper()
	return ecttest.Mint(t, b.Me, b.Recipe(body))
}

// Sealed is a request with a good token for its body.
func (b *Fixture) Sealed(t *testing.T, l HTTPRequest) HTTPRequest {
	t.Helper()
	l.Tokens = append([]string{b.Token(t, l.Body)}, l.Tokens...)
	return l
}

// Number is one that no other call of this gateway has: big enough that a
// double would spoil it.
func (b *Fixture) Number() int64 { return 9007199254740993 + b.Counter.Add(2) }

// AddBody asks the calculator for n + 1, in A2A.
func AddBody(n int64) string {
	return `{"jsonrpc":"2.0","id":"` + strconv.FormatInt(n, 10) + `","method":"SendMessage","params":{"message":{` +
		`"messageId":"m1","role":"ROLE_USER","parts":[{"text":"` + Secret + `"},` +
		`{"data":{"skill":"add","input":{"a":` + strconv.FormatInt(n, 10) + `,"b":1}}}]}}}`
}

// TextBody is a text, in A2A.
func TextBody(text string) string {
	return `{"jsonrpc":"2.0","id":"t","method":"SendMessage","params":{"message":{` +
		`"messageId":"m1","role":"ROLE_USER","parts":[{"text":"` + text + `"}]}}}`
}

// ModernMeta is the member that every request of MCP of 2026-07-28 has among its params.
const ModernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

// CallBody calls a tool with one argument, in MCP of 2026-07-28.
func CallBody(tool, message string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool +
		`","arguments":{"message":"` + message + `"},` + ModernMeta + `}}`
}

// Mirror is the header that repeats an MCP message.
func Mirror(method, tool string) map[string]string {
	h := map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": method, "Accept": "application/json, text/event-stream"}
	if tool != "" {
		h["Mcp-Name"] = tool
	}
	return h
}

// JSONIn reads a document whose members are all known.
func JSONIn(t *testing.T, text []byte, into any) {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		t.Fatalf("unreadable: %v: %s", err, text)
	}
}

// HugeBody is a good message of exactly so many bytes.
func HugeBody(size int) string {
	head, tail, _ := strings.Cut(AddBody(1), Secret)
	return head + strings.Repeat("x", size-len(head)-len(tail)) + tail
}

// Works makes good calls through every kind of endpoint: whatever happened before,
// the gateway still answers, and with the right value.
func (b *Fixture) Works(t *testing.T) {
	t.Helper()
	b.WorksFor(t, b.Client, b.Me)
}

// WorksFor is [Fixture.Works] for one caller: via is its client, and who mints its token.
func (b *Fixture) WorksFor(t *testing.T, via *http.Client, who *ecttest.Party) {
	t.Helper()
	n := b.Number()
	body, sum := AddBody(n), `"sum":`+strconv.FormatInt(n+1, 10)
	got := b.Send(t, HTTPRequest{Via: via, Body: body, Tokens: []string{ecttest.Mint(t, who, b.Recipe(body))}})
	b.Right(t, got, sum)
	if len(got.Header.Values(ect.HeaderName)) != 2 {
		t.Errorf("a good call got %d ECTs, want one of each leg", len(got.Header.Values(ect.HeaderName)))
	}
	n = b.Number()
	b.Right(t, b.Send(t, HTTPRequest{Via: via, At: EndpointA2A, Body: AddBody(n), Header: map[string]string{"A2A-Version": "1.0"}}), `"sum":`+strconv.FormatInt(n+1, 10))
	word := "word-" + strconv.FormatInt(n, 10)
	b.Right(t, b.Send(t, HTTPRequest{Via: via, At: EndpointMCP, Body: CallBody("concierge", word), Header: Mirror("tools/call", "concierge")}), "You said: "+word)
}

// Right demands that an answer is 200 with a value in its body, and that every token of it verifies. What differs is an
// error of the test, which goes on.
func (b *Fixture) Right(t *testing.T, got Reply, value string) {
	t.Helper()
	if got.Status != http.StatusOK || !strings.Contains(string(got.Body), value) {
		t.Errorf("a good call got %d without %s: %s", got.Status, value, got.Body)
	}
	b.Proofs(t, got)
}

// Proofs verifies every token of an answer.
func (b *Fixture) Proofs(t *testing.T, got Reply) []ect.Claims {
	t.Helper()
	var claims []ect.Claims
	for _, compact := range got.Header.Values(ect.HeaderName) {
		v, err := b.Judge.Verify(context.WithoutCancel(t.Context()), compact, ect.Check{Purpose: ect.Parent})
		if err != nil {
			t.Errorf("an ECT of the gateway does not verify: %v", err)
			continue
		}
		if v.Claims().Issuer != b.Dev.Gateway.ID {
			t.Errorf("an ECT of %s", v.Claims().Issuer)
		}
		claims = append(claims, v.Claims())
	}
	return claims
}

// Sending sends a request and does not wait.
func (b *Fixture) Sending(t *testing.T, l HTTPRequest) <-chan Reply {
	t.Helper()
	answer := make(chan Reply, 1)
	request := b.Request(t, l)
	var group sync.WaitGroup
	t.Cleanup(group.Wait)
	group.Go(func() {
		defer close(answer)
		if got, err := Receive(b.Client, request); err == nil {
			answer <- got
		} else {
			t.Errorf("no answer: %v", err)
		}
	})
	return answer
}

// Flood sends the same request many times at once and counts the statuses.
func (b *Fixture) Flood(t *testing.T, l HTTPRequest, times int) map[int]int {
	t.Helper()
	var mu sync.Mutex
	var group sync.WaitGroup
	counts := map[int]int{}
	for range times {
		group.Go(func() {
			got, err := b.Try(t, l)
			if err != nil {
				t.Errorf("no answer: %v", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			counts[got.Status]++
		})
	}
	group.Wait()
	return counts
}
