package workflow

import (
	"sync"
	"time"
)

// maxMoments bounds what is remembered; of more all is forgotten.
const maxMoments = 4096

// moments remembers until when something holds, by name. The zero value is ready.
type moments struct {
	mu    sync.Mutex
	until map[string]time.Time
}

func (m *moments) has(name string, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return now.Before(m.until[name])
}

func (m *moments) add(name string, until time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.until == nil || len(m.until) >= maxMoments {
		m.until = map[string]time.Time{}
	}
	m.until[name] = until
}

func (m *moments) remove(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.until, name)
}
