package uacp

import (
	"encoding/binary"

	"github.com/aepb/aepb-gateway/translators"
)

// Verb is what a frame does.
type Verb uint8

// The four verbs.
const (
	Ping    Verb = 0
	Tell    Verb = 1
	Ask     Verb = 2
	Observe Verb = 3
)

// The types of options.
const (
	OptConversation uint8 = 0x01 // 8 to 16 bytes
	OptCorrelation  uint8 = 0x02 // 3 bytes by its declaration, written as 4
	OptTopic        uint8 = 0x03 // UTF-8
	OptContentType  uint8 = 0x04 // written as 4 bytes
	OptParent       uint8 = 0x41 // of the vendors' range: the jti of the ECT that a request came of, if it has 16 bytes
)

// The values of a content type.
const (
	contentCBOR     uint32 = 0
	contentJSON     uint32 = 1
	contentProtobuf uint32 = 2
	contentText     uint32 = 3
	contentNone     uint32 = 1 << 31 // the option is absent
)

// Limits of a frame in bytes.
const (
	MaxFrame   = 65535
	MaxPayload = 65527
	maxOption  = 255
	headerSize = 8
	maxID      = 1<<24 - 1
)

// Option is one TLV.
type Option struct {
	Type  uint8
	Value []byte // at most 255 bytes
}

// Frame is one µACP message.
type Frame struct {
	Verb    Verb
	QoS     uint8 // 0 at most once, 1 at least once, 2 exactly once
	Code    uint8 // 0 in requests, a status in replies
	ID      uint32
	Options []Option
	Payload []byte
}

// Profile is the one layout that is spoken, and the protocol version that
// stands for it. The draft's own is unpublished where this was written; only the
// layout of the author's reference code is known.
const Profile = "miuacp"

// The layout: version 2 bits, verb 2, QoS 2, code 8, id 24, option count 8, and 18
// bits of zero; then the options, then the payload to the end.
const (
	version1     = 1
	shiftVersion = 62
	shiftVerb    = 60
	shiftQoS     = 58
	shiftCode    = 50
	shiftID      = 26
	shiftCount   = 18
	maskUnused   = 1<<18 - 1
)

// ParseFrame reads one frame. Its error is a *translators.MalformedError. The
// frame's slices are data's.
func ParseFrame(data []byte) (Frame, error) {
	var f Frame
	if len(data) > MaxFrame {
		return f, &translators.MalformedError{Reason: "longer than 65535 bytes", Large: true}
	}
	if len(data) < headerSize {
		return f, malformed("shorter than a header")
	}
	head := binary.BigEndian.Uint64(data)
	f.Verb = Verb(head >> shiftVerb & 3)
	f.QoS = uint8(head >> shiftQoS & 3)
	f.Code = uint8(head >> shiftCode & 0xff)
	f.ID = uint32(head >> shiftID & maxID)
	switch {
	case head>>shiftVersion != version1:
		return f, malformed("not version 1")
	case f.QoS > 2:
		return f, malformed("no such quality of service")
	case head&maskUnused != 0:
		return f, malformed("unused header bits are set")
	}
	rest, count := data[headerSize:], int(head>>shiftCount&0xff)
	if count > 0 {
		f.Options = make([]Option, 0, count)
	}
	for range count {
		if len(rest) < 2 || len(rest) < 2+int(rest[1]) {
			return f, malformed("fewer options than the header says")
		}
		end := 2 + int(rest[1])
		f.Options = append(f.Options, Option{rest[0], rest[2:end:end]})
		rest = rest[end:]
	}
	f.Payload = rest
	return f, nil
}

// Bytes writes the frame; a field out of range is a *translators.MalformedError.
func (f Frame) Bytes() ([]byte, error) {
	if f.ID > maxID || f.Verb > Observe || f.QoS > 2 || len(f.Options) > 255 {
		return nil, malformed("a header field is out of range")
	}
	head := uint64(version1)<<shiftVersion | uint64(f.Verb)<<shiftVerb | uint64(f.QoS)<<shiftQoS |
		uint64(f.Code)<<shiftCode | uint64(f.ID)<<shiftID | uint64(len(f.Options))<<shiftCount
	out := binary.BigEndian.AppendUint64(make([]byte, 0, headerSize+len(f.Payload)+32), head)
	for _, o := range f.Options {
		if len(o.Value) > maxOption {
			return nil, malformed("an option is longer than 255 bytes")
		}
		out = append(append(out, o.Type, size(o)), o.Value...)
	}
	if out = append(out, f.Payload...); len(out) > MaxFrame {
		return nil, &translators.MalformedError{Reason: "longer than 65535 bytes", Large: true}
	}
	return out, nil
}

// size is the length byte of an option that was found short enough.
func size(o Option) byte { return byte(len(o.Value) & maxOption) }

func malformed(reason string) error { return &translators.MalformedError{Reason: reason} }

// Option finds the first option of a type; nil: there is none.
func (f Frame) Option(kind uint8) []byte {
	for _, o := range f.Options {
		if o.Type == kind {
			return o.Value
		}
	}
	return nil
}

// Topic is the topic path; empty: there is none.
func (f Frame) Topic() string { return string(f.Option(OptTopic)) }

// Correlation is the id of the request that a reply names. Three bytes and
// four are both in use.
func (f Frame) Correlation() (uint32, bool) {
	value := f.Option(OptCorrelation)
	if len(value) != 3 && len(value) != 4 {
		return 0, false
	}
	n := bigEndian(value)
	return n, n <= maxID
}

func bigEndian(value []byte) uint32 {
	var n uint32
	for _, b := range value {
		n = n<<8 | uint32(b)
	}
	return n
}

// contentType reads 1 to 4 bytes; contentNone: there is none that can be read.
func (f Frame) contentType() uint32 {
	value := f.Option(OptContentType)
	if len(value) == 0 || len(value) > 4 {
		return contentNone
	}
	if n := bigEndian(value); n <= contentText {
		return n
	}
	return contentNone
}

// pythonShift is what the Python reference adds to a request's id for its reply.
const pythonShift = 1_000_000

// Match says how well a reply answers a request.
type Match int

// How a reply can name its request, best last. The C++ reference answers under
// the request's own id; the Python one under a shifted id, with the request's
// in Correlation-ID.
const (
	MatchNone Match = iota
	MatchShifted
	MatchID
	MatchCorrelation
)

// Answers reports how the frame answers a request of this id. A frame that
// names another request in Correlation-ID answers that one.
func (f Frame) Answers(request uint32) Match {
	if named, ok := f.Correlation(); ok {
		if named == request {
			return MatchCorrelation
		}
		return MatchNone
	}
	switch f.ID {
	case request:
		return MatchID
	case (request + pythonShift) & maxID:
		return MatchShifted
	default:
		return MatchNone
	}
}
