package oauth

import (
	"crypto"
	"crypto/sha256"
	"sync"

	"github.com/aepb/aepb-gateway/ect/internal/jose"
)

// rememberedHalf is how many tokens are remembered that were verified last, and once more as many before them.
const rememberedHalf = 2048

// genuine remembers which tokens a key has verified: a caller shows one for its whole life, and to verify a
// signature costs a tenth of a call. Claims are judged each time. It is safe for concurrent use.
type genuine struct {
	mu           sync.Mutex
	last, before map[[sha256.Size]byte]crypto.PublicKey
}

// verify reports whether the key signed a token.
func (g *genuine) verify(token *jose.JWT, compact string, key crypto.PublicKey) bool {
	name := sha256.Sum256([]byte(compact))
	if g.knows(name, key) {
		return true
	}
	if !token.Verify(key) {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.last == nil || len(g.last) >= rememberedHalf {
		g.last, g.before = map[[sha256.Size]byte]crypto.PublicKey{}, g.last
	}
	g.last[name] = key
	return true
}

func (g *genuine) knows(name [sha256.Size]byte, key crypto.PublicKey) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	by, known := g.last[name]
	if !known {
		by, known = g.before[name]
	}
	same, ok := key.(interface {
		Equal(other crypto.PublicKey) bool
	})
	return known && ok && same.Equal(by)
}
