package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// programs is where a command to type begins in an output.
var programs = regexp.MustCompile(`(?:aepbctl|aepb-gateway|curl|go run) [^\n]*`)

// commandEnds are where prose goes on behind a command.
var commandEnds = []string{"; ", ", ", " takes it back", " waits longer", " (", "' "}

// placeholders are what a reader puts in, as it is printed and as it is typed here.
var placeholders = strings.NewReplacer(
	"--tool NAME --args '{…}'", `--tool add --args '{"a": 1, "b": 2}'`, "--args '{…}'", `--args '{"city": "Oslo", "day": "today"}'`,
	" AGENT WORDS…", " concierge good evening", " AGENT", " calculator", " TEXT", " 'because'",
)

// suggestions are the commands that outputs propose. An output that proposes another one fails its story, until that
// is listed here.
var suggestions = regexp.MustCompile(`^aepbctl (agents (show|remove)|lifecycle (show|activate)|send|ect verify --ca) [^ ].*$` +
	`|^(aepbctl|aepb-gateway)( [a-z-]+)* --help$`)

// commandsIn finds the commands that a text proposes.
func commandsIn(text string) (found []string) {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "usage: ") {
			continue // it is a form, not a command
		}
		for _, command := range programs.FindAllString(line, -1) {
			for _, end := range commandEnds {
				command, _, _ = strings.Cut(command, end)
			}
			command = strings.TrimRight(strings.TrimSpace(command), ".;:)")
			if !slices.Contains(found, command) {
				found = append(found, command)
			}
		}
	}
	return found
}

// runSuggested types what the last program proposed, as printed and with values for the placeholders.
func runSuggested(ctx context.Context, _ *world, ts *testscript.TestScript, args []string) error {
	printed := ts.ReadFile("stdout") + "\n" + ts.ReadFile("stderr")
	found := commandsIn(printed)
	if len(found) != len(args) {
		return fmt.Errorf("%d commands are proposed, expected %d: %q in\n%s", len(found), len(args), found, printed)
	}
	for i, command := range found {
		want, err := strconv.Atoi(args[i])
		if err != nil {
			return err
		}
		if err := typed(ctx, ts, command, want); err != nil {
			return err
		}
	}
	return nil
}

// typed runs one command as its reader would.
func typed(ctx context.Context, ts *testscript.TestScript, command string, want int) error {
	if !suggestions.MatchString(command) {
		return fmt.Errorf("an output proposes a command that suggestions does not list: %q", command)
	}
	line := placeholders.Replace(command)
	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	cmd.Dir, cmd.Stdout, cmd.Stderr = ts.MkAbs("."), &output, &output
	cmd.Env = []string{"PATH=" + ts.Getenv("PATH"), "HOME=" + ts.Getenv("HOME")}
	err, exits := cmd.Run(), 0
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		exits, err = exit.ExitCode(), nil
	}
	if err == nil && exits != want {
		err = fmt.Errorf("%q, typed as %q, exits with %d, expected %d:\n%s", command, line, exits, want, output.String())
	}
	return err
}
