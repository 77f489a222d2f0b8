package ect

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"hash"
)

// StreamHash hashes a stream of messages: SHA-256 over the octets of each, each
// preceded by their number as eight octets, the most significant first. Its
// zero value has seen nothing. It is not safe for concurrent use.
type StreamHash struct {
	sum   hash.Hash
	count int
}

// Add takes the next message.
func (h *StreamHash) Add(octets []byte) {
	if h.sum == nil {
		h.sum = sha256.New()
	}
	var size [8]byte
	binary.BigEndian.PutUint64(size[:], uint64(len(octets)))
	_, _ = h.sum.Write(size[:]) // documented never to fail
	_, _ = h.sum.Write(octets)
	h.count++
}

// Count is how many messages there were.
func (h *StreamHash) Count() int { return h.count }

// Sum is the hash of what was added, in the form of [Hash].
func (h *StreamHash) Sum() string {
	if h.sum == nil {
		return Hash(nil)
	}
	return base64.RawURLEncoding.EncodeToString(h.sum.Sum(nil))
}
