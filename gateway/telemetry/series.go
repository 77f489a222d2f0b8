package telemetry

import "sync"

// labels are the values of up to four labels.
type labels [4]string

// series finds the time series of one metric by the values of its labels. The way
// that the metric itself offers costs more than the counting (benchmark in this
// package). It remembers no more series than there are: values that are shown as
// something else are looked up each time.
type series[S any] struct {
	metric interface{ WithLabelValues(...string) S }
	count  int // of labels
	shown  func(labels) labels

	mu    sync.RWMutex
	known map[labels]S
}

func (s *series[S]) begin(metric interface{ WithLabelValues(...string) S }, count int, shown func(labels) labels) {
	s.metric, s.count, s.shown, s.known = metric, count, shown, map[labels]S{}
}

func (s *series[S]) of(said labels) S {
	s.mu.RLock()
	found, ok := s.known[said]
	s.mu.RUnlock()
	if ok {
		return found
	}
	shown := s.shown(said)
	found = s.metric.WithLabelValues(shown[:s.count]...)
	if shown == said {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.known[said] = found
	}
	return found
}
