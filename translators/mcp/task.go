package mcp

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// takeMillis takes a span of whole milliseconds; one that is written in another
// way, or longer than can be counted, stays where it is.
func takeMillis(o *rawjson.Object, name string, to **time.Duration) {
	raw := o.Peek(name)
	n, err := strconv.ParseInt(string(raw), 10, 64)
	const most = int64(1<<63-1) / int64(time.Millisecond)
	if err != nil || n < 0 || n > most || strconv.FormatInt(n, 10) != string(raw) {
		return
	}
	o.Take(name)
	span := time.Duration(n) * time.Millisecond
	*to = &span
}

// millis is a span in milliseconds; nil: there is none.
func millis(span *time.Duration) json.RawMessage {
	if span == nil {
		return nil
	}
	return json.RawMessage(strconv.FormatInt(span.Milliseconds(), 10))
}
