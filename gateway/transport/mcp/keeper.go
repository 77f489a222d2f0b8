package mcp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// Keeper keeps small records where every replica finds them, each in the group
// of its owner.
type Keeper interface {
	// Get finds a record; false: there is none (any more).
	Get(ctx context.Context, group, id string) (value []byte, revision uint64, ok bool, err error)
	// Swap writes a record if it is still at revision old (0: there must be
	// none); false: somebody else was first.
	Swap(ctx context.Context, group, id string, old uint64, value []byte, until time.Time) (ok bool, err error)
	// Delete removes a record; one that is not there is no error.
	Delete(ctx context.Context, group, id string) error
	// Count says how many records a group has, up to limit.
	Count(ctx context.Context, group string, limit int) (int, error)
}

// upstream is the form in which a session with a server is kept.
type upstream struct{ ID, Version string }

// place is where the session with a server is kept that mirrors a caller's own.
func place(ep transport.Endpoint, version string) (group, id string) {
	key := keyOf(ep, version)
	sum := sha256.Sum256([]byte(strings.Join([]string{
		key.url, string(key.server), string(key.caller), key.version, key.asked, key.mirrors,
	}, "\x00")))
	return "upstream " + ep.Session, hex.EncodeToString(sum[:])
}

// kept finds a session that another replica has begun.
func (d *Dialer) kept(ctx context.Context, ep transport.Endpoint, version string) (session, bool, error) {
	if d.deps.Keeper == nil || ep.Session == "" {
		return session{}, false, nil
	}
	group, id := place(ep, version)
	value, _, ok, err := d.deps.Keeper.Get(ctx, group, id)
	if err != nil || !ok {
		return session{}, false, err
	}
	var u upstream
	readable := json.Unmarshal(value, &u) == nil && mcp.IsLegacy(u.Version) // else a new one is begun
	return session{id: u.ID, version: u.Version}, readable, nil
}

// keep puts a session where every replica finds it. If another replica was
// first, that one's is used by all.
func (d *Dialer) keep(ctx context.Context, ep transport.Endpoint, version string, s session) (session, error) {
	if d.deps.Keeper == nil || ep.Session == "" {
		return s, nil
	}
	group, id := place(ep, version)
	value, err := json.Marshal(upstream{s.id, s.version})
	if err != nil {
		return s, err
	}
	ok, err := d.deps.Keeper.Swap(ctx, group, id, 0, value, d.deps.Now().Add(sessionLife))
	if ok || err != nil {
		return s, err
	}
	if first, ok, err := d.kept(ctx, ep, version); ok || err != nil {
		return first, err
	}
	return s, nil
}

// unkeep forgets a session that its server no longer knows.
func (d *Dialer) unkeep(ctx context.Context, ep transport.Endpoint, version string) {
	if d.deps.Keeper == nil || ep.Session == "" {
		return
	}
	group, id := place(ep, version)
	_ = d.deps.Keeper.Delete(ctx, group, id) // if it stays, the next one finds it gone again
}

// sessionLife is how long a session lives that nobody uses.
const sessionLife = 30 * time.Minute
