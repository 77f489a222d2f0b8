package state

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/state/internal/encoding"
	"github.com/aepb/aepb-gateway/gateway/state/internal/index"
)

// Conversations keeps the last ECT of each conversation (R3). The key names caller, agent and
// context; its part before the first NUL is the owner of the conversation. An owner that exceeds
// its share loses its oldest conversations. It is safe for concurrent use.
type Conversations struct {
	now      func() time.Time
	lifetime time.Duration

	mu     sync.RWMutex
	turns  *boundedMap[turn] // as appendTurn writes them
	owners map[ownerDigest]ownedTurns
	share  int // of one owner
}

// ConversationShares is the number of shares of all conversations. One owner may have one share.
const ConversationShares = 8

// ownerDigest is the part of a conversation's digest that says whose it is. Two
// owners with the same one share their share.
type ownerDigest [4]byte

// turn is a conversation's place among those of its owner; zero digests: none.
type turn struct{ older, newer digest }

// ownedTurns is what one owner has.
type ownedTurns struct {
	oldest, newest digest
	count          int
}

// conversationOf is the digest of a key: the last bytes say whose it is.
func conversationOf(key string) (k digest, owner ownerDigest) {
	who, _, _ := strings.Cut(key, "\x00")
	k, all := index.KeyOf(key), index.KeyOf("owner", who)
	copy(owner[:], all[:])
	copy(k[len(k)-len(owner):], owner[:])
	return k, owner
}

func ownerIn(k digest) (owner ownerDigest) {
	copy(owner[:], k[len(k)-len(owner):])
	return owner
}

func newConversations(config Config, deps Deps) *Conversations {
	c := &Conversations{
		now: deps.Now, lifetime: config.ConversationLifetime, owners: map[ownerDigest]ownedTurns{},
		turns: newBoundedMap[turn](KindConversation, config.MaxConversations, 0, deps.Journal),
		share: max(1, config.MaxConversations/ConversationShares),
	}
	c.turns.dropped = c.unlink
	return c
}

// link makes a conversation the newest of its owner.
func (c *Conversations) link(k digest) {
	owner := ownerIn(k)
	o := c.owners[owner]
	if o.count == 0 {
		o.oldest = k
	} else {
		c.turns.byKey.Find(o.newest).meta.newer = k
		c.turns.byKey.Find(k).meta.older = o.newest
	}
	o.newest = k
	o.count++
	c.owners[owner] = o
}

// unlink is told of every conversation that leaves.
func (c *Conversations) unlink(k digest, p place[turn]) {
	owner := ownerIn(k)
	o := c.owners[owner]
	if at := c.turns.byKey.Find(p.meta.older); at != nil {
		at.meta.newer = p.meta.newer
	} else {
		o.oldest = p.meta.newer
	}
	if at := c.turns.byKey.Find(p.meta.newer); at != nil {
		at.meta.older = p.meta.older
	} else {
		o.newest = p.meta.older
	}
	if o.count--; o.count == 0 {
		delete(c.owners, owner)
		return
	}
	c.owners[owner] = o
}

// Last finds the workflow of a conversation and its last ECT. Nothing is ever
// found under the empty key.
func (c *Conversations) Last(_ context.Context, key string) (workflow string, id ect.ID, ok bool, err error) {
	k, _ := conversationOf(key)
	c.mu.RLock()
	defer c.mu.RUnlock()
	data, _, ok := c.turns.get(k, c.now())
	if !ok {
		return "", "", false, nil
	}
	r := encoding.Reader{Data: string(data[keyedSize:])}
	return r.Text(), ect.ID(r.Text()), true, nil
}

// Remember keeps the last ECT of a conversation; under the empty key it keeps nothing. If the store
// or the share of the owner is full, it drops the conversation that was idle for longest, of all or
// of this owner. The next turn of that conversation begins a lineage of its own.
func (c *Conversations) Remember(_ context.Context, key, workflow string, id ect.ID) {
	if key == "" {
		return
	}
	k, owner := conversationOf(key)
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	until := now.Add(c.lifetime)
	var scratch [256]byte
	if o := c.owners[owner]; o.count >= c.share && c.turns.byKey.Find(k) == nil {
		c.turns.drop(o.oldest, *c.turns.byKey.Find(o.oldest))
		c.turns.evicted++
	}
	if c.turns.add(k, turn{}, until, now, appendTurn(scratch[:0], until, k, workflow, id)) {
		c.link(k)
	}
}

// Usage says how full the memory is.
func (c *Conversations) Usage() Usage {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.turns.usage()
}

func (c *Conversations) restore(e keyed, serial uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	restored := c.turns.restore(e.key, turn{}, serial, e.until, c.now(), e.whole)
	if restored {
		c.link(e.key)
	}
	return restored
}

func (c *Conversations) sweep(most int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turns.clean(c.now(), most)
}
