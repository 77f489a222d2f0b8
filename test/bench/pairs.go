package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	tuacp "github.com/aepb/aepb-gateway/gateway/transport/uacp"
	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

const (
	pairsName    = "pairs"
	pairCallers  = 8
	pairGoal     = 0.8 // of the calls per second of the pair's own floor
	pairSlices   = 12  // of each side in a round
	pairSpan     = 0.1 // seconds, of each slice, at most
	gatewayReady = "ready uacp " + tuacp.Scheme + "://"
)

// pair is how one protocol reached another in one round.
type pair struct {
	From    string  `json:"from"`
	To      string  `json:"to"`
	Round   int     `json:"round"`
	Floor   float64 `json:"floor_rps"`
	Gateway float64 `json:"gateway_rps"`
	Former  float64 `json:"former_rps,omitempty"`   // with --against: of the other build
	Bridge  float64 `json:"bridge_rps,omitempty"`   // with SLIM: of a bridge without evidence
	Lacking string  `json:"not_measured,omitempty"` // why not; then there is no round
}

// duel is a pair's floor and the gateway.
type duel struct {
	from, to string
	sides    []*subject // floor, gateway; with --against the other build; with SLIM the bridge without evidence
	spaces   []string   // which of them each is
}

// running is a build of the gateway that takes part.
type running struct {
	*devgateway.Process
	space  string
	frames string // host:port of its µACP
}

// road is one way of all pairs.
type road struct {
	at     func(from, to string) string // where HTTP is served
	frames string                       // host:port of µACP
	space  string                       // whose it is; of SLIM
	bare   bool                         // without evidence
}

// stage is everybody who takes part in the pairs.
type stage struct {
	*cast
	floor    *child
	bridge   *child    // nil: without SLIM
	gateways []running // this build; with --against the other
	voice    voice
	slim     place
	with     string // only pairs with this protocol; empty: all
	against  string // binary of another build; empty: this one alone
	duels    []duel
	lacks    []pair // what cannot be measured
}

// stop ends everybody; the node of SLIM goes last.
func (s *stage) stop(ctx context.Context) error {
	s.slim.leave()
	return errors.Join(s.cast.stop(ctx), s.slim.end())
}

// pairRounds measures every ordered pair against its own floor, in turns.
func pairRounds(ctx context.Context, dir string, o options, progress io.Writer) (all []pair, err error) {
	s := &stage{cast: &cast{}, with: o.with, against: o.against}
	defer func() { err = errors.Join(err, s.stop(ctx)) }()
	if err := s.begin(ctx, dir, true); err != nil {
		return nil, err
	}
	for _, p := range s.lacks {
		say(progress, fmt.Sprintf("%s to %s is not measured: %s", p.From, p.To, p.Lacking))
	}
	for _, d := range s.duels {
		for i, side := range d.sides {
			if err := side.warmUp(ctx); err != nil {
				return nil, fmt.Errorf("bench: %s to %s: %s: %w", d.from, d.to, d.spaces[i], err)
			}
		}
	}
	all = s.lacks
	span := time.Duration(min(pairSpan, o.seconds/float64(o.rounds)) * float64(time.Second))
	for round := range o.rounds {
		say(progress, fmt.Sprintf("pairs, round %d of %d", round+1, o.rounds))
		for _, d := range s.duels {
			p, err := d.round(ctx, round, span)
			if err != nil {
				return all, fmt.Errorf("bench: %s to %s: %w", d.from, d.to, err)
			}
			all = append(all, p)
		}
	}
	return all, nil
}

// round lets each side have many short slices, there and back: a machine that becomes
// slower or faster meanwhile does so for all.
func (d duel) round(ctx context.Context, round int, span time.Duration) (pair, error) {
	rps, sides := map[string]float64{}, len(d.sides)
	for i := range pairSlices * sides {
		at := i % (2 * sides)
		turn := (min(at, 2*sides-1-at) + round) % sides
		seen, err := d.sides[turn].once(ctx, span)
		if err != nil {
			return pair{}, fmt.Errorf("%s: %w", d.spaces[turn], err)
		}
		rps[d.spaces[turn]] += seen / pairSlices
	}
	return pair{
		From: d.from, To: d.to, Round: round + 1,
		Floor: rps[slimFloor], Gateway: rps[slimGateway], Former: rps[slimFormer], Bridge: rps[slimBridge],
	}, nil
}

// begin starts the agents, the floor and, if it is wanted, the gateway with the build
// that it is compared to.
func (s *stage) begin(ctx context.Context, dir string, withGateway bool) error {
	if err := s.reserve(ctx, dir); err != nil {
		return err
	}
	s.config = s.slim.config(slimGateway)
	if err := s.found(ctx, dir, withGateway); err != nil {
		return err
	}
	if err := s.settle(ctx); err != nil {
		return err
	}
	if s.against != "" {
		if err := s.startFormer(ctx, dir, s.against, s.slim.config(slimFormer)); err != nil {
			return err
		}
	}
	var seeds [3][32]byte
	for i := range seeds {
		_, _ = rand.Read(seeds[i][:]) // it never fails
	}
	s.voice = newVoice(seeds[0][:])
	agents, err := s.start(ctx, "agents", script{Seed: seeds[1][:], Node: s.slim.at})
	if err != nil {
		return err
	}
	carry := script{
		Upstream: agents.url, Frames: agents.frames, Seed: seeds[2][:], Gateway: s.trust.GatewayID(), Client: s.trust.ClientSVID().Certificate[0],
		Node: s.slim.at, Space: slimFloor,
	}
	if s.floor, err = s.start(ctx, "pairs", carry); err != nil {
		return err
	}
	carry.Bare, carry.Space = true, slimBridge
	if s.slim.at != "" {
		if s.bridge, err = s.start(ctx, "pairs", carry); err != nil {
			return err
		}
	}
	for _, g := range []running{{Process: s.gateway, space: slimGateway}, {Process: s.former, space: slimFormer}} {
		if g.Process == nil {
			continue
		}
		if err := s.introduce(ctx, agents, g); err != nil {
			return err
		}
	}
	return s.match()
}

// match makes the pairs.
func (s *stage) match() error {
	all := append(bindings(), slimBinding)
	for _, to := range all {
		for _, from := range all {
			slim := from == slimBinding || to == slimBinding
			switch {
			case from == to, s.with != "" && s.with != from && s.with != to:
				continue
			case slim && s.slim.at == "":
				s.lacks = append(s.lacks, pair{From: from, To: to, Lacking: s.slim.why})
				continue
			}
			d := duel{from: from, to: to}
			for _, r := range s.roads(slim) {
				side, err := s.side(from, to, r)
				if err != nil {
					return err
				}
				d.sides, d.spaces = append(d.sides, side), append(d.spaces, r.space)
			}
			s.duels = append(s.duels, d)
		}
	}
	return nil
}

// roads are the floor's, those of each build of the gateway, and with SLIM the bridge's.
func (s *stage) roads(slim bool) []road {
	by := func(c *child) road {
		return road{at: func(from, to string) string { return c.url + "/" + from + "/" + to }, frames: c.frames}
	}
	floor := by(s.floor)
	floor.space = slimFloor
	all := []road{floor}
	for _, g := range s.gateways {
		all = append(all, road{at: func(from, to string) string {
			name, _, _ := strings.Cut(from, "-")
			return g.Public + "/agents/" + to + "/" + name
		}, frames: g.frames, space: g.space})
	}
	if slim {
		bridge := by(s.bridge)
		bridge.space, bridge.bare = slimBridge, true
		all = append(all, bridge)
	}
	return all
}

// introduce lists the agents in the directory of a gateway, which then takes part.
func (s *stage) introduce(ctx context.Context, agents *child, g running) error {
	if err := g.Await(ctx, gatewayReady); err != nil {
		return err
	}
	_, line, _ := strings.Cut(g.Output(), gatewayReady)
	g.frames, _, _ = strings.Cut(line, "\n")
	s.gateways = append(s.gateways, g)
	for _, to := range bindings() {
		name, _, _ := strings.Cut(to, "-")
		at := agents.url + "/" + name
		if to == "uacp-v1" {
			at = tuacp.Scheme + "://" + agents.frames
		}
		if err := g.AddAgent(ctx, to, to, at); err != nil {
			return err
		}
	}
	if s.slim.at == "" {
		return nil
	}
	return g.AddAgent(ctx, slimBinding, slimBinding, "slim://"+s.slim.at+"/"+slimAgent)
}

// side is a caller's way to a pair, on one road.
func (s *stage) side(from, to string, by road) (*subject, error) {
	svid := s.trust.ClientSVID()
	sender, err := newMinter(svid)
	if err != nil {
		return nil, err
	}
	w := s.voice.speak(from)
	out := &subject{
		name: from + " to " + to, client: s.trust.Client(svid), headers: w.headers, rate: map[int]float64{}, inside: w.inside, bare: by.bare,
		calls: callMaker{sender: sender, audience: s.trust.GatewayID(), words: &w},
		url:   by.at(from, to),
	}
	switch from {
	case "uacp-v1":
		out.via = s.framing(by, to, svid)
	case slimBinding:
		out.via, err = s.calling(by, to)
	}
	s.subjects = append(s.subjects, out)
	return out, err
}

// framing calls over µACP, on connections that are kept, one call at a time.
func (s *stage) framing(by road, to string, svid tls.Certificate) func(context.Context, call) error {
	conf := &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{svid}, NextProtos: []string{tuacp.Protocol},
		ServerName: to + ".localhost", InsecureSkipVerify: true, // the name is the agent's, which no certificate has
	}
	idle := make(chan net.Conn, pairCallers)
	return func(ctx context.Context, c call) error {
		var conn net.Conn
		select {
		case conn = <-idle:
		default:
			var err error
			if conn, err = (&tls.Dialer{Config: conf}).DialContext(ctx, "tcp", by.frames); err != nil {
				return err
			}
		}
		if err := writeFrame(conn, []byte(c.body)); err != nil {
			return errors.Join(err, conn.Close())
		}
		reply, err := readFrame(conn)
		if err != nil || !strings.Contains(string(reply), echoed) || !by.bare && !strings.Contains(string(reply), `"ect":`) {
			return errors.Join(fmt.Errorf("bench: µACP to %s answered %.500q", to, reply), err, conn.Close())
		}
		select {
		case idle <- conn:
			return nil
		default:
			return conn.Close()
		}
	}
}

// warmUp opens the connections and finds out how many calls a slice needs.
func (s *subject) warmUp(ctx context.Context) error {
	calls, err := s.calls.prepare(ctx, warmCalls)
	if err != nil {
		return err
	}
	seen, err := s.load(ctx, calls, pairCallers, callTimeout)
	s.rate[pairCallers] = seen.rps()
	return err
}

func (s *subject) once(ctx context.Context, span time.Duration) (float64, error) {
	calls, err := s.calls.prepare(ctx, int(s.rate[pairCallers]*span.Seconds()*1.5)+spareCalls)
	if err != nil {
		return 0, err
	}
	seen, err := s.load(ctx, calls, pairCallers, span)
	s.rate[pairCallers] = seen.rps()
	return seen.rps(), err
}

// byPair are the rounds of each pair that was measured, in the order of their first.
func byPair(all []pair) (grouped [][]pair) {
	for _, p := range all {
		at := slices.IndexFunc(grouped, func(g []pair) bool { return g[0].From == p.From && g[0].To == p.To })
		switch {
		case p.Lacking != "":
		case at < 0:
			grouped = append(grouped, []pair{p})
		default:
			grouped[at] = append(grouped[at], p)
		}
	}
	return grouped
}

// Whose calls per second.
func ofFloor(p pair) float64   { return p.Floor }
func ofGateway(p pair) float64 { return p.Gateway }
func ofFormer(p pair) float64  { return p.Former }
func ofBridge(p pair) float64  { return p.Bridge }

// pairMedian is the median of the per-round ratios of one figure to another.
func pairMedian(rounds []pair, figure, to func(pair) float64) (float64, bool) {
	base, values := map[int]float64{}, map[int]float64{}
	for i, p := range rounds {
		base[i], values[i] = to(p), figure(p)
	}
	return ratiosMedian(base, values)
}

// pairTable prints the medians of each pair, its ratios to another build if there is
// one, and what cannot be measured.
func pairTable(w io.Writer, all []pair) error {
	if len(all) == 0 {
		return nil
	}
	grouped := byPair(all)
	itself := func(pair) float64 { return 1 }
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(out, "%s, %d callers: medians of rps, and of the per-round ratios\nfrom\tto\tfloor\tgateway\tratio\tto bridge\t\t\n", pairsName, pairCallers)
	for _, rounds := range grouped {
		floor, _ := pairMedian(rounds, ofFloor, itself)
		gateway, _ := pairMedian(rounds, ofGateway, itself)
		ratio, _ := pairMedian(rounds, ofGateway, ofFloor)
		bridge, bridged := pairMedian(rounds, ofGateway, ofBridge)
		below := ""
		if ratio < pairGoal {
			below = fmt.Sprintf("below %.1f", pairGoal)
		}
		fmt.Fprintf(out, "%s\t%s\t%.0f\t%.0f\t%.2f\t%s\t%s\t\n", rounds[0].From, rounds[0].To, floor, gateway, ratio, cell("%.2f", bridge, bridged), below)
	}
	err := errors.Join(out.Flush(), againstTable(w, grouped))
	for _, p := range all {
		if p.Lacking != "" && err == nil {
			_, err = fmt.Fprintf(w, "%s to %s is not measured: %s\n", p.From, p.To, p.Lacking)
		}
	}
	return err
}

// againstTable prints the medians of the per-round ratios of both builds.
func againstTable(w io.Writer, grouped [][]pair) error {
	if len(grouped) == 0 || grouped[0][0].Former == 0 {
		return nil
	}
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(out, "\n%s: medians of the per-round ratios of rps\nfrom\tto\tgateway/floor\t%[2]s/floor\tgateway/%[2]s\t\n", pairsName, formerName)
	for _, rounds := range grouped {
		gateway, _ := pairMedian(rounds, ofGateway, ofFloor)
		former, _ := pairMedian(rounds, ofFormer, ofFloor)
		ratio, measured := pairMedian(rounds, ofGateway, ofFormer)
		fmt.Fprintf(out, "%s\t%s\t%.2f\t%.2f\t%s\t\n", rounds[0].From, rounds[0].To, gateway, former, cell("%.3f", ratio, measured))
	}
	return out.Flush()
}
