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
