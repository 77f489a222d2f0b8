package transport

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
)

// readAhead bounds the bytes that ReadAll allocates because a message announces its
// length.
const readAhead = 64 << 10

const minRead = 512 // bytes that ReadAll allocates if a message announces no length

// unjudged is how large a request's body may be, in bytes, that is read before it is known whether its
// caller may call the agent: a small one is read, and refused as an error of its protocol.
const unjudged = 64 << 10

// MayRead judges before a request's body is read whether its caller may call the agent, if the body is
// large. Its errors are those of [Handler].Admit.
func MayRead(ctx context.Context, x Handler, q CallInfo, length int64) error {
	if length >= 0 && length <= unjudged {
		return nil
	}
	return x.Admit(ctx, q)
}

// ReadAll reads a body to its end. length is the announced length in bytes; less than
// one: none was announced. The reader bounds the body. ReadAll allocates no more than
// length while the body is not longer.
func ReadAll(r io.Reader, length int64) ([]byte, error) {
	body := make([]byte, 0, min(max(length, minRead), readAhead))
	for {
		if len(body) == cap(body) {
			more, err := afterwards(r, &body, length)
			if err != nil || !more {
				return body, err
			}
		}
		n, err := r.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if errors.Is(err, io.EOF) {
			return body, nil
		}
		if err != nil {
			return body, err
		}
	}
}

// afterwards grows the buffer of a body; false: the body has ended. A buffer that holds the
// announced length grows only after another byte was read.
func afterwards(r io.Reader, body *[]byte, length int64) (bool, error) {
	used := int64(len(*body))
	if used != length {
		space := 2 * used
		if used < length {
			space = min(space, length)
		}
		*body = append(make([]byte, 0, space), *body...)
		return true, nil
	}
	for {
		var one [1]byte
		n, err := r.Read(one[:])
		*body = append(*body, one[:n]...)
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if n > 0 || err != nil {
			return true, err
		}
	}
}

// MediaType is a Content-Type without its parameters; empty: there is no such
// field, or it is malformed.
func MediaType(h http.Header) string {
	written := h.Get("Content-Type")
	if written == "application/json" { // as most peers write it
		return written
	}
	name, _, err := mime.ParseMediaType(written)
	if err != nil {
		return ""
	}
	return name
}

// Respond writes a message that is for this caller alone. One that went away needs no
// answer.
func Respond(w http.ResponseWriter, media string, body []byte, status int) {
	h := w.Header()
	h.Set("Content-Type", media)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// Unchanged reads If-None-Match (RFC 9110, section 13.1.2): a client has what tag names.
func Unchanged(h http.Header, tag string) bool {
	for _, field := range h.Values("If-None-Match") {
		for member := range strings.SplitSeq(field, ",") {
			member = strings.TrimSpace(member)
			if member == "*" || strings.TrimPrefix(member, "W/") == tag {
				return true
			}
		}
	}
	return false
}
