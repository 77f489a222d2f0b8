package state

import (
	"context"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect"
)

// Conversations remembers the last ECT of each conversation (R3), under a key
// that its caller makes of caller, agent and context. It is safe for
// concurrent use.
type Conversations struct {
	now      func() time.Time
	lifetime time.Duration

	mu    sync.RWMutex
	turns *shelf[none] // as appendTurn writes them
}

func newConversations(config Config, deps Deps) *Conversations {
	return &Conversations{
		now: deps.Now, lifetime: config.ConversationLifetime,
		turns: newShelf[none](KindConversation, config.MaxConversations, 0, deps.Journal),
	}
}

// Last finds the workflow of a conversation and its last ECT. Nothing is ever
// found under the empty key.
func (c *Conversations) Last(_ context.Context, key string) (workflow string, id ect.ID, ok bool) {
	k := digestOf(key)
	c.mu.RLock()
	defer c.mu.RUnlock()
	octets, _, ok := c.turns.get(k, c.now())
	if !ok {
		return "", "", false
	}
	r := reader{data: string(octets[keyedSize:])}
	return r.text(), ect.ID(r.text()), true
}

// Remember notes the last ECT of a conversation. Nothing is remembered under
// the empty key. When there is no room the conversation that rested longest
// goes; its next turn starts a lineage of its own.
func (c *Conversations) Remember(_ context.Context, key, workflow string, id ect.ID) {
	if key == "" {
		return
	}
	k := digestOf(key)
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	until := now.Add(c.lifetime)
	var scratch [256]byte
	c.turns.add(k, none{}, until, now, appendTurn(scratch[:0], until, k, workflow, id))
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
	return c.turns.restore(e.key, none{}, serial, e.until, c.now(), e.whole)
}

func (c *Conversations) sweep(most int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turns.clean(c.now(), most)
}
