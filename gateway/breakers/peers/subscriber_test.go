package peers_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/breakers/peers"
	"github.com/aepb/aepb-gateway/gateway/directory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	self  = ect.Identity("spiffe://one.example/gateway")
	other = ect.Identity("spiffe://two.example/gateway")
	agent = ect.Identity("spiffe://example.org/agent/down")
)

// network answers each request as its test says, and notes when it came.
type network struct {
	answer func(r *http.Request, out *io.PipeWriter) (status int, media string) // status 0: the connection fails
	start  time.Time

	mu       sync.Mutex
	requests []time.Duration
	open     int // streams
	opened   []string
	lines    int // of the log
}

var errNoConnection = errors.New("no connection")

// DoAs implements transport.Client.
func (n *network) DoAs(r *http.Request, expected ect.Identity) (*http.Response, error) {
	n.mu.Lock()
	n.requests = append(n.requests, time.Since(n.start))
	n.mu.Unlock()
	if expected != other || r.URL.String() != "https://two.example/atd/breakers" || r.Header.Get("Accept") != "text/event-stream" {
		return nil, errors.New("an unexpected request of " + r.URL.String() + " to " + string(expected))
	}
	in, out := io.Pipe()
	status, media := n.answer(r, out)
	if status == 0 {
		return nil, errNoConnection
	}
	n.count(1)
	ctx := r.Context()
	context.AfterFunc(ctx, func() { _ = out.CloseWithError(context.Cause(ctx)) })
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {media}}, Body: body{in, n}}, nil
}

func (n *network) count(by int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.open += by
}

// body counts the streams that are closed.
type body struct {
	*io.PipeReader

	of *network
}

// Close implements io.Closer.
func (b body) Close() error {
	b.of.count(-1)
	return b.PipeReader.Close()
}

// Write counts the lines of the log.
func (n *network) Write(line []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines++
	return len(line), nil
}

func (n *network) note(_ context.Context, agent, gateway ect.Identity) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.opened = append(n.opened, string(gateway)+" "+string(agent))
}

// noted is what the subscriber has counted so far.
func (n *network) noted() []string {
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.opened)
}

// subscribe runs a subscriber with one peer until the test ends.
func (n *network) subscribe(t *testing.T, list func() []directory.Peer) {
	t.Helper()
	n.start = time.Now()
	s, err := peers.New(peers.Deps{
		Client: n, Self: self, Peers: list, Listed: func(id ect.Identity) bool { return strings.HasPrefix(string(id), string(agent)) },
		Opened: n.note, Logger: slog.New(slog.NewTextHandler(n, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		time.Sleep(5 * time.Minute) // for those who write to see it
		if n.open != 0 {
			t.Errorf("%d streams stay open", n.open)
		}
	})
}

// two is a list of this gateway and another.
func two() []directory.Peer {
	return []directory.Peer{{ID: self, URL: "https://one.example/aepb/translate"}, {ID: other, URL: "https://two.example/aepb/translate"}}
}

// changed is an event about a breaker that has changed now.
func changed(id ect.Identity, state string) string {
	return event(`{"agent":"` + string(id) + `","state":"` + state + `","at":"` + time.Now().Format(time.RFC3339Nano) + `","ect":"eyJ.x","instance":"7c1f"}`)
}

func event(data string) string { return "event: breaker\ndata: " + data + "\n\n" }

// stream answers with what a test writes.
func stream(write func(out io.Writer)) func(*http.Request, *io.PipeWriter) (int, string) {
	return func(_ *http.Request, out *io.PipeWriter) (int, string) {
		go func() {
			write(out)
			_ = out.Close()
		}()
		return http.StatusOK, "text/event-stream; charset=utf-8"
	}
}

// TestRun_Events: what counts as an opening, of which agent.
func TestRun_Events(t *testing.T) {
	t.Parallel()
	ago := func(d time.Duration) string {
		return event(`{"agent":"` + string(agent) + `","state":"open","at":"` + time.Now().Add(-d).Format(time.RFC3339Nano) + `"}`)
	}
	for name, row := range map[string]struct {
		say  func() []string
		want int
	}{
		"it opens": {func() []string { return []string{changed(agent, "open")} }, 1},
		"its probe fails": {func() []string {
			return []string{changed(agent, "open"), changed(agent, "half_open"), changed(agent, "open")}
		}, 1},
		"it closes, and opens again": {func() []string {
			return []string{changed(agent, "open"), changed(agent, "closed"), changed(agent, "open")}
		}, 2},
		"it is half open at first":    {func() []string { return []string{changed(agent, "half_open"), changed(agent, "open")} }, 0},
		"two agents":                  {func() []string { return []string{changed(agent, "open"), changed(agent+"/2", "open")} }, 2},
		"an escalation":               {func() []string { return []string{changed(agent, "escalated")} }, 0},
		"an unknown state":            {func() []string { return []string{changed(agent, "ajar")} }, 0},
		"it has opened long ago":      {func() []string { return []string{ago(61 * time.Second)} }, 0},
		"it has opened a minute ago":  {func() []string { return []string{ago(60 * time.Second)} }, 1},
		"it opens in the future":      {func() []string { return []string{ago(-61 * time.Second)} }, 0},
		"no time":                     {func() []string { return []string{event(`{"agent":"` + string(agent) + `","state":"open"}`)} }, 0},
		"an agent that is not listed": {func() []string { return []string{changed("spiffe://example.org/stranger", "open")} }, 0},
		"no agent":                    {func() []string { return []string{changed("", "open")} }, 0},
		"an event of another name":    {func() []string { return []string{strings.Replace(changed(agent, "open"), "breaker", "message", 1)} }, 0},
		"a member that is there twice": {func() []string {
			return []string{strings.Replace(changed(agent, "open"), `{`, `{"state":"open",`, 1), changed(agent, "open")}
		}, 0},
		"no JSON": {func() []string { return []string{event("open"), changed(agent, "open")} }, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			hold := make(chan struct{})
			n := &network{answer: stream(func(out io.Writer) {
				for _, text := range row.say() {
					_, _ = io.WriteString(out, text)
				}
				<-hold
			})}
			n.subscribe(t, two)
			time.Sleep(500 * time.Millisecond)
			if got := n.noted(); len(got) != row.want || row.want > 0 && got[0] != string(other)+" "+string(agent) {
				t.Errorf("%s: counted %v, want %d", name, got, row.want)
			}
			close(hold)
		})
	}
}

// TestRun_ComesBack: how soon a gateway is asked again, and that its failures are logged once.
func TestRun_ComesBack(t *testing.T) {
	t.Parallel()
	seconds := func(list ...int) (out []time.Duration) {
		for _, s := range list {
			out = append(out, time.Duration(s)*time.Second)
		}
		return out
	}
	answer := func(status int, media string) func(*http.Request, *io.PipeWriter) (int, string) {
		return func(_ *http.Request, out *io.PipeWriter) (int, string) { _ = out.Close(); return status, media }
	}
	for name, row := range map[string]struct {
		answer func(*http.Request, *io.PipeWriter) (int, string)
		want   []time.Duration // the longest waits between requests
		lines  int
	}{
		"no connection":    {answer(0, ""), seconds(1, 2, 4, 8, 16, 32, 60, 60, 60), 1},
		"an error":         {answer(http.StatusBadGateway, ""), seconds(1, 2, 4, 8, 16, 32, 60, 60), 1},
		"no stream":        {answer(http.StatusOK, "text/html"), seconds(1, 2, 4, 8, 16, 32, 60, 60), 1},
		"an empty stream":  {answer(http.StatusOK, "text/event-stream"), seconds(1, 2, 4, 8, 16, 32, 60, 60), 1},
		"forbidden":        {answer(http.StatusForbidden, ""), seconds(300, 300, 300), 1},
		"not there":        {answer(http.StatusNotFound, ""), seconds(300, 300, 300), 1},
		"too many streams": {answer(http.StatusTooManyRequests, ""), seconds(1, 2, 4, 8, 16, 32, 60, 60), 1},
		"a good stream that ends": {stream(func(out io.Writer) {
			for range 9 {
				_, _ = io.WriteString(out, ": \n\n")
				time.Sleep(15 * time.Second)
			}
		}), seconds(136, 136, 136), 4}, // 135 s of it, and a second
	} {
		synctest.Test(t, func(t *testing.T) {
			n := &network{answer: row.answer}
			n.subscribe(t, two)
			var total time.Duration
			for _, longest := range row.want {
				total += longest
			}
			time.Sleep(total)
			synctest.Wait()
			n.mu.Lock()
			defer n.mu.Unlock()
			for i, longest := range row.want {
				if len(n.requests) < i+2 {
					t.Fatalf("%s: asked at %v", name, n.requests)
				}
				if waited := n.requests[i+1] - n.requests[i]; waited > longest || waited < longest*3/4 {
					t.Errorf("%s: waited %s, want up to %s", name, waited, longest)
				}
			}
			if n.lines > row.lines || n.lines == 0 {
				t.Errorf("%s: %d lines are logged, want %d", name, n.lines, row.lines)
			}
		})
	}
}

// TestRun_FollowsTheList: the stream of a gateway that is taken from the list ends within seconds, and that of one
// that comes begins; this gateway itself is not asked.
func TestRun_FollowsTheList(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		list := two()[:1]
		use := func(next []directory.Peer) int {
			mu.Lock()
			list = next
			mu.Unlock()
			time.Sleep(2 * time.Second)
			synctest.Wait()
			return 0
		}
		hold := make(chan struct{})
		n := &network{answer: stream(func(io.Writer) { <-hold })}
		n.subscribe(t, func() []directory.Peer { mu.Lock(); defer mu.Unlock(); return list })
		var open []int
		for _, next := range [][]directory.Peer{two()[:1], two(), two(), nil, two()} {
			use(next)
			n.mu.Lock()
			open = append(open, n.open)
			n.mu.Unlock()
		}
		if diff := cmp.Diff([]int{0, 1, 1, 0, 1}, open); diff != "" || len(n.requests) != 2 {
			t.Errorf("%d requests, streams: %s", len(n.requests), diff)
		}
		close(hold)
	})
}

// TestAttack_StreamOfAPeerIsSilent: a stream on which nothing comes, or that does not begin, is given up after a
// minute; comments alone keep it.
func TestAttack_StreamOfAPeerIsSilent(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		every time.Duration // a comment; 0: never
		waits bool          // for its header
		want  int           // requests within ten minutes
	}{
		"silent":         {0, false, 8},
		"without header": {0, true, 8},
		"with comments":  {15 * time.Second, false, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := &network{answer: func(r *http.Request, out *io.PipeWriter) (int, string) {
				if row.waits {
					<-r.Context().Done()
					return 0, ""
				}
				return stream(func(out io.Writer) {
					for row.every > 0 && r.Context().Err() == nil {
						time.Sleep(row.every)
						_, _ = io.WriteString(out, ": \n\n")
					}
					<-r.Context().Done()
				})(r, out)
			}}
			n.subscribe(t, two)
			time.Sleep(10*time.Minute - time.Second)
			synctest.Wait()
			n.mu.Lock()
			defer n.mu.Unlock()
			if len(n.requests) > row.want || row.every == 0 && len(n.requests) < 5 || n.lines > 1 {
				t.Errorf("%s: %d requests, %d lines", name, len(n.requests), n.lines)
			}
		})
	}
}

// TestAttack_PeerFloods: of a peer that writes without end are read 20 events a second after the first 256, 16 MiB
// of one stream, and a stream a minute; no event larger than 64 KiB.
func TestAttack_PeerFloods(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		text   func(i int) string
		within time.Duration
		count  int   // openings that are counted, at most
		bytes  int64 // that are read, at most
	}{
		"of openings": {func(i int) string {
			return changed(agent+"/"+ect.Identity(strings.Repeat("x", i%1000)), "open")
		}, time.Minute, 256 + 60*20 + 1, 1500 * 1200},
		"of comments":     {func(int) string { return ": " + strings.Repeat("x", 1<<20) + "\n\n" }, 10 * time.Minute, 0, 17 * 128 << 10},
		"of small lines":  {func(int) string { return strings.Repeat(":\n\n", 1<<18) }, time.Second / 2, 0, 17 << 20},
		"a large event":   {func(int) string { return event(`{"agent":"` + strings.Repeat("x", 1<<20) + `"}`) }, 10 * time.Minute, 0, 17 * 128 << 10},
		"an endless line": {func(int) string { return strings.Repeat("x", 1<<16) }, 10 * time.Minute, 0, 17 * 128 << 10},
	} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			var bytes int64
			n := &network{answer: stream(func(out io.Writer) {
				for i := 0; ; i++ {
					written, err := io.WriteString(out, row.text(i))
					mu.Lock()
					bytes += int64(written)
					mu.Unlock()
					if err != nil {
						return
					}
				}
			})}
			n.subscribe(t, two)
			time.Sleep(row.within)
			if got := len(n.noted()); got > row.count || row.count > 0 && got < 256 {
				t.Errorf("%s: %d openings are counted, want at most %d", name, got, row.count)
			}
			mu.Lock()
			defer mu.Unlock()
			if bytes > row.bytes {
				t.Errorf("%s: %d bytes are read, want at most %d", name, bytes, row.bytes)
			}
			n.mu.Lock()
			defer n.mu.Unlock()
			if n.lines > 1 {
				t.Errorf("%s: %d lines are logged", name, n.lines)
			}
		})
	}
}

// TestNew_IncompleteDeps: every dependency is required.
func TestNew_IncompleteDeps(t *testing.T) {
	t.Parallel()
	if _, err := peers.New(peers.Deps{}); err == nil {
		t.Error("a subscriber without anything was made")
	}
}
