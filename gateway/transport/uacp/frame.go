package uacp

import (
	"encoding/binary"
	"errors"
	"io"

	form "github.com/aepb/aepb-gateway/translators/uacp"
)

// Protocol is the name under which the framing is agreed on (ALPN).
const Protocol = "uacp-stream/1"

const prefix = 2 // octets of length before each frame

// errFrame: what came is no frame's length.
var errFrame = errors.New("uacp: not a frame's length")

// readFrame reads one frame. io.EOF: the stream ended between two frames.
func readFrame(r io.Reader) ([]byte, error) {
	var head [prefix]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	length := binary.BigEndian.Uint16(head[:])
	if length == 0 {
		return nil, errFrame
	}
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

// withEvidence puts as many of the tokens into a frame as there is room for in
// most octets, newest first. A bare frame has none: the evidence is kept here, by
// reference.
func withEvidence(body []byte, tokens []string, most int) []byte {
	if len(tokens) == 0 {
		return body
	}
	opened, err := form.Open(body)
	if err != nil {
		return body
	}
	for ; len(tokens) > 0; tokens = tokens[:len(tokens)-1] {
		if out, err := opened.WithEvidence(tokens); err == nil && len(out) <= most {
			return out
		} else if errors.Is(err, form.ErrBare) {
			return body
		}
	}
	return body
}
