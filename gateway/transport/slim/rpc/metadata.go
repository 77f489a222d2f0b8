package rpc

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport/slim/session"
)

// Keys that SLIMRPC reserves. It overwrites values that a caller sets.
const (
	keyService   = "service"
	keyMethod    = "method"
	keyID        = "rpc-id"
	keyDirection = "slimrpc-dir"
	keyTimeout   = "slimrpc-timeout"
	keyStatus    = "slimrpc-code"

	request     = "req"
	payloadType = "msg"

	// MaxTimeout is the longest a call may take, and how long it may without a
	// deadline of its own.
	MaxTimeout = 36000 * time.Second

	maxID   = 128 // bytes
	maxText = 512 // of service and method, bytes each
)

// Code is a gRPC status code.
type Code uint32

// The codes that are used here; the others are gRPC's as well.
const (
	OK                Code = 0
	Unknown           Code = 2
	InvalidArgument   Code = 3
	DeadlineExceeded  Code = 4
	NotFound          Code = 5
	ResourceExhausted Code = 8
	Unimplemented     Code = 12
	Internal          Code = 13
	Unavailable       Code = 14
	lastCode          Code = 16
)

// StatusError is how a call failed at the other end. A Handler returns one to
// say how it failed at ours.
type StatusError struct {
	Code    Code
	Message string // the other end's words: for agents and logs, never for callers as ours
}

func (e *StatusError) Error() string {
	return "slim rpc: the call failed with code " + strconv.FormatUint(uint64(e.Code), 10)
}

// Frame is one message of a call.
type Frame struct {
	Metadata map[string]string
	Body     []byte
}

// Request is what is called.
type Request struct {
	Service, Method string
	Metadata        map[string]string // nodes read it, and nothing protects it
	Body            []byte
}

// visible is the metadata without SLIMRPC's own.
func visible(metadata map[string]string) map[string]string {
	out := make(map[string]string, len(metadata))
	for key, value := range metadata {
		if !reserved(key) {
			out[key] = value
		}
	}
	return out
}

func reserved(key string) bool {
	switch key {
	case keyService, keyMethod, keyID:
		return true
	default:
		return strings.HasPrefix(key, "slimrpc-")
	}
}

// opening is the first message of a call.
func opening(id string, r Request, deadline time.Time) session.Message {
	metadata := visible(r.Metadata)
	metadata[keyService], metadata[keyMethod] = r.Service, r.Method
	metadata[keyID], metadata[keyDirection] = id, request
	metadata[keyTimeout] = seconds(deadline)
	return session.Message{Type: payloadType, Blob: r.Body, Metadata: metadata}
}

// noMore ends the requests of a call.
func noMore(id string) session.Message {
	return session.Message{Type: payloadType, Metadata: map[string]string{keyID: id, keyDirection: request, keyStatus: "0"}}
}

// response is a message back.
func response(id string, f Frame) session.Message {
	metadata := visible(f.Metadata)
	metadata[keyID] = id
	return session.Message{Type: payloadType, Blob: f.Body, Metadata: metadata}
}

// ending ends the responses of a call.
func ending(id string, status *StatusError) session.Message {
	metadata := map[string]string{keyID: id, keyStatus: strconv.FormatUint(uint64(status.Code), 10)}
	return session.Message{Type: payloadType, Blob: []byte(status.Message), Metadata: metadata}
}

// ended reads whether, and how, a message ends its call; the error is nil for a
// proper end.
func ended(m session.Message) (bool, error) {
	text, ok := m.Metadata[keyStatus]
	if !ok {
		return false, nil
	}
	code := parseCode(text)
	if code == OK {
		return len(m.Blob) == 0, nil
	}
	return true, &StatusError{code, strings.ToValidUTF8(string(m.Blob[:min(len(m.Blob), maxMessage)]), "")}
}

// parseCode reads a status; what is none is Unknown.
func parseCode(text string) Code {
	n, err := strconv.ParseUint(text, 10, 8)
	if err != nil || Code(n) > lastCode {
		return Unknown
	}
	return Code(n)
}

// maxMessage bounds the text of a failure, bytes.
const maxMessage = 4 << 10

// seconds is a time as SLIMRPC writes it: seconds since 1970, with a fraction.
func seconds(at time.Time) string {
	return strconv.FormatFloat(float64(at.UnixMilli())/1000, 'f', 3, 64)
}

// parseDeadline reads it; without one a call may take the longest time, and
// never more. false: it is no time.
func parseDeadline(text string, now time.Time) (time.Time, bool) {
	latest := now.Add(MaxTimeout)
	if text == "" {
		return latest, true
	}
	s, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil || math.IsNaN(s) || s < 0 || len(text) > 64:
		return time.Time{}, false
	case s > float64(latest.Unix()):
		return latest, true
	default:
		return time.UnixMilli(int64(s * 1000)), true
	}
}
