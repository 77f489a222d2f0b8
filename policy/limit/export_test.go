package limit

// Sources says how many identities and addresses are remembered.
func (l *Limiter) Sources() (identities, addresses int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.identities.recent.Len(), l.addresses.recent.Len()
}
