package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/test/harness/redisserver"
	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

const (
	streamCallers = 8
	mostOpen      = 24 // streams of one caller at once: on a machine that is too slow for the pace they would pile up
	events        = 3  // of each stream, besides its beginning and its end
	eventEvery    = 5 * time.Millisecond
	restTime      = 2 * time.Minute  // after the load
	tokenLife     = 30 * time.Second // so that uses of tokens end in a short run, too
	fillTime      = 60 * time.Second // of the first load, which must fill state
	leastFull     = 0.7              // one kind of records takes three quarters
)

// streaming is a gateway of serve with its defaults, but little state, so that it is soon
// full: what is kept on purpose would look like a leak. And an agent that streams, and callers
// with an identity each.
type streaming struct {
	gateway *devgateway.Process
	metrics string // URL
	bound   float64
	callers []*streamer
	stop    []func() error
}

// streamer is one caller.
type streamer struct {
	svid   tls.Certificate
	client *http.Client
	minter *devgateway.Minter
	url    string
	open   chan struct{}
}

const streamConfig = `
public_url: https://PUBLIC
listen: {public: "PUBLIC", admin: "127.0.0.1:0", metrics: "METRICS"}
identity: {trust_domain: soak.test, certificate: DIR/gateway.pem, key: DIR/gateway-key.pem, bundle: DIR/ca.pem}
admin: {operators: {ann: {id: "spiffe://soak.test/caller/ann", roles: [operator]}}}
limits: {rate: 1000000, burst: 1000000, connections_per_address: 0}
state: {evidence_mib: 8, records_mib: 8}
agents:
  talker: {callers: ["spiffe://soak.test/caller/*"], endpoints: [{binding: a2a-v1, url: "AGENT"}]}
`

// stage starts everything, by a configuration with words to fill in, and callers with an
// identity each. What it returns must be ended, also when it comes with an error.
func stage(ctx context.Context, dir, text string, callers int, serve func(*devgateway.Trust) (*httptest.Server, error)) (*streaming, error) {
	s := &streaming{}
	trust, err := devgateway.NewTrust("soak.test")
	if err != nil {
		return s, err
	}
	agent, err := serve(trust)
	if err != nil {
		return s, err
	}
	s.stop = append(s.stop, func() error { agent.Close(); return nil })
	if err := trust.Replica(dir); err != nil {
		return s, err
	}
	var ports [2]string
	for i := range ports {
		if ports[i], err = redisserver.FreePort(); err != nil {
			return s, err
		}
	}
	public := "127.0.0.1:" + ports[0]
	s.metrics = "http://127.0.0.1:" + ports[1] + "/metrics"
	text = strings.NewReplacer("DIR", dir, "PUBLIC", public, "METRICS", "127.0.0.1:"+ports[1], "AGENT", agent.URL).Replace(text)
	file := filepath.Join(dir, "streams.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return s, err
	}
	written, err := config.Parse([]byte(text))
	if err != nil {
		return s, err
	}
	s.bound = float64(written.MemoryBound() >> 10)
	binary, err := devgateway.Build(ctx, dir)
	if err != nil {
		return s, err
	}
	if s.gateway, err = devgateway.Serve(ctx, devgateway.ServeDeps{Binary: binary, Config: file, Trust: trust}); err != nil {
		return s, err
	}
	s.stop = append(s.stop, s.gateway.Kill)
	for i := range callers {
		svid, err := trust.SVID("caller-" + strconv.Itoa(i))
		if err != nil {
			return s, err
		}
		minter, err := devgateway.NewMinterOf(svid, trust.GatewayID())
		if err != nil {
			return s, err
		}
		c := &streamer{svid: svid, client: trust.Client(svid), minter: minter, url: "https://" + public + "/agents/talker/a2a", open: make(chan struct{}, mostOpen)}
		s.callers = append(s.callers, c)
	}
	return s, nil
}

func (s *streaming) end() error {
	s.leave()
	var errs []error
	for _, stop := range s.stop {
		errs = append(errs, stop())
	}
	return errors.Join(errs...)
}

// leave closes the callers' connections.
func (s *streaming) leave() {
	for _, c := range s.callers {
		c.client.CloseIdleConnections()
	}
}

// statusError is an answer that is no stream.
type statusError struct {
	status int
	body   string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("soak: a stream was answered %d %.400s", e.status, e.body)
}

// hear makes one attested call and reads its stream to the end.
func (c *streamer) hear(ctx context.Context) error {
	body := strings.Replace(a2aBody(0, ""), "SendMessage", "SendStreamingMessage", 1)
	token, err := c.minter.Mint(body, uuid.NewString(), tokenLife)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, strings.NewReader(body))
	if err != nil {
		return err
	}
	for name, value := range map[string]string{"Content-Type": "application/json", "Accept": "text/event-stream", "A2A-Version": "1.0", "Execution-Context": token} {
		req.Header.Set(name, value)
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxReply))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK || !strings.Contains(string(text), "TASK_STATE_COMPLETED") {
		return &statusError{resp.StatusCode, string(text)}
	}
	return nil
}

// pour has all callers begin so many streams a second together, until ctx ends. A caller
// that has as many open as it may begins none, and that is late: the machine is too slow.
func (s *streaming) pour(ctx context.Context, pace int) (done, late int64, err error) {
	var count, missed atomic.Int64
	group, all := errgroup.WithContext(ctx)
	for _, c := range s.callers {
		group.Go(func() error {
			tick := time.NewTicker(time.Second * streamCallers / time.Duration(pace))
			defer tick.Stop()
			for {
				select {
				case <-all.Done():
					return nil
				case <-tick.C:
				}
				select {
				case c.open <- struct{}{}:
				default:
					missed.Add(1)
					continue
				}
				group.Go(func() error {
					defer func() { <-c.open }()
					if err := c.hear(context.WithoutCancel(ctx)); err != nil {
						return err
					}
					count.Add(1)
					return nil
				})
			}
		})
	}
	err = group.Wait()
	return count.Load(), missed.Load(), err
}

// fill makes a first load, so that all is kept that the bounds allow: evidence, records, who
// began the workflows whose evidence had to leave, and the table of used tokens, which keeps
// the size that a load of this pace gives it.
func (s *streaming) fill(ctx context.Context, pace int) error {
	limited, cancel := context.WithTimeout(ctx, fillTime)
	defer cancel()
	if _, _, err := s.pour(limited, pace); err != nil {
		return errors.Join(err, ctx.Err())
	}
	page, err := s.page(ctx)
	if err != nil {
		return err
	}
	for _, kind := range []string{"tokens", "entries"} {
		if ratio, err := metric(page, `aepb_state_usage_ratio{kind="`+kind+`"}`); err != nil || ratio < leastFull {
			return errors.Join(err, fmt.Errorf("%w: of the room for %s only %.2f are taken after %s", errStreams, kind, ratio, fillTime))
		}
	}
	return nil
}

func (s *streaming) page(ctx context.Context) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.metrics, http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxReply))
	return string(text), err
}

// rest waits and says what is resident then.
func (s *streaming) rest(ctx context.Context, d time.Duration) (footprint, error) {
	s.leave()
	http.DefaultClient.CloseIdleConnections()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return resident(strconv.Itoa(s.gateway.PID()))
	case <-ctx.Done():
		return footprint{}, ctx.Err()
	}
}

// poured is what came of it, in KiB.
type poured struct {
	Streams int64     `json:"streams"`
	Late    int64     `json:"late"`
	Want    float64   `json:"want"`
	Idle    footprint `json:"idle"`     // with state as full as it gets
	Peak    float64   `json:"peak_kib"` // under load
	After   footprint `json:"after"`
	Bound   float64   `json:"bound_kib"`
	Before  memory    `json:"before"`
	Left    memory    `json:"left"`
}

// memory is what a gateway says of its own, in KiB.
type memory map[string]float64

// look reads the metrics that say where memory is.
func (s *streaming) look(ctx context.Context) (memory, error) {
	page, err := s.page(ctx)
	m := memory{}
	for name, key := range map[string]string{
		"alive": "go_memstats_heap_alloc_bytes", "heap": "go_memstats_heap_inuse_bytes", "idle": "go_memstats_heap_idle_bytes",
		"released": "go_memstats_heap_released_bytes", "stacks": "go_memstats_stack_inuse_bytes",
		"tokens": usageOf("tokens"), "replays": usageOf("replays"), "entries": usageOf("entries"), "answers": usageOf("answers"), "conversations": usageOf("conversations"),
	} {
		bytes, wrong := metric(page, key)
		err = errors.Join(err, wrong)
		m[name] = float64(int(bytes) >> 10)
	}
	return m, err
}

func usageOf(kind string) string { return `aepb_state_usage_bytes{kind="` + kind + `"}` }

var errStreams = errors.New("soak: streams")

// Of the pace so much must be reached, and so much above idle may be left.
const (
	leastPace = 0.9
	mostLeft  = 1.1
)

// judge finds what is wrong.
func (p poured) judge() error {
	var errs []error
	if float64(p.Streams) < leastPace*p.Want {
		errs = append(errs, fmt.Errorf("%w: %d were made, want %.0f: nothing was proved", errStreams, p.Streams, p.Want))
	}
	if p.Peak > p.Bound {
		errs = append(errs, fmt.Errorf("%w: %.0f KiB were resident under load, the bound is %.0f", errStreams, p.Peak, p.Bound))
	}
	if p.After.Own > mostLeft*p.Idle.Own {
		errs = append(errs, fmt.Errorf("%w: %s are resident %s after the load, more than a tenth above the %s before", errStreams, p.After, restTime, p.Idle))
	}
	return errors.Join(errs...)
}

// streams pours streams over a gateway of serve and looks at its memory before, meanwhile
// and afterwards. Any answer but a stream is an error, so there is no 503.
func streams(ctx context.Context, o options, stdout io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "aepb-soak-streams-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s, err := stage(ctx, dir, streamConfig, streamCallers, serveStreams)
	defer func() { err = errors.Join(err, s.end()) }()
	if err != nil {
		return err
	}
	p := poured{Want: float64(o.streams) * o.time.Seconds(), Bound: s.bound}
	if err := s.fill(ctx, o.streams); err != nil {
		return err
	}
	if p.Idle, err = s.rest(ctx, restTime); err != nil {
		return err
	}
	if p.Before, err = s.look(ctx); err != nil {
		return err
	}
	var watching sync.WaitGroup
	during, enough := context.WithTimeout(ctx, o.time)
	defer enough()
	watching.Go(func() {
		tick := time.NewTicker(time.Second / 4)
		defer tick.Stop()
		for during.Err() == nil {
			if now, err := resident(strconv.Itoa(s.gateway.PID())); err == nil {
				p.Peak = max(p.Peak, now.All)
			}
			<-tick.C
		}
	})
	streams, late, err := s.pour(during, o.streams)
	enough()
	watching.Wait()
	p.Streams, p.Late = streams, late
	if err != nil {
		return fmt.Errorf("after %d streams: %w\n%.4000s", streams, err, s.gateway.Output())
	}
	if p.After, err = s.rest(ctx, restTime); err != nil {
		return err
	}
	if p.Left, err = s.look(ctx); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "streams: %d of %.0f (%d begun late), resident: idle %s, under load %.0f KiB, %s later %s, bound %.0f KiB\nidle:  %v\nafter: %v\n",
		p.Streams, p.Want, p.Late, p.Idle, p.Peak, restTime, p.After, p.Bound, p.Before, p.Left)
	return p.judge()
}
