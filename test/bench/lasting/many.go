package lasting

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	perCaller = 200 // sessions of one caller
	atOnce    = 8   // callers
	settle    = 3 * time.Second
)

// sessions opens native sessions that do nothing, after as many of the first
// caller as warm everything up.
func sessions(ctx context.Context, b *bed, s Scale) ([]Figure, error) {
	if err := b.open(ctx, "warm", perCaller); err != nil {
		return nil, err
	}
	before, err := b.rest(ctx)
	if err != nil {
		return nil, err
	}
	group, all := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i := 0; i < s.Sessions; i += perCaller {
		group.Go(func() error { return b.open(all, strconv.Itoa(i), min(perCaller, s.Sessions-i)) })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	after, err := b.rest(ctx)
	if err != nil {
		return nil, err
	}
	f := Figure{Name: "sessions", Case: fmt.Sprintf("%d idle", s.Sessions), Value: max(after-before, 0) / float64(s.Sessions), Unit: "bytes/session"}
	return []Figure{f.atMost(4096)}, nil
}

// open begins sessions as one caller.
func (b *bed) open(ctx context.Context, name string, n int) error {
	svid, err := b.SVID(name)
	if err != nil {
		return err
	}
	client := b.Client(svid)
	defer client.CloseIdleConnections()
	for range n {
		resp, err := post(ctx, client, b.Public+"/agents/talker/mcp", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",`+
			`"capabilities":{"elicitation":{}},"clientInfo":{"name":"bench","version":"1"}}}`, map[string]string{"Accept": "application/json, text/event-stream"})
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		if err = errors.Join(err, resp.Body.Close()); err != nil {
			return err
		}
		if resp.Header.Get("Mcp-Session-Id") == "" {
			return errors.New("bench: there is no session")
		}
	}
	return nil
}

// rest is the gateway's memory when it has come to rest.
func (b *bed) rest(ctx context.Context) (float64, error) {
	select {
	case <-time.After(settle):
		return b.resident()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// streams opens streams and leaves them open.
func streams(ctx context.Context, b *bed, s Scale) (figures []Figure, err error) {
	w := b.ways("")[1]
	if _, err := b.hear(ctx, w, "fast 10"); err != nil {
		return nil, err
	}
	before, err := b.rest(ctx)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var open []*http.Response
	defer func() {
		for _, resp := range open {
			err = errors.Join(err, resp.Body.Close())
		}
	}()
	group, _ := errgroup.WithContext(ctx)
	group.SetLimit(4 * atOnce)
	began := time.Now()
	for range s.Streams {
		group.Go(func() error {
			resp, err := post(ctx, b.client, w.url, w.body("hold 1"), w.header)
			if err != nil {
				return err
			}
			mu.Lock()
			open = append(open, resp)
			mu.Unlock()
			_, err = io.ReadFull(resp.Body, make([]byte, 64))
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	took := time.Since(began)
	after, err := b.rest(ctx)
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%d open", s.Streams)
	figures = []Figure{
		{Name: "streams", Case: name, Value: (after - before) / float64(s.Streams) / 1024, Unit: "KiB/stream"},
		{Name: "streams", Case: name, Value: took.Seconds(), Unit: "s to open them"},
	}
	ended, err := b.drain(open)
	if err != nil || ended != s.Streams {
		return nil, fmt.Errorf("bench: %d of %d streams had their end: %w", ended, s.Streams, err)
	}
	return figures, nil
}

// drain lets all streams end, and counts those that did it well.
func (b *bed) drain(open []*http.Response) (int, error) {
	b.agent.finish()
	ended := 0
	for _, resp := range open {
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			return ended, err
		}
		if containsEnd(text) {
			ended++
		}
	}
	return ended, nil
}
