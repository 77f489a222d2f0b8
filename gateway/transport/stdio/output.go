package stdio

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"time"
)

// OutputError reports why a program gave no output. It quotes nothing of what the program wrote.
type OutputError struct {
	Reason string
	Err    error // nil: there is none
}

func (e *OutputError) Error() string { return "the program gave no output: " + e.Reason }

// Unwrap gives the cause.
func (e *OutputError) Unwrap() error { return e.Err }

// outputEnds is how long a program may leave its pipe open after it was killed.
const outputEnds = time.Second

// Output runs a program to its end and returns what it writes to standard output, at most most bytes. Its environment
// is that of the programs of agents; its standard input is empty and its standard error is dropped. With ctx its
// process group is killed. Errors: *StartError, *OutputError.
func Output(ctx context.Context, program Program, most int) ([]byte, error) {
	environment, err := (&Process{program: program}).environment()
	if err != nil {
		return nil, err
	}
	command, err := program.command()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...) //nolint:gosec // the operator names the program
	cmd.Dir, cmd.Env, cmd.WaitDelay = program.Dir, environment, outputEnds
	ownGroup(cmd)
	cmd.Cancel = func() error { killGroup(cmd); return nil }
	out := &limited{left: most}
	cmd.Stdout = out
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		return nil, &OutputError{Reason: "it did not end in time", Err: ctx.Err()}
	case out.left < 0:
		return nil, &OutputError{Reason: "it wrote too much"}
	case err != nil && cmd.Process == nil:
		return nil, &StartError{Err: err}
	case err != nil:
		return nil, &OutputError{Reason: "it failed", Err: err} // an exit status, which quotes nothing
	}
	return out.data, nil
}

var errTooMuch = errors.New("stdio: a program wrote too much")

// limited keeps what is written up to a bound; left is negative when there was more.
type limited struct {
	data []byte
	left int
}

var _ io.Writer = (*limited)(nil)

// Write implements io.Writer.
func (l *limited) Write(p []byte) (int, error) {
	if l.left -= len(p); l.left < 0 {
		l.data, l.left = nil, -1
		return 0, errTooMuch
	}
	l.data = append(l.data, p...)
	return len(p), nil
}
