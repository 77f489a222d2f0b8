package crowd

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/test/harness/wait"
)

// What comes on new connections.
const (
	visitOwn     = "calls from an own address"
	visitShared  = "calls from a stranger's address"
	visitNew     = "a new stranger's question"
	visitAdmin   = "/readyz of the admin listener"
	visitReady   = "/readyz of listen.metrics"
	visitMetrics = "/metrics of listen.metrics"
)

// visitNames are all of them.
func visitNames() []string {
	return []string{visitOwn, visitShared, visitNew, visitAdmin, visitReady, visitMetrics}
}

const (
	visitPace = 100 * time.Millisecond
	visitTime = 10 * time.Second // one that takes longer is lost
)

// Visit is one new connection, and what was asked on it.
type Visit struct {
	Name string // what was asked, from where
	Took time.Duration
	Lost error // nil: it came in and got its answer
}

// Deps are what the visitors need.
type Deps struct {
	TLS     *tls.Config                                       // with the honest caller's certificate
	Call    func(ctx context.Context, via *http.Client) error // one of its calls over via, whose answer must be right
	Public  string                                            // https://host:port
	Admin   string                                            // the same
	Metrics string                                            // http://host:port
}

// visitor asks for one thing again and again, from an address of its own, unless that of
// a stranger is meant.
type visitor struct {
	name string
	from net.IP
	ask  func(ctx context.Context, via *http.Client) error
}

// visitors are all of them. Only those that call have a certificate.
func (d Deps) visitors() []visitor {
	get := func(url string) func(context.Context, *http.Client) error {
		return func(ctx context.Context, via *http.Client) error { return get(ctx, via, url) }
	}
	return []visitor{
		{visitOwn, net.IPv4(127, 0, 7, 1), d.Call},
		{visitShared, Address(0), d.Call},
		{visitNew, net.IPv4(127, 0, 7, 5), get(d.Public + publicPath)},
		{visitAdmin, net.IPv4(127, 0, 7, 2), get(d.Admin + "/readyz")},
		{visitReady, net.IPv4(127, 0, 7, 3), get(d.Metrics + "/readyz")},
		{visitMetrics, net.IPv4(127, 0, 7, 4), get(d.Metrics + "/metrics")},
	}
}

// Visits makes every kind of visit at a pace until ctx ends. A visitor's next visit begins
// when the one before it is over, as those of probes do; one that has begun is finished.
func Visits(ctx context.Context, d Deps) []Visit {
	var (
		group sync.WaitGroup
		mu    sync.Mutex
		all   []Visit
	)
	for _, v := range d.visitors() {
		conf := d.TLS.Clone()
		if v.name != visitOwn && v.name != visitShared {
			conf.Certificates = nil
		}
		via := client(conf, v.from)
		group.Go(func() {
			start := time.Now()
			for n := 0; wait.Pause(ctx, time.Until(start.Add(time.Duration(n)*visitPace))) && ctx.Err() == nil; n++ {
				began := time.Now()
				lost := v.visit(ctx, via)
				mu.Lock()
				all = append(all, Visit{v.name, time.Since(began), lost})
				mu.Unlock()
			}
		})
	}
	group.Wait()
	return all
}

func (v visitor) visit(ctx context.Context, via *http.Client) error {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), visitTime)
	defer cancel()
	return v.ask(limited, via)
}

// client makes a new connection for every request, from an address.
func client(conf *tls.Config, from net.IP) *http.Client {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: from}}
	return &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, TLSClientConfig: conf, DisableKeepAlives: true}}
}

func get(ctx context.Context, via *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := via.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("crowd: the answer is %s, want 200", resp.Status)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// quantile is how long visits of one name took, the lost ones too; zero: there are none.
func quantile(visits []Visit, name string, q float64) time.Duration {
	var all []time.Duration
	for _, v := range visits {
		if v.Name == name {
			all = append(all, v.Took)
		}
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[int(q*float64(len(all)-1))].Round(10 * time.Microsecond)
}
