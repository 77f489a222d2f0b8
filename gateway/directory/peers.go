package directory

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/policy"
)

// Bounds of what is asked of other gateways, and of what is kept of it.
const (
	MaxPeers      = 64
	maxKept       = 1024             // answers
	maxAnswer     = 64 << 10         // bytes that are read of one
	questionLimit = 10 * time.Second // that one may take
)

// Peer is another translation gateway through which messages may go on (AEPB,
// Multi-Hop Translation).
type Peer struct {
	ID    ect.Identity // that its certificate must prove (AEPB, Gateway Trust)
	URL   string       // of its translate endpoint
	Rules policy.Rules // who may be sent on to agents that are not listed here
}

// ValidatePeers judges a list of peers. Its error is an *InvalidAgentError.
func ValidatePeers(list []Peer) error {
	if len(list) > MaxPeers {
		return &InvalidAgentError{Name: "peers", Reason: "more than " + strconv.Itoa(MaxPeers) + " gateways"}
	}
	for _, p := range list {
		u, err := url.Parse(p.URL)
		switch {
		case !validID(p.ID):
			return &InvalidAgentError{Name: string(p.ID), Reason: "the id is no SPIFFE id of a workload"}
		case err != nil || checkURL(p.URL, false) != "" || u.RawQuery != "" || wellKnown(u.Path) == "":
			return &InvalidAgentError{Name: string(p.ID), Reason: "a gateway is the https URL of its translate endpoint: …/aepb/translate or …/cpat/translate"}
		}
		if err := p.Rules.Validate(); err != nil {
			return &InvalidAgentError{Name: string(p.ID), Reason: err.Error()}
		}
	}
	return nil
}

// wellKnown is where a translate endpoint's gateway answers questions; empty:
// the path is not one of a translate endpoint.
func wellKnown(path string) string {
	for _, draft := range []string{"aepb", "cpat"} {
		if before, ok := strings.CutSuffix(path, "/"+draft+"/translate"); ok && !strings.HasSuffix(before, "/") {
			return "/.well-known/" + draft + "/gateway"
		}
	}
	return ""
}

// UsePeers puts other gateways in force, instead of those before. Its error is
// an *InvalidAgentError, and then nothing has changed.
func (d *Directory) UsePeers(list []Peer) error {
	if err := ValidatePeers(list); err != nil {
		return err
	}
	if len(list) > 0 && d.deps.Client == nil {
		return &InvalidAgentError{Name: "peers", Reason: "this gateway asks no others"}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range list {
		d.deps.Egress.Allow(hostport(p.URL))
	}
	for _, p := range d.peers {
		d.deps.Egress.Disallow(hostport(p.URL))
	}
	d.peers = slices.Clone(list)
	slices.SortFunc(d.peers, func(a, b Peer) int { return strings.Compare(string(a.ID), string(b.ID)) })
	clear(d.answers)
	return nil
}

// Peers lists the other gateways in order of id. The result is shared: it must
// not be changed.
func (d *Directory) Peers() []Peer {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.peers
}

// Peer finds one by its SPIFFE id.
func (d *Directory) Peer(id ect.Identity) (Peer, bool) {
	for _, p := range d.Peers() {
		if p.ID == id {
			return p, true
		}
	}
	return Peer{}, false
}

// Question asks a gateway whether it translates a pair.
type Question struct {
	From, To string // binding ids, with @VERSION if need be
	Dest     string // for an agent; empty: for any. Our peers understand it, others pass it over
	Forwards int    // gateways that it may ask in turn (Max-Forwards); negative: it is not told
}

func (q Question) query() string {
	values := url.Values{"from": {q.From}, "to": {q.To}}
	if q.Dest != "" {
		values.Set("dest", q.Dest)
	}
	return values.Encode()
}

// Verdict is what a gateway answered, and until when that holds.
type Verdict struct {
	Serves bool
	Until  time.Time
	Failed bool // there was no answer; Serves is false
	etag   string
}

// Ask asks a peer (AEPB, Protocol Negotiation step 3): 200 is yes and 404 is no,
// and each is kept for as long as HTTP says; anything else is no answer.
func (d *Directory) Ask(ctx context.Context, p Peer, q Question) Verdict {
	name := p.URL + " " + string(p.ID) + " " + q.query() + " " + strconv.Itoa(q.Forwards)
	now := d.deps.Now()
	d.mu.RLock()
	old, ok := d.answers[name]
	d.mu.RUnlock()
	if ok && now.Before(old.Until) {
		return old
	}
	// As with documents, the question outlives a caller who goes away, bounded by
	// questionLimit; a question with another number of forwards is another one, so
	// that gateways that ask each other never wait for themselves.
	result := d.flight.DoChan("question "+name, func() (any, error) {
		got := d.question(context.WithoutCancel(ctx), p, q, old)
		d.mu.Lock()
		defer d.mu.Unlock()
		d.keepAnswer(name, got)
		return got, nil
	})
	select {
	case <-ctx.Done():
		return Verdict{Failed: true, Until: now}
	case r := <-result:
		got, _ := r.Val.(Verdict)
		return got
	}
}

// keepAnswer keeps one answer more; when there are too many, those that have
// run out go first.
func (d *Directory) keepAnswer(name string, got Verdict) {
	if len(d.answers) >= maxKept {
		now := d.deps.Now()
		maps.DeleteFunc(d.answers, func(_ string, v Verdict) bool { return !now.Before(v.Until) })
	}
	if len(d.answers) >= maxKept {
		clear(d.answers)
	}
	d.answers[name] = got
}

func (d *Directory) question(ctx context.Context, p Peer, q Question, old Verdict) Verdict {
	ctx, cancel := context.WithTimeout(ctx, questionLimit)
	defer cancel()
	got, err := d.questioned(ctx, p, q, old)
	result := "unserved"
	switch {
	case err != nil:
		d.deps.Logger.WarnContext(ctx, "a gateway did not answer which protocols it translates", logError(err))
		result, got = "failed", Verdict{Failed: true, Until: d.deps.Now().Add(retryAfter)}
	case got.Serves:
		result = "served"
	}
	d.deps.CountQuery(result)
	return got
}

var errNoVerdict = errors.New("neither 200 nor 404")

func (d *Directory) questioned(ctx context.Context, p Peer, q Question, old Verdict) (Verdict, error) {
	u, err := url.Parse(p.URL)
	if err != nil || d.deps.Client == nil {
		return Verdict{}, errNoVerdict
	}
	path := cmp.Or(wellKnown(u.Path), "/.well-known/aepb/gateway")
	target := url.URL{Scheme: u.Scheme, Host: u.Host, Path: path, RawQuery: q.query()}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), http.NoBody)
	if err != nil {
		return Verdict{}, err
	}
	request.Header.Set("Accept", "application/json")
	if q.Forwards >= 0 {
		request.Header.Set("Max-Forwards", strconv.Itoa(q.Forwards))
	}
	if old.etag != "" {
		request.Header.Set("If-None-Match", old.etag)
	}
	now := d.deps.Now()
	response, err := d.deps.Client.DoAs(request, p.ID)
	if err != nil {
		return Verdict{}, err
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, maxAnswer)) // so that the connection can be used again
	if err := response.Body.Close(); err != nil {
		return Verdict{}, err
	}
	out := Verdict{Until: now.Add(freshness(response.Header))}
	switch {
	case response.StatusCode == http.StatusOK:
		out.Serves, out.etag = true, response.Header.Get("ETag")
	case response.StatusCode == http.StatusNotModified && old.etag != "":
		out.Serves, out.etag = old.Serves, old.etag
	case response.StatusCode != http.StatusNotFound:
		return Verdict{}, errNoVerdict
	}
	return out, nil
}

// Serves asks the gateway of a translate endpoint that need not be a peer: all
// but 200 is no.
func (d *Directory) Serves(ctx context.Context, endpoint, from, to string) bool {
	p := Peer{URL: endpoint}
	for _, known := range d.Peers() {
		if known.URL == endpoint {
			p = known
		}
	}
	return d.Ask(ctx, p, Question{From: from, To: to, Forwards: -1}).Serves
}
