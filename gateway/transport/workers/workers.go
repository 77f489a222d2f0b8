package workers

import (
	"sync"
	"sync/atomic"
)

// Group runs work on goroutines of its own, like a sync.WaitGroup. Up to so many of
// them as it was made for stay when their work is done, and wait for more.
type Group struct {
	group   sync.WaitGroup
	more    chan func() // unbuffered: taken by who waits, or by nobody
	over    chan struct{}
	ending  sync.Once
	most    int32
	waiting atomic.Int32
}

// New makes a group in which at most so many goroutines wait for work.
func New(most int32) *Group {
	return &Group{more: make(chan func()), over: make(chan struct{}), most: most}
}

// Go runs work, at once. As with a WaitGroup, it may be called after Wait has begun
// by work that runs, and by nobody else.
func (g *Group) Go(work func()) {
	select {
	case g.more <- work:
	default:
		g.group.Go(func() { g.run(work) })
	}
}

// Wait waits until all work is done, and nobody waits for more.
func (g *Group) Wait() {
	g.ending.Do(func() { close(g.over) })
	g.group.Wait()
}

func (g *Group) run(work func()) {
	for {
		work()
		if work = g.next(); work == nil {
			return
		}
	}
}

// next is what to do next; nil: nothing, there are enough who wait, or it is over.
func (g *Group) next() (work func()) {
	defer g.waiting.Add(-1)
	if g.waiting.Add(1) > g.most {
		return nil
	}
	select {
	case work = <-g.more:
	case <-g.over:
	}
	return work
}
