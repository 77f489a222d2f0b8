package uacp

import (
	"encoding/binary"
	"errors"
	"io"
	"slices"

	"github.com/aepb/aepb-gateway/ect"
	form "github.com/aepb/aepb-gateway/translators/uacp"
)

// Protocol is the name under which the framing is agreed on (ALPN).
const Protocol = "uacp-stream/1"

const prefix = 2 // bytes of length before each frame

// errFrame refuses a length that no frame has.
var errFrame = errors.New("uacp: not a frame's length")

// readFrame reads one frame. io.EOF: the stream ended between two frames.
func readFrame(r io.Reader) ([]byte, error) {
	length, err := readLength(r)
	if err != nil {
		return nil, err
	}
	return readBody(r, length)
}

// readLength reads how long the next frame is.
func readLength(r io.Reader) (uint16, error) {
	var head [prefix]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, err
	}
	length := binary.BigEndian.Uint16(head[:])
	if length == 0 {
		return 0, errFrame
	}
	return length, nil
}

// readBody reads a frame whose length is known.
func readBody(r io.Reader, length uint16) ([]byte, error) {
	body := make([]byte, length)
	if _, err := io.ReadFull(r, body); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF // behind a length, it is no end between two frames
		}
		return nil, err
	}
	return body, nil
}

// writeFrame writes one frame in one piece.
func writeFrame(w io.Writer, body []byte) error {
	if len(body) == 0 || len(body) > form.MaxFrame {
		return errFrame
	}
	out := binary.BigEndian.AppendUint16(make([]byte, 0, prefix+len(body)), uint16(len(body)&form.MaxFrame))
	_, err := w.Write(append(out, body...))
	return err
}

// Reason is why the token that testifies to a message does not travel with it. The
// gateway keeps that token. Its audience finds it by its jti, which a frame without
// space for the token names (aepb.parent_jti).
type Reason string

// The reasons.
const (
	ReasonBare Reason = "bare" // the peer knows no gateways, so the frame has no place for a token
	ReasonFull Reason = "full" // the frame has no space for it
)

// withEvidence puts as many of the tokens into a frame as fit into most bytes. Tokens
// that testify to the message, which no other token names as parent, come before their
// ancestors. reason says why one of the former is left out; empty: none is. Ancestors
// may be left out without a reason, since the other tokens name them (R4).
func withEvidence(body []byte, tokens []string, most int) (out []byte, reason Reason) {
	if len(tokens) == 0 {
		return body, ""
	}
	opened, err := form.Open(body)
	if err != nil {
		return body, ReasonFull
	}
	out, err = opened.WithEvidence(tokens)
	switch {
	case errors.Is(err, form.ErrBare):
		return body, ReasonBare
	case err == nil && len(out) <= most:
		return out, ""
	}
	heads, ancestors, err := ect.Heads(tokens)
	if err != nil {
		heads, ancestors = tokens, nil
	}
	for left := slices.Concat(heads, ancestors); len(left) > 0; left = left[:len(left)-1] {
		if len(left) < len(heads) {
			reason = ReasonFull
		}
		if out, err := opened.WithEvidence(left); err == nil && len(out) <= most {
			return out, reason
		}
	}
	return bereft(opened, body), ReasonFull
}

// countReference reports a token that the gateway keeps, if there is one and a listener for it.
func countReference(whom func(Reason), reason Reason) {
	if whom != nil && reason != "" {
		whom(reason)
	}
}

// bereft returns a frame without tokens: those that it came with testify to nothing
// toward its next receiver.
func bereft(opened form.Opened, body []byte) []byte {
	if was, err := opened.Evidence(); err == nil && len(was) == 0 {
		return body
	}
	if out, err := opened.WithEvidence(nil); err == nil {
		return out
	}
	return body
}
