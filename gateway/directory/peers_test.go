package directory_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/policy"
)

const (
	peerURL  = "https://gw2.example/aepb/translate"
	peerPair = "https://gw2.example/.well-known/aepb/gateway?from=a2a-v1&to=slim-v1"
)

func peerOf() directory.Peer {
	return directory.Peer{ID: "spiffe://example.com/gateway-2", URL: peerURL}
}

func pairOf() directory.Question {
	return directory.Question{From: "a2a-v1", To: "slim-v1", Forwards: 1}
}

// TestPeers_AnswersAreCached: for as long as HTTP says, an hour where it says
// nothing, and a failure for a moment (AEPB, Protocol Negotiation).
func TestPeers_AnswersAreCached(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		status int
		fields []string
		serves bool
		fresh  time.Duration
	}{
		"yes":          {200, nil, true, time.Hour},
		"yes, briefly": {200, []string{"Cache-Control", "private, max-age=5"}, true, 5 * time.Second},
		"yes, aged":    {200, []string{"Cache-Control", "max-age=60", "Age", "50"}, true, 10 * time.Second},
		"no":           {404, nil, false, time.Hour},
		"no, briefly":  {404, []string{"Cache-Control", "max-age=7"}, false, 7 * time.Second},
		"no store":     {200, []string{"Cache-Control", "no-store"}, true, 0},
		"an error":     {500, []string{"Cache-Control", "max-age=3600"}, false, 2 * time.Second},
		"a redirect":   {302, nil, false, 2 * time.Second},
		"the same tag": {200, []string{"Cache-Control", "max-age=5", "ETag", `"x"`}, true, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d, w, _ := newWeb(t)
				w.put(peerPair, tc.status, "{}", tc.fields...)
				for range 3 {
					if v := d.Ask(t.Context(), peerOf(), pairOf()); v.Serves != tc.serves {
						t.Errorf("%+v", v)
					}
				}
				if want := map[bool]int{true: 1, false: 3}[tc.fresh > 0]; w.count(peerPair) != want {
					t.Errorf("asked %d times, want %d", w.count(peerPair), want)
				}
				if w.ids[peerPair] != "spiffe://example.com/gateway-2" {
					t.Errorf("it had to prove %q", w.ids[peerPair])
				}
				requests := w.count(peerPair)
				time.Sleep(tc.fresh - 1)
				d.Ask(t.Context(), peerOf(), pairOf())
				if tc.fresh > 0 && w.count(peerPair) != requests {
					t.Error("asked again too early")
				}
				time.Sleep(time.Nanosecond)
				if v := d.Ask(t.Context(), peerOf(), pairOf()); v.Serves != tc.serves || w.count(peerPair) == requests {
					t.Errorf("not asked again, or otherwise: %+v", v)
				}
			})
		})
	}
}

// TestPeers_ConcurrentQueriesAreShared: many callers wait for one answer, and one who goes away
// does not take it from the others.
func TestPeers_ConcurrentQueriesAreShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, w, _ := newWeb(t)
		w.put(peerPair, 200, "{}")
		w.slow = time.Second
		var group sync.WaitGroup
		for range 20 {
			group.Go(func() {
				if !d.Ask(t.Context(), peerOf(), pairOf()).Serves {
					t.Error("no")
				}
			})
		}
		group.Wait()
		if w.count(peerPair) != 1 {
			t.Errorf("asked %d times", w.count(peerPair))
		}
	})
}

// TestPeers_QueriesAreBounded: whoever asks for ever new pairs fills no memory, and a
// gateway that never answers holds nobody for long.
func TestPeers_QueriesAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, w, _ := newWeb(t)
		for i := range 3000 {
			d.Ask(t.Context(), peerOf(), directory.Question{From: "a2a-v1", To: fmt.Sprint("x", i)})
		}
		if n := d.KeptAnswers(); n > 1024 {
			t.Errorf("%d answers are kept", n)
		}
		w.slow = time.Hour
		began := time.Now()
		if v := d.Ask(t.Context(), peerOf(), pairOf()); !v.Failed || time.Since(began) > 10*time.Second {
			t.Errorf("%+v after %v", v, time.Since(began))
		}
	})
}

func TestUsePeers_ReplacesAndValidates(t *testing.T) {
	t.Parallel()
	d, w, g := newWeb(t)
	if err := d.UsePeers([]directory.Peer{peerOf(), {ID: "spiffe://example.com/gateway-1", URL: "https://gw1.example:8443/cpat/translate"}}); err != nil {
		t.Fatal(err)
	}
	if g.opened("gw2.example:443") != 1 || g.opened("gw1.example:8443") != 1 || d.Peers()[0].ID != "spiffe://example.com/gateway-1" {
		t.Errorf("opened %d, %d; %v", g.opened("gw2.example:443"), g.opened("gw1.example:8443"), d.Peers())
	}
	w.put(peerPair, 404, "{}")
	d.Ask(t.Context(), peerOf(), pairOf())
	if err := d.UsePeers([]directory.Peer{peerOf()}); err != nil || g.opened("gw2.example:443") != 1 || g.opened("gw1.example:8443") != 0 {
		t.Errorf("%v, opened %d, %d", err, g.opened("gw2.example:443"), g.opened("gw1.example:8443"))
	}
	w.put(peerPair, 200, "{}")
	if !d.Ask(t.Context(), peerOf(), pairOf()).Serves {
		t.Error("an operator who lists a gateway again wants it asked again")
	}
	for name, bad := range map[string]directory.Peer{
		"no TLS":      {ID: "spiffe://x/y", URL: "http://gw.example/aepb/translate"},
		"loopback":    {ID: "spiffe://x/y", URL: "http://127.0.0.1/aepb/translate"},
		"no endpoint": {ID: "spiffe://x/y", URL: "https://gw.example/"},
		"a query":     {ID: "spiffe://x/y", URL: "https://gw.example/aepb/translate?from=a"},
		"no id":       {ID: "gateway", URL: peerURL},
		"no caller":   {ID: "spiffe://x/y", URL: peerURL, Rules: policy.Rules{Callers: []string{"*"}}},
	} {
		var invalid *directory.InvalidAgentError
		if err := d.UsePeers([]directory.Peer{bad}); !errors.As(err, &invalid) || len(d.Peers()) != 1 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := directory.ValidatePeers(make([]directory.Peer, directory.MaxPeers+1)); err == nil {
		t.Error("there can be any number of gateways")
	}
}

// TestResolve_ForeignProtocolsInRankOrder: what a document lists beside what is spoken here is kept
// for other gateways, in the agent's order.
func TestResolve_ForeignProtocolsInRankOrder(t *testing.T) {
	t.Parallel()
	d, w, _ := newWeb(t)
	w.put(home, http.StatusOK, strings.Replace(documentOf(pricing, "L2", activeLife, toyEndpoint), `"protocols":[`,
		`"protocols":[{"id":"late-v1","version":"1","endpoint":"x:y","priority":200},{"id":"first-v1","version":"1","endpoint":"x:y","priority":0},`, 1))
	agent, err := d.Resolve(t.Context(), described("pricing", home))
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(agent.Beyond); got != "[first-v1 unknown-v1 late-v1]" || len(agent.Endpoints) != 1 {
		t.Errorf("beyond %v, endpoints %v", got, agent.Endpoints)
	}
}
