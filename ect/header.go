package ect

import (
	"slices"
	"strings"
)

// HeaderName is the HTTP field that carries tokens (ECT draft, "HTTP Header Transport").
const HeaderName = "Execution-Context"

const (
	defaultToken = 8 << 10
	defaultTotal = 16 << 10
	defaultCount = 32
)

// Limits bounds the evidence of one request.
type Limits struct {
	Token int // bytes of one token
	Total int // bytes of all field values together
	Count int // tokens
}

// WithDefaults fills what is zero or less: 8 KiB a token, 16 KiB and 32 tokens in all.
func (l Limits) WithDefaults() Limits {
	fill := func(value *int, fallback int) {
		if *value <= 0 {
			*value = fallback
		}
	}
	fill(&l.Token, defaultToken)
	fill(&l.Total, defaultTotal)
	fill(&l.Count, defaultCount)
	return l
}

// ParseHeader takes the Execution-Context field values of a message apart.
// Several lines and several values in one line mean the same (RFC 9110 section
// 5.3), empty members are skipped and a repeated token counts once. What it
// returns looks like tokens; nothing is verified. Errors: *TooLargeError,
// *MalformedError.
func ParseHeader(values []string, l Limits) ([]string, error) {
	l = l.WithDefaults()
	total := 0
	for _, value := range values {
		if total += len(value); total > l.Total {
			return nil, &TooLargeError{What: "header", Limit: l.Total}
		}
	}
	var tokens []string
	for _, value := range values {
		for member := range strings.SplitSeq(value, ",") {
			token := strings.Trim(member, " \t")
			if token == "" || slices.Contains(tokens, token) {
				continue
			}
			if err := checkShape(token, l.Token); err != nil {
				return nil, err
			}
			if tokens = append(tokens, token); len(tokens) > l.Count {
				return nil, &TooLargeError{What: "token count", Limit: l.Count}
			}
		}
	}
	return tokens, nil
}

// foreign is true if there is a character that no token has: only base64url and
// the dot. Every byte of every token is asked, more than once, so there is no
// branch in it: a digit after a letter is nothing that can be foreseen.
func foreign(token string) bool {
	const alphabet = 1<<26 - 1
	own := [4]uint64{
		1<<'-' | 1<<'.' | (1<<10-1)<<'0',
		alphabet<<('A'-64) | 1<<('_'-64) | alphabet<<('a'-64),
	}
	all := uint64(1)
	for i := range len(token) {
		all &= own[token[i]>>6] >> (token[i] & 63)
	}
	return all == 0
}

// checkShape is all that can be said of a token before decoding it: its size,
// its alphabet, and the dots that tell signed from unsigned.
func checkShape(token string, limit int) error {
	if len(token) > limit {
		return &TooLargeError{What: "token", Limit: limit}
	}
	if foreign(token) {
		return &MalformedError{Reason: "a character outside base64url"}
	}
	dots := strings.Count(token, ".")
	if token == "" || dots != 0 && dots != 2 {
		return &MalformedError{Reason: "neither a signed nor an unsigned token"}
	}
	return nil
}

// Heads divides the tokens of a message into its sources, those that no other
// one names as parent, and their ancestors. Nothing is verified: a forged token
// can make itself a head, and is refused as one. Errors are those of
// ParseUnverified; tokens that name each other in a ring are malformed.
func Heads(tokens []string) (heads, ancestors []string, err error) {
	named := make(map[ID]bool)
	ids := make([]ID, len(tokens))
	for i, token := range tokens {
		c, _, err := ParseUnverified(token)
		if err != nil {
			return nil, nil, err
		}
		ids[i] = c.ID
		for _, parent := range c.Parents {
			named[parent] = true
		}
	}
	for i, token := range tokens {
		if named[ids[i]] {
			ancestors = append(ancestors, token)
		} else {
			heads = append(heads, token)
		}
	}
	if len(heads) == 0 && len(tokens) > 0 {
		return nil, nil, &MalformedError{Reason: "tokens that name each other as parents"}
	}
	return heads, ancestors, nil
}
