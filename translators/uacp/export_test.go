package uacp

// Evidence is Opened.Evidence of a frame's bytes.
func Evidence(data []byte) ([]string, error) {
	o, err := Open(data)
	if err != nil {
		return nil, err
	}
	return o.Evidence()
}

// WithEvidence is Opened.WithEvidence of a frame's bytes.
func WithEvidence(data []byte, tokens []string) ([]byte, error) {
	o, err := Open(data)
	if err != nil {
		return nil, err
	}
	return o.WithEvidence(tokens)
}
