package breaker_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/lifecycle/breaker"
)

// ATD-42: what is out of range is refused, with what would not be.
func TestConfig_Check(t *testing.T) {
	t.Parallel()
	if err := breaker.Defaults().Check(); err != nil {
		t.Fatal(err)
	}
	const second, hour = time.Second, time.Hour
	for field, row := range map[string]struct {
		set       func(c *breaker.Config, value time.Duration)
		good, bad []time.Duration
	}{
		"threshold": {
			func(c *breaker.Config, value time.Duration) { c.Threshold = int(value) },
			[]time.Duration{1, 500, 1000},
			[]time.Duration{-1, 0, 1001},
		},
		"window": {
			func(c *breaker.Config, value time.Duration) { c.Window = value },
			[]time.Duration{second, hour},
			[]time.Duration{-second, 0, 1, second - 1, second + 1, hour + second},
		},
		"min_samples": {
			func(c *breaker.Config, value time.Duration) { c.MinSamples = int(value) },
			[]time.Duration{1, 10_000},
			[]time.Duration{-1, 0, 10_001},
		},
		"cooldown": {
			func(c *breaker.Config, value time.Duration) { c.Cooldown = value },
			[]time.Duration{second, 300 * second},
			[]time.Duration{0, 1, 1500 * time.Millisecond, 301 * second},
		},
		"max_cooldown": {
			func(c *breaker.Config, value time.Duration) { c.MaxCooldown = value },
			[]time.Duration{30 * second, 300 * second},
			[]time.Duration{0, 29 * second, 301 * second},
		},
		"probe_limit": {
			func(c *breaker.Config, value time.Duration) { c.ProbeLimit = value },
			[]time.Duration{second, hour},
			[]time.Duration{0, second + 1, hour + second},
		},
	} {
		for _, value := range row.good {
			c := breaker.Defaults()
			if row.set(&c, value); c.Check() != nil {
				t.Errorf("%s %d: %v", field, value, c.Check())
			}
		}
		for _, value := range row.bad {
			c := breaker.Defaults()
			row.set(&c, value)
			wrong, ok := errors.AsType[*breaker.RangeError](c.Check())
			if !ok || wrong.Field != field || wrong.Value == "" || !strings.Contains(wrong.Error(), wrong.Want) {
				t.Errorf("%s %d: %v, want a RangeError", field, value, c.Check())
			}
		}
	}
}
