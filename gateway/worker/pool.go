package worker

import (
	"sync"
	"sync/atomic"
)

// Pool runs work on goroutines of its own, like a sync.WaitGroup. When their work is
// done, some of the goroutines stay and take the next.
type Pool struct {
	group  sync.WaitGroup
	next   chan func() // unbuffered: only an idle goroutine takes from it
	over   chan struct{}
	ending sync.Once
	max    int32
	idle   atomic.Int32
}

// NewPool makes a pool in which at most maxIdle goroutines wait for work.
func NewPool(maxIdle int32) *Pool {
	return &Pool{next: make(chan func()), over: make(chan struct{}), max: maxIdle}
}

// Go runs work at once. After Wait has begun, only work that runs may call it.
func (p *Pool) Go(work func()) {
	select {
	case p.next <- work:
	default:
		p.group.Go(func() { p.run(work) })
	}
}

// Wait blocks until all work is done, and ends the idle goroutines.
func (p *Pool) Wait() {
	p.ending.Do(func() { close(p.over) })
	p.group.Wait()
}

func (p *Pool) run(work func()) {
	for work != nil {
		work()
		work = p.take()
	}
}

// take waits for the next work. It returns nil if enough goroutines are idle, or if
// the pool is over.
func (p *Pool) take() (work func()) {
	defer p.idle.Add(-1)
	if p.idle.Add(1) > p.max {
		return nil
	}
	select {
	case work = <-p.next:
	case <-p.over:
	}
	return work
}
