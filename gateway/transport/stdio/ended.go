package stdio

import (
	"context"
	"errors"
	"slices"

	"github.com/aepb/aepb-gateway/ect"
)

// Why a process was ended.
var (
	errIdle    = errors.New("it was not used for a while")
	errGiveWay = errors.New("its place was needed")
	errDropped = errors.New("its agent is not listed any more, or has another program")
	errLine    = errors.New("it wrote a line that is too long")
	errDeaf    = errors.New("it took no line for too long")
	errUnused  = errors.New("its session has ended")
	errClosed  = errors.New("it closed its output")
	errShut    = errors.New("it closed its input")
)

// ours are the reasons for which we end a program that does nothing wrong.
var ours = []error{errIdle, errGiveWay, errDropped, errUnused, ErrClosed}

// faults are the reasons that are the program's own fault.
var faults = []error{errLine, errDeaf, errClosed, errShut}

// EndedError reports that the process has ended, or is being ended.
type EndedError struct {
	Err   error  // how it ended, or why it was ended
	Last  string // the first and the last lines that it wrote for people; empty: none
	Other bool   // it is shared, and the call of another caller was under way first

	process *Process
	blamed  *ect.Identity // whose call was under way first; nil: it is not known
}

// Innocent reports whether neither the program nor what its caller sent is at fault.
func (e *EndedError) Innocent() bool {
	return e.Other || slices.Contains(ours, e.Err)
}

// Blame says whose call was under way first when the program ended, by its context: where
// callers share the program, the failure is that caller's, who waits before the next start.
func (e *EndedError) Blame(first context.Context) {
	if p := e.process; p != nil && p.program.Shared && !e.Innocent() {
		caller := askerOf(first)
		e.blamed = &caller
		p.host.failed(failureKey{Owner{p.owner.Agent, caller}, p.program.URL()}, e.Err)
	}
}

// For is the error as it is for the caller of a context.
func (e *EndedError) For(ctx context.Context) error {
	if e.blamed == nil || *e.blamed == askerOf(ctx) {
		return e
	}
	return &EndedError{Err: e.Err, Last: e.Last, Other: true}
}

func (e *EndedError) Error() string {
	text := "the program ended: " + e.Err.Error()
	if e.Last != "" {
		text += " (it wrote: " + e.Last + ")"
	}
	return text
}

// Unwrap gives the cause.
func (e *EndedError) Unwrap() error { return e.Err }

// Err says why nothing more comes of it.
func (p *Process) Err() error {
	_, err := p.end()
	return &EndedError{Err: err, Last: p.writings.lines(), process: p}
}

// end says how it ended, and whether we wanted that without a fault of its own.
func (p *Process) end() (wanted bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reason != nil {
		return !slices.Contains(faults, p.reason), p.reason
	}
	if p.err != nil {
		return false, p.err
	}
	return false, errors.New("it takes nothing more")
}
