package breaker

import (
	"fmt"
	"strconv"
	"time"
)

// Bounds of a [Config].
const (
	maxThreshold = 1000
	maxSamples   = 10_000
	maxWindow    = time.Hour
	maxCooldown  = 300 * time.Second // ATD, Circuit Breaker Pattern
	maxProbe     = time.Hour
)

// Config is how a breaker judges. Times are whole seconds. The zero value is not
// valid: begin with [Defaults].
type Config struct {
	Threshold   int           // failures in a thousand; a higher rate opens; 1 to 1000, which never opens
	Window      time.Duration // of samples, 1 s to 1 h
	MinSamples  int           // fewer never open (R21); 1 to 10000; 1 is the draft's letter
	Cooldown    time.Duration // the first; 1 s to 300 s
	MaxCooldown time.Duration // doubling ends there; Cooldown to 300 s
	ProbeLimit  time.Duration // a probe that has not ended by then has failed; 1 s to 1 h
}

// Defaults are those of the draft, and for what it leaves open those of R21.
func Defaults() Config {
	return Config{
		Threshold:   500,
		Window:      60 * time.Second,
		MinSamples:  5,
		Cooldown:    30 * time.Second,
		MaxCooldown: maxCooldown,
		ProbeLimit:  60 * time.Second,
	}
}

// RangeError says which setting of a breaker is not valid, and what would be.
type RangeError struct {
	Field string // such as "window"
	Value string // at most 40 bytes of it
	Want  string // in words
}

func (e *RangeError) Error() string {
	return fmt.Sprintf("circuit breaker: %s is %.40q; give %s", e.Field, e.Value, e.Want)
}

// Check says whether the settings are valid. Its error is a *[RangeError].
func (c Config) Check() error {
	count := func(field string, value, limit int) error {
		if value < 1 || value > limit {
			return &RangeError{field, strconv.Itoa(value), fmt.Sprintf("a number from 1 to %d", limit)}
		}
		return nil
	}
	seconds := func(field string, value, least, most time.Duration) error {
		if value < least || value > most || value%time.Second != 0 {
			return &RangeError{field, value.String(), fmt.Sprintf("whole seconds from %s to %s", least, most)}
		}
		return nil
	}
	for _, err := range [...]error{
		count("threshold", c.Threshold, maxThreshold),
		seconds("window", c.Window, time.Second, maxWindow),
		count("min_samples", c.MinSamples, maxSamples),
		seconds("cooldown", c.Cooldown, time.Second, maxCooldown),
		seconds("max_cooldown", c.MaxCooldown, max(c.Cooldown, time.Second), maxCooldown),
		seconds("probe_limit", c.ProbeLimit, time.Second, maxProbe),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}
