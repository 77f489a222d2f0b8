package identity

import (
	"container/list"
	"crypto"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect"
)

// judged is what verification said about a chain and for how long it holds.
type judged struct {
	peer        ect.Peer
	thumbprint  string
	from, until time.Time // the whole chain, anchor included, is valid at both ends and between
	anchors     uint64    // the bundle's change counter when it was judged
}

// newJudged takes the path that verified, leaf first, anchor last.
func newJudged(id ect.Identity, path []*x509.Certificate, anchors uint64) judged {
	leaf, life := path[0], lifeOf(path)
	return judged{
		peer:       ect.Peer{ID: id, Key: leaf.PublicKey},
		thumbprint: thumbprint(leaf.PublicKey),
		from:       life.From, until: life.Until,
		anchors: anchors,
	}
}

func (j judged) covers(at time.Time) bool { return !at.Before(j.from) && !at.After(j.until) }

// chainCache holds the chains used last. Only verified chains get in, so a caller
// without a trusted SVID cannot evict others.
type chainCache struct {
	limit int

	mu     sync.Mutex
	order  *list.List // of *known, most recently used first
	byName map[[sha256.Size]byte]*list.Element
}

type known struct {
	name [sha256.Size]byte
	what judged
}

func newChainCache(limit int) *chainCache {
	return &chainCache{limit: limit, order: list.New(), byName: make(map[[sha256.Size]byte]*list.Element)}
}

func (c *chainCache) get(name [sha256.Size]byte) (judged, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	element, ok := c.byName[name]
	if !ok {
		return judged{}, false
	}
	c.order.MoveToFront(element)
	return element.Value.(*known).what, true
}

func (c *chainCache) put(name [sha256.Size]byte, what judged) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old, ok := c.byName[name]; ok {
		c.order.Remove(old)
	}
	c.byName[name] = c.order.PushFront(&known{name: name, what: what})
	for c.order.Len() > c.limit {
		last := c.order.Remove(c.order.Back()).(*known)
		delete(c.byName, last.name)
	}
}

// printCache remembers the thumbprints of keys of connections: each is parsed once
// for its connection, and asked for with each token that comes over it.
type printCache struct {
	limit int

	mu sync.Mutex
	of map[*ecdsa.PublicKey]string
}

func (c *printCache) get(key crypto.PublicKey) string {
	public, ok := key.(*ecdsa.PublicKey)
	if !ok {
		return thumbprint(key)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	found, ok := c.of[public]
	if !ok {
		if len(c.of) >= c.limit || c.of == nil {
			c.of = map[*ecdsa.PublicKey]string{}
		}
		found = thumbprint(public)
		c.of[public] = found
	}
	return found
}
