package interop

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
	form "github.com/aepb/aepb-gateway/translators/mcp"
)

// mcpForgets: a server is killed while callers use it, and its successor at the same address knows no
// session of before. Each call that begins after it is there succeeds, and nothing is done twice.
func mcpForgets(t *testing.T, g *gw) {
	t.Helper()
	for _, status := range []int{http.StatusBadRequest, http.StatusNotFound} {
		t.Run(strconv.Itoa(status), func(t *testing.T) { mcpForgetsWith(t, g, status) })
	}
}

// mcpForgetsWith is mcpForgets of a server that refuses a session that it does not know with a status.
func mcpForgetsWith(t *testing.T, g *gw, status int) {
	t.Helper()
	js, name := newJavascript(t), "forgetful-"+strconv.Itoa(status)
	job, file := g.certified(t, name), filepath.Join(t.TempDir(), "words")
	job["port"], job["file"], job["status"] = 0, file, status
	address, kill := js.serve(t, "session-server.mjs", job)
	at, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	if job["port"], err = strconv.Atoi(at.Port()); err != nil {
		t.Fatal(err)
	}
	g.list(t, name, "mcp-v1", address)
	calls := make([]func(word string) bool, 8)
	for i := range calls {
		if calls[i] = byA2AOf(t, g, name); i%2 == 0 {
			calls[i] = bySessionOf(t, g, name)
		}
	}
	book := &wordBook{took: map[string]bool{}}
	for round := range 4 {
		var busy sync.WaitGroup
		killed := make(chan struct{})
		for i, call := range calls {
			busy.Go(func() { book.fill(t, fmt.Sprintf("%d/%d/", round, i), call, killed) })
		}
		until(t, func() bool { return book.size() >= 60*(round+1) || t.Failed() })
		close(killed)
		kill()
		busy.Wait()
		_, kill = js.serve(t, "session-server.mjs", job)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	book.compare(t, strings.Fields(string(text)))
}

// wordBook has the words that callers had appended, and whether they heard so.
type wordBook struct {
	mu   sync.Mutex
	took map[string]bool
}

func (b *wordBook) size() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.took)
}

// fill calls until the server is killed. A call that ends before must succeed.
func (b *wordBook) fill(t *testing.T, prefix string, call func(word string) bool, killed <-chan struct{}) {
	t.Helper()
	for n := 0; ; n++ {
		word := prefix + strconv.Itoa(n)
		ok := call(word)
		b.mu.Lock()
		b.took[word] = ok
		b.mu.Unlock()
		select {
		case <-killed:
			return
		default:
		}
		if !ok {
			t.Errorf("the call with %s failed", word)
			return
		}
	}
}

// compare: each word of a call that succeeded was appended once, each other at most once.
func (b *wordBook) compare(t *testing.T, words []string) {
	t.Helper()
	times := map[string]int{}
	for _, word := range words {
		times[word]++
	}
	for word, ok := range b.took {
		if n := times[word]; n > 1 || ok && n == 0 {
			t.Errorf("%s was appended %d times; its caller heard of success: %t", word, n, ok)
		}
	}
}

func byA2AOf(t *testing.T, g *gw, name string) func(word string) bool {
	t.Helper()
	who := g.authenticated(t)
	return func(word string) bool {
		reply, err := peers.A2ACall(t.Context(), who.client, g.agentURL(name), typed("append", `{"word":"`+word+`"}`))
		if err != nil || reply.State() != a2a.TaskStateCompleted || reply.Text() != word {
			t.Logf("A2A %s: %s %q %v", word, reply.State(), reply.Text(), err)
			return false
		}
		return true
	}
}

func bySessionOf(t *testing.T, g *gw, name string) func(word string) bool {
	t.Helper()
	session := oldSession(t, g.authenticated(t), g.agentURL(name)+"/mcp", form.Legacy)
	return func(word string) bool {
		result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "append", Arguments: map[string]string{"word": word}})
		if err != nil || result.IsError {
			t.Logf("MCP %s: %+v %v", word, result, err)
			return false
		}
		return true
	}
}
