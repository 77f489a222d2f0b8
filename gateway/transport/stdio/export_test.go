package stdio

// Waiting is how many processes wait for a place.
func (h *Host) Waiting() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.queue)
}
