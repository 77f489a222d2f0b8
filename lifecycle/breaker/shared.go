package breaker

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// maxShared bounds the text of a shared state; what is written is far shorter.
const maxShared = 512

// ErrShared reports that the text is no shared state as [Shared.MarshalJSON] writes it, or
// that the state cannot be written.
var ErrShared = errors.New("breaker: invalid shared state")

// Shared is what replicas of one gateway tell each other of one breaker. Its JSON is
// {"state":"open","until":TIME,"cooldown":"30s","failed_probes":0,"at":TIME}, times
// after RFC 3339 in UTC.
type Shared struct {
	State        State
	Until        time.Time     // Open: no call before; HalfOpen: the probe has ended by then
	Cooldown     time.Duration // the newest; zero while closed
	FailedProbes int
	At           time.Time // of the change
}

// Shared is what other replicas adopt.
func (b Breaker) Shared() Shared {
	return Shared{State: b.state, Until: b.until, Cooldown: b.cooldown, FailedProbes: b.failedProbes, At: b.at}
}

// Adopt takes over what another replica has found out, if that is newer than what this
// one knows. At one instant, refusing wins over letting through.
func (b Breaker) Adopt(c Config, at time.Time, s Shared) (Breaker, Change) {
	at, s.Until, s.At = plain(at), plain(s.Until), plain(s.At)
	change := Change{From: b.state, To: b.state}
	if s.State > HalfOpen || !b.Shared().before(s) {
		b.within(c, at)
		return b, change
	}
	if s.State == Closed {
		s.Until, s.Cooldown, s.FailedProbes = time.Time{}, 0, 0
	}
	if s.State != Closed || b.state != Closed {
		b.window = window{}
	}
	b.state, b.until, b.at = s.State, s.Until, s.At
	b.cooldown, b.failedProbes = s.Cooldown, min(max(s.FailedProbes, 0), maxProbes)
	change.To = b.state
	b.within(c, at)
	return b, change
}

// before compares when and what, not until when: that was perhaps cut to what this
// replica's clock allows, and to adopt it again and again would move it on.
func (s Shared) before(other Shared) bool {
	return cmp.Or(s.At.Compare(other.At), cmp.Compare(s.severity(), other.severity())) < 0
}

// severity puts open above half open: a failed probe knows more than one under way.
func (s Shared) severity() int { return [...]int{Closed: 0, HalfOpen: 1, Open: 2}[s.State] }

// wire is the JSON of a shared state.
type wire struct {
	State        *string    `json:"state"`
	Until        *time.Time `json:"until"`
	Cooldown     *string    `json:"cooldown"`
	FailedProbes *int       `json:"failed_probes"`
	At           *time.Time `json:"at"`
}

// MarshalJSON writes what UnmarshalJSON reads. Its error wraps ErrShared: a figure or a
// time is out of range.
func (s Shared) MarshalJSON() ([]byte, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	state, cooldown, until, at := s.State.String(), s.Cooldown.String(), plain(s.Until), plain(s.At)
	return json.Marshal(wire{&state, &until, &cooldown, &s.FailedProbes, &at})
}

// UnmarshalJSON reads what MarshalJSON writes and nothing else: each member once and
// no other, in any order. Its error wraps ErrShared, and s is then unchanged.
func (s *Shared) UnmarshalJSON(text []byte) error {
	var w wire
	if err := w.read(text); err != nil {
		return fmt.Errorf("%w: %w", ErrShared, err)
	}
	state := Closed
	for state <= HalfOpen && state.String() != *w.State {
		state++
	}
	cooldown, err := time.ParseDuration(*w.Cooldown)
	if state > HalfOpen || err != nil || cooldown.String() != *w.Cooldown {
		return fmt.Errorf("%w: unexpected spelling of the state or the cooldown", ErrShared)
	}
	read := Shared{state, plain(*w.Until), cooldown, *w.FailedProbes, plain(*w.At)}
	if err := read.check(); err != nil {
		return err
	}
	*s = read
	return nil
}

func (s Shared) check() error {
	for _, year := range [...]int{s.Until.UTC().Year(), s.At.UTC().Year()} {
		if year < 0 || year > 9999 {
			return fmt.Errorf("%w: a time outside of the years 0 to 9999", ErrShared)
		}
	}
	if s.State > HalfOpen || s.Cooldown < 0 || s.Cooldown > maxCooldown || s.FailedProbes < 0 || s.FailedProbes > maxProbes {
		return fmt.Errorf("%w: a figure out of range", ErrShared)
	}
	return nil
}

// read takes the members one by one: encoding/json itself would let one stand twice or
// in other letters.
func (w *wire) read(text []byte) error {
	if len(text) > maxShared {
		return fmt.Errorf("%d bytes, at most %d are expected", len(text), maxShared)
	}
	in := json.NewDecoder(bytes.NewReader(text))
	if open, err := in.Token(); err != nil || open != json.Delim('{') {
		return errors.New("an object is expected")
	}
	into := map[json.Token]any{
		"state": &w.State, "until": &w.Until, "cooldown": &w.Cooldown, "failed_probes": &w.FailedProbes, "at": &w.At,
	}
	for in.More() {
		name, err := in.Token()
		if err != nil {
			return err
		}
		member, ok := into[name]
		if !ok {
			return errors.New("a member that is unknown or stands twice")
		}
		delete(into, name)
		if err := in.Decode(member); err != nil {
			return err
		}
	}
	if _, err := in.Token(); err != nil {
		return err
	}
	if _, err := in.Token(); !errors.Is(err, io.EOF) {
		return errors.New("data after the object")
	}
	if w.State == nil || w.Until == nil || w.Cooldown == nil || w.FailedProbes == nil || w.At == nil {
		return errors.New("a member is absent or null")
	}
	return nil
}
