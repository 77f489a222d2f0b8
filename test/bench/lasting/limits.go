package lasting

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

func containsEnd(text []byte) bool { return bytes.Contains(text, []byte("TASK_STATE_COMPLETED")) }

// rarely makes garbage collection rare: the gateway that keeps its state in Redis
// has the smaller heap, and would pay for that and not for its limits.
const rarely = "GOGC=1000"

// limits compares a gateway whose limits are in Redis with one that has its own,
// by requests that cost little else: the agent's card.
func limits(ctx context.Context, b *bed, s Scale) (figures []Figure, err error) {
	address, end, err := startRedis(ctx, b.dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, end()) }()
	both := make([]*bed, 2)
	for i, more := range []string{"", `state: {unverified: true, redis: {addresses: ["` + address + `"], plaintext: loopback, durability: asserted, max_replicas: 1}}` + "\n"} {
		made, wrong := newBed(ctx, b.binary, filepath.Join(b.dir, strconv.Itoa(i)), Configuration("limits")+more, rarely)
		defer func() { err = errors.Join(err, made.stop(ctx)) }()
		if wrong != nil {
			return nil, wrong
		}
		if _, err := made.ask(ctx, s.Span/4); err != nil { // warms up
			return nil, err
		}
		both[i] = made
	}
	var rates [2][]float64
	var ratios []float64
	for round := range 2*rounds - 1 {
		for i := range both {
			which := (i + round) % len(both)
			rate, err := both[which].ask(ctx, s.Span)
			if err != nil {
				return nil, err
			}
			rates[which] = append(rates[which], rate)
		}
		ratios = append(ratios, rates[1][round]/rates[0][round])
	}
	return []Figure{
		{Name: "limits", Case: "its own", Value: median(rates[0]), Unit: "requests/s"},
		{Name: "limits", Case: "in Redis", Value: median(rates[1]), Unit: "requests/s"},
		Figure{Name: "limits", Case: "in Redis", Value: median(ratios), Unit: "of its own"}.atLeast(0.9),
	}, nil
}

// ask asks for the card for a while, and returns how often per second.
func (b *bed) ask(ctx context.Context, span time.Duration) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, span)
	defer cancel()
	var asked atomic.Int64
	var group errgroup.Group
	began := time.Now()
	for range atOnce {
		group.Go(func() error {
			for ctx.Err() == nil {
				if err := b.card(ctx); err != nil && ctx.Err() == nil {
					return err
				} else if err == nil {
					asked.Add(1)
				}
			}
			return nil
		})
	}
	err := group.Wait()
	return float64(asked.Load()) / time.Since(began).Seconds(), err
}

func (b *bed) card(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.Public+"/agents/talker/.well-known/agent-card.json", http.NoBody)
	if err != nil {
		return err
	}
	resp, err := b.client.Do(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if resp.StatusCode != http.StatusOK {
		err = errors.Join(err, errors.New("bench: the card is answered "+resp.Status))
	}
	return errors.Join(err, resp.Body.Close())
}

// startRedis starts a real one, and returns what ends it.
func startRedis(ctx context.Context, dir string) (address string, end func() error, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	address = l.Addr().String()
	if err := l.Close(); err != nil {
		return "", nil, err
	}
	_, port, _ := net.SplitHostPort(address)
	server := exec.CommandContext(context.WithoutCancel(ctx), "redis-server", "--port", port, "--bind", "127.0.0.1", "--dir", dir, "--save", "")
	if err := server.Start(); err != nil {
		return "", nil, errors.Join(errors.New("bench: redis-server is needed (make redis)"), err)
	}
	end = func() error {
		err := server.Process.Kill()
		_ = server.Wait() // killed
		return err
	}
	for range 200 {
		if conn, err := net.Dial("tcp", address); err == nil {
			return address, end, conn.Close()
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return "", nil, errors.Join(errors.New("bench: redis does not answer"), end())
}
