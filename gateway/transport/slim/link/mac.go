package link

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"hash"

	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/dataplane"
)

// macDomain begins what a header's MAC covers.
const macDomain = "SLIM-DP-HDR-v1\x00"

// macSize is what a MAC adds to a message at most, bytes.
const macSize = 64

// mac proves between two neighbours that a header is as the other one has sent it.
// Not safe for concurrent use: each direction has its own.
type mac struct {
	linkID  string
	hash    hash.Hash
	covered []byte
}

// newMAC returns nil without a key.
func newMAC(key []byte, linkID string) *mac {
	if key == nil {
		return nil
	}
	return &mac{linkID: linkID, hash: hmac.New(sha256.New, key)}
}

// headerOf is what is covered of a message; nil: nothing, as of greetings and acks.
func headerOf(m *dataplane.Message) *dataplane.SLIMHeader {
	switch {
	case m.GetPublish() != nil:
		return m.GetPublish().GetHeader()
	case m.GetSubscribe() != nil:
		return m.GetSubscribe().GetHeader()
	default:
		return m.GetUnsubscribe().GetHeader()
	}
}

// seal gives a message its MAC.
func (c *mac) seal(m *dataplane.Message) {
	if header := headerOf(m); c != nil && header != nil {
		header.HeaderMac = c.of(header)
	}
}

// genuine reports whether the neighbour has sent the message as it is. A link
// without a key has nothing to tell by.
func (c *mac) genuine(m *dataplane.Message) bool {
	if c == nil {
		return true
	}
	header := headerOf(m)
	return header != nil && hmac.Equal(header.GetHeaderMac(), c.of(header))
}

// of is the MAC of a header. What the receiver notes in it (incoming_conn) is not
// covered, nor is its version.
func (c *mac) of(h *dataplane.SLIMHeader) []byte {
	out := coverText(append(c.covered[:0], macDomain...), c.linkID)
	out = coverName(coverName(out, h.GetSource()), h.GetDestination())
	out = coverText(out, h.GetIdentity())
	out = binary.LittleEndian.AppendUint32(out, h.GetFanout())
	out = coverNumber(coverNumber(out, h.RecvFrom), h.ForwardTo)
	if out = present(out, h.Error != nil); h.Error != nil {
		out = present(out, h.GetError())
	}
	c.covered = binary.LittleEndian.AppendUint32(out, h.GetTtl())
	c.hash.Reset()
	c.hash.Write(c.covered)
	return c.hash.Sum(nil)
}

func present(out []byte, yes bool) []byte {
	if yes {
		return append(out, 1)
	}
	return append(out, 0)
}

func coverText(out []byte, text string) []byte {
	out = binary.LittleEndian.AppendUint32(out, uint32(len(text))) //nolint:gosec // a message has a few MiB at most
	return append(out, text...)
}

func coverNumber(out []byte, n *uint64) []byte {
	if out = present(out, n != nil); n == nil {
		return out
	}
	return binary.LittleEndian.AppendUint64(out, *n)
}

func coverName(out []byte, n *dataplane.Name) []byte {
	if out = present(out, n != nil); n == nil {
		return out
	}
	hashes := n.GetName()
	if out = present(out, hashes != nil); hashes != nil {
		for _, part := range []uint64{hashes.GetComponent_0(), hashes.GetComponent_1(), hashes.GetComponent_2()} {
			out = binary.LittleEndian.AppendUint64(out, part)
		}
		id := hashes.GetNameId()
		if out = present(out, id != nil); id != nil {
			out = binary.LittleEndian.AppendUint64(out, id.GetId_0())
			out = binary.LittleEndian.AppendUint64(out, id.GetId_1())
		}
	}
	words := n.GetStrName()
	if out = present(out, words != nil); words != nil {
		out = coverText(out, words.GetStrComponent_0())
		out = coverText(out, words.GetStrComponent_1())
		out = coverText(out, words.GetStrComponent_2())
	}
	return out
}
