package ainp

// Evidence is Envelope.Evidence of a body.
func Evidence(body []byte) ([]string, error) {
	e, err := Open(body)
	if err != nil {
		return nil, err
	}
	return e.Evidence()
}

// WithEvidence is Envelope.WithEvidence of a body, without a signature.
func WithEvidence(body []byte, tokens []string) ([]byte, error) {
	e, err := Open(body)
	if err != nil {
		return nil, err
	}
	return evidenced(e.body, tokens, "")
}

// ReadHead is Envelope.Head of a body.
func ReadHead(body []byte) (Head, error) {
	e, err := Open(body)
	if err != nil {
		return Head{}, err
	}
	return e.Head()
}
