package config

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// MaxSize bounds a configuration file, in bytes.
const MaxSize = 1 << 20

const hashLength = 12

// Duration reads "30s".
type Duration time.Duration

// UnmarshalYAML reads Go's form of a duration, not negative. Its error is an *[Error].
func (d *Duration) UnmarshalYAML(node ast.Node) error {
	text := node.GetToken().Value
	value, err := time.ParseDuration(text)
	if err != nil || value < 0 {
		at := node.GetToken().Position
		return &Error{at.Line, at.Column, fmt.Sprintf("%q is not a duration such as 30s", text[:min(len(text), 32)])}
	}
	*d = Duration(value)
	return nil
}

// Error is one mistake in a file.
type Error struct {
	Line, Column int // from 1; 0: the file as a whole
	Reason       string
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return "config: " + e.Reason
	}
	return fmt.Sprintf("config: [%d:%d] %s", e.Line, e.Column, e.Reason)
}

// maxMistakes bounds the mistakes of syntax and type that one reading tells.
const maxMistakes = 64

// Parse reads a file. Its error joins an *Error for each mistake that can be told without looking at
// another file. What a section must hold is not judged where the section has
// a mistake of syntax or type, but its values are. With an error the Config has what can be
// read, for [Place] to judge; it is not to be used.
func Parse(data []byte) (Config, error) {
	if len(data) > MaxSize {
		return Config{}, &Error{Reason: fmt.Sprintf("longer than %d bytes", MaxSize)}
	}
	c, mistakes := decode(data)
	sum := sha256.Sum256(data)
	c.text = written{hex.EncodeToString(sum[:])[:hashLength], data, mistakes}
	errs := make([]error, 0, len(mistakes))
	for _, m := range mistakes {
		errs = append(errs, m.err)
	}
	if !Readable(c) || len(errs) >= maxMistakes {
		return c, errors.Join(errs...)
	}
	err := c.judge(source(data), func(path string) bool { return leftOut(c, path) })
	if len(errs) == 0 {
		return c, err
	}
	return c, errors.Join(append(errs, err)...)
}

// Readable reports whether the file is YAML whose sections can be told apart, so that more
// than its first mistake can be found.
func Readable(c Config) bool {
	return c.text.file != nil && (len(c.text.mistakes) == 0 || c.text.mistakes[0].path != "")
}

// leftOut reports whether a path is in a section that has a mistake of syntax or type.
func leftOut(c Config, path string) bool {
	return slices.ContainsFunc(c.text.mistakes, func(m mistake) bool { return m.sameSection(path) && !c.text.file.scalar(path) })
}

// Place gives each of the errors about a file its place in it, sorts them by that, and joins
// them, each once. An error without a place says first what it is about: its text is a
// path, a colon and the reason. One about a section that has a mistake already is left out.
func Place(c Config, errs ...error) error {
	var all []*Error
	for _, err := range flat(errs) {
		e, ok := errors.AsType[*Error](err)
		if !ok {
			e = &Error{Reason: strings.TrimPrefix(err.Error(), "config: ")}
		}
		if e.Line == 0 {
			path, _, _ := strings.Cut(e.Reason, ": ")
			if leftOut(c, "$."+path) {
				continue
			}
			e = c.text.file.near("$."+path, e.Reason)
		}
		if !slices.ContainsFunc(all, func(other *Error) bool { return *other == *e }) {
			all = append(all, e)
		}
	}
	slices.SortStableFunc(all, func(a, b *Error) int { return cmp.Or(a.Line-b.Line, a.Column-b.Column) })
	placed := make([]error, len(all))
	for i, e := range all {
		placed[i] = e
	}
	return errors.Join(placed...)
}

// flat are errors that are not joined ones.
func flat(errs []error) (out []error) {
	for _, err := range errs {
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			out = append(out, flat(joined.Unwrap())...)
		} else if err != nil {
			out = append(out, err)
		}
	}
	return out
}

// mistake is one of syntax or type, at a path such as limits.rate; empty: of the file as a whole.
type mistake struct {
	err  *Error
	path string
}

// sameSection reports whether a path such as $.limits.rate is in the section that a mistake is in. Each
// agent and each peer is one.
func (m mistake) sameSection(path string) bool {
	section, below, _ := strings.Cut(m.path, ".")
	if parts := strings.SplitN(path, "'", 3); below != "" && len(parts) == 3 && (parts[0] == "$.agents." || parts[0] == "$.peers.") {
		return parts[0] == "$."+section+"." && (below == parts[1] || strings.HasPrefix(below, parts[1]+".") || strings.HasPrefix(below, parts[1]+"["))
	}
	rest, ok := strings.CutPrefix(path, "$."+section)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// decode reads what can be read. An entry with a mistake is told and left out, and the rest is read
// again.
func decode(data []byte) (c Config, mistakes []mistake) {
	file, err := parser.ParseBytes(data, 0)
	if err != nil {
		return c, []mistake{{err: syntax(err)}}
	}
	if len(file.Docs) > 1 && file.Docs[1].Body != nil {
		at := file.Docs[1].Body.GetToken().Position
		mistakes = append(mistakes, mistake{&Error{at.Line, at.Column, "a second document begins here: a file has one"}, "---"})
	}
	for len(file.Docs) > 0 && file.Docs[0].Body != nil && len(mistakes) < maxMistakes {
		c = Config{}
		err := yaml.NodeToValue(file.Docs[0].Body, &c, yaml.Strict())
		if err == nil {
			break
		}
		wrong := syntax(err)
		path := leaveOut(file.Docs[0].Body, wrong.Line, wrong.Column)
		if path == "" {
			return c, append([]mistake{{err: wrong}}, mistakes...)
		}
		wrong.Reason = path + ": " + wrong.Reason
		mistakes = append(mistakes, mistake{wrong, path})
	}
	slices.SortStableFunc(mistakes, func(a, b mistake) int {
		return cmp.Or(cmp.Compare(a.err.Line, b.err.Line), cmp.Compare(a.err.Column, b.err.Column))
	})
	return c, mistakes
}

// leaveOut takes the entry out whose key or value begins at a place, and returns its path; empty: there
// is no such entry.
func leaveOut(node ast.Node, line, column int) string {
	is := func(n ast.Node) bool {
		return n != nil && n.GetToken() != nil && n.GetToken().Position.Line == line && n.GetToken().Position.Column == column
	}
	switch n := node.(type) {
	case *ast.MappingNode:
		for i, entry := range n.Values {
			key := entry.Key.GetToken().Value
			if is(entry.Key) || is(entry.Value) {
				n.Values = slices.Delete(n.Values, i, i+1)
				return key
			}
			if below := leaveOut(entry.Value, line, column); below != "" {
				return strings.Replace(key+"."+below, ".[", "[", 1)
			}
		}
	case *ast.SequenceNode:
		for i, value := range n.Values {
			at := "[" + strconv.Itoa(i) + "]"
			if is(value) {
				n.Values[i] = ast.Null(value.GetToken()) // the others keep their places
				return at
			}
			if below := leaveOut(value, line, column); below != "" {
				return at + "." + below
			}
		}
	}
	return ""
}

// Hash tells one file from another: the first 12 hexadecimal digits of the SHA-256 of
// its bytes, as sha256sum prints them. Empty: there is no file.
func (c Config) Hash() string { return c.text.hash }

// syntax keeps the first line of the library's message, which quotes the file.
func syntax(err error) *Error {
	if own, ok := errors.AsType[*Error](err); ok {
		return own
	}
	var located yaml.Error
	if errors.As(err, &located) && located.GetToken() != nil {
		position, reason := located.GetToken().Position, located.GetMessage()
		if strings.HasPrefix(reason, "found character '\t'") {
			reason = "a tab: indent with spaces"
		}
		if kind, ok := errors.AsType[*yaml.TypeError](err); ok {
			reason = "expected " + inWords(kind.DstType) + ", found " + inWords(kind.SrcType)
		}
		return &Error{Line: position.Line, Column: position.Column, Reason: reason}
	}
	first, _, _ := strings.Cut(err.Error(), "\n")
	return &Error{Reason: first}
}

// inWords is what values of a type are called in a file.
func inWords(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list"
	case reflect.Map, reflect.Struct, reflect.Pointer:
		return "a mapping"
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return "a whole number"
	default:
		return "a number"
	}
}

// source finds where in a file something stands.
type source []byte

// scalar reports whether a single value stands at a path.
func (s source) scalar(path string) bool {
	p, err := yaml.PathString(path)
	if err != nil {
		return false
	}
	node, err := p.ReadNode(bytes.NewReader(s))
	_, single := node.(ast.ScalarNode)
	return err == nil && single
}

// near makes an error at a path, or where that should be: in the section around it.
func (s source) near(path, reason string) *Error {
	for around := path; ; {
		if p, err := yaml.PathString(around); err == nil {
			if node, err := p.ReadNode(bytes.NewReader(s)); err == nil && node.GetToken() != nil {
				position := node.GetToken().Position
				return &Error{position.Line, position.Column, reason}
			}
		}
		cut := strings.LastIndexAny(around, ".[")
		if cut <= 0 {
			return &Error{1, 1, reason}
		}
		around = around[:cut]
	}
}

// at makes an error at a path such as $.policy.allow_losses[0].
func (s source) at(path, reason string) error {
	e := &Error{Reason: strings.TrimPrefix(path, "$.") + ": " + reason}
	p, err := yaml.PathString(path)
	if err != nil {
		return e
	}
	node, err := p.ReadNode(bytes.NewReader(s))
	if err != nil || node.GetToken() == nil {
		return e
	}
	position := node.GetToken().Position
	e.Line, e.Column = position.Line, position.Column
	return e
}

// LogLevel is the level that the file asks for.
func (c Config) LogLevel() slog.Level {
	var level slog.Level
	if c.Log.Level != "" && level.UnmarshalText([]byte(c.Log.Level)) != nil {
		return slog.LevelInfo
	}
	return level
}
