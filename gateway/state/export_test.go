package state

// Held is the octets of all pages.
func (a *Answers) Held() (octets int) {
	for _, b := range a.blobs.boards {
		for _, page := range b.pages {
			octets += cap(page)
		}
	}
	return octets
}

// Heads is how many headers are kept apart from their tokens.
func (t *Tokens) Heads() int { return len(t.heads.numbers) }
