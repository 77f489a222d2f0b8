package main

import (
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// What tests ask of a body or a frame.

func ainpOpened[T any](body []byte, read func(ainp.Envelope) (T, error)) (out T, err error) {
	envelope, err := ainp.Open(body)
	if err != nil {
		return out, err
	}
	return read(envelope)
}

func ainpHead(body []byte) (ainp.Head, error) { return ainpOpened(body, ainp.Envelope.Head) }

func ainpEvidence(body []byte) ([]string, error) { return ainpOpened(body, ainp.Envelope.Evidence) }

func ainpWithEvidence(body []byte, tokens []string) ([]byte, error) {
	return ainpOpened(body, func(e ainp.Envelope) ([]byte, error) { return e.WithEvidence(tokens, "") })
}

func uacpOpened[T any](frame []byte, read func(uacp.Opened) (T, error)) (out T, err error) {
	opened, err := uacp.Open(frame)
	if err != nil {
		return out, err
	}
	return read(opened)
}

func uacpEvidence(frame []byte) ([]string, error) { return uacpOpened(frame, uacp.Opened.Evidence) }

func uacpWithEvidence(frame []byte, tokens []string) ([]byte, error) {
	return uacpOpened(frame, func(o uacp.Opened) ([]byte, error) { return o.WithEvidence(tokens) })
}
