package fleet

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// Main runs a program of tests until it ends or is interrupted, and returns its exit code.
func Main(usage error, run func(ctx context.Context, args []string) error) (code int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return ExitCode(run(ctx, os.Args[1:]), usage)
}

// ExitCode is 0, 2 after an error that is usage, and 1 after any other, which it prints.
func ExitCode(err, usage error) (code int) {
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return 0
	}
	fmt.Fprintln(os.Stderr, err)
	if errors.Is(err, usage) {
		return 2
	}
	return 1
}
