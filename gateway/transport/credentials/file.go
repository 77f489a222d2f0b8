package credentials

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync"
	"time"
)

// Bounds of secrets in files.
const (
	maxFile   = 64 << 10    // bytes
	fileFresh = time.Second // a file is read at most so often
)

var (
	errFileSize  = errors.New("credentials: the file is larger than 64 KiB")
	errFileEmpty = errors.New("credentials: the file is empty")
	errFieldText = errors.New("credentials: the file has characters that no header may have")
)

// ReadSecret is the text of a file without the white space around it. Errors name the file and quote nothing.
func ReadSecret(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	err = errors.Join(err, file.Close())
	text = bytes.TrimSpace(text)
	switch {
	case err != nil:
		return nil, err
	case len(text) > maxFile:
		return nil, errFileSize
	case len(text) == 0:
		return nil, errFileEmpty
	}
	return text, nil
}

// ReadField is the text of a file that goes into a header.
func ReadField(path string) (string, error) {
	text, err := ReadSecret(path)
	if err == nil && !fits(string(text)) {
		return "", errFieldText
	}
	return string(text), err
}

// fits reports whether a header can have a value: visible ASCII and blanks inside, at most maxToken bytes.
func fits(value string) bool {
	for i := range len(value) {
		if value[i] < ' ' || value[i] > '~' {
			return false
		}
	}
	return value != "" && len(value) <= maxToken
}

// source is a value that is made of files, read again at most once a second.
type source[T any] struct {
	load func() (T, error)
	now  func() time.Time

	mu    sync.Mutex
	value T
	err   error
	read  time.Time // zero: never
}

// get is the value; anew: read just now, and not a second ago.
func (s *source[T]) get(anew bool) (T, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.now(); anew || s.read.IsZero() || now.Sub(s.read) >= fileFresh {
		s.value, s.err = s.load()
		s.read = now
	}
	return s.value, s.err
}
