package server

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	tmcp "github.com/aepb/aepb-gateway/gateway/transport/mcp"
)

// kindPin is the kind of the entries that hold pins.
const kindPin = "pin"

// pinLife is how long an unused pin is kept. It is longer than an agent stays listed; the pin of a
// listed agent is written again when it changes.
const pinLife = 10 * 365 * 24 * time.Hour

// errPinRace: another replica wrote the pin first; the next request compares again.
var errPinRace = errors.New("the pin was changed meanwhile")

// pins keeps pinned descriptions among the entries, so that they outlive the
// process where state does (R9).
type pins struct {
	entries store.Entries
	now     func() time.Time
}

var _ directory.Pins = pins{}

func pinKey(key string) state.EntryKey { return state.EntryKey{Kind: kindPin, Group: key, ID: kindPin} }

func (p pins) Pinned(ctx context.Context, key string) (directory.Pin, bool, error) {
	entry, ok, err := p.entries.Get(ctx, pinKey(key))
	if err != nil || !ok {
		return directory.Pin{}, false, err
	}
	if entry.Value, err = unpackPin(entry.Value); err != nil {
		return directory.Pin{}, false, err
	}
	var pin directory.Pin
	if err := json.Unmarshal(entry.Value, &pin); err != nil {
		return directory.Pin{}, false, err
	}
	restore(&pin)
	return pin, true, nil
}

// restore makes the JSON null of an absent member absent again.
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
	value, err := packPin(json.Marshal(pin))
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

// A pin of thousands of tools is larger than an entry may be: it is packed by gzip.
const (
	packedFrom = 256 << 10
	mostOfPin  = 64 << 20 // unpacked, in bytes: what waits is as large once more
)

func packPin(pin []byte, err error) ([]byte, error) {
	if err != nil || len(pin) < packedFrom {
		return pin, err
	}
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err = w.Write(pin)
	err = errors.Join(err, w.Close())
	return out.Bytes(), err
}

func unpackPin(value []byte) ([]byte, error) {
	if bytes.HasPrefix(value, []byte("{")) {
		return value, nil
	}
	r, err := gzip.NewReader(bytes.NewReader(value))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(r, mostOfPin))
}

// kindSession is the kind of the entries that hold sessions of a protocol's own.
const kindSession = "session"

// Keeper keeps native sessions among the entries, so that every replica knows
// them.
type Keeper struct{ Entries store.Entries }

var _ tmcp.Keeper = Keeper{}

func sessionKey(group, id string) store.EntryKey {
	before, _, _ := strings.Cut(group, "\x00")
	_, owner, _ := strings.Cut(before, " ") // a Keeper's groups begin with a word
	return store.EntryKey{Kind: kindSession, Group: group, ID: id, Owner: owner}
}

// Get implements [tmcp.Keeper].
func (k Keeper) Get(ctx context.Context, group, id string) ([]byte, uint64, bool, error) {
	entry, ok, err := k.Entries.Get(ctx, sessionKey(group, id))
	return entry.Value, entry.Revision, ok, err
}

// Swap implements [tmcp.Keeper].
func (k Keeper) Swap(ctx context.Context, group, id string, old uint64, value []byte, until time.Time) (bool, error) {
	_, ok, err := k.Entries.Swap(ctx, sessionKey(group, id), old, value, until)
	return ok, err
}

// Delete implements [tmcp.Keeper].
func (k Keeper) Delete(ctx context.Context, group, id string) error {
	return k.Entries.Delete(ctx, sessionKey(group, id))
}

// All implements [tmcp.Keeper].
func (k Keeper) All(ctx context.Context, group string, limit int) (map[string][]byte, error) {
	entries, err := k.Entries.List(ctx, kindSession, group, "", limit)
	all := make(map[string][]byte, len(entries))
	for _, entry := range entries {
		all[entry.Key.ID] = entry.Value
	}
	return all, err
}
