package uacp

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"
)

// FuzzReadFrame_Roundtrip: what was written is read, however it arrives; and what is cut
// off is never an end.
func FuzzReadFrame_Roundtrip(f *testing.F) {
	f.Add([]byte("\x00\x03abc\x00\x01d"))
	f.Add([]byte("\x00\x00"))
	f.Add([]byte("\xff\xffabc"))
	f.Add([]byte("\x00"))
	f.Add([]byte("\x00\x01")) // nothing behind a length
	f.Fuzz(func(t *testing.T, data []byte) {
		whole, slow := bytes.NewReader(data), iotest.OneByteReader(bytes.NewReader(data))
		var again bytes.Buffer
		for {
			a, errA := readFrame(whole)
			b, errB := readFrame(slow)
			if !bytes.Equal(a, b) || (errA == nil) != (errB == nil) {
				t.Fatalf("read %q, %v; slowly %q, %v", a, errA, b, errB)
			}
			if errA != nil {
				if errors.Is(errA, io.EOF) && again.Len() != len(data) {
					t.Fatalf("an end after %d of %d bytes", again.Len(), len(data))
				}
				return
			}
			if err := writeFrame(&again, a); err != nil {
				t.Fatal(err)
			}
		}
	})
}
