package state

import (
	"encoding/binary"
	"strings"
)

// maxHeads is how many different JOSE headers are kept apart from their tokens.
// Beyond that, as when somebody makes up a new one each time, they stay together.
const maxHeads = 1024

// heads keeps the JOSE header of tokens once for all that have it: whoever signs
// a thousand tokens with one key sends its certificates a thousand times, and
// they are more than half of each. It is not safe for concurrent use.
type heads struct {
	numbers map[string]uint32
	list    []head
	free    []uint32
}

type head struct {
	text string
	uses int
}

func newHeads() *heads { return &heads{numbers: map[string]uint32{}, list: make([]head, 1)} }

// take counts one more use of a token's header, with the dot behind it, and
// returns its number; 0: it stays with its token.
func (h *heads) take(compact string) (number uint32, text string) {
	text = compact[:strings.IndexByte(compact, '.')+1]
	if text == "" {
		return 0, ""
	}
	number, known := h.numbers[text]
	switch {
	case known:
	case len(h.free) > 0:
		number, h.free = h.free[len(h.free)-1], h.free[:len(h.free)-1]
	case len(h.list) > maxHeads:
		return 0, ""
	default:
		number = uint32(len(h.list)) //nolint:gosec // maxHeads at most
		h.list = append(h.list, head{})
	}
	if !known {
		text = strings.Clone(text)
		h.list[number] = head{text: text}
		h.numbers[text] = number
	}
	h.list[number].uses++
	return number, h.list[number].text
}

// leave counts one use less.
func (h *heads) leave(number uint32) {
	if number == 0 {
		return
	}
	if h.list[number].uses--; h.list[number].uses == 0 {
		delete(h.numbers, h.list[number].text)
		h.list[number] = head{}
		h.free = append(h.free, number)
	}
}

// beheaded is a record without its header: the number of that, and then as appendToken
// writes it, but for the header itself.
type beheaded []byte

// aroundHead is what stands before and after a header of so many octets in what
// appendToken writes.
func aroundHead(whole []byte, octets int) (before, after []byte) {
	_, size := binary.Uvarint(whole[instantSize:])
	at := instantSize + size
	return whole[:at], whole[at+octets:]
}

func (b beheaded) number() uint32 {
	number, _ := binary.Uvarint(b)
	return uint32(number) //nolint:gosec // as appendBeheaded wrote it
}

// around is what stands before and after the header.
func (b beheaded) around() (before, after []byte) {
	_, size := binary.Uvarint(b)
	return aroundHead(b[size:], 0)
}
