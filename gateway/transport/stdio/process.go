package stdio

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/policy/quota"
)

// How long a process may take.
const (
	takesWithin = 10 * time.Second // to take a line
	// the same where callers share it: it may be at work for one
	sharedTakesWithin = time.Minute
	leavesAfter       = 2 * time.Second // to end once its standard input has
	killedAfter       = 2 * time.Second // to end once it was told
	// for its supervisor to end all that it started: killed before, it would leave some behind
	supervisedFor = 15 * time.Second
)

// Process is a running program. Send may be called by several at once, Receive by one.
type Process struct {
	host    *Host
	owner   Owner
	holder  string // in whose share it is
	program Program
	maxLine int
	started time.Time
	*uses

	cmd      *exec.Cmd
	ends     ends
	lines    *bufio.Reader // of its output
	writings *writings
	ending   chan struct{} // closed when it is to be ended
	done     chan struct{} // closed when it has ended

	mu     sync.Mutex
	reason error // why we end it; nil: we do not
	err    error // how it ended
}

// ends are our ends of the pipes to a process.
type ends struct {
	input, output *os.File
	life          *os.File // closed: the supervisor ends everything; nil: there is none
	turns         turns    // to write a line
}

// uses are what a process is used for.
type uses struct {
	place *quota.Place
	now   func() time.Time

	mu        sync.Mutex
	latest    time.Time // when the last one began or ended
	count     int       // under way
	listening int       // of these, that only listen
	broken    bool      // others than these when the process ended
}

// Use counts one more use, until Rest; false: the process has to end, or has ended.
func (p *Process) Use() bool {
	p.add(1)
	if p.place.Use() && !p.over() {
		return true
	}
	p.Rest()
	return false
}

// over reports whether the process has ended, or is being ended.
func (p *Process) over() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reason != nil || p.err != nil
}

// Rest ends one use.
func (p *Process) Rest() {
	p.uses.add(-1)
	p.place.Rest()
	p.host.freed()
}

// Listen says that one use only listens, until Work: the process has nothing to do for it, and
// gives way to a caller that needs the place.
func (p *Process) Listen() {
	p.listen(1)
	p.place.Rest()
	p.host.freed()
}

// Work says that a use does not only listen.
func (p *Process) Work() {
	p.listen(-1)
	p.place.Use()
}

func (u *uses) listen(n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.listening += n
}

// ended notes whether there is a use that does not only listen, now that the process has ended.
func (u *uses) ended() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.broken = u.count > u.listening
}

// broke reports whether the end of the process broke off a use.
func (u *uses) broke() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.broken
}

func (u *uses) add(n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.count += n
	u.latest = u.now()
}

// idle calls end if the process was unused for most, else it returns the time that is left. No
// use begins meanwhile.
func (u *uses) idle(most time.Duration, end func()) (left time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.count > 0 {
		return most
	}
	if left = most - u.now().Sub(u.latest); left <= 0 {
		end()
	}
	return left
}

func (u *uses) underWay() (count int, latest time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.count, u.latest
}

func (p *Process) attrs() []slog.Attr {
	return []slog.Attr{
		slog.String("agent", p.owner.Agent), slog.String("caller", string(p.owner.Caller)),
		slog.String("program", filepath.Base(p.program.Command[0])), slog.Int("pid", p.cmd.Process.Pid),
	}
}

// start runs the command, which is that of the program, in an environment.
func (p *Process) start(supervisor, command, environment []string, logger *slog.Logger) error {
	var pipes pipes
	defer pipes.closeTheirs()
	input, output, writings := pipes.make(), pipes.make(), pipes.make()
	if pipes.err != nil {
		return pipes.err
	}
	var ended *os.File
	p.cmd = &exec.Cmd{Env: environment, Dir: p.program.Dir, Stdin: input.r, Stdout: output.w, Stderr: writings.w}
	if supervises && len(supervisor) > 0 {
		life, report := pipes.make(), pipes.make()
		if pipes.err != nil {
			return pipes.err
		}
		p.cmd.ExtraFiles = []*os.File{life.r, report.w} // descriptors 3 and 4
		command = append(append(slices.Clone(supervisor), strconv.FormatInt(p.program.memory(), 10)), command...)
		p.ends.life, ended = life.w, report.r
		pipes.theirs(life.r, report.w)
	}
	pipes.theirs(input.r, output.w, writings.w)
	p.cmd.Path, p.cmd.Args = command[0], command
	ownGroup(p.cmd)
	keepPrivate()
	if err := p.cmd.Start(); err != nil {
		pipes.closeOurs()
		return &StartError{Err: err}
	}
	p.ends.input, p.ends.output, p.lines = input.w, output.r, bufio.NewReaderSize(output.r, 4<<10)
	p.writings = newWritings(logger.With(slog.String("agent", p.owner.Agent), slog.Int("pid", p.cmd.Process.Pid)), p.host.deps.Now, p.program.hides(environment))
	p.host.work.Go(func() { p.wait(writings.r, ended) })
	return nil
}

// environment is what the program gets: little, so that no secret of ours is in it.
func (p *Process) environment() ([]string, error) {
	var out []string
	for _, name := range []string{"PATH", "HOME", "USER", "LANG", "TMPDIR"} {
		if value, ok := os.LookupEnv(name); ok {
			out = append(out, name+"="+value)
		}
	}
	for name, value := range p.program.Env {
		out = append(out, name+"="+value)
	}
	for name, file := range p.program.EnvFiles {
		value, err := os.ReadFile(file)
		if err != nil {
			return nil, &StartError{Err: fmt.Errorf("the value of %s cannot be read: %w", name, err)}
		}
		out = append(out, name+"="+strings.TrimRight(string(value), "\r\n"))
	}
	return out, nil
}

// wait sees the process to its end.
func (p *Process) wait(writings, report *os.File) {
	var reading sync.WaitGroup
	reading.Go(func() { p.writings.read(context.Background(), writings) })
	err := p.cmd.Wait()
	text := make([]byte, maxReport)
	n := 0
	if report != nil {
		n, _ = io.ReadFull(report, text)
		_ = report.Close()
	}
	if n > 0 {
		err = errors.New(string(text[:n]))
	} else {
		killGroup(p.cmd) // what no supervisor lived to end
	}
	_ = p.ends.output.SetReadDeadline(time.Now().Add(time.Second)) // all that was written is in the pipe
	_ = writings.SetReadDeadline(time.Now().Add(time.Second))
	reading.Wait()
	_ = writings.Close()
	p.uses.ended()
	p.mu.Lock()
	if p.err = err; err == nil {
		p.err = errors.New("it ended by itself")
	}
	p.mu.Unlock()
	_ = p.ends.input.Close()
	if p.ends.life != nil {
		_ = p.ends.life.Close()
	}
	close(p.done)
}

// Send writes one message as a line. Line breaks in it become blanks: in JSON they mean the
// same outside of texts, and inside there are none. A program that takes no more of it for ten
// seconds ends, but for one that callers share: that one may be at work for another, and has a
// minute. Errors: *EndedError, *WaitError for a caller whose calls ended a shared program, or the
// context's, whose message is still written.
func (p *Process) Send(ctx context.Context, message []byte) error {
	line := make([]byte, 0, len(message)+1)
	for _, c := range message {
		if c == '\n' || c == '\r' {
			c = ' '
		}
		line = append(line, c)
	}
	line = append(line, '\n')
	if p.program.Shared {
		if err := p.host.waits(failureKey{Owner{p.owner.Agent, askerOf(ctx)}, p.program.URL()}); err != nil {
			return err
		}
	}
	if err := p.ends.turns.take(ctx); err != nil {
		return err
	}
	err := p.write(ctx, line)
	switch {
	case err == nil, ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &EndedError{Err: errDeaf, Last: p.writings.lines()}
	case !p.over() && !p.endsWithin(leavesAfter): // else it says itself how it ended
		p.ask(errShut)
	}
	err = p.Err()
	if ended, ok := errors.AsType[*EndedError](err); ok {
		ended.Other = p.program.Shared // it took nothing of this
	}
	return err
}

// write writes a line, and gives the turn back when it is written: half a line is not the end
// of a shared program.
func (p *Process) write(ctx context.Context, line []byte) error {
	most := takesWithin
	if p.program.Shared {
		most = sharedTakesWithin
	}
	written := make(chan error, 1)
	if !p.host.enter() {
		p.ends.turns.give()
		return ErrClosed
	}
	defer p.host.work.Done()
	p.host.work.Go(func() {
		defer p.ends.turns.give()
		_ = p.ends.input.SetWriteDeadline(time.Now().Add(most))
		_, err := p.ends.input.Write(line)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			p.ask(errDeaf) // half a line may be written: nothing more can be said
		}
		written <- err
	})
	select {
	case err := <-written:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Receive waits for the next line that is not blank. Its error is an *EndedError,
// after which there is no line: the starter of a process reads until then.
func (p *Process) Receive() ([]byte, error) {
	for {
		var line []byte
		for {
			part, err := p.lines.ReadSlice('\n')
			if line = append(line, part...); len(line) > p.maxLine {
				p.ask(errLine)
				_ = p.ends.output.Close()
				return nil, p.Err()
			}
			if err == nil {
				break
			}
			if !errors.Is(err, bufio.ErrBufferFull) {
				if !p.endsWithin(leavesAfter) {
					p.ask(errClosed)
				}
				<-p.done
				_ = p.ends.output.Close()
				return nil, p.Err()
			}
		}
		if text := strings.TrimSpace(string(line)); text != "" {
			return line[:len(line)-1], nil
		}
	}
}

// Note logs a line of its output that is no message, within the bounds of what it writes for
// people.
func (p *Process) Note(line []byte) {
	p.writings.say(context.Background(), "program wrote something else than a message", line)
}

func (p *Process) status() Status {
	count, latest := p.underWay()
	return Status{
		PID: p.cmd.Process.Pid, Owner: p.owner, Program: filepath.Base(p.program.Command[0]), Started: p.started,
		Used: latest, Uses: count, MemoryMiB: int(memoryOf(p.cmd.Process.Pid) >> 20),
	}
}

// giveWay ends a process whose place another takes.
func (p *Process) giveWay() { p.ask(errGiveWay) }

// Close ends the process because its session is over. It does not wait.
func (p *Process) Close() { p.ask(errUnused) }

// ask has the process ended, for the first reason that is given.
func (p *Process) ask(why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reason == nil && p.err == nil {
		p.reason = why
		close(p.ending)
	}
}

// stop ends a process: by the end of its standard input, by its supervisor, by force.
func (p *Process) stop() {
	_ = p.ends.input.Close()
	if p.endsWithin(leavesAfter) {
		return
	}
	most := killedAfter
	if p.ends.life != nil {
		most = supervisedFor
		_ = p.ends.life.Close()
	} else {
		terminateGroup(p.cmd)
	}
	if !p.endsWithin(most) {
		killGroup(p.cmd)
	}
	<-p.done
}

func (p *Process) endsWithin(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.done:
		return true
	case <-timer.C:
		return false
	}
}

// maxReport bounds what a supervisor says about an end, in bytes.
const maxReport = 1 << 10

// pipes makes pipes and gives back what is not needed.
type pipes struct {
	err        error
	all, given []*os.File
}

type pipe struct{ r, w *os.File }

func (p *pipes) make() pipe {
	if p.err != nil {
		return pipe{}
	}
	r, w, err := os.Pipe()
	if err != nil {
		p.closeOurs()
		p.err = err
		return pipe{}
	}
	p.all = append(p.all, r, w)
	return pipe{r, w}
}

// theirs are the ends that the program gets.
func (p *pipes) theirs(ends ...*os.File) { p.given = append(p.given, ends...) }

func (p *pipes) closeTheirs() {
	for _, end := range p.given {
		_ = end.Close()
	}
}

func (p *pipes) closeOurs() {
	for _, end := range p.all {
		_ = end.Close()
	}
}
