package idempotency

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// maxText bounds, in bytes, one text of a stored reply.
const maxText = 1 << 30

// ErrUnreadable: a stored reply is not what Encode wrote.
var ErrUnreadable = errors.New("idempotency: a stored reply is unreadable")

// Reply is a reply as it is kept for a repetition. Its ECTs are on record, so their ids
// suffice.
type Reply struct {
	Wire     translators.Wire
	Evidence []ect.ID
	Problem  *problem.Problem // why the request failed; nil: it did not
}

// cachedStatus is what most replies do not have.
type cachedStatus struct {
	Status  int              `json:",omitempty"`
	Problem *problem.Problem `json:",omitempty"`
}

// Encode writes what Decode reads.
func (r *Reply) Encode() ([]byte, error) {
	var status []byte
	if s := (cachedStatus{r.Wire.Status, r.Problem}); s != (cachedStatus{}) {
		var err error
		if status, err = json.Marshal(s); err != nil {
			return nil, err
		}
	}
	b := make([]byte, 0, 128+len(status)+len(r.Evidence)*64+len(r.Wire.Body))
	b = AppendTexts(b, string(r.Wire.Binding), r.Wire.Version, r.Wire.Form, r.Wire.Media, string(status))
	b = binary.AppendUvarint(b, uint64(len(r.Evidence)))
	for _, id := range r.Evidence {
		b = AppendTexts(b, string(id))
	}
	lines := 0
	for _, values := range r.Wire.Header {
		lines += len(values)
	}
	b = binary.AppendUvarint(b, uint64(lines))
	for name, values := range r.Wire.Header {
		for _, value := range values {
			b = AppendTexts(b, name, value)
		}
	}
	return append(b, r.Wire.Body...), nil
}

// Decode reads what Encode wrote. Its error is ErrUnreadable.
func Decode(blob []byte) (r Reply, err error) {
	var binding, status, name, value string
	blob, whole := ReadTexts(blob, &binding, &r.Wire.Version, &r.Wire.Form, &r.Wire.Media, &status)
	blob, count := readCount(blob)
	for ; count > 0; count-- {
		blob, whole = ReadTexts(blob, &name)
		r.Evidence = append(r.Evidence, ect.ID(name))
	}
	blob, count = readCount(blob)
	for ; count > 0; count-- {
		blob, whole = ReadTexts(blob, &name, &value)
		if r.Wire.Header == nil {
			r.Wire.Header = http.Header{}
		}
		r.Wire.Header[name] = append(r.Wire.Header[name], value)
	}
	var s cachedStatus
	if !whole || count < 0 || status != "" && json.Unmarshal([]byte(status), &s) != nil {
		return Reply{}, ErrUnreadable
	}
	r.Wire.Binding, r.Wire.Status, r.Wire.Body, r.Problem = canonical.Binding(binding), s.Status, blob, s.Problem
	return r, nil
}

// readCount reads how many items follow, each of a byte at least; negative: there
// cannot be as many.
func readCount(b []byte) (rest []byte, count int) {
	size, n := binary.Uvarint(b)
	if n <= 0 || size > uint64(len(b)-n) { //nolint:gosec // n is at most len(b)
		return nil, -1
	}
	return b[n:], int(size) //nolint:gosec // at most len(b)
}

// AppendTexts writes each text behind its length.
func AppendTexts(b []byte, texts ...string) []byte {
	for _, text := range texts {
		b = binary.AppendUvarint(b, uint64(len(text)))
		b = append(b, text...)
	}
	return b
}

// ReadTexts reads what AppendTexts wrote, and returns what is behind it; false: there
// are fewer texts.
func ReadTexts(b []byte, into ...*string) (rest []byte, whole bool) {
	for _, to := range into {
		size, n := binary.Uvarint(b)
		if n <= 0 || size > maxText || int(size) > len(b)-n {
			return nil, false
		}
		*to, b = string(b[n:n+int(size)]), b[n+int(size):]
	}
	return b, true
}
