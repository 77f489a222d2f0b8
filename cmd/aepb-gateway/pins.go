package main

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/state"
)

// kindPin is the kind of the entries that hold pins.
const kindPin = "pin"

// pinLife is how long a pin is kept that nobody asks for: long past any agent
// that is still listed, whose pin is written again when it changes.
const pinLife = 10 * 365 * 24 * time.Hour

// errPinRace: two replicas saw a change at once; whoever was second asks again.
var errPinRace = errors.New("the pin was changed meanwhile")

// entries is what pins need of small records that outlive a request.
type entries interface {
	Get(ctx context.Context, key state.EntryKey) (state.Entry, bool, error)
	Swap(ctx context.Context, key state.EntryKey, old uint64, value []byte, until time.Time) (uint64, bool, error)
}

// pins keeps pinned descriptions among the entries, so that they outlive the
// process where state does (R9).
type pins struct {
	entries entries
	now     func() time.Time
}

var _ directory.Pins = pins{}

func pinKey(key string) state.EntryKey { return state.EntryKey{Kind: kindPin, Group: key, ID: kindPin} }

func (p pins) Pinned(ctx context.Context, key string) (directory.Pin, bool, error) {
	entry, ok, err := p.entries.Get(ctx, pinKey(key))
	if err != nil || !ok {
		return directory.Pin{}, false, err
	}
	var pin directory.Pin
	if err := json.Unmarshal(entry.Value, &pin); err != nil {
		return directory.Pin{}, false, err
	}
	restore(&pin)
	return pin, true, nil
}

// restore tells again what was never said from what is null.
func restore(pin *directory.Pin) {
	for i := range pin.Description.Capabilities {
		c := &pin.Description.Capabilities[i]
		for _, raw := range []*json.RawMessage{&c.InputSchema, &c.OutputSchema, &c.Annotations} {
			if string(*raw) == "null" {
				*raw = nil
			}
		}
	}
	if pin.Pending != nil {
		restore(pin.Pending)
	}
}

func (p pins) KeepPin(ctx context.Context, key string, pin directory.Pin) error {
	value, err := json.Marshal(pin)
	if err != nil {
		return err
	}
	old, _, err := p.entries.Get(ctx, pinKey(key))
	if err != nil {
		return err
	}
	_, ok, err := p.entries.Swap(ctx, pinKey(key), old.Revision, value, p.now().Add(pinLife))
	if err == nil && !ok {
		err = errPinRace
	}
	return err
}
