package credentials

import (
	"container/list"
	"crypto/sha256"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/ect"
)

// Bounds of the tokens of callers.
const (
	maxTokens      = 4096
	maxTokensBytes = 8 << 20
	maxCallers     = 16 // tokens of one caller
)

// tokenKey is for whom a token is.
type tokenKey struct {
	agent   string
	caller  ect.Identity
	subject [sha256.Size]byte // hash of the token that it was exchanged for; zero: it is the gateway's own
}

// token is one that was fetched, or why it was not. It is not changed.
type token struct {
	value   string
	fetched time.Time
	renew   time.Time // from when on the next use has it renewed
	ends    time.Time
	err     error // in place of a value; it holds until ends
}

// cache is a bounded table of tokens. It is not safe for concurrent use.
type cache struct {
	table   map[tokenKey]*list.Element
	order   *list.List // of *cached, the one that was used last in front
	callers map[ect.Identity][]tokenKey
	bytes   int
}

type cached struct {
	key   tokenKey
	token token
}

func newCache() *cache {
	return &cache{table: map[tokenKey]*list.Element{}, order: list.New(), callers: map[ect.Identity][]tokenKey{}}
}

// get finds a token and counts its use.
func (c *cache) get(key tokenKey) (token, bool) {
	at, ok := c.table[key]
	if !ok {
		return token{}, false
	}
	c.order.MoveToFront(at)
	own := c.callers[key.caller]
	i := slices.Index(own, key)
	c.callers[key.caller] = append(slices.Delete(own, i, i+1), key)
	return at.Value.(*cached).token, true //nolint:forcetypeassert // nothing else is in the list
}

// put takes a token in, and lets go of those that were used least recently: of the same caller, then of all.
func (c *cache) put(key tokenKey, t token) {
	c.drop(key)
	for len(c.callers[key.caller]) >= maxCallers {
		c.drop(c.callers[key.caller][0])
	}
	for len(c.table) > 0 && (len(c.table) >= maxTokens || c.bytes+len(t.value) > maxTokensBytes) {
		c.drop(c.order.Back().Value.(*cached).key) //nolint:forcetypeassert // the same
	}
	c.table[key] = c.order.PushFront(&cached{key, t})
	c.callers[key.caller] = append(c.callers[key.caller], key)
	c.bytes += len(t.value)
}

// drop lets go of a token.
func (c *cache) drop(key tokenKey) {
	at, ok := c.table[key]
	if !ok {
		return
	}
	c.bytes -= len(c.order.Remove(at).(*cached).token.value) //nolint:forcetypeassert // the same
	delete(c.table, key)
	own := c.callers[key.caller]
	i := slices.Index(own, key)
	if own = slices.Delete(own, i, i+1); len(own) == 0 {
		delete(c.callers, key.caller)
		return
	}
	c.callers[key.caller] = own
}

// dropAgents lets go of the tokens of agents.
func (c *cache) dropAgents(gone func(agent string) bool) {
	for key := range c.table {
		if gone(key.agent) {
			c.drop(key)
		}
	}
}
