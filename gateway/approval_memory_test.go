package gateway_test

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/approval"
)

// heap is the live heap.
func heap() int64 {
	runtime.GC()
	runtime.GC() // what the first one finalized
	var now runtime.MemStats
	runtime.ReadMemStats(&now)
	return int64(now.HeapAlloc)
}

// parked parks calls of several callers, and says what they cost beside what the store has, in bytes of live
// heap and in goroutines.
func parked(t *testing.T, callers, each int) (bytes int64, goroutines int) {
	t.Helper()
	b := gated(t)
	advance := b.advance()
	if err := b.TakeOver(); err != nil {
		t.Fatal(err)
	}
	routines := runtime.NumGoroutine()
	call := b.call(strings.Replace(addBody, `"b":2`, `"b":"`+strings.Repeat("x", 4096)+`"`, 1))
	for caller := range callers {
		call.Caller.ID = ect.Identity("spiffe://example.com/client/" + string(rune('a'+caller)))
		for range each {
			advance(20 * time.Millisecond) // within the caller's rate
			if _, err := b.Exchange(t.Context(), call); err != nil {
				t.Fatal(err)
			}
		}
	}
	if count, _ := b.Parts().Approvals.Usage(); count != callers*each {
		t.Fatalf("%d calls wait, expected %d", count, callers*each)
	}
	for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > routines+5 && time.Now().Before(deadline); {
		runtime.Gosched()
	}
	goroutines = runtime.NumGoroutine() - routines
	all, stores := heap(), b.memory
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	*b = fixture{}
	bytes = all - heap()
	runtime.KeepAlive(stores)
	return bytes, goroutines
}

// TestApproval_MemoryOfWhatWaits: 1,000 calls that wait take no goroutine, and at most 8 KiB each beside what the
// store has. They run alone: other tests allocate, too.
func TestApproval_MemoryOfWhatWaits(t *testing.T) {
	const callers, limit = 10, 8 << 10
	empty, _ := parked(t, 0, 0)
	full, goroutines := parked(t, callers, approval.OfOneCaller)
	each := (full - empty) / (callers * approval.OfOneCaller)
	t.Logf("each call that waits takes %d bytes, all take %d goroutines", each, goroutines)
	if each > limit || goroutines > 5 {
		t.Errorf("each call that waits takes %d bytes and all take %d goroutines, expected at most %d and no more than 5", each, goroutines, limit)
	}
}
