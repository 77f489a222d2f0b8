package config

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
)

// MaxSize bounds a configuration file, in octets.
const MaxSize = 1 << 20

const hashLength = 12

// Duration reads "30s".
type Duration time.Duration

// UnmarshalText reads Go's form of a duration, not negative.
func (d *Duration) UnmarshalText(text []byte) error {
	value, err := time.ParseDuration(string(text))
	if err != nil || value < 0 {
		return fmt.Errorf("%q is no duration such as 30s", text[:min(len(text), 32)])
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

// Parse reads a file. Its error joins an *Error for each mistake that can be
// told without looking at another file.
func Parse(data []byte) (Config, error) {
	if len(data) > MaxSize {
		return Config{}, &Error{Reason: fmt.Sprintf("longer than %d octets", MaxSize)}
	}
	var c Config
	decoder := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict())
	if err := decoder.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		return Config{}, syntax(err)
	}
	sum := sha256.Sum256(data)
	c.hash = hex.EncodeToString(sum[:])[:hashLength]
	return c, c.check(source(data))
}

// Hash tells one file from another: the first 12 hexadecimal digits of the SHA-256 of
// its bytes, as sha256sum prints them. Empty: there is no file.
func (c Config) Hash() string { return c.hash }

// syntax keeps the first line of the library's message, which quotes the file.
func syntax(err error) error {
	var located yaml.Error
	if errors.As(err, &located) && located.GetToken() != nil {
		position := located.GetToken().Position
		return &Error{Line: position.Line, Column: position.Column, Reason: located.GetMessage()}
	}
	first, _, _ := strings.Cut(err.Error(), "\n")
	return &Error{Reason: first}
}

// source finds where in a file something stands.
type source []byte

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
