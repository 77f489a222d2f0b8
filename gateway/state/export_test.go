package state

// Reserved is the bytes of all pages.
func (a *Answers) Held() int { return heldBy(a.blobs) }

func heldBy[M any](x *boundedMap[M]) (bytes int) {
	for _, b := range x.boards {
		for _, page := range b.pages {
			bytes += cap(page)
		}
	}
	return bytes
}
