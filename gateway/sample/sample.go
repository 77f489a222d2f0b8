package sample

import (
	"cmp"
	"container/list"
	"errors"
	"sync"
	"time"
)

// Defaults of a [Config].
const (
	DefaultEvery   = time.Second
	DefaultMost    = 16
	DefaultMaxKeys = 1024
)

// Config bounds a Sampler. A zero field takes its default.
type Config struct {
	Every   time.Duration // least time between two samples of one key
	Most    int           // samples per Every, of all keys together
	MaxKeys int           // keys counted apart
}

// Deps is what a Sampler needs.
type Deps struct {
	Now func() time.Time // nil: time.Now
}

// Key is what is counted apart. Reasons must be few.
type Key struct {
	Source string // empty: the sources that share a row
	Reason string
}

// Sample is how often something happened since the last sample of its key.
type Sample struct {
	Key   Key
	Count uint64
	Since time.Time // when the first of them happened
}

// Sampler counts. It is safe for concurrent use and starts no goroutine.
type Sampler struct {
	config Config
	now    func() time.Time

	mu     sync.Mutex
	rows   map[Key]*list.Element
	recent *list.List // of *row, the last noted in front; shared rows are not in it
	shared map[string]*row
	window time.Time // in which spent samples were told
	spent  int
}

type row struct {
	key      Key
	count    uint64
	since    time.Time
	noted    time.Time
	reported time.Time
}

// New makes a sampler.
func New(config Config, deps Deps) (*Sampler, error) {
	config.Every = cmp.Or(config.Every, DefaultEvery)
	config.Most = cmp.Or(config.Most, DefaultMost)
	config.MaxKeys = cmp.Or(config.MaxKeys, DefaultMaxKeys)
	if config.Every < 0 || config.Most < 0 || config.MaxKeys < 0 {
		return nil, errors.New("sample: bounds are not negative")
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	return &Sampler{
		config: config, now: deps.Now,
		rows: map[Key]*list.Element{}, recent: list.New(), shared: map[string]*row{},
	}, nil
}

// Note counts one event. When it is time to tell, it answers with what was
// counted, this event included; a count that could not be told goes back with
// [Sampler.Return].
func (s *Sampler) Note(key Key) (Sample, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	r := s.row(key, now)
	r.add(1, now)
	if now.Sub(r.reported) < s.config.Every || !s.spend(now) {
		return Sample{}, false
	}
	r.reported = now
	return r.take(), true
}

// Return counts again what a sample said.
func (s *Sampler) Return(sample Sample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.row(sample.Key, s.now()).add(sample.Count, sample.Since)
}

// Flush tells all that was counted and not told, in at most so many samples
// and one more for each reason, which holds the rest.
func (s *Sampler) Flush(most int) []Sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Sample
	for e := s.recent.Front(); e != nil; e = e.Next() {
		r, ok := e.Value.(*row)
		switch {
		case !ok || r.count == 0:
		case len(out) < most:
			out = append(out, r.take())
		default:
			s.common(r)
		}
	}
	for _, r := range s.shared {
		if r.count > 0 {
			out = append(out, r.take())
		}
	}
	return out
}

// row returns the row of a key, or the shared row of its reason when all rows are taken.
func (s *Sampler) row(key Key, now time.Time) *row {
	if found, ok := s.rows[key]; ok {
		s.recent.MoveToFront(found)
		r, _ := found.Value.(*row)
		r.noted = now
		return r
	}
	if key.Source != "" && s.mayReport(now) {
		r := &row{key: key, noted: now}
		s.rows[key] = s.recent.PushFront(r)
		return r
	}
	return s.sharedRow(key.Reason)
}

// mayReport reports whether one more key can have a row. It may delete the row that was quiet for
// longest, but not within Every: so no source gets more samples by changing its key.
func (s *Sampler) mayReport(now time.Time) bool {
	if s.recent.Len() < s.config.MaxKeys {
		return true
	}
	oldest := s.recent.Back()
	if oldest == nil {
		return false
	}
	r, ok := oldest.Value.(*row)
	if !ok || now.Sub(r.noted) < s.config.Every {
		return false
	}
	s.common(r)
	s.recent.Remove(oldest)
	delete(s.rows, r.key)
	return true
}

// common moves a row's count to the shared row of its reason.
func (s *Sampler) common(r *row) {
	if r.count > 0 {
		moved := r.take()
		s.sharedRow(r.key.Reason).add(moved.Count, moved.Since)
	}
}

func (s *Sampler) sharedRow(reason string) *row {
	r, ok := s.shared[reason]
	if !ok {
		r = &row{key: Key{Reason: reason}}
		s.shared[reason] = r
	}
	return r
}

// spend takes one of the samples that all keys share.
func (s *Sampler) spend(now time.Time) bool {
	if now.Sub(s.window) >= s.config.Every {
		s.window, s.spent = now, 0
	}
	if s.spent >= s.config.Most {
		return false
	}
	s.spent++
	return true
}

func (r *row) add(count uint64, when time.Time) {
	if r.count == 0 || when.Before(r.since) {
		r.since = when
	}
	r.count += count
}

func (r *row) take() Sample {
	sample := Sample{Key: r.key, Count: r.count, Since: r.since}
	r.count = 0
	return sample
}
