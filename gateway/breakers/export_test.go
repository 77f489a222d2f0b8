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

// Coordinated is of how many agents openings are remembered.
func (s *Set) Coordinated() int {
	s.coordination.mu.Lock()
	defer s.coordination.mu.Unlock()
	return len(s.coordination.agents)
}
