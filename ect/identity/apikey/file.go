package apikey

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/aepb/aepb-gateway/ect"
)

// Bounds of a file of keys. With names of usual length, 1 MiB is reached at some 4,500 keys.
const (
	MaxFile = 1 << 20 // bytes
	MaxKeys = 10_000
)

// FileError refuses a file of keys. It never quotes the file.
type FileError struct {
	Key int // from 1; 0: the file as a whole
	Err error
}

func (e *FileError) Error() string {
	if e.Key == 0 {
		return "apikey: " + e.Err.Error()
	}
	return fmt.Sprintf("apikey: key %d: %s", e.Key, e.Err)
}

// Unwrap is a *KeyError where one member of a key is at fault.
func (e *FileError) Unwrap() error { return e.Err }

// What is wrong with a file as a whole.
var (
	errLarge = fmt.Errorf("the file is longer than %d bytes", MaxFile)
	errMany  = fmt.Errorf("the file has more than %d keys", MaxKeys)
	errForm  = errors.New("expected one YAML list of keys, each with id, caller, salt, hash, until and created, all text and each once")
)

// row is a key as it stands in a file.
type row struct {
	ID      string `yaml:"id"`
	Caller  string `yaml:"caller"`
	Salt    string `yaml:"salt"`
	Hash    string `yaml:"hash"`
	Until   string `yaml:"until"`
	Created string `yaml:"created"`
}

// Parse reads a file of keys. Callers are of the trust domain; empty: of any. Its error is *FileError.
func Parse(data []byte, domain string) ([]Key, error) {
	rows, err := rowsOf(data)
	if err != nil {
		return nil, &FileError{Err: err}
	}
	keys, first := make([]Key, len(rows)), make(map[string]int, len(rows))
	for i, r := range rows {
		if keys[i], err = r.key(domain); err != nil {
			return nil, &FileError{i + 1, err}
		}
		if other, twice := first[r.ID]; twice {
			return nil, &FileError{i + 1, &KeyError{"id", fmt.Sprintf("is also that of key %d", other)}}
		}
		first[r.ID] = i + 1
	}
	return keys, nil
}

func rowsOf(data []byte) ([]row, error) {
	if len(data) > MaxFile {
		return nil, errLarge
	}
	file, err := parser.ParseBytes(data, 0)
	if err != nil || len(file.Docs) > 1 {
		return nil, errForm
	}
	if len(file.Docs) == 0 || file.Docs[0].Body == nil || file.Docs[0].Body.Type() == ast.CommentType {
		return nil, nil
	}
	list, ok := file.Docs[0].Body.(*ast.SequenceNode)
	switch {
	case !ok:
		return nil, errForm
	case len(list.Values) > MaxKeys:
		return nil, errMany
	}
	for _, value := range list.Values {
		if value == nil || value.Type() != ast.MappingType { // nor an alias of another
			return nil, errForm
		}
	}
	var rows []row
	if err := yaml.NodeToValue(list, &rows, yaml.Strict()); err != nil || len(rows) != len(list.Values) {
		return nil, errForm
	}
	return rows, nil
}

func (r row) key(domain string) (Key, error) {
	k := Key{ID: r.ID, Caller: ect.Identity(r.Caller)}
	var err error
	if k.Until, err = time.Parse(time.RFC3339, r.Until); err != nil {
		return Key{}, &KeyError{"until", "expected a time such as 2027-01-31T12:00:00Z"}
	}
	if k.Created, err = time.Parse(time.RFC3339, r.Created); err != nil {
		return Key{}, &KeyError{"created", "expected a time such as 2027-01-31T12:00:00Z"}
	}
	if !exact(k.salt[:], r.Salt) {
		return Key{}, &KeyError{"salt", fmt.Sprintf("expected %d bytes in base64url without padding", len(k.salt))}
	}
	if !exact(k.hash[:], r.Hash) {
		return Key{}, &KeyError{"hash", fmt.Sprintf("expected %d bytes in base64url without padding", len(k.hash))}
	}
	return k, k.check(domain)
}

// exact decodes text that has just as many bytes as into.
func exact(into []byte, text string) bool {
	decoded, err := encoding().DecodeString(text)
	return err == nil && len(text) == encoding().EncodedLen(len(into)) && copy(into, decoded) == len(into)
}

// Format writes a file that Parse reads as these keys. Its error is *FileError: Parse would refuse the file.
func Format(keys []Key) ([]byte, error) {
	var text bytes.Buffer
	text.WriteString("# API keys of callers, made by aepbctl keys. Secrets do not stand here, only their hashes.\n")
	if len(keys) == 0 {
		text.WriteString("[]\n")
	}
	for _, k := range keys {
		fmt.Fprintf(&text, "- id: %q\n  caller: %q\n  salt: %q\n  hash: %q\n  until: %q\n  created: %q\n", k.ID, string(k.Caller),
			encoding().EncodeToString(k.salt[:]), encoding().EncodeToString(k.hash[:]), k.Until.UTC().Format(time.RFC3339), k.Created.UTC().Format(time.RFC3339))
	}
	_, err := Parse(text.Bytes(), "")
	return text.Bytes(), err
}

// Load reads the keys in a file. Its error is one of reading, or *FileError.
func Load(file, domain string) ([]Key, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("apikey: %w", err)
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("apikey: %w", err)
	}
	return Parse(data, domain)
}
