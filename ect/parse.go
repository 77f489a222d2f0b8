package ect

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"github.com/aepb/aepb-gateway/ect/internal/jose"
)

// maxUnverified is what ParseUnverified reads; a Verifier reads far less.
const maxUnverified = 64 << 10

// fault is the first error in the claims of a well-formed token. Verify returns it only
// after the signature was verified, because unsigned claims may be forged.
type fault struct {
	reason Reason
	claim  string
}

// parsed is a token taken apart, not yet believed.
type parsed struct {
	compact   string
	level     Level
	dialect   Dialect
	signed    string // header and payload as received, which the signature covers
	encoded   string // the header as received; empty: it is a known one, or there is none
	signature []byte
	header    Header
	critical  bool
	claims    Claims
	notBefore int64
	fault     *fault
}

// ParseUnverified reads a token without believing it: no signature, audience,
// time or replay check. It is for showing tokens and for choosing among them;
// nothing in its result is evidence. It overlooks whatever some verifier may
// (see Lenient). Errors as of Verify.
func ParseUnverified(compact string) (Claims, Header, error) {
	p, err := parse(&jose.Scanner{}, nil, compact, maxUnverified, Lenient{HashPrefix: true, NoParents: true})
	if err != nil {
		return Claims{}, Header{}, err
	}
	if p.level > L1 {
		if f := p.headerFault(algorithms); f != nil {
			return Claims{}, Header{}, p.invalid(f.reason, f.claim)
		}
	}
	if p.fault != nil {
		return Claims{}, Header{}, p.invalid(p.fault.reason, p.fault.claim)
	}
	return p.claims, p.header, nil
}

// RecordParser reads tokens on record. They were verified before they were recorded, so a
// header, which costs much of the time of [ParseUnverified], is not read. Never use it for a
// token from outside. The zero value is ready; one parser for many tokens saves memory. It
// is not safe for concurrent use.
type RecordParser struct{ scan jose.Scanner }

// ParseRecorded reads one token with a [RecordParser].
func ParseRecorded(compact string) (Claims, error) { return new(RecordParser).Parse(compact) }

// Parse reads the claims of a token. Errors as of [ParseUnverified].
func (r *RecordParser) Parse(compact string) (Claims, error) {
	if err := checkShape(compact, maxUnverified); err != nil {
		return Claims{}, err
	}
	p := &parsed{compact: compact, level: L1}
	payload := compact
	if _, rest, signed := strings.Cut(compact, "."); signed {
		payload, _, _ = strings.Cut(rest, ".")
		p.level = L2
	}
	raw, err := jose.Decode(payload, "payload")
	if err != nil {
		return Claims{}, malformed(err)
	}
	if err := p.readPayload(&r.scan, raw, Lenient{HashPrefix: true, NoParents: true}); err != nil {
		return Claims{}, malformed(err)
	}
	if p.fault != nil {
		return Claims{}, p.invalid(p.fault.reason, p.fault.claim)
	}
	return p.claims, nil
}

// parse tells the two forms apart by their dots. A token that looks signed and
// is not is never tried as an unsigned one: the level is not the sender's choice.
func parse(s *jose.Scanner, known *headers, compact string, limit int, lenient Lenient) (*parsed, error) {
	if err := checkShape(compact, limit); err != nil {
		return nil, err
	}
	p := &parsed{compact: compact, level: L1}
	if err := p.read(s, known, lenient); err != nil {
		return nil, malformed(err)
	}
	return p, nil
}

func (p *parsed) read(s *jose.Scanner, known *headers, lenient Lenient) error {
	payload := p.compact
	if header, rest, signed := strings.Cut(p.compact, "."); signed {
		var signature string
		payload, signature, _ = strings.Cut(rest, ".")
		p.level, p.signed = L2, p.compact[:len(header)+1+len(payload)]
		var err error
		if err := p.openHeader(s, known, header); err != nil {
			return err
		}
		if p.signature, err = jose.Decode(signature, "signature"); err != nil {
			return err
		}
	}
	raw, err := jose.Decode(payload, "payload")
	if err != nil {
		return err
	}
	return p.readPayload(s, raw, lenient)
}

// malformed says in our words what package jose could not read.
func malformed(err error) error {
	if _, reason, ok := jose.Unreadable(err); ok {
		return &MalformedError{Reason: reason}
	}
	return err
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
	return Verified{compact: p.compact, claims: p.claims, header: p.header, level: p.level, dialect: p.dialect}
}

// openHeader reads a header, unless it is a known one.
func (p *parsed) openHeader(s *jose.Scanner, known *headers, encoded string) error {
	if header, ok := known.find(encoded); ok {
		p.header = header
		return nil
	}
	p.encoded = encoded
	raw, err := jose.Decode(encoded, "header")
	if err != nil {
		return err
	}
	return p.readHeader(s, raw)
}

// maxHeaders bounds what is remembered; each is smaller than a token.
const maxHeaders = 256

// headers caches the parsed headers of verified tokens. A signer puts the same
// header, with its certificates, before each of its tokens, and parsing it costs
// more than parsing the rest. Only the header of a token with a valid signature is
// cached, so forged tokens cannot fill the cache. It is safe for concurrent use.
type headers struct {
	mu    sync.RWMutex
	known map[string]Header // by their encoded form; the values are read-only
}

// find is false for nil, which knows none.
func (h *headers) find(encoded string) (Header, bool) {
	if h == nil {
		return Header{}, false
	}
	h.mu.RLock()
	defer h.mu.RUnlock()
	header, ok := h.known[encoded]
	return header, ok
}

// learn caches the header of an authentic token. If the cache is full it is emptied first:
// the headers in use come back with their next token.
func (h *headers) learn(p *parsed) {
	if p.encoded == "" {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.known == nil || len(h.known) >= maxHeaders {
		h.known = make(map[string]Header)
	}
	h.known[strings.Clone(p.encoded)] = p.header
}

// readHeader keeps a typ or alg that is no string empty: headerFault refuses both.
func (p *parsed) readHeader(s *jose.Scanner, raw []byte) error {
	var typ, alg, kid, x5c, crit json.RawMessage
	err := s.Object(raw, "header", func(name []byte) *json.RawMessage {
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
	p.header.Type, _ = jose.Unquote(typ)
	p.header.Algorithm, _ = jose.Unquote(alg)
	p.critical = crit != nil
	id, isText := jose.Unquote(kid)
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
func (p *parsed) readChain(s *jose.Scanner, raw json.RawMessage) error {
	certs, ok := jose.UnquoteAll[string](s, raw)
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

// The values of typ, without application/.
const (
	mediaExec  = "exec+jwt"
	mediaWIMSE = "wimse-exec+jwt"
)

// headerFault allows what is listed and nothing else. We understand no crit
// parameter, so any crit is refused (RFC 7515 section 4.1.11).
func (p *parsed) headerFault(allowed []string) *fault {
	switch jose.MediaType(p.header.Type) {
	case mediaExec, mediaWIMSE:
	default:
		return &fault{ReasonWrongType, "typ"}
	}
	if !slices.Contains(allowed, p.header.Algorithm) {
		return &fault{ReasonUnsupportedAlg, "alg"}
	}
	if p.critical {
		return &fault{ReasonUnsupportedCritical, "crit"}
	}
	return nil
}
