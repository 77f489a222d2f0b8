package transport_test

import (
	"bytes"
	"errors"
	"io"
	"math"
	"net/http"
	"testing"
	"testing/iotest"

	"github.com/aepb/aepb-gateway/gateway/transport"
)

// Whatever a message says of its length, its body is what came.
func TestReadAll_WrongContentLength(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, 511, 512, 513, 5000, 200_000} {
		sent := bytes.Repeat([]byte("a"), size)
		for _, length := range []int64{math.MinInt64, -1, 0, 1, int64(size), int64(size) + 1, math.MaxInt64} {
			got, err := transport.ReadAll(bytes.NewReader(sent), length)
			if err != nil || !bytes.Equal(got, sent) {
				t.Errorf("of %d bytes that were said to be %d there are %d: %v", size, length, len(got), err)
			}
		}
	}
	broken := errors.New("broken off")
	if got, err := transport.ReadAll(io.MultiReader(bytes.NewReader([]byte("ab")), iotest.ErrReader(broken)), 9); !errors.Is(err, broken) || string(got) != "ab" {
		t.Errorf("%q %v", got, err)
	}
}

// A length is believed at once: one piece, and a short one for a long lie.
func TestReadAll_AllocatesOnce(t *testing.T) {
	t.Parallel()
	sent := bytes.Repeat([]byte("a"), 9000)
	if got, err := transport.ReadAll(bytes.NewReader(sent), 9000); err != nil || cap(got) > 10<<10 {
		t.Errorf("room for %d bytes, %v", cap(got), err)
	}
	if got, err := transport.ReadAll(bytes.NewReader(nil), math.MaxInt64); err != nil || cap(got) > 80<<10 {
		t.Errorf("room for %d bytes, %v", cap(got), err)
	}
}

// A long body is not read into more room than it said it needs, and one that says
// so in vain is still read whole: the last byte may come with the end.
func TestReadAll_MakesNoRoomBeyondTheLength(t *testing.T) {
	t.Parallel()
	const size = 5 << 20
	sent := bytes.Repeat([]byte("a"), size)
	got, err := transport.ReadAll(io.MultiReader(bytes.NewReader(sent[:size/2]), bytes.NewReader(sent[size/2:])), size)
	if err != nil || len(got) != size || cap(got) != size {
		t.Errorf("%d bytes in room for %d, %v, want %d", len(got), cap(got), err, size)
	}
	for _, r := range []io.Reader{iotest.DataErrReader(bytes.NewReader(sent[:1001])), iotest.OneByteReader(bytes.NewReader(sent[:1001]))} {
		if got, err := transport.ReadAll(r, 1000); err != nil || len(got) != 1001 {
			t.Errorf("%d bytes of 1001 that were said to be 1000, %v", len(got), err)
		}
	}
}

// TestUnchanged_IfNoneMatch: a list of tags, weak ones too, or an asterisk names what a client has.
func TestUnchanged_IfNoneMatch(t *testing.T) {
	t.Parallel()
	for field, want := range map[string]bool{
		"": false, `"a"`: true, `W/"a"`: true, "*": true, `"b"`: false, `"b", W/"a"`: true, `"b","a"`: true, "a": false,
	} {
		if got := transport.Unchanged(http.Header{"If-None-Match": {field}}, `"a"`); got != want {
			t.Errorf("%s: %v", field, got)
		}
	}
}
