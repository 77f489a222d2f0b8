package devgateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// startTimeout bounds the time from exec to the second ready line.
const startTimeout = 30 * time.Second

// keptOutput is how much of what the process printed is kept for a failure.
const keptOutput = 64 << 10

// ErrNotReady says that the process ended or stayed silent before it was ready.
var ErrNotReady = errors.New("devgateway: not ready")

// Deps is what a gateway process needs.
type Deps struct {
	Binary string   // from Build
	Dir    string   // its --dir; created by the gateway
	Args   []string // more arguments of the dev command
	Env    []string // more variables of its environment
}

// Process is a running gateway, of dev or of serve.
type Process struct {
	Public, Admin string // https://127.0.0.1:PORT
	Dir           string
	*Trust        // of dev read from Dir

	token string
	env   []string
	cmd   *exec.Cmd
	out   output
	ended chan struct{} // closed when the process is gone and exit is set
	exit  error
}

// Start runs the gateway and returns when it is ready. The process outlives ctx:
// only Stop and Kill end it.
func Start(ctx context.Context, d Deps) (*Process, error) {
	p := &Process{Dir: d.Dir, env: d.Env}
	args := append([]string{"dev", "--addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0", "--dir", d.Dir}, d.Args...)
	if err := p.launch(ctx, d.Binary, args); err != nil {
		return nil, err
	}
	if err := p.read(); err != nil {
		return nil, errors.Join(err, p.Kill())
	}
	return p, nil
}

// launch starts the program and waits until it is ready.
func (p *Process) launch(ctx context.Context, binary string, args []string) error {
	p.cmd, p.ended = exec.CommandContext(context.WithoutCancel(ctx), binary, args...), make(chan struct{})
	p.cmd.Stderr, p.cmd.Env = &p.out, append(os.Environ(), p.env...)
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("devgateway: %w", err)
	}
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("devgateway: %w", err)
	}
	ready := make(chan [2]string, 1)
	go p.watch(stdout, ready) // owned by the process: it ends when the process does, and Stop waits for it
	if err := p.await(ctx, ready); err != nil {
		return errors.Join(err, p.Kill())
	}
	return nil
}

// watch reads the ready lines, keeps the rest and reaps the process.
func (p *Process) watch(stdout io.Reader, ready chan<- [2]string) {
	defer close(p.ended)
	var urls [2]string
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		_, _ = io.WriteString(&p.out, lines.Text()+"\n")
		if ready == nil {
			continue
		}
		if url, ok := strings.CutPrefix(lines.Text(), "ready public "); ok {
			urls[0] = url
		}
		if url, ok := strings.CutPrefix(lines.Text(), "ready admin "); ok {
			urls[1] = url
		}
		if urls[0] != "" && urls[1] != "" {
			ready <- urls
			ready = nil
		}
	}
	_, _ = io.Copy(&p.out, stdout) // whatever a scanner refuses, such as an endless line
	p.exit = p.cmd.Wait()
}

func (p *Process) await(ctx context.Context, ready <-chan [2]string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	select {
	case urls := <-ready:
		p.Public, p.Admin = strings.TrimSuffix(urls[0], "/"), strings.TrimSuffix(urls[1], "/")
		return nil
	case <-p.ended:
		return fmt.Errorf("%w: ended (%w)\n%s", ErrNotReady, p.exit, p.Output())
	case <-ctx.Done():
		return fmt.Errorf("%w: %w\n%s", ErrNotReady, ctx.Err(), p.Output())
	}
}

// read takes what the gateway left in its directory.
func (p *Process) read() error {
	token, err := os.ReadFile(filepath.Join(p.Dir, "admin-token"))
	if err != nil {
		return fmt.Errorf("devgateway: %w", err)
	}
	p.token = strings.TrimSpace(string(token))
	p.Trust, err = readTrust(p.Dir)
	return err
}

// CAFile is the PEM file of the development CA.
func (p *Process) CAFile() string { return filepath.Join(p.Dir, "ca.pem") }

// PID is the process id, for its CPU time and memory.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Hangup sends SIGHUP: the gateway reads its configuration again.
func (p *Process) Hangup() error {
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		return fmt.Errorf("devgateway: %w", err)
	}
	return nil
}

// Output is the tail of what the process printed to stdout and stderr.
func (p *Process) Output() string { return p.out.String() }

// Await returns when the process has printed text, which is looked for in what
// Output keeps.
func (p *Process) Await(ctx context.Context, text string) error {
	for {
		printed, more := p.out.look()
		if strings.Contains(printed, text) {
			return nil
		}
		select {
		case <-more:
		case <-p.ended:
			if strings.Contains(p.Output(), text) {
				return nil
			}
			return fmt.Errorf("devgateway: ended without printing %q\n%s", text, p.Output())
		case <-ctx.Done():
			return fmt.Errorf("devgateway: %q not printed: %w\n%s", text, ctx.Err(), p.Output())
		}
	}
}

// Stop sends SIGTERM and waits. It returns an error unless the process ends with
// exit code 0 before ctx does; at the latest then the process is killed.
func (p *Process) Stop(ctx context.Context) error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return errors.Join(fmt.Errorf("devgateway: %w", err), p.Kill())
	}
	select {
	case <-p.ended:
		if p.exit != nil {
			return fmt.Errorf("devgateway: %w\n%s", p.exit, p.Output())
		}
		return nil
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("devgateway: did not stop: %w\n%s", ctx.Err(), p.Output()), p.Kill())
	}
}

// Kill sends SIGKILL and waits: nothing of the process is tidied up.
func (p *Process) Kill() error {
	err := p.cmd.Process.Kill()
	<-p.ended
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// output is a bounded buffer that keeps the newest bytes.
type output struct {
	mu   sync.Mutex
	tail []byte
	more chan struct{} // closed by the next Write; nil: nobody waits
}

// Write keeps b and forgets the oldest bytes beyond the bound.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tail = append(o.tail, b...)
	if extra := len(o.tail) - keptOutput; extra > 0 {
		o.tail = o.tail[extra:]
	}
	if o.more != nil {
		close(o.more)
		o.more = nil
	}
	return len(b), nil
}

// look returns what is kept and a channel that is closed when there is more.
func (o *output) look() (string, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.more == nil {
		o.more = make(chan struct{})
	}
	return string(o.tail), o.more
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.tail)
}
