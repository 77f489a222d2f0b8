package jose

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// MaxTime is the latest NumericDate read: the last second of the year 9999.
const MaxTime = 253402300799

// Hash is base64url(SHA-256(text)) without padding, as wth, ath, tth and
// thumbprints have it.
func Hash(text []byte) string {
	sum := sha256.Sum256(text)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// Decode reads unpadded base64url in its one canonical spelling. The decoder
// alone would skip line breaks and let stray bits pass.
func Decode(text, what string) ([]byte, error) {
	data, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || strings.IndexByte(text, '\r') >= 0 || strings.IndexByte(text, '\n') >= 0 {
		return nil, &unreadable{reason: what + " is not base64url"}
	}
	return data, nil
}

// MediaType is a typ in its short form: without application/, in lower case
// (RFC 7515 section 4.1.9).
func MediaType(typ string) string {
	return strings.TrimPrefix(strings.ToLower(typ), "application/")
}

// JWT is an ordinary signed JWT taken apart, not yet believed.
type JWT struct {
	Type      string // typ as MediaType makes it; empty: absent
	Algorithm string // alg; empty: absent
	KeyID     string // kid; empty: absent
	Critical  bool   // there is a crit: we understand none of its parameters
	Claims    *Claims

	signed    string
	signature []byte
}

// ParseJWT takes a JWT apart. Its errors are for Unreadable.
func ParseJWT(compact string, limit int) (*JWT, error) {
	if len(compact) > limit {
		return nil, &unreadable{Size, "the token is too long"}
	}
	part := strings.Split(compact, ".")
	if len(part) != 3 {
		return nil, &unreadable{Shape, "not the three parts of a token"}
	}
	header, err := Decode(part[0], "header")
	if err != nil {
		return nil, err
	}
	payload, err := Decode(part[1], "payload")
	if err != nil {
		return nil, err
	}
	t := &JWT{signed: compact[:len(part[0])+1+len(part[1])]}
	if t.signature, err = Decode(part[2], "signature"); err != nil {
		return nil, err
	}
	scan := &Scanner{}
	if err := t.readHeader(scan, header); err != nil {
		return nil, err
	}
	t.Claims, err = ParseClaims(scan, payload, "payload")
	return t, err
}

func (t *JWT) readHeader(scan *Scanner, raw []byte) error {
	members, err := scan.Members(raw, "header")
	if err != nil {
		return err
	}
	for _, text := range [...]struct {
		name string
		into *string
	}{{"typ", &t.Type}, {"alg", &t.Algorithm}, {"kid", &t.KeyID}} {
		raw, present := members[text.name]
		var isText bool
		if *text.into, isText = Unquote(raw); present && !isText {
			return &unreadable{reason: text.name + " is not a string"}
		}
	}
	t.Type = MediaType(t.Type)
	_, t.Critical = members["crit"]
	return nil
}

// Verify checks the signature with a key that must fit the token's algorithm.
func (t *JWT) Verify(key any) bool { return Verify(t.Algorithm, key, []byte(t.signed), t.signature) }

// Fault is the first claim that was not there or has no value of its kind.
type Fault struct {
	Claim   string
	Missing bool
}

// Claims reads an object claim by claim and keeps the first fault, so that many
// can be read before one is asked whether all are well. Claim names are exact.
type Claims struct {
	scan    *Scanner
	members map[string]json.RawMessage
	fault   *Fault
}

// ParseClaims reads an object.
func ParseClaims(scan *Scanner, raw []byte, what string) (*Claims, error) {
	members, err := scan.Members(raw, what)
	return &Claims{scan: scan, members: members}, err
}

// Fault is what is wrong with the claims read so far; nil: nothing.
func (c *Claims) Fault() *Fault { return c.fault }

// Fail notes a fault found elsewhere, unless there is one already.
func (c *Claims) Fail(claim string) { c.note(claim, false) }

func (c *Claims) note(claim string, missing bool) {
	if c.fault == nil {
		c.fault = &Fault{Claim: claim, Missing: missing}
	}
}

// Has says whether a claim is there, whatever its value.
func (c *Claims) Has(claim string) bool { return c.members[claim] != nil }

// Raw is a claim as it is written; nil if absent.
func (c *Claims) Raw(claim string) json.RawMessage { return c.members[claim] }

// Names are the claims that are there, in no particular order.
func (c *Claims) Names() []string {
	return slices.Collect(maps.Keys(c.members))
}

// Demand notes each of these claims that is not there.
func (c *Claims) Demand(claims ...string) {
	for _, claim := range claims {
		if !c.Has(claim) {
			c.note(claim, true)
		}
	}
}

// Text reads a string that is not empty; "" if absent.
func (c *Claims) Text(claim string) string {
	raw := c.members[claim]
	text, ok := Unquote(raw)
	if raw != nil && (!ok || text == "") {
		c.Fail(claim)
	}
	return text
}

// Time reads a NumericDate in whole seconds; 0 if absent.
func (c *Claims) Time(claim string) int64 {
	raw := c.members[claim]
	seconds, ok := Time(raw)
	if raw != nil && !ok {
		c.Fail(claim)
	}
	return seconds
}

// Texts reads one string or an array of them, none empty (RFC 7519 section
// 4.1.3); nil if absent.
func (c *Claims) Texts(claim string) []string {
	raw := c.members[claim]
	if raw == nil {
		return nil
	}
	if one, ok := Unquote(raw); ok && one != "" {
		return []string{one}
	}
	many, ok := UnquoteAll[string](c.scan, raw)
	for _, text := range many {
		ok = ok && text != ""
	}
	if !ok || len(many) == 0 {
		c.Fail(claim)
		return nil
	}
	return many
}

// Object reads an object; nil if absent or of another kind.
func (c *Claims) Object(claim string) *Claims {
	raw := c.members[claim]
	if raw == nil {
		return nil
	}
	inner, err := ParseClaims(c.scan, raw, claim)
	if err != nil {
		c.Fail(claim)
		return nil
	}
	return inner
}

// Key reads a JSON Web Key. Its error is one of ParseKey's; a claim that is
// absent is ErrKey.
func (c *Claims) Key(claim string) (Key, error) { return ParseKey(c.scan, c.members[claim]) }

// Time reads a NumericDate in whole seconds: a fraction or exponent is refused,
// and so is the time before 1970 and after MaxTime.
func Time(raw json.RawMessage) (int64, bool) {
	if raw == nil {
		return 0, false
	}
	seconds, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || seconds <= 0 || seconds > MaxTime {
		return 0, false
	}
	return seconds, true
}
