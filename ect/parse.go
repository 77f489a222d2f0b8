package ect

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	maxDepth      = 128      // nesting of header and payload, members we ignore included
	maxUnverified = 64 << 10 // what ParseUnverified reads; a Verifier reads far less
)

// fault is the first thing found wrong with a well-formed token. It is kept
// until the signature holds: nobody is told about claims that nobody made.
type fault struct {
	reason Reason
	claim  string
}

// parsed is a token taken apart, not yet believed.
type parsed struct {
	compact   string
	level     Level
	signed    string // header and payload as received, which the signature covers
	signature []byte
	header    Header
	critical  bool
	claims    Claims
	notBefore int64
	fault     *fault
}

// ParseUnverified reads a token without believing it: no signature, audience,
// time or replay check. It is for showing tokens and for choosing among them;
// nothing in its result is evidence. Errors as of Verify.
func ParseUnverified(compact string) (Claims, Header, error) {
	p, err := parse(compact, maxUnverified)
	if err != nil {
		return Claims{}, Header{}, err
	}
	if p.level > L1 {
		if f := p.headerFault(); f != nil {
			return Claims{}, Header{}, p.invalid(f.reason, f.claim)
		}
	}
	if p.fault != nil {
		return Claims{}, Header{}, p.invalid(p.fault.reason, p.fault.claim)
	}
	return p.claims, p.header, nil
}

// parse tells the two forms apart by their dots. A token that looks signed and
// is not is never tried as an unsigned one: the level is not the sender's choice.
func parse(compact string, limit int) (*parsed, error) {
	if err := checkShape(compact, limit); err != nil {
		return nil, err
	}
	p, s := &parsed{compact: compact, level: L1}, &scanner{}
	strict := base64.RawURLEncoding.Strict()
	payload := compact
	if header, rest, signed := strings.Cut(compact, "."); signed {
		var signature string
		payload, signature, _ = strings.Cut(rest, ".")
		p.level, p.signed = L2, compact[:len(header)+1+len(payload)]
		raw, err := decode(strict, header, "header")
		if err != nil {
			return nil, err
		}
		if err := p.readHeader(s, raw); err != nil {
			return nil, err
		}
		if p.signature, err = decode(strict, signature, "signature"); err != nil {
			return nil, err
		}
	}
	raw, err := decode(strict, payload, "payload")
	if err != nil {
		return nil, err
	}
	return p, p.readPayload(s, raw)
}

// decode relies on checkShape for CR and LF, which the decoder would skip, and
// on strict mode for trailing bits: one token has one spelling.
func decode(strict *base64.Encoding, text, what string) ([]byte, error) {
	data, err := strict.DecodeString(text)
	if err != nil {
		return nil, &MalformedError{Reason: what + " is not base64url"}
	}
	return data, nil
}

// invalid names the token only by an id that is one: a jti is foreign text.
func (p *parsed) invalid(reason Reason, claim string) *InvalidError {
	e := &InvalidError{Reason: reason, Claim: claim}
	if isUUID(string(p.claims.ID)) {
		e.ID = p.claims.ID
	}
	return e
}

func (p *parsed) verified() Verified {
	return Verified{compact: p.compact, claims: p.claims, header: p.header, level: p.level}
}

// readHeader keeps a typ or alg that is no string empty: headerFault refuses both.
func (p *parsed) readHeader(s *scanner, raw []byte) error {
	var typ, alg, kid, x5c, crit json.RawMessage
	err := s.object(raw, "header", func(name []byte) *json.RawMessage {
		switch string(name) {
		case "typ":
			return &typ
		case "alg":
			return &alg
		case "kid":
			return &kid
		case "x5c":
			return &x5c
		case "crit":
			return &crit
		}
		return nil
	})
	if err != nil {
		return err
	}
	p.header.Type, _ = unquote(typ)
	p.header.Algorithm, _ = unquote(alg)
	p.critical = crit != nil
	id, isText := unquote(kid)
	if kid != nil && !isText {
		return &MalformedError{Reason: "kid is not a string"}
	}
	p.header.KeyID = id
	if x5c != nil {
		return p.readChain(s, x5c)
	}
	return nil
}

// readChain decodes x5c, which unlike everything else is padded base64 (RFC 7515 section 4.1.6).
func (p *parsed) readChain(s *scanner, raw json.RawMessage) error {
	certs, ok := unquoteAll[string](s, raw)
	if !ok || len(certs) == 0 {
		return &MalformedError{Reason: "x5c is not an array of certificates"}
	}
	strict := base64.StdEncoding.Strict()
	for _, cert := range certs {
		der, err := strict.DecodeString(cert)
		if err != nil || len(der) == 0 || strings.ContainsAny(cert, "\r\n") {
			return &MalformedError{Reason: "x5c is not base64"}
		}
		p.header.Chain = append(p.header.Chain, der)
	}
	return nil
}

// headerFault allows what is listed and nothing else. We understand no crit
// parameter, so any crit is refused (RFC 7515 section 4.1.11).
func (p *parsed) headerFault() *fault {
	const application = "application/"
	typ := strings.ToLower(p.header.Type)
	switch strings.TrimPrefix(typ, application) {
	case "exec+jwt", "wimse-exec+jwt":
	default:
		return &fault{ReasonWrongType, "typ"}
	}
	if p.header.Algorithm != "ES256" {
		return &fault{ReasonUnsupportedAlg, "alg"}
	}
	if p.critical {
		return &fault{ReasonUnsupportedCritical, "crit"}
	}
	return nil
}

// scanner is a decoder that goes from one value to the next: to start anew with
// each would cost more than the reading.
type scanner struct {
	dec jsontext.Decoder
	buf bytes.Buffer
}

func (s *scanner) open(data []byte) *jsontext.Decoder {
	s.buf = *bytes.NewBuffer(data)
	s.dec.Reset(&s.buf)
	return &s.dec
}

// object walks the members of an object. where says in which variable the value
// of a name goes, nil for one that is ignored; names are exact. A name that
// stands twice anywhere, broken UTF-8 and data after the object are refused.
func (s *scanner) object(data []byte, what string, where func(name []byte) *json.RawMessage) error {
	if deeper(data, maxDepth) {
		return &MalformedError{Reason: what + " is nested too deep"}
	}
	dec := s.open(data)
	if tok, err := dec.ReadToken(); err != nil || tok.Kind() != '{' {
		return &MalformedError{Reason: what + " is not a JSON object"}
	}
	for dec.PeekKind() == '"' {
		quoted, err := dec.ReadValue()
		if err != nil {
			return syntax(err, what)
		}
		name, err := plain(quoted)
		if err != nil {
			return syntax(err, what)
		}
		target := where(name)
		value, err := dec.ReadValue()
		if err != nil {
			return syntax(err, what)
		}
		if target != nil {
			end := int(dec.InputOffset())
			*target = data[end-len(value) : end : end] // the decoder's own slice would not last
		}
	}
	if _, err := dec.ReadToken(); err != nil { // the closing brace, or what stands in its place
		return syntax(err, what)
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return &MalformedError{Reason: what + " has data after its object"}
	}
	return nil
}

func syntax(err error, what string) error {
	if errors.Is(err, jsontext.ErrDuplicateName) {
		return &MalformedError{Reason: what + " has a member twice"}
	}
	return &MalformedError{Reason: what + " is not valid JSON"}
}

// plain takes the quotes off; almost no name has an escape in it.
func plain(quoted []byte) ([]byte, error) {
	if inner := quoted[1 : len(quoted)-1]; bytes.IndexByte(inner, '\\') < 0 {
		return inner, nil
	}
	return jsontext.AppendUnquote(nil, quoted)
}

// deeper counts brackets outside strings, before a decoder recurses into them.
func deeper(data []byte, limit int) bool {
	depth, quoted := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > limit {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}
