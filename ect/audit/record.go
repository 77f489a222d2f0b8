package audit

import (
	"context"
	"slices"

	"github.com/aepb/aepb-gateway/ect"
)

// Verifier verifies one token. [*ect.Verifier] is one.
type Verifier interface {
	Verify(ctx context.Context, compact string, check ect.Check) (ect.Verified, error)
}

// Record is a token and what is to be held of it.
type Record struct {
	Claims  ect.Claims // zero for a token that cannot be read
	Compact string
	Problem string // why it is not verified; empty: it is
}

// Verified reports whether the token and all its ancestors that were given hold.
func (r Record) Verified() bool { return r.Problem == "" }

// Verify judges tokens as of when each was issued: age, audience and repetition are nothing against them.
// A token below one that does not hold does not hold either: that it is signed well does not prove what
// it comes from.
func Verify(ctx context.Context, verifier Verifier, tokens []string) []Record {
	records := make([]Record, len(tokens))
	for i, compact := range tokens {
		v, err := verifier.Verify(ctx, compact, ect.Check{Purpose: ect.Parent})
		if err == nil {
			records[i] = Record{Claims: v.Claims(), Compact: compact}
			continue
		}
		claims, _, _ := ect.ParseUnverified(compact)
		records[i] = Record{Claims: claims, Compact: compact, Problem: problemOf(err)}
	}
	return Distrust(records)
}

// Distrust returns the records with a problem for each that has an ancestor with one. Of several
// records with one id a single good one is enough.
func Distrust(given []Record) []Record {
	records := slices.Clone(given)
	valid, children := map[ect.ID]int{}, map[ect.ID][]int{}
	for i, r := range records {
		valid[r.Claims.ID] += 0
		if r.Verified() {
			valid[r.Claims.ID]++
		}
		for _, parent := range r.Claims.Parents {
			children[parent] = append(children[parent], i)
		}
	}
	var broken []ect.ID // given, and none of these tokens holds
	for id, n := range valid {
		if n == 0 {
			broken = append(broken, id)
		}
	}
	for ; len(broken) > 0; broken = broken[1:] {
		for _, i := range children[broken[0]] {
			r := &records[i]
			if !r.Verified() {
				continue
			}
			r.Problem = "the signature is good, but its parent " + string(broken[0]) + " is not verified"
			if valid[r.Claims.ID]--; valid[r.Claims.ID] == 0 {
				broken = append(broken, r.Claims.ID)
			}
		}
	}
	return records
}

// Ordered returns the records with parents before children, as far as both are there, and else in the
// order of their time. A record that cannot be read keeps its place behind the one before it.
func Ordered(records []Record) []Record {
	byTime := slices.Clone(records)
	at := make(map[string]int64, len(records))
	last := int64(0)
	for _, r := range records {
		if r.Claims.IssuedAt != 0 {
			last = r.Claims.IssuedAt
		}
		at[r.Compact] = last
	}
	slices.SortStableFunc(byTime, func(a, b Record) int { return int(at[a.Compact] - at[b.Compact]) })
	here := map[ect.ID][]int{}
	for i, r := range byTime {
		here[r.Claims.ID] = append(here[r.Claims.ID], i)
	}
	var out []Record
	done := make([]bool, len(byTime))
	var visit func(i int)
	visit = func(i int) {
		if done[i] {
			return
		}
		done[i] = true
		for _, parent := range byTime[i].Claims.Parents {
			for _, at := range here[parent] {
				visit(at)
			}
		}
		out = append(out, byTime[i])
	}
	for i := range byTime {
		visit(i)
	}
	return out
}
