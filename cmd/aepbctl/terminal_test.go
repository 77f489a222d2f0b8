package main

import (
	"testing"
	"time"
)

func TestDuration_IsForPeople(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		333476: "333 µs", 12 * time.Millisecond: "12 ms", 3400 * time.Millisecond: "3.4 s", 3 * time.Second: "3 s", 59900 * time.Millisecond: "59 s",
		125 * time.Second: "2 min 5 s", 5 * time.Minute: "5 min", 185 * time.Minute: "3 h 5 min", 24 * time.Hour: "24 h", 52 * time.Hour: "2 d 4 h", -time.Second: "-1 s", 0: "0 s",
	} {
		if got := duration(d); got != want {
			t.Errorf("%d: %q, want %q", d, got, want)
		}
	}
}
