package hitl

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Bounds of what rules read.
const (
	maxPointer   = 512      // bytes
	maxLevels    = 32       // of a pointer
	maxArguments = 16 << 20 // bytes; longer arguments are not read
)

// parsePointer reads a JSON Pointer (RFC 6901) to something below the arguments as a whole. Its error is a
// reason.
func parsePointer(text string) ([]string, error) {
	names := strings.Split(text, "/")
	if text == "" || names[0] != "" || len(text) > maxPointer || len(names)-1 > maxLevels {
		return nil, fmt.Errorf("expected a JSON pointer such as /path, of at most %d bytes and %d levels", maxPointer, maxLevels)
	}
	names = names[1:]
	for i, name := range names {
		plain := strings.NewReplacer("~0", "", "~1", "").Replace(name)
		if strings.Contains(plain, "~") {
			return nil, errors.New("expected 0 or 1 after each ~ of a JSON pointer")
		}
		names[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
	}
	return names, nil
}

// place is a value of the arguments to which pointers lead. The zero value is the arguments as a whole.
type place struct {
	target int // its number, from 1; 0: no pointer ends here
	below  map[string]*place
}

// add makes the place of a pointer, and returns its number; count is how many there are.
func (p *place) add(names []string, count *int) int {
	for _, name := range names {
		if p.below == nil {
			p.below = map[string]*place{}
		}
		next := p.below[name]
		if next == nil {
			next = new(place)
			p.below[name] = next
		}
		p = next
	}
	if p.target == 0 {
		*count++
		p.target = *count
	}
	return p.target
}

// finding is what stands at one place.
type finding struct {
	raw       []byte // nil: nothing
	ambiguous bool   // a name on the way to it stands twice
}

// search is one pass over the arguments of a call, for all pointers of the rules.
type search struct {
	jsonReader

	found   []finding // by the numbers of places
	blurred map[*place]bool
}

// find looks for the values at all places; false: the arguments cannot be read.
func (p *place) find(args json.RawMessage, places int) ([]finding, bool) {
	s := search{jsonReader{data: args}, make([]finding, places+1), map[*place]bool{}}
	switch {
	case len(args) == 0:
		return s.found, true
	case len(args) > maxArguments || !s.value(p, 0) || !s.ended():
		return nil, false
	}
	return s.found, true
}

// value reads one value, and what pointers want of it.
func (s *search) value(p *place, depth int) bool {
	first := s.peek()
	start := s.at
	var ok bool
	switch {
	case p.below == nil || first != '{' && first != '[':
		ok = s.skip(depth)
	case first == '{':
		var seen []*place
		ok = s.object(depth, func(name []byte) bool {
			next := p.below[string(name[1:len(name)-1])]
			if slices.Contains(name, '\\') {
				next = p.below[unquote(name)]
			}
			if next != nil && slices.Contains(seen, next) {
				s.blur(next)
				next = nil
			}
			if next == nil {
				return s.skip(depth + 1)
			}
			seen = append(seen, next)
			return s.value(next, depth+1)
		})
	default:
		var number [20]byte
		ok = s.array(depth, func(i int) bool {
			if next := p.below[string(strconv.AppendInt(number[:0], int64(i), 10))]; next != nil {
				return s.value(next, depth+1)
			}
			return s.skip(depth + 1)
		})
	}
	if p.target > 0 {
		s.found[p.target].raw = s.data[start:s.at]
	}
	return ok
}

// blur notes that a name stands twice: what it and all below it say is not certain.
func (s *search) blur(p *place) {
	if s.blurred[p] {
		return
	}
	s.blurred[p] = true
	if p.target > 0 {
		s.found[p.target].ambiguous = true
	}
	for _, next := range p.below {
		s.blur(next)
	}
}
