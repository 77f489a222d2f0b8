package ect

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/aepb/aepb-gateway/ect/internal/jose"
)

const maxParents = 100

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

// parents is the list of parents under whichever name it goes; nil: neither.
func (m *members) parents() json.RawMessage {
	if m.par != nil {
		return m.par
	}
	return m.pred
}

// extension is the extension object likewise, the longer text of two.
func (m *members) extension() json.RawMessage {
	if len(m.ectExt) > len(m.ext) {
		return m.ectExt
	}
	return m.ext
}

// missing returns the first required claim that is absent. Without a signature a name
// proves nothing, so L1 needs neither iss nor aud.
func (m *members) missing(level Level, lenient Lenient) *fault {
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
		{"par", m.parents(), L1},
	} {
		if required.claim == "par" && lenient.NoParents {
			continue
		}
		if required.raw == nil && level >= required.from {
			return &fault{ReasonMissingClaim, required.claim}
		}
	}
	return nil
}

// readPayload fills the claims as far as they can be read, for finding the
// key, and keeps the first fault for later. Its error is about the JSON.
func (p *parsed) readPayload(s *jose.Scanner, raw []byte, lenient Lenient) error {
	var m members
	if err := s.Object(raw, "payload", m.where); err != nil {
		return err
	}
	p.dialect = dialectOf(jose.MediaType(p.header.Type) == mediaWIMSE, &m)
	p.fault = m.missing(p.level, lenient)
	r := reader{s, &p.fault, lenient}
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
	c.InputHash = r.hash("inp_hash", m.inp)
	c.OutputHash = r.hash("out_hash", m.out)
	c.Ext = r.ext(m.ext, m.ectExt)
	if p.fault == nil {
		p.fault = c.fault(p.level, m.extension())
	}
	return nil
}

// reader turns raw values into typed ones. The first value of a wrong type is the fault.
// An absent value is no fault here.
type reader struct {
	scan    *jose.Scanner
	fault   **fault
	lenient Lenient
}

func (r reader) fail(reason Reason, claim string) {
	if *r.fault == nil {
		*r.fault = &fault{reason, claim}
	}
}

// text reads a string. A claim that is there is never empty.
func (r reader) text(claim string, raw json.RawMessage) string {
	text, ok := jose.Unquote(raw)
	if raw != nil && (!ok || text == "") {
		r.fail(ReasonInvalidClaim, claim)
	}
	return text
}

// hash reads a hash; that it is one is judged with all the others.
func (r reader) hash(claim string, raw json.RawMessage) string {
	text := r.text(claim, raw)
	if !r.lenient.HashPrefix {
		return text
	}
	bare, prefixed := strings.CutPrefix(text, "sha-256:")
	if prefixed && bare == "" { // not the same as no hash
		r.fail(ReasonInvalidClaim, claim)
	}
	return bare
}

// time reads a NumericDate in whole seconds: a fraction or exponent is refused.
func (r reader) time(claim string, raw json.RawMessage) int64 {
	seconds, ok := jose.Time(raw)
	if raw != nil && !ok {
		r.fail(ReasonInvalidClaim, claim)
	}
	return seconds
}

// audience reads one string or an array of them (RFC 7519 section 4.1.3).
func (r reader) audience(raw json.RawMessage) []string {
	if raw == nil {
		return nil
	}
	if one, ok := jose.Unquote(raw); ok {
		return []string{one}
	}
	many, ok := jose.UnquoteAll[string](r.scan, raw)
	if !ok {
		r.fail(ReasonInvalidClaim, "aud")
	}
	return many
}

// parents reads par, or pred as later revisions call it. A token written for
// readers of all of them has both; two different lists have no one meaning.
func (r reader) parents(par, pred json.RawMessage) []ID {
	claim, raw, twin := "par", par, pred
	if par == nil {
		claim, raw, twin = "pred", pred, nil
	}
	if raw == nil {
		return []ID{}
	}
	list, ok := jose.UnquoteAll[ID](r.scan, raw)
	if !ok {
		r.fail(ReasonInvalidClaim, claim)
		return nil
	}
	if twin == nil {
		return list
	}
	if again, ok := jose.UnquoteAll[ID](r.scan, twin); !ok || !slices.Equal(list, again) {
		r.fail(ReasonConflictingParents, "pred")
	}
	return list
}

// ext reads the extension object, or ect_ext, likewise.
func (r reader) ext(ext, ectExt json.RawMessage) Ext {
	claim, raw, twin := "ext", ext, ectExt
	if ext == nil {
		claim, raw, twin = "ect_ext", ectExt, nil
	}
	if raw == nil {
		return nil
	}
	if twin != nil && !jose.Same(raw, twin) {
		r.fail(ReasonConflictingExt, "ect_ext")
	}
	if raw[0] != '{' {
		r.fail(ReasonInvalidClaim, claim)
		return nil
	}
	object, err := r.scan.Members(raw, claim) // slices of the payload, which is read-only
	if err != nil {
		r.fail(ReasonInvalidClaim, claim)
	}
	return object
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
		{"iat", c.IssuedAt > 0 && c.IssuedAt <= jose.MaxTime},
		{"exp", c.Expires > c.IssuedAt && c.Expires <= jose.MaxTime},
		{"jti", isUUID(string(c.ID))},
		{"wid", c.Workflow == "" || isUUID(c.Workflow)},
		{"exec_act", isText(c.Act)},
		{"par", isLineage(c.Parents, c.ID)},
		{"inp_hash", c.InputHash == "" || isHash(c.InputHash)},
		{"out_hash", c.OutputHash == "" || isHash(c.OutputHash)},
		{"ext", len(ext) <= MaxExtSize && !jose.Deeper(ext, MaxExtDepth)},
	} {
		if !check.ok {
			return &fault{ReasonInvalidClaim, check.claim}
		}
	}
	return nil
}

func isText[T ~string](text T) bool { return text != "" && utf8.ValidString(string(text)) }

func isAudience(ids []string) bool {
	return len(ids) > 0 && !slices.ContainsFunc(ids, func(id string) bool { return !isText(id) })
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

// appendTo writes the payload in a dialect's spelling. ext is the extension
// object as marshal made it; nil: none. What goes by two names is made once.
func (c *Claims) appendTo(dst []byte, ext json.RawMessage, as spelling) []byte {
	dst = jose.Quote(append(dst, `{"iss":`...), c.Issuer)
	dst = append(dst, `,"aud":`...)
	if len(c.Audience) == 1 {
		dst = jose.Quote(dst, c.Audience[0])
	} else {
		dst = jose.QuoteAll(dst, c.Audience)
	}
	dst = strconv.AppendInt(append(dst, `,"iat":`...), c.IssuedAt, 10)
	dst = strconv.AppendInt(append(dst, `,"exp":`...), c.Expires, 10)
	dst = jose.Quote(append(dst, `,"jti":`...), c.ID)
	dst = appendOptional(dst, `,"wid":`, c.Workflow)
	dst = jose.Quote(append(dst, `,"exec_act":`...), c.Act)
	dst = append(dst, as.parents[0]...)
	parents := len(dst)
	dst = jose.QuoteAll(dst, c.Parents)
	if twin := as.parents[1]; twin != "" {
		list := dst[parents:]
		dst = append(append(dst, twin...), list...)
	}
	dst = appendOptional(dst, `,"inp_hash":`, c.InputHash)
	dst = appendOptional(dst, `,"out_hash":`, c.OutputHash)
	for _, name := range as.ext {
		if ext != nil && name != "" {
			dst = append(append(dst, name...), ext...)
		}
	}
	return append(dst, '}')
}

func appendOptional(dst []byte, name, value string) []byte {
	if value == "" {
		return dst
	}
	return jose.Quote(append(dst, name...), value)
}

// marshal serialises the extension object; nil if it is empty. Every value must
// be one JSON value by itself, or it could smuggle in members.
func (e Ext) marshal() (json.RawMessage, error) {
	if len(e) == 0 {
		return nil, nil
	}
	for key, value := range e {
		if !utf8.ValidString(key) || !plainText(value) && !jsontext.Value(value).IsValid() {
			return nil, fmt.Errorf("%w: an extension value is not JSON", ErrUnsignable)
		}
	}
	return e.appendTo(nil), nil
}

// plainText is true of a JSON string of ASCII without escapes, as most values
// are; to ask a parser costs ten times as much.
func plainText(value json.RawMessage) bool {
	if len(value) < 2 || value[0] != '"' || value[len(value)-1] != '"' {
		return false
	}
	for _, c := range value[1 : len(value)-1] {
		if c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}
