package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"text/tabwriter"
	"time"

	tuacp "github.com/aepb/aepb-gateway/gateway/transport/uacp"
)

const (
	pairsName    = "pairs"
	pairCallers  = 8
	pairGoal     = 0.8 // of the calls per second of the pair's own floor
	pairSpan     = 0.3 // seconds, of each slice, at most
	gatewayReady = "ready uacp " + tuacp.Scheme + "://"
)

// pair is how one protocol reached another in one round.
type pair struct {
	From    string  `json:"from"`
	To      string  `json:"to"`
	Round   int     `json:"round"`
	Floor   float64 `json:"floor_rps"`
	Gateway float64 `json:"gateway_rps"`
}

// duel is a pair's floor and the gateway.
type duel struct {
	from, to string
	sides    [2]*subject // floor, gateway
}

// stage is everybody who takes part in the pairs.
type stage struct {
	*cast
	floor  *child
	frames string // host:port of the gateway's µACP
	voice  voice
	duels  []duel
}

// pairRounds measures every ordered pair against its own floor, in turns.
func pairRounds(ctx context.Context, dir string, o options, progress io.Writer) (all []pair, err error) {
	s := &stage{cast: &cast{}}
	defer func() { err = errors.Join(err, s.stop(ctx)) }()
	if err := s.begin(ctx, dir, true); err != nil {
		return nil, err
	}
	for _, d := range s.duels {
		for _, side := range d.sides {
			if err := side.warmUp(ctx); err != nil {
				return nil, fmt.Errorf("bench: %s to %s: %w", d.from, d.to, err)
			}
		}
	}
	span := time.Duration(min(pairSpan, o.seconds/float64(o.rounds)) * float64(time.Second))
	for round := range o.rounds {
		say(progress, fmt.Sprintf("pairs, round %d of %d", round+1, o.rounds))
		for _, d := range s.duels {
			var rps [2]float64
			for i := range d.sides {
				turn := (i + round) % 2
				if rps[turn], err = d.sides[turn].once(ctx, span); err != nil {
					return all, fmt.Errorf("bench: %s to %s: %w", d.from, d.to, err)
				}
			}
			all = append(all, pair{d.from, d.to, round + 1, rps[0], rps[1]})
		}
	}
	return all, nil
}

// begin starts the agents, the floor and, if it is wanted, the gateway.
func (s *stage) begin(ctx context.Context, dir string, withGateway bool) error {
	if err := s.found(ctx, dir, withGateway); err != nil {
		return err
	}
	var seeds [3][32]byte
	for i := range seeds {
		_, _ = rand.Read(seeds[i][:]) // it never fails
	}
	s.voice = newVoice(seeds[0][:])
	agents, err := s.start(ctx, "agents", script{Seed: seeds[1][:]})
	if err != nil {
		return err
	}
	s.floor, err = s.start(ctx, "pairs", script{
		Upstream: agents.url, Frames: agents.frames, Seed: seeds[2][:], Gateway: s.trust.GatewayID(), Client: s.trust.ClientSVID().Certificate[0],
	})
	if err != nil {
		return err
	}
	if withGateway {
		if err := s.introduce(ctx, agents); err != nil {
			return err
		}
	}
	for _, to := range bindings() {
		for _, from := range bindings() {
			if from == to {
				continue
			}
			d := duel{from: from, to: to}
			for i := range d.sides {
				if d.sides[i], err = s.side(from, to, i == 1); err != nil {
					return err
				}
			}
			s.duels = append(s.duels, d)
		}
	}
	return nil
}

// introduce lists the agents in the gateway's directory.
func (s *stage) introduce(ctx context.Context, agents *child) error {
	if err := s.gateway.Await(ctx, gatewayReady); err != nil {
		return err
	}
	_, line, _ := strings.Cut(s.gateway.Output(), gatewayReady)
	s.frames, _, _ = strings.Cut(line, "\n")
	for _, to := range bindings() {
		name, _, _ := strings.Cut(to, "-")
		at := agents.url + "/" + name
		if to == "uacp-v1" {
			at = tuacp.Scheme + "://" + agents.frames
		}
		if err := s.gateway.AddAgent(ctx, to, to, at); err != nil {
			return err
		}
	}
	return nil
}

// side is a caller's way to a pair: through its floor, or through the gateway.
func (s *stage) side(from, to string, gateway bool) (*subject, error) {
	svid := s.trust.ClientSVID()
	sender, err := newMinter(svid)
	if err != nil {
		return nil, err
	}
	w := s.voice.speak(from)
	name, _, _ := strings.Cut(from, "-")
	out := &subject{
		name: from + " to " + to, client: s.trust.Client(svid), headers: w.headers, rate: map[int]float64{}, inside: w.inside,
		calls: callMaker{sender: sender, audience: s.trust.GatewayID(), words: &w},
		url:   s.floor.url + "/" + from + "/" + to,
	}
	frames := s.floor.frames
	if gateway && s.gateway == nil {
		return nil, nil //nolint:nilnil // there is only the floor
	}
	if gateway {
		out.url, frames = s.gateway.Public+"/agents/"+to+"/"+name, s.frames
	}
	if from == "uacp-v1" {
		out.via = s.framing(frames, to, svid)
	}
	s.subjects = append(s.subjects, out)
	return out, nil
}

// framing calls over µACP, on connections that are kept, one call at a time.
func (s *stage) framing(at, to string, svid tls.Certificate) func(context.Context, call) error {
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
			if conn, err = (&tls.Dialer{Config: conf}).DialContext(ctx, "tcp", at); err != nil {
				return err
			}
		}
		if err := writeFrame(conn, []byte(c.body)); err != nil {
			return errors.Join(err, conn.Close())
		}
		reply, err := readFrame(conn)
		if err != nil || !strings.Contains(string(reply), echoed) || !strings.Contains(string(reply), `"ect":`) {
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

// pairTable prints the medians of each pair.
func pairTable(w io.Writer, all []pair) error {
	if len(all) == 0 {
		return nil
	}
	type key struct{ from, to string }
	type column struct{ floor, gateway, ratio []float64 }
	columns := map[key]*column{}
	var order []key
	for _, p := range all {
		k := key{p.From, p.To}
		if columns[k] == nil {
			columns[k], order = &column{}, append(order, k)
		}
		c := columns[k]
		c.floor, c.gateway, c.ratio = append(c.floor, p.Floor), append(c.gateway, p.Gateway), append(c.ratio, p.Gateway/p.Floor)
	}
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(out, "%s, %d callers: medians of rps, and of the per-round ratios\nfrom\tto\tfloor\tgateway\tratio\t\t\n", pairsName, pairCallers)
	for _, k := range order {
		floor, _ := median(columns[k].floor)
		gateway, _ := median(columns[k].gateway)
		ratio, _ := median(columns[k].ratio)
		below := ""
		if ratio < pairGoal {
			below = fmt.Sprintf("below %.1f", pairGoal)
		}
		fmt.Fprintf(out, "%s\t%s\t%.0f\t%.0f\t%.2f\t%s\t\n", k.from, k.to, floor, gateway, ratio, below)
	}
	return out.Flush()
}
