package transport

import (
	"bytes"
	"io"
)

// readAhead bounds what is made room for because a message says that it is so
// long: in octets.
const readAhead = 64 << 10

// ReadAll reads a body to its end. length is what the message says of it, in
// octets; less than one: nothing. The reader bounds it.
func ReadAll(r io.Reader, length int64) ([]byte, error) {
	var body bytes.Buffer
	body.Grow(int(max(0, min(length, readAhead))) + bytes.MinRead)
	_, err := body.ReadFrom(r)
	return body.Bytes(), err
}
