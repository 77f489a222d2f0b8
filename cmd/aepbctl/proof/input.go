package proof

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/audit"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/builtin"
)

// Bounds of an input.
const (
	maxInput    = 256 << 20 // bytes of a file, an archive or a folder, unpacked
	maxFindings = 1000      // before any token is verified
	// MaxTokens is how many tokens are judged at once, and kept in one archive.
	MaxTokens = 20_000
)

// Input is what was given, read and compared with itself.
type Input struct {
	Tokens   []string // each once
	Messages []audit.Message
	Findings []audit.Finding // what is wrong in it before any token is verified
	Doubled  int             // tokens that more than one source holds
	Whole    bool            // it is said to hold all records of what it is about

	packs     []pack
	seen      map[string]bool // of Tokens
	exchanges int             // objects of JSON that may hold messages, so far
}

// Reader reads inputs.
type Reader struct {
	Stdin io.Reader
	// Summary is what a file of aepbctl send says of a reply, as the members of a JSON object, computed from the
	// reply; nil: such members are not compared.
	Summary func(from string, reply []byte) ([]byte, error)

	forms []translators.Translator
}

// Read reads tokens, files, folders and archives, or standard input if there are none. Its errors are about
// what cannot be read at all.
func (r Reader) Read(args []string) (Input, error) {
	r.forms = builtin.Forms(translators.Config{})
	var in Input
	if len(args) == 0 {
		data, err := bounded(r.Stdin)
		if err != nil {
			return in, err
		}
		if err := in.add(r, "standard input", data); err != nil {
			return in, err
		}
	}
	for _, arg := range args {
		if err := in.argument(r, arg); err != nil {
			return in, err
		}
	}
	switch {
	case len(in.Tokens) > MaxTokens:
		return in, fmt.Errorf("more than %d tokens are not judged at once: give fewer", MaxTokens)
	case len(in.Messages) > maxFiles:
		return in, fmt.Errorf("more than %d messages are not compared at once: give fewer", maxFiles)
	}
	return in, nil
}

func (in *Input) argument(r Reader, arg string) error {
	if strings.Count(arg, ".") == 2 && !strings.ContainsAny(arg, `/\`) && strings.HasPrefix(arg, "ey") {
		in.Merge([]string{arg})
		return nil
	}
	info, err := os.Stat(arg)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !strings.HasPrefix(arg, "ey"):
		return fmt.Errorf("%s: no such file, and not a token either", terminal.Word(arg))
	case errors.Is(err, fs.ErrNotExist), err != nil && strings.Count(arg, ".") == 2:
		in.Merge([]string{arg}) // it is no file: the verifier says what is wrong with it as a token
		return nil
	case err != nil:
		return err
	case info.IsDir():
		files, err := readFolder(arg)
		if err != nil {
			return err
		}
		return in.unpack(r, arg, files)
	}
	data, err := readFile(arg)
	if err != nil {
		return err
	}
	return in.add(r, arg, data)
}

// readFile reads a file, which may have no end.
func readFile(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	data, err := bounded(file)
	return data, errors.Join(err, file.Close())
}

func bounded(from io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(from, maxInput+1))
	if err == nil && len(data) > maxInput {
		return nil, fmt.Errorf("more than %d MiB are not read", maxInput>>20)
	}
	return data, err
}

// add reads one source: an archive, JSON, or tokens between blanks.
func (in *Input) add(r Reader, name string, data []byte) error {
	if bytes.HasPrefix(data, []byte("\x1f\x8b")) {
		files, err := readArchive(data)
		if err != nil {
			return fmt.Errorf("%s: %w", terminal.Word(name), err)
		}
		return in.unpack(r, name, files)
	}
	text := bytes.TrimSpace(data)
	if len(text) > 0 && (text[0] == '[' || text[0] == '{') {
		return in.documents(r, name, text)
	}
	list := strings.Fields(string(text))
	if !slices.ContainsFunc(list, func(one string) bool { return strings.HasPrefix(one, "ey") || strings.Count(one, ".") == 2 }) {
		return errors.New("no token " + place(name))
	}
	return in.tokens(name, list)
}

// place is where something is: on standard input, or in a file.
func place(name string) string {
	if name == "standard input" {
		return "on " + name
	}
	return "in " + terminal.Word(name)
}

// tokens adds those of one source. No program of ours writes a token twice.
func (in *Input) tokens(source string, list []string) error {
	if len(list) > MaxTokens {
		return fmt.Errorf("%s holds %d tokens, and at most %d are judged at once: give fewer", terminal.Word(source), len(list), MaxTokens)
	}
	first := make(map[string]int, len(list))
	var once []string
	for i, one := range list {
		if at, twice := first[one]; twice {
			in.find(audit.Contradicted, "token %d of %s is token %d again: it counts once", i+1, source, at+1)
			continue
		}
		first[one] = i
		once = append(once, one)
	}
	in.Merge(once)
	return nil
}

// Merge adds tokens, those of several sources once.
func (in *Input) Merge(list []string) {
	if in.seen == nil {
		in.seen = map[string]bool{}
	}
	for _, one := range list {
		if in.seen[one] {
			in.Doubled++
			continue
		}
		in.seen[one] = true
		in.Tokens = append(in.Tokens, one)
	}
}

// find notes a finding. What is forged at length must not fill the memory.
func (in *Input) find(kind audit.Kind, format string, args ...any) {
	switch {
	case len(in.Findings) > maxFindings:
		return
	case len(in.Findings) == maxFindings:
		format, args = "there are more than %d findings, and the others are not listed", []any{maxFindings}
	}
	in.Findings = append(in.Findings, audit.Finding{Kind: kind, Text: fmt.Sprintf(format, args...)})
}

// Message is a message in all forms in which a protocol hashes it. newline: it may have gained one at its end.
func (r Reader) Message(name string, role audit.Role, body []byte, newline bool) audit.Message {
	if r.forms == nil {
		r.forms = builtin.Forms(translators.Config{})
	}
	m := audit.Message{Name: name, Role: role, Hashes: []string{ect.Hash(body)}}
	for _, form := range r.forms {
		if hasher := translators.HasherOf(form); hasher != nil {
			hash := ect.Hash(translators.Wire{Body: body, Hasher: hasher}.HashInput())
			if !slices.Contains(m.Hashes, hash) {
				m.Hashes = append(m.Hashes, hash)
			}
		}
	}
	if cut, had := bytes.CutSuffix(body, []byte("\n")); had && newline {
		m.Without = ect.Hash(cut)
	}
	return m
}

// Bodies adds messages in files.
func (in *Input) Bodies(r Reader, files []string) error {
	for _, file := range files {
		data, err := readFile(file)
		if err != nil {
			return err
		}
		in.Messages = append(in.Messages, r.Message(file, "", data, true))
	}
	return nil
}
