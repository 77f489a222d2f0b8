package stdio

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Scheme is that of the URLs that programs have as endpoints.
const Scheme = "stdio"

// Bounds of a Program.
const (
	DefaultMemoryMiB = 512
	MaxMemoryMiB     = 64 << 10

	maxArguments = 128
	maxText      = 8 << 10 // of all arguments, names and values together, in bytes
)

// Program is what an operator has run for an agent.
type Program struct {
	Command   []string          // the program, found in PATH if it is no path, and its arguments
	Dir       string            // it starts there; empty: where the gateway did
	Env       map[string]string // besides the environment that every program gets
	EnvFiles  map[string]string // the same, with values from files: secrets
	Shared    bool              // one process for all callers: it can ask them nothing, and tells them only that lists changed
	MemoryMiB int               // that it and all that it starts may take; 0: DefaultMemoryMiB
}

// IsProgram reports whether an endpoint's URL stands for a program.
func IsProgram(endpoint string) bool { return strings.HasPrefix(endpoint, Scheme+":") }

// URL is the form of a program in which an endpoint names it. [Parse] reads it.
func (p Program) URL() string {
	values := url.Values{"arg": p.Command}
	if p.Dir != "" {
		values.Set("dir", p.Dir)
	}
	for _, name := range slices.Sorted(maps.Keys(p.Env)) {
		values.Add("env", name+"="+p.Env[name])
	}
	for _, name := range slices.Sorted(maps.Keys(p.EnvFiles)) {
		values.Add("env_file", name+"="+p.EnvFiles[name])
	}
	if p.Shared {
		values.Set("shared", "true")
	}
	if p.MemoryMiB != 0 {
		values.Set("memory_mib", strconv.Itoa(p.MemoryMiB))
	}
	return Scheme + ":?" + values.Encode()
}

// IsShared reports whether a URL names a program of which all callers use one process.
func IsShared(url string) bool {
	program, err := Parse(url)
	return err == nil && program.Shared
}

// InvalidProgramError says why a program cannot be run.
type InvalidProgramError struct{ Reason string }

func (e *InvalidProgramError) Error() string { return "program: " + e.Reason }

// Parse reads what [Program.URL] wrote. Its error is an *InvalidProgramError.
func Parse(endpoint string) (Program, error) {
	rest, ok := strings.CutPrefix(endpoint, Scheme+":?")
	values, err := url.ParseQuery(rest)
	if !ok || err != nil {
		return Program{}, &InvalidProgramError{"expected " + Scheme + ":?arg=PROGRAM&arg=ARGUMENT"}
	}
	p := Program{Command: values["arg"], Dir: values.Get("dir"), Shared: values.Get("shared") == "true"}
	if p.Env, err = pairs(values["env"]); err != nil {
		return Program{}, err
	}
	if p.EnvFiles, err = pairs(values["env_file"]); err != nil {
		return Program{}, err
	}
	if text := values.Get("memory_mib"); text != "" {
		if p.MemoryMiB, err = strconv.Atoi(text); err != nil {
			return Program{}, &InvalidProgramError{"its memory is no number of MiB"}
		}
	}
	for name := range values {
		if !slices.Contains([]string{"arg", "dir", "env", "env_file", "shared", "memory_mib"}, name) {
			return Program{}, &InvalidProgramError{"expected arg, dir, env, env_file, shared and memory_mib alone"}
		}
	}
	return p, p.Validate()
}

func pairs(list []string) (map[string]string, error) {
	out := map[string]string{}
	for _, text := range list {
		name, value, ok := strings.Cut(text, "=")
		if !ok {
			return nil, &InvalidProgramError{"expected NAME=VALUE for a variable of the environment"}
		}
		out[name] = value
	}
	if len(out) == 0 {
		return nil, nil //nolint:nilnil // there are none
	}
	return out, nil
}

// StartError reports why a program cannot be started.
type StartError struct{ Err error }

func (e *StartError) Error() string { return "the program cannot be started: " + e.Err.Error() }

// Unwrap gives the cause.
func (e *StartError) Unwrap() error { return e.Err }

// Cause is what an error says of a program, for operators; empty: it is not about one.
func Cause(err error) string {
	if e, ok := errors.AsType[*WaitError](err); ok {
		return e.Error()
	}
	if e, ok := errors.AsType[*EndedError](err); ok {
		return e.Error()
	}
	if e, ok := errors.AsType[*StartError](err); ok {
		return e.Error()
	}
	return ""
}

// Validate judges a program by itself: whether there is one of that name is not asked. Its
// error is an *InvalidProgramError.
func (p Program) Validate() error {
	fail := func(reason string) error { return &InvalidProgramError{reason} }
	total := len(p.Dir)
	for _, text := range p.Command {
		total += len(text)
	}
	for _, variables := range []map[string]string{p.Env, p.EnvFiles} {
		for name, value := range variables {
			total += len(name) + len(value)
			if name == "" || strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") != "" {
				return fail("the name of a variable of the environment is letters, digits and _")
			}
		}
	}
	switch {
	case len(p.Command) == 0 || p.Command[0] == "":
		return fail("a command is expected: the program and its arguments")
	case len(p.Command) > maxArguments || total > maxText:
		return fail("it has more than " + strconv.Itoa(maxArguments) + " arguments, or more than " + strconv.Itoa(maxText) + " bytes in all")
	case strings.ContainsRune(strings.Join(p.Command, "")+p.Dir, 0):
		return fail("an argument has a zero byte")
	case p.Dir != "" && !filepath.IsAbs(p.Dir):
		return fail("its folder must be an absolute path")
	case p.MemoryMiB < 0 || p.MemoryMiB > MaxMemoryMiB:
		return fail("its memory is 1 to " + strconv.Itoa(MaxMemoryMiB) + " MiB")
	}
	return nil
}

// Find reports why there is no such program on this machine; nil: there is one.
func (p Program) Find() error {
	_, err := p.command()
	return err
}

// command is the program's, with the path where it is found.
func (p Program) command() ([]string, error) {
	path, err := exec.LookPath(p.Command[0])
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if _, away := os.Stat(p.Dir); p.Dir != "" && away != nil {
		err = fmt.Errorf("its folder cannot be used: %w", away)
	}
	if err != nil {
		return nil, &StartError{Err: err}
	}
	return append([]string{path}, p.Command[1:]...), nil
}

// memory is what it may take, in bytes.
func (p Program) memory() int64 { return int64(cmp.Or(p.MemoryMiB, DefaultMemoryMiB)) << 20 }
