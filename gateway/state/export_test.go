package state

// Reserved is the bytes of all pages.
func (a *Answers) Held() int { return heldBy(a.blobs) }

func heldBy[M any](x *boundedMap[M]) (octets int) {
	for _, b := range x.boards {
		for _, page := range b.pages {
			octets += cap(page)
		}
	}
	return octets
}
