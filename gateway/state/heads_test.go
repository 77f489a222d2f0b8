package state_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/state"
)

// signed is a record whose token has one of several headers.
func signed(n, header int) ect.Record {
	return ect.Record{
		Compact: fmt.Sprintf("%s%d.payload-%d.signature", strings.Repeat("h", 900), header, n),
		ID:      ect.ID(fmt.Sprint(n)), Until: time.Now().Add(time.Minute),
	}
}

// A header that many tokens have is kept once, and as long as one of them is.
func TestHeadersAreKeptOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const tokens, headers = 1000, 3
		m := open(t, state.Config{})
		for n := range tokens {
			if err := m.Put(t.Context(), signed(n, n%headers)); err != nil {
				t.Fatal(err)
			}
		}
		again := signed(1, 1)
		again.Until = again.Until.Add(time.Hour) // is prolonged
		_ = m.Put(t.Context(), again)
		other := signed(2, headers) // another token with a known id
		if conflict := (*ect.ConflictError)(nil); !errors.As(m.Put(t.Context(), other), &conflict) {
			t.Error("another token took the place")
		}
		if got := m.UsageOf(state.KindToken).Bytes / tokens; got > 500 || m.Heads() != headers {
			t.Errorf("%d octets for each token, %d headers", got, m.Heads())
		}
		for n := range tokens {
			if got, _ := ecttest.Find(t.Context(), m, ect.ID(fmt.Sprint(n))); len(got) != 1 || got[0].Compact != signed(n, n%headers).Compact {
				t.Fatalf("token %d is %v", n, got)
			}
		}
		time.Sleep(2 * time.Minute)
		m.Sweep(tokens)
		if m.Heads() != 1 {
			t.Errorf("%d headers of one token", m.Heads())
		}
		time.Sleep(2 * time.Hour)
		m.Sweep(tokens)
		if m.Heads() != 0 {
			t.Errorf("%d headers of no token", m.Heads())
		}
	})
}

// Headers that somebody makes up do not add up: they go with their tokens.
func TestMadeUpHeaders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const tokens = 3000
		m, until := open(t, state.Config{}), time.Now().Add(time.Minute)
		for n := range tokens {
			_ = m.Put(t.Context(), signed(n, n))
			_ = m.Put(t.Context(), ect.Record{Compact: "no header", ID: ect.ID(fmt.Sprint("none ", n)), Until: until})
		}
		if m.Heads() > 1024 {
			t.Errorf("%d headers", m.Heads())
		}
		for n := range tokens {
			if got, _ := ecttest.Find(t.Context(), m, ect.ID(fmt.Sprint(n))); len(got) != 1 || got[0].Compact != signed(n, n).Compact {
				t.Fatalf("token %d is %v", n, got)
			}
		}
	})
}

// A journal is told whole tokens.
func TestJournalIsToldHeaders(t *testing.T) {
	t.Parallel()
	source, journal := journaled(t, state.Config{})
	for n := range 10 {
		_ = source.Put(t.Context(), signed(n, n%2))
	}
	m := open(t, state.Config{})
	for _, c := range journal.list {
		data, err := c.AppendBinary(nil)
		if err != nil || len(data) != c.Len() {
			t.Fatalf("%d octets, %v; said %d", len(data), err, c.Len())
		}
		if kept, err := m.Restore(c.Kind, c.Serial, data); !kept || err != nil {
			t.Fatal(kept, err)
		}
	}
	for n := range 10 {
		if got, _ := ecttest.Find(t.Context(), m, ect.ID(fmt.Sprint(n))); len(got) != 1 || got[0].Compact != signed(n, n%2).Compact {
			t.Errorf("token %d is %v", n, got)
		}
	}
	if m.Heads() != 2 {
		t.Errorf("%d headers", m.Heads())
	}
}
