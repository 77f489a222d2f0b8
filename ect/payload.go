package ect

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	maxParents = 100
	maxTime    = 253402300799 // the last second of the year 9999
)

// members is a payload with its values unread. pred and ect_ext are what later
// drafts call par and ext.
type members struct {
	iss, aud, iat, exp, nbf, jti, wid, act json.RawMessage
	par, pred, inp, out, ext, ectExt       json.RawMessage
}

func (m *members) where(name []byte) *json.RawMessage {
	switch string(name) {
	case "iss":
		return &m.iss
	case "aud":
		return &m.aud
	case "iat":
		return &m.iat
	case "exp":
		return &m.exp
	case "nbf":
		return &m.nbf
	case "jti":
		return &m.jti
	case "wid":
		return &m.wid
	case "exec_act":
		return &m.act
	case "par":
		return &m.par
	case "pred":
		return &m.pred
	case "inp_hash":
		return &m.inp
	case "out_hash":
		return &m.out
	case "ext":
		return &m.ext
	case "ect_ext":
		return &m.ectExt
	}
	return nil
}

// missing is the first required claim that is not there. Without a signature
// nobody's name is worth demanding, so L1 needs neither iss nor aud.
func (m *members) missing(level Level) *fault {
	for _, required := range [...]struct {
		claim string
		raw   json.RawMessage
		from  Level
	}{
		{"iss", m.iss, L2},
		{"aud", m.aud, L2},
		{"iat", m.iat, L1},
		{"exp", m.exp, L1},
		{"jti", m.jti, L1},
		{"exec_act", m.act, L1},
		{"par", m.par, L1},
	} {
		if required.raw == nil && level >= required.from {
			return &fault{ReasonMissingClaim, required.claim}
		}
	}
	return nil
}

// readPayload fills the claims as far as they can be read, for finding the
// key, and keeps the first fault for later. Its error is about the JSON.
func (p *parsed) readPayload(s *scanner, raw []byte) error {
	var m members
	if err := s.object(raw, "payload", m.where); err != nil {
		return err
	}
	p.fault = m.missing(p.level)
	r := reader{s, &p.fault}
	c := &p.claims
	c.Issuer = Identity(r.text("iss", m.iss))
	c.Audience = r.audience(m.aud)
	c.IssuedAt = r.time("iat", m.iat)
	c.Expires = r.time("exp", m.exp)
	p.notBefore = r.time("nbf", m.nbf)
	c.ID = ID(r.text("jti", m.jti))
	c.Workflow = r.text("wid", m.wid)
	c.Act = Act(r.text("exec_act", m.act))
	c.Parents = r.parents(m.par, m.pred)
	c.InputHash = r.text("inp_hash", m.inp)
	c.OutputHash = r.text("out_hash", m.out)
	c.Ext = r.ext(m.ext, m.ectExt)
	if p.fault == nil {
		p.fault = c.fault(p.level, m.ext)
	}
	return nil
}

// reader turns raw values into typed ones; the first that has the wrong type
// is the fault. An absent value is nobody's fault here.
type reader struct {
	scan  *scanner
	fault **fault
}

func (r reader) fail(reason Reason, claim string) {
	if *r.fault == nil {
		*r.fault = &fault{reason, claim}
	}
}

// text reads a string. A claim that is there is never empty.
func (r reader) text(claim string, raw json.RawMessage) string {
	text, ok := unquote(raw)
	if raw != nil && (!ok || text == "") {
		r.fail(ReasonInvalidClaim, claim)
	}
	return text
}

// time reads a NumericDate in whole seconds: a fraction or exponent is refused.
func (r reader) time(claim string, raw json.RawMessage) int64 {
	if raw == nil {
		return 0
	}
	seconds, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || seconds <= 0 || seconds > maxTime {
		r.fail(ReasonInvalidClaim, claim)
		return 0
	}
	return seconds
}

// audience reads one string or an array of them (RFC 7519 section 4.1.3).
func (r reader) audience(raw json.RawMessage) []string {
	if raw == nil {
		return nil
	}
	if one, ok := unquote(raw); ok {
		return []string{one}
	}
	many, ok := unquoteAll[string](r.scan, raw)
	if !ok {
		r.fail(ReasonInvalidClaim, "aud")
	}
	return many
}

// parents reads par. A token written for readers of every draft repeats it as
// pred; two different lists have no one meaning.
func (r reader) parents(par, pred json.RawMessage) []ID {
	if par == nil {
		return nil
	}
	list, ok := unquoteAll[ID](r.scan, par)
	if !ok {
		r.fail(ReasonInvalidClaim, "par")
		return nil
	}
	if pred == nil {
		return list
	}
	if again, ok := unquoteAll[ID](r.scan, pred); !ok || !slices.Equal(list, again) {
		r.fail(ReasonConflictingParents, "pred")
	}
	return list
}

// ext reads the extension object, likewise. One under the later name alone is
// refused rather than overlooked: it may hold what the reader must obey.
func (r reader) ext(ext, ectExt json.RawMessage) Ext {
	switch {
	case ext == nil && ectExt == nil:
		return nil
	case ext == nil:
		r.fail(ReasonInvalidClaim, "ect_ext")
		return nil
	case ectExt != nil && !sameJSON(ext, ectExt):
		r.fail(ReasonConflictingExt, "ect_ext")
	}
	object, ok := readExt(r.scan, ext)
	if !ok {
		r.fail(ReasonInvalidClaim, "ext")
	}
	return object
}

// readExt keeps the values as slices of the payload, which nobody writes to.
func readExt(s *scanner, raw json.RawMessage) (Ext, bool) {
	if raw[0] != '{' {
		return nil, false
	}
	object := Ext{}
	var name string
	var value json.RawMessage
	keep := func() {
		if value != nil {
			object[name] = value
		}
	}
	err := s.object(raw, "ext", func(next []byte) *json.RawMessage {
		keep()
		name = string(next)
		return &value
	})
	keep()
	return object, err == nil
}

// sameJSON compares without regard to white space, string escapes and the
// order of members; numbers must be spelled alike, so that none is rounded.
func sameJSON(a, b json.RawMessage) bool {
	return bytes.Equal(a, b) || bytes.Equal(ordered(a), ordered(b))
}

func ordered(raw json.RawMessage) []byte {
	value := jsontext.Value(bytes.Clone(raw))
	_ = value.Compact(jsontext.ReorderRawObjects(true), jsontext.PreserveRawStrings(false)) // passed the scan
	return value
}

// fault judges the values of claims, whether just read or about to be signed.
// ext is the extension object as it is or will be written.
func (c *Claims) fault(level Level, ext json.RawMessage) *fault {
	signed := level > L1
	for _, check := range [...]struct {
		claim string
		ok    bool
	}{
		{"iss", !signed && c.Issuer == "" || isText(c.Issuer)},
		{"aud", !signed && len(c.Audience) == 0 || isAudience(c.Audience)},
		{"iat", c.IssuedAt > 0 && c.IssuedAt <= maxTime},
		{"exp", c.Expires > c.IssuedAt && c.Expires <= maxTime},
		{"jti", isUUID(string(c.ID))},
		{"wid", c.Workflow == "" || isUUID(c.Workflow)},
		{"exec_act", isText(c.Act)},
		{"par", isLineage(c.Parents, c.ID)},
		{"inp_hash", c.InputHash == "" || isHash(c.InputHash)},
		{"out_hash", c.OutputHash == "" || isHash(c.OutputHash)},
		{"ext", len(ext) <= MaxExtSize && !deeper(ext, MaxExtDepth)},
	} {
		if !check.ok {
			return &fault{ReasonInvalidClaim, check.claim}
		}
	}
	return nil
}

func isText[T ~string](text T) bool { return text != "" && utf8.ValidString(string(text)) }

func isAudience(ids []string) bool {
	for _, id := range ids {
		if !isText(id) {
			return false
		}
	}
	return len(ids) > 0
}

// isLineage accepts a bounded list of different UUIDs, none of them the token's own.
func isLineage(parents []ID, own ID) bool {
	if len(parents) > maxParents {
		return false
	}
	for i, id := range parents {
		if !isUUID(string(id)) || strings.EqualFold(string(id), string(own)) {
			return false
		}
		for _, other := range parents[:i] {
			if strings.EqualFold(string(id), string(other)) {
				return false
			}
		}
	}
	return true
}

// selfAsserted judges an unsigned token. The connection is the only proof of
// who made it, so a name in it must be the peer's; and no translation is
// believed without a signature (AEPB, "Gateway Requirements" 7).
func (p *parsed) selfAsserted(peer Peer) error {
	if p.fault != nil {
		return nil // reported by the caller, as for a signed token
	}
	if p.claims.Act.Translation() {
		return p.invalid(ReasonLevelTooLow, "exec_act")
	}
	if p.claims.Issuer != "" && p.claims.Issuer != peer.ID {
		return p.invalid(ReasonIssuerMismatch, "iss")
	}
	return nil
}

// appendTo writes the payload in the seed dialect. ext is the extension object
// as marshal made it; nil: none.
func (c *Claims) appendTo(dst []byte, ext json.RawMessage) []byte {
	dst = quote(append(dst, `{"iss":`...), c.Issuer)
	dst = append(dst, `,"aud":`...)
	if len(c.Audience) == 1 {
		dst = quote(dst, c.Audience[0])
	} else {
		dst = quoteAll(dst, c.Audience)
	}
	dst = strconv.AppendInt(append(dst, `,"iat":`...), c.IssuedAt, 10)
	dst = strconv.AppendInt(append(dst, `,"exp":`...), c.Expires, 10)
	dst = quote(append(dst, `,"jti":`...), c.ID)
	dst = appendOptional(dst, `,"wid":`, c.Workflow)
	dst = quote(append(dst, `,"exec_act":`...), c.Act)
	dst = quoteAll(append(dst, `,"par":`...), c.Parents)
	dst = appendOptional(dst, `,"inp_hash":`, c.InputHash)
	dst = appendOptional(dst, `,"out_hash":`, c.OutputHash)
	if ext != nil {
		dst = append(append(dst, `,"ext":`...), ext...)
	}
	return append(dst, '}')
}

func appendOptional(dst []byte, name, value string) []byte {
	if value == "" {
		return dst
	}
	return quote(append(dst, name...), value)
}

// marshal serialises the extension object; nil if it is empty. Every value must
// be one JSON value by itself, or it could smuggle in members.
func (e Ext) marshal() (json.RawMessage, error) {
	if len(e) == 0 {
		return nil, nil
	}
	for key, value := range e {
		if !utf8.ValidString(key) || !jsontext.Value(value).IsValid() {
			return nil, fmt.Errorf("%w: an extension value is not JSON", ErrUnsignable)
		}
	}
	return e.appendTo(nil), nil
}
