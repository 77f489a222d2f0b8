package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// refusalName is the measurement of refusals: the circuit breaker of the agent is open.
const refusalName = "refusal"

// brokenName is the agent that cannot be reached, by its name in the gateway's directory.
const brokenName = "broken"

// maxProbes bounds the calls that are not refused: there is one each 30 s, and later fewer.
const maxProbes = 20

// breakerOpens bounds the calls by which the breaker is to open.
const breakerOpens = 50

// refuser verifies one ECT and answers 503: the least that a refusal over TLS costs.
func newRefuser(s script) (http.Handler, error) {
	handler, err := newFloor(s)
	if err != nil {
		return nil, err
	}
	f, _ := handler.(*floor)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			_, err = f.verify(r.Header.Get("Execution-Context"), body)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		w.Header().Set("Retry-After", "30")
		http.Error(w, "the circuit breaker is open", http.StatusServiceUnavailable)
	}), nil
}

// measureRefusal lets a gateway whose breaker is open and the refuser take turns.
func measureRefusal(ctx context.Context, o options, progress io.Writer) (runs []result, err error) {
	dir, err := os.MkdirTemp("", "aepb-bench-")
	if err != nil {
		return nil, err
	}
	c := &cast{}
	defer func() { err = errors.Join(err, c.stop(ctx), os.RemoveAll(dir)) }()
	if err := c.found(ctx, dir, true); err != nil {
		return nil, err
	}
	if err := c.refusals(ctx, dir, o.against); err != nil {
		return nil, err
	}
	runs, err = c.rounds(ctx, o, progress)
	for i := range runs {
		runs[i].Name = refusalName
	}
	return runs, err
}

// refusals makes the cases, and opens the breakers: the agent answers once, and then is gone.
func (c *cast) refusals(ctx context.Context, dir, former string) error {
	refuser, err := c.start(ctx, "refuser", script{Gateway: c.trust.GatewayID(), Client: c.trust.ClientSVID().Certificate[0]})
	if err != nil {
		return err
	}
	floor, err := c.refused(baseline, refuser.url+"/")
	if err != nil {
		return err
	}
	floor.process = process{refuser.pid(), askChild(floor.client, refuser.url)}
	if former != "" {
		if err := c.startFormer(ctx, dir, former, ""); err != nil {
			return err
		}
	}
	agent, err := startChild(ctx, "upstream", c.trust, script{}, nil)
	if err != nil {
		return err
	}
	err = c.callOnce(ctx, agent)
	if err = errors.Join(err, agent.stop()); err != nil {
		return err
	}
	for _, s := range c.subjects[1:] {
		if err := s.open(ctx); err != nil {
			return err
		}
	}
	return nil
}

// callOnce lets each gateway call the agent once, which makes its case.
func (c *cast) callOnce(ctx context.Context, agent *child) error {
	for _, one := range []struct {
		name    string
		running *devgateway.Process
	}{{"gateway", c.gateway}, {formerName, c.former}} {
		if one.running == nil {
			continue
		}
		if err := one.running.AddAgent(ctx, brokenName, "mcp-v1", agent.url+"/mcp"); err != nil {
			return err
		}
		s, err := c.refused(one.name, one.running.Public+"/agents/"+brokenName+"/a2a")
		if err != nil {
			return err
		}
		s.process, s.refused = process{one.running.PID(), askGateway(one.running)}, false
		calls, err := s.calls.prepare(ctx, 1)
		if err != nil {
			return err
		}
		if err := s.send(ctx, calls[0]); err != nil {
			return err
		}
		s.refused = true
	}
	return nil
}

// refused is a case whose calls are refused with 503.
func (c *cast) refused(name, url string) (*subject, error) {
	svid := c.trust.ClientSVID()
	sender, err := newMinter(svid)
	if err != nil {
		return nil, err
	}
	s := &subject{
		name: name, url: url, client: c.trust.Client(svid), rate: map[int]float64{}, headers: setA2A,
		calls: callMaker{sender: sender, audience: c.trust.GatewayID(), body: a2aBody}, refused: true,
	}
	c.subjects = append(c.subjects, s)
	return s, nil
}

// refusal checks that an answer refuses a call. Now and then a call is the probe.
func (s *subject) refusal(resp *http.Response, body []byte) error {
	switch {
	case resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") != "":
		return nil
	case !s.opening && strings.Contains(string(body), "upstream_unreachable") && s.probes.Add(1) <= maxProbes:
		return nil
	}
	return fmt.Errorf("bench: %s answered %s, expected 503 with Retry-After: %.500s", s.name, resp.Status, body)
}

// open calls until the breaker refuses.
func (s *subject) open(ctx context.Context) error {
	calls, err := s.calls.prepare(ctx, breakerOpens)
	if err != nil {
		return err
	}
	s.opening = true
	defer func() { s.opening = false }()
	for _, call := range calls {
		if err = s.send(ctx, call); err == nil {
			return nil
		}
	}
	return fmt.Errorf("bench: the breaker of %s does not open after %d calls: %w", s.name, breakerOpens, err)
}
