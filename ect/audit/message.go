package audit

import (
	"fmt"
	"slices"

	"github.com/aepb/aepb-gateway/ect"
)

// Role is which message of an exchange something is said to be.
type Role string

// The roles; empty: it is not said.
const (
	RequestRole Role = "request" // what the caller sent
	ReplyRole   Role = "reply"   // what the caller got
)

// Message is a message that was given together with tokens.
type Message struct {
	Name    string   // as findings call it
	Role    Role     // what it is said to be
	Hashes  []string // of its bytes, and of the forms in which protocols hash it, as [ect.Hash] makes them
	Without string   // the hash of its bytes without the newline at its end; empty: it has none, or it is not to be tried
}

// Place is a hash in a record.
type Place struct {
	Record int    `json:"record"` // 1 for the first of [Ordered]
	Claim  string `json:"claim"`  // inp_hash or out_hash
}

func (p Place) String() string { return fmt.Sprintf("%s of record %d", p.Claim, p.Record) }

// Comparison is what became of one message.
type Comparison struct {
	Message string  `json:"message"`
	Hash    string  `json:"sha256"` // that was found, or that of its bytes
	Places  []Place `json:"places"` // none: it is the message of no record
	Newline bool    `json:"without_newline,omitempty"`
}

// Compare holds messages against the hashes of records in the order of [Ordered]. It returns what it
// found, and the places of hashes whose messages were not given. A message that is in no record, or in
// another place than its role, is a finding.
func Compare(records []Record, messages []Message) (compared []Comparison, open []Place, findings []Finding) {
	places := map[string][]Place{}
	for i, r := range records {
		if r.Claims.InputHash != "" {
			places[r.Claims.InputHash] = append(places[r.Claims.InputHash], Place{i + 1, "inp_hash"})
		}
		if r.Claims.OutputHash != "" {
			places[r.Claims.OutputHash] = append(places[r.Claims.OutputHash], Place{i + 1, "out_hash"})
		}
	}
	known := map[string]bool{}
	for _, m := range messages {
		c := compare(m, places)
		compared, known[c.Hash] = append(compared, c), true
		if f, wrong := misplaced(m, c, records); wrong {
			findings = append(findings, f)
		}
	}
	for i, r := range records {
		for _, one := range []struct{ claim, hash string }{{"inp_hash", r.Claims.InputHash}, {"out_hash", r.Claims.OutputHash}} {
			if one.hash != "" && !known[one.hash] {
				open = append(open, Place{i + 1, one.claim})
			}
		}
	}
	return compared, open, findings
}

func compare(m Message, places map[string][]Place) Comparison {
	c := Comparison{Message: m.Name}
	for _, hash := range m.Hashes {
		for _, p := range places[hash] {
			if !slices.Contains(c.Places, p) {
				c.Places, c.Hash = append(c.Places, p), hash
			}
		}
	}
	if len(c.Places) == 0 && m.Without != "" && places[m.Without] != nil {
		c.Places, c.Hash, c.Newline = places[m.Without], m.Without, true
	}
	if c.Hash == "" && len(m.Hashes) > 0 {
		c.Hash = m.Hashes[0]
	}
	return c
}

// misplaced is what speaks against a message; false: nothing does. A message that is said to be that of an
// exchange, and is not, contradicts its tokens.
func misplaced(m Message, c Comparison, records []Record) (Finding, bool) {
	fits := func(p Place) bool { return m.Role.fits(p, records[p.Record-1].Claims) }
	none := "NOT the message of any record: sha256 " + c.Hash + " is no inp_hash and no out_hash"
	expected, there := expectedAt(m.Role, records)
	refusal := slices.IndexFunc(records, func(r Record) bool { return r.Claims.Act == ect.ActTranslateError })
	switch {
	case len(c.Places) > 0 && (m.Role == "" || slices.ContainsFunc(c.Places, fits)):
		return Finding{}, false
	case len(c.Places) > 0:
		return Finding{Kind: Contradicted, Text: fmt.Sprintf("%s: is not the %s of the exchange: its sha256 is %s", m.Name, m.Role, c.Places[0])}, true
	case m.Role == ReplyRole && !there && refusal >= 0:
		return Finding{Kind: NotCompared, Text: fmt.Sprintf("%s: the gateway refused the message, and no record has the hash of a refusal: record %d is the proof of it", m.Name, refusal+1)}, true
	case there:
		none += fmt.Sprintf("; that of the %s is %s, the %s", m.Role, records[expected.Record-1].Claims.OutputHash, expected)
		return Finding{Kind: Contradicted, Text: m.Name + ": " + none}, true
	case m.Role != "":
		return Finding{Kind: Contradicted, Text: m.Name + ": " + none}, true
	default:
		return Finding{Kind: NotCompared, Text: m.Name + ": " + none}, true
	}
}

// expectedAt is the first hash that a message with the role has; false: the records have none.
func expectedAt(role Role, records []Record) (Place, bool) {
	for i, r := range records {
		if p := (Place{i + 1, "out_hash"}); role != "" && r.Claims.OutputHash != "" && role.fits(p, r.Claims) {
			return p, true
		}
	}
	return Place{}, false
}

// fits reports whether the message with a hash has the role.
func (r Role) fits(p Place, c ect.Claims) bool {
	reply := c.Act.Translation() && !isRequest(c)
	if r == ReplyRole {
		return reply && p.Claim == "out_hash"
	}
	return p.Claim == "inp_hash" && !reply || p.Claim == "out_hash" && !c.Act.Namespaced()
}
