package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/aepb/aepb-gateway/test/harness/wait"
)

const (
	callTime = 40 * time.Second // for one call and everything that belongs to it; longer, and nobody answers
	pace     = 150 * time.Millisecond
	callers  = 2 // of each kind at once
	maxReply = 4 << 20
)

// kind is one way to call an agent. A call does one thing, named by its key, and is
// never made again.
type kind struct {
	name string
	call func(ctx context.Context, c *caller, key string) outcome
}

// caller makes the calls of one kind, one after the other.
type caller struct {
	rig  *rig
	base string // of the balancer, or of one replica
	http *http.Client
	kept *session // of MCP
}

// caller uses no connection twice: the next call may go elsewhere.
func (r *rig) caller(address, kind string) *caller {
	c := r.keeping(address, kind)
	if v, ok := c.http.Transport.(*via); ok {
		if t, ok := v.next.(*http.Transport); ok {
			t.DisableKeepAlives = true
		}
	}
	return c
}

// keeping keeps its connections. Every kind has a name of its own: what a gateway
// keeps for one caller is bounded.
func (r *rig) keeping(address, kind string) *caller {
	svid, named := r.svids[kind]
	if !named {
		svid = r.trust.ClientSVID()
	}
	next := r.trust.Client(svid).Transport
	return &caller{rig: r, base: "https://" + address, http: &http.Client{Transport: &via{next: next, witness: r.witness}}}
}

// ledger collects what callers lived through.
type ledger struct {
	mu  sync.Mutex
	all []outcome
}

func (l *ledger) add(o outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, o)
}

// load plays all kinds until ctx ends; calls that have begun are finished.
func (r *rig) load(ctx context.Context) []outcome {
	var l ledger
	var all sync.WaitGroup
	for _, k := range kinds() {
		for range callers {
			all.Go(func() {
				c := r.caller(r.balancer.Address(), k.name)
				defer c.forget()
				for wait.Pause(ctx, pace) {
					l.add(c.once(context.WithoutCancel(ctx), k))
				}
			})
		}
	}
	all.Wait()
	return l.all
}

func (c *caller) once(ctx context.Context, k kind) outcome {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	key := uuid.NewString()
	o := k.call(ctx, c, key)
	o.kind, o.key = k.name, key
	if o.end == endBroken && ctx.Err() != nil && !(c.rig.killed.Load() && c.rig.witness.wentDown(key)) {
		o.end = endHung
	}
	return o
}

// failed is the end of a call by an error.
func failed(err error) outcome { return outcome{end: howFailed(err), why: err.Error()} }

// howFailed tells an error that somebody said from a connection that broke.
func howFailed(err error) end {
	var network net.Error
	switch {
	case strings.Contains(err.Error(), "terminated without response"): // the MCP SDK's word for it
		return endBroken
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), errors.As(err, &network),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return endBroken
	default:
		return endError
	}
}

// translate goes through the translate endpoint, with an ECT.
func translate(ctx context.Context, c *caller, key string) outcome {
	body := `{"jsonrpc":"2.0","id":"1","method":"SendMessage","params":{"message":{"messageId":"` + uuid.NewString() +
		`","role":"ROLE_USER","parts":[{"data":{"skill":"quick","input":{"key":"` + key + `"}},"mediaType":"application/json"}]}}}`
	token, err := c.rig.minter.Mint(body, uuid.NewString(), time.Minute)
	if err != nil {
		return failed(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+"/aepb/translate?from=a2a-v1&dest=tools", strings.NewReader(body))
	if err != nil {
		return failed(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Execution-Context", token)
	resp, err := c.http.Do(req)
	if err != nil {
		return failed(err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxReply))
	if err != nil {
		return failed(err)
	}
	if resp.StatusCode != http.StatusOK {
		return outcome{end: endError, why: fmt.Sprintf("%d %.200s", resp.StatusCode, answer)}
	}
	return outcome{end: endRight, said: answerIn(strings.NewReplacer(`"`, " ", `}`, " ").Replace(string(answer)))}
}
