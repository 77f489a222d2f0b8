package breakers

// Count is how many breakers there are.
func (s *Set) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}
