package state

// Held is the octets of all pages.
func (a *Answers) Held() int { return heldBy(a.blobs) }

// HeldPages is the bytes of all pages.
func (t *Tokens) HeldPages() int { return heldBy(t.records) }

func heldBy[M any](x *shelf[M]) (octets int) {
	for _, b := range x.boards {
		for _, page := range b.pages {
			octets += cap(page)
		}
	}
	return octets
}

// Heads is how many headers are kept apart from their tokens.
func (t *Tokens) Heads() int { return len(t.heads.numbers) }
