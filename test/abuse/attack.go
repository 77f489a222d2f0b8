package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aepb/aepb-gateway/test/harness/wait"
	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// order is what the attacking process is told.
type order struct {
	Seconds float64  `json:"seconds"`
	Public  []string `json:"public"` // host:port of each gateway
	UACP    []string `json:"uacp"`   // the same for µACP
	Agents  string   `json:"agents"` // host:port of the agents' server
	Gateway string   `json:"gateway"`

	Roots       []byte `json:"roots"` // PEM
	Certificate []byte `json:"certificate"`
	Key         []byte `json:"key"` // of the hostile identity, PEM

	Workflow place `json:"workflow"` // of the good caller, to read in, to register in and to undo
	Decision place `json:"decision"` // another, where the good caller waits for an approval
}

// place is a workflow, and in it the jti of an ECT of the gateway's.
type place struct {
	Workflow string `json:"workflow"`
	Token    string `json:"token"`
}

// The classes of what came of one try.
const (
	classTaken   = "2xx"
	classError   = "error" // 2xx, and an error of JSON-RPC
	classMany    = "429"
	classLarge   = "413"
	classRefused = "4xx"
	classFault   = "5xx"
	classBroken  = "broken" // the connection ended, or was never made
	classHeld    = "held"   // the connection stays open
	classSlow    = "slow"   // no answer in time
)

// counts are the tries by attack and class.
type counts map[string]map[string]int

// attack is one thing that is done again and again.
type attack struct {
	name    string
	every   time.Duration
	workers int                                     // at once; more wait
	try     func(ctx context.Context, n int) string // the class
}

const (
	tryTime     = 10 * time.Second // for one try
	mostWorkers = 64               // of any attack
)

// attacker is the process that attacks.
type attacker struct {
	order   order
	roots   *tls.Config // of a stranger
	known   *tls.Config // of the hostile identity
	minter  *devgateway.Minter
	modern  []*http.Client // of the hostile identity: HTTP/2 to each gateway
	old     *http.Client   // the same with HTTP/1.1
	slow    *http.Client   // HTTP/2 for bodies, whose connection may be held up
	hoard   string         // its own workflow
	family  string         // that of its lineages: the first record of a workflow decides whether roots may follow
	zeros   []byte         // of a long body
	lineage []string       // jtis of tokens with unknown parents

	holders []*holder
	mu      sync.Mutex
	tallies counts
	turn    atomic.Int64
}

// runAttack reads an order, does it, and writes the counts.
func runAttack(ctx context.Context, in io.Reader, out io.Writer) error {
	a := &attacker{tallies: counts{}, hoard: newWorkflow(), family: newWorkflow(), zeros: make([]byte, longBody)}
	if err := json.NewDecoder(in).Decode(&a.order); err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(a.order.Certificate, a.order.Key)
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(a.order.Roots) {
		return errors.New("abuse: no roots")
	}
	a.roots = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}
	a.known = a.roots.Clone()
	a.known.Certificates = []tls.Certificate{pair}
	if a.minter, err = devgateway.NewMinterOf(pair, a.order.Gateway); err != nil {
		return err
	}
	for range a.order.Public {
		a.modern = append(a.modern, client(a.known, nil, false))
	}
	a.old, a.slow = client(a.known, nil, true), client(a.known, nil, false)
	ctx, cancel := context.WithTimeout(ctx, time.Duration(a.order.Seconds*float64(time.Second)))
	defer cancel()
	a.run(ctx)
	return json.NewEncoder(out).Encode(a.tallies)
}

// run makes all attacks at once until ctx ends.
func (a *attacker) run(ctx context.Context) {
	all := append(a.hostile(), a.strange()...)
	var group sync.WaitGroup
	for _, one := range all {
		group.Go(func() { a.repeat(ctx, one) })
	}
	group.Wait()
	for _, h := range a.holders {
		h.release()
	}
	for _, c := range append(a.modern, a.old, a.slow) {
		c.CloseIdleConnections()
	}
}

// repeat makes one attack at its pace, as far as its workers keep up.
func (a *attacker) repeat(ctx context.Context, one attack) {
	workers := make(chan struct{}, min(one.workers, mostWorkers))
	var group sync.WaitGroup
	defer group.Wait()
	paced(ctx, one.every, func(n int) {
		select {
		case workers <- struct{}{}:
		case <-ctx.Done():
			return
		}
		group.Go(func() {
			defer func() { <-workers }()
			limited, cancel := context.WithTimeout(ctx, tryTime)
			defer cancel()
			if class := one.try(limited, n); ctx.Err() == nil { // what is broken off at the end says nothing
				a.count(one.name, class)
			}
		})
	})
}

// paced does something again and again until ctx ends, the n-th time n paces after
// the first; what was late is made up for.
func paced(ctx context.Context, pace time.Duration, do func(n int)) {
	start := time.Now()
	for n := 0; wait.Pause(ctx, time.Until(start.Add(time.Duration(n)*pace))) && ctx.Err() == nil; n++ {
		do(n)
	}
}

func (a *attacker) count(name, class string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.tallies[name] == nil {
		a.tallies[name] = map[string]int{}
	}
	a.tallies[name][class]++
}

// holder keeps connections until the process ends.
func (a *attacker) holder(most int) *holder {
	h := &holder{most: most}
	a.holders = append(a.holders, h)
	return h
}

// next is an index of a gateway, each in turn.
func (a *attacker) next() int { return int(a.turn.Add(1)) % len(a.order.Public) }

// classOfAnswer is the class of an answer, which it reads and closes.
func classOfAnswer(resp *http.Response) string {
	defer func() { _ = resp.Body.Close() }()
	begin, err := io.ReadAll(io.LimitReader(resp.Body, errorBegins))
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
	}
	switch class := classOf(resp.StatusCode); {
	case err != nil:
		return classOfError(err)
	case class == classTaken && bytes.Contains(begin, []byte(`"error":{`)):
		return classError
	default:
		return class
	}
}

// errorBegins is how far into an answer an error of JSON-RPC begins at the latest.
const errorBegins = 256

// classOf is the class of an answer's status.
func classOf(status int) string {
	switch {
	case status == http.StatusTooManyRequests:
		return classMany
	case status == http.StatusRequestEntityTooLarge:
		return classLarge
	case status >= 500:
		return classFault
	case status >= 400:
		return classRefused
	default:
		return classTaken
	}
}

// classOfError is the class of a try without an answer.
func classOfError(err error) string {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return classSlow
	}
	return classBroken
}
