package workflow

import (
	"sync"
	"time"
)

const (
	absentFor  = time.Second
	maxAbsents = 4096 // workflows; of more all are forgotten
)

// absences are workflows that had no start on record a moment ago. The zero value is ready.
type absences struct {
	mu    sync.Mutex
	until map[string]time.Time
}

func (a *absences) has(wid string, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return now.Before(a.until[wid])
}

func (a *absences) add(wid string, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.until == nil || len(a.until) >= maxAbsents {
		a.until = map[string]time.Time{}
	}
	a.until[wid] = now.Add(absentFor)
}

func (a *absences) remove(wid string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.until, wid)
}
