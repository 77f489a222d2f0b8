package directory

// Visitors is how many agents callers have named that are remembered.
func (d *Directory) Visitors() int {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return max(len(d.visitors), len(d.order), len(d.resolved))
}

// KeptAnswers is how many answers of other gateways are kept.
func (d *Directory) KeptAnswers() int {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return len(d.answers)
}
