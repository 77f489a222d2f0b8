package breakers

// Count is how many breakers there are.
func (s *Set) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}

// Callers is how many callers an agent's breaker remembers.
func (s *Set) Callers(agent string) int {
	d := s.known(key{"agent", agent, ""})
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.callers)
}
