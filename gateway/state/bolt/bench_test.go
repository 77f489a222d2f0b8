package bolt_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/state/bolt"
)

// store is what is measured, with memory alone and with a file.
type store interface {
	ect.Store
	ect.ReplayCache
}

// operation is one write that changes something.
type operation func(b *testing.B, s store, n int64)

func claimOne(b *testing.B, s store, n int64) {
	b.Helper()
	id := ect.ID(fmt.Sprintf("6f0a1c52-6a83-4d6f-9f6e-%012d", n))
	_, err := s.Claim(context.Background(), ect.ReplayKey{Issuer: "spiffe://a.test/agents/alice", Workflow: "6f0a1c52-6a83-4d6f-9f6e-0d2f3a4b5c6d", ID: id},
		ect.ReplayUse{
			Token: "ZpAMVq0oZL4tsrRLY0M2Lw6B9y5nWlH7N1m8Yc0n3sE", Body: "ZpAMVq0oZL4tsrRLY0M2Lw6B9y5nWlH7N1m8Yc0n3sE",
			Issued: time.Unix(4_000_000_000, 0), Until: time.Unix(4_000_000_000, 0),
		})
	if err != nil {
		b.Error(err)
	}
}

func putOne() operation {
	compact := string(make([]byte, 2048))
	return func(b *testing.B, s store, n int64) {
		b.Helper()
		err := s.Put(context.Background(), ect.Record{
			Compact: compact, ID: ect.ID(strconv.FormatInt(n, 10)), Workflow: strconv.FormatInt(n/4, 10), Until: time.Unix(4_000_000_000, 0),
			Audience: []string{"spiffe://b.test/b"}, Parents: []ect.ID{"parent"},
		})
		if err != nil {
			b.Error(err)
		}
	}
}

func benchConfig(b *testing.B) bolt.Config {
	b.Helper()
	return bolt.Config{Path: filePath(b), Bounds: state.Config{MaxReplays: 1 << 24}}
}

func memory(b *testing.B) *state.Memory {
	b.Helper()
	m, err := state.New(state.Config{MaxReplays: 1 << 24}, state.Deps{})
	if err != nil {
		b.Fatal(err)
	}
	return m
}

// BenchmarkStore_BetweenCommits is what a caller pays as long as the disk keeps up: writes in
// groups of four thousand, with the commits between them and not counted.
func BenchmarkStore_BetweenCommits(b *testing.B) {
	for name, do := range map[string]operation{"claim": claimOne, "put": putOne()} {
		b.Run(name+"/memory", func(b *testing.B) { inGroups(b, memory(b), do, func() {}) })
		b.Run(name+"/bolt", func(b *testing.B) {
			s := open(b, benchConfig(b))
			inGroups(b, s, do, func() { flush(b, s) })
		})
	}
}

func inGroups(b *testing.B, s store, do operation, between func()) {
	b.Helper()
	b.ReportAllocs()
	for n := range int64(b.N) {
		if n%4000 == 0 {
			b.StopTimer()
			between()
			b.StartTimer()
		}
		do(b, s, n)
	}
}

// BenchmarkStore_Saturated is how much the file takes when nobody does anything but
// write, from all cores; writers wait for it.
func BenchmarkStore_Saturated(b *testing.B) {
	for name, do := range map[string]operation{"claim": claimOne, "put": putOne()} {
		b.Run(name+"/memory", func(b *testing.B) { fromAllCores(b, memory(b), do) })
		b.Run(name+"/bolt", func(b *testing.B) {
			s := open(b, benchConfig(b))
			fromAllCores(b, s, do)
			flush(b, s)
			stats := s.Stats()
			b.ReportMetric(float64(stats.Waits)/float64(b.N), "waits/op")
			b.ReportMetric(float64(stats.Slowest.Milliseconds()), "ms-slowest-commit")
		})
	}
}

func fromAllCores(b *testing.B, s store, do operation) {
	b.Helper()
	var next atomic.Int64
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			do(b, s, next.Add(1))
		}
	})
}

// BenchmarkStore_PacedWrites is what a caller pays at 20 000 writes a second, with the
// commits beside it: the median, and the worst of a thousand.
func BenchmarkStore_PacedWrites(b *testing.B) {
	const pause = 50 * time.Microsecond
	paced := func(b *testing.B, s store, do operation) {
		b.Helper()
		took := make([]time.Duration, b.N)
		start := time.Now()
		for n := range b.N {
			for time.Since(start) < time.Duration(n)*pause {
				<-time.After(0) // others may run
			}
			began := time.Now()
			do(b, s, int64(n))
			took[n] = time.Since(began)
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2]), "ns-p50")
		b.ReportMetric(float64(took[len(took)*999/1000]), "ns-p99.9")
	}
	for name, do := range map[string]operation{"claim": claimOne, "put": putOne()} {
		b.Run(name+"/memory", func(b *testing.B) { paced(b, memory(b), do) })
		b.Run(name+"/bolt", func(b *testing.B) { paced(b, open(b, benchConfig(b)), do) })
	}
}

// BenchmarkStore_MillionTokens is a file with a million tokens of 250 callers, with headers of their
// certificates: how long a start takes and a look-up, and what a token takes on disk.
//
//	go test -run '^$' -bench Million -benchtime 1x ./gateway/state/bolt
func BenchmarkStore_MillionTokens(b *testing.B) {
	const tokens, callers = 1_000_000, 250
	path := filePath(b)
	config := bolt.Config{Path: path, Bounds: state.Config{MaxTokenBytes: 16 << 30}}
	token := func(n int) ect.Record {
		caller := strconv.Itoa(n % callers)
		return ect.Record{
			Compact: strings.Repeat(caller+"-", 2600/(len(caller)+1)) + "." + strings.Repeat("p", 700) + strconv.Itoa(n) + "." + strings.Repeat("s", 86),
			ID:      ect.ID(fmt.Sprintf("6f0a1c52-6a83-4d6f-9f6e-%012d", n)), Workflow: fmt.Sprintf("6f0a1c52-6a83-4d6f-9f6f-%012d", n/4),
			Issuer: ect.Identity("spiffe://a.test/agents/" + caller), Audience: []string{"spiffe://b.test/b"}, Parents: []ect.ID{"6f0a1c52-6a83-4d6f-9f6e-0d2f3a4b5c6d"},
			Until: time.Unix(4_000_000_000, 0), Own: n%2 == 0, Holder: caller,
		}
	}
	for b.Loop() {
		s := open(b, config)
		began := time.Now()
		for n := range tokens {
			if err := s.Put(b.Context(), token(n)); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(time.Since(began).Microseconds())/tokens, "us/put")
		closed(b, s)
		info, err := os.Stat(path)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(info.Size())/tokens, "B/token")
		began = time.Now()
		s = open(b, config)
		b.ReportMetric(time.Since(began).Seconds(), "s/start")
		var took []time.Duration
		for n := 0; n < tokens; n += 97 {
			began := time.Now()
			if found, err := ecttest.Find(b.Context(), s, token(n).ID); err != nil || len(found) != 1 || found[0].Compact != token(n).Compact {
				b.Fatalf("token %d: %v, %v", n, len(found), err)
			}
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "us/p99-lookup")
		closed(b, s)
	}
}
