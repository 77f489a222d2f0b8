package audit

import (
	"errors"
	"fmt"
	"slices"

	"github.com/aepb/aepb-gateway/ect"
)

// Role is which message of an exchange something is said to be.
type Role string

// The roles; empty: it is not said.
const (
	RequestRole     Role = "request"     // what the caller sent
	TranslationRole Role = "translation" // what the agent got
	ReplyRole       Role = "reply"       // what the caller got
)

// Message is a message that was given together with tokens.
type Message struct {
	Name    string   // as findings call it
	Role    Role     // what it is said to be
	Of      string   // messages of one name here are said to be of one exchange; empty: it is not said of which
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
	Places  []Place `json:"places"` // the first 64; none: it is the message of no record
	Newline bool    `json:"without_newline,omitempty"`
}

// maxPlaces bounds the places of a [Comparison], and maxSteps how many parents are followed from replies to requests.
const (
	maxPlaces = 64
	maxSteps  = 5_000_000
)

// Compare holds messages against the hashes of records in the order of [Ordered]. It returns what it
// found, and the places of hashes whose messages were not given. A message that is in no record, or in
// another place than its role, is a finding, and so are a request and a reply of different exchanges that are said to
// be of one.
func Compare(records []Record, messages []Message) (compared []Comparison, open []Place, findings []Finding) {
	x := comparing{index: indexOf(records), places: map[string][]Place{}, fit: map[fitting][]int{}, first: map[Role]Place{}}
	for i, r := range records {
		x.hash(i, "inp_hash", r.Claims.InputHash)
		x.hash(i, "out_hash", r.Claims.OutputHash)
	}
	known := map[string]bool{}
	for _, m := range messages {
		c := x.compare(m)
		compared, known[c.Hash] = append(compared, c), true
		if f, wrong := x.misplaced(m, c); wrong {
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
	return compared, open, append(findings, x.apart(messages, compared)...)
}

type fitting struct {
	role Role
	hash string
}

// comparing holds messages against records.
type comparing struct {
	*index
	places map[string][]Place
	fit    map[fitting][]int // records in which a hash is that of a role
	first  map[Role]Place    // the first hash of a role
}

// hash notes a hash of a record, and which roles a message with it has.
func (x *comparing) hash(i int, claim, hash string) {
	if hash == "" {
		return
	}
	x.places[hash] = append(x.places[hash], Place{i + 1, claim})
	for _, role := range x.roles(x.records[i].Claims, claim) {
		x.fit[fitting{role, hash}] = append(x.fit[fitting{role, hash}], i)
		if _, there := x.first[role]; !there && claim == "out_hash" {
			x.first[role] = Place{i + 1, claim}
		}
	}
}

// roles are those of the message with a hash. What an agent says below a request that it got is no request, unless a
// translation of it begins another exchange.
func (x *comparing) roles(c ect.Claims, claim string) []Role {
	gateway, request := c.Act.Translation(), isRequest(c)
	below := func(id ect.ID) bool {
		return slices.ContainsFunc(x.here[id], func(at int) bool {
			parent := x.records[at].Claims
			return parent.Act.Translation() && isRequest(parent)
		})
	}
	switch {
	case claim == "inp_hash" && (gateway && request || c.Act == ect.ActTranslateError):
		return []Role{RequestRole}
	case claim == "out_hash" && gateway && request:
		return []Role{TranslationRole}
	case claim == "out_hash" && gateway:
		return []Role{ReplyRole}
	case claim == "out_hash" && !c.Act.Namespaced() && !slices.ContainsFunc(c.Parents, below):
		return []Role{RequestRole}
	default:
		return nil
	}
}

func (x *comparing) compare(m Message) Comparison {
	c := Comparison{Message: m.Name}
	for i, hash := range m.Hashes {
		if slices.Contains(m.Hashes[:i], hash) {
			continue
		}
		if places := x.places[hash]; len(places) > 0 {
			c.Places, c.Hash = append(c.Places, places[:min(maxPlaces, len(places))]...), hash
		}
	}
	if len(c.Places) == 0 && m.Without != "" && x.places[m.Without] != nil {
		places := x.places[m.Without]
		c.Places, c.Hash, c.Newline = places[:min(maxPlaces, len(places))], m.Without, true
	}
	if c.Hash == "" && len(m.Hashes) > 0 {
		c.Hash = m.Hashes[0]
	}
	return c
}

// of are the records in which a message has its role.
func (x *comparing) of(m Message) (records []int) {
	for _, hash := range m.Hashes {
		records = append(records, x.fit[fitting{m.Role, hash}]...)
	}
	return records
}

// apart finds requests and replies that are said to be of one exchange, and are not.
func (x *comparing) apart(messages []Message, compared []Comparison) (findings []Finding) {
	requests := map[string][]int{}
	for i, m := range messages {
		if m.Of != "" && m.Role == RequestRole && len(x.of(m)) > 0 {
			requests[m.Of] = append(requests[m.Of], i)
		}
	}
	for _, m := range messages {
		if m.Of == "" || m.Role != ReplyRole {
			continue
		}
		replies := x.of(m)
		for _, i := range requests[m.Of] {
			together := slices.ContainsFunc(replies, func(at int) bool { return x.replies(at, x.of(messages[i])) })
			if x.steps > maxSteps {
				return append(findings, Finding{Kind: NotCompared, Text: m.Name + ": whether it is the reply to " + messages[i].Name + " was not looked at: there are too many parents between them"})
			}
			if len(replies) > 0 && !together {
				findings = append(findings, Finding{Kind: Contradicted, Text: fmt.Sprintf("%s: is not the reply to %s: the record of the reply (%s) does not come from that of the request (%s)",
					m.Name, messages[i].Name, Place{replies[0] + 1, "out_hash"}, compared[i].Places[0])})
			}
		}
	}
	return findings
}

// replies reports whether a record is that of the reply to a request which one of others holds.
func (x *comparing) replies(reply int, requests []int) bool {
	if x.steps > maxSteps {
		return false
	}
	above := x.requestsOf(reply)
	x.steps += len(requests)
	return slices.ContainsFunc(requests, func(at int) bool { return above[at] })
}

// misplaced is what speaks against a message; false: nothing does. A message that is said to be that of an
// exchange, and is not, contradicts its tokens.
func (x *comparing) misplaced(m Message, c Comparison) (Finding, bool) {
	none := "NOT the message of any record: sha256 " + c.Hash + " is no inp_hash and no out_hash"
	expected, there := x.first[m.Role]
	switch refusal := x.refusal(m.Role); {
	case len(c.Places) > 0 && (m.Role == "" || len(x.of(m)) > 0):
		return Finding{}, false
	case len(c.Places) > 0:
		return Finding{Kind: Contradicted, Text: fmt.Sprintf("%s: is not the %s of the exchange: its sha256 is %s", m.Name, m.Role, c.Places[0])}, true
	case m.Role == ReplyRole && !there && refusal >= 0:
		return Finding{Kind: NotCompared, Text: fmt.Sprintf("%s: the gateway refused the message, and no record has the hash of a refusal: record %d is the proof of it", m.Name, refusal+1)}, true
	case there:
		none += fmt.Sprintf("; that of the %s is %s, the %s", m.Role, x.records[expected.Record-1].Claims.OutputHash, expected)
		return Finding{Kind: Contradicted, Text: m.Name + ": " + none}, true
	case m.Role != "":
		return Finding{Kind: Contradicted, Text: m.Name + ": " + none}, true
	default:
		return Finding{Kind: NotCompared, Text: m.Name + ": " + none}, true
	}
}

// refusal is the first record of a failure, which a reply without a hash may be; -1: there is none.
func (x *comparing) refusal(role Role) int {
	if _, there := x.first[role]; role != ReplyRole || there {
		return -1
	}
	return slices.IndexFunc(x.records, func(r Record) bool { return r.Claims.Act == ect.ActTranslateError })
}

// Linked: each record is verified, and each but the first names a parent among them.
func Linked(records []Record) error {
	for i, r := range records {
		if !r.Verified() {
			return fmt.Errorf("the proof does not hold: %s", r.Problem)
		}
		if i > 0 && !slices.ContainsFunc(records, func(other Record) bool { return slices.Contains(r.Claims.Parents, other.Claims.ID) }) {
			return fmt.Errorf("record %s is not linked to the others", r.Claims.ID)
		}
	}
	return nil
}

// Covers says whether records are good and about this very exchange: one below the first for what its issuer sent,
// and one for what came back. An answer to a task that the agent hears in an exchange which goes on has no token of
// its own. note says which hashes were compared.
func Covers(records []Record, sent, got []byte, answers bool) (note string, err error) {
	for _, r := range records {
		if !r.Verified() {
			return "", fmt.Errorf("the proof does not hold: %s", r.Problem)
		}
	}
	if !slices.ContainsFunc(records, func(r Record) bool { return r.Claims.OutputHash == ect.Hash(got) }) {
		return "", errors.New("no proof that the reply came back as it is")
	}
	below := func(with func(ect.Claims) bool) bool {
		return slices.ContainsFunc(records, func(r Record) bool {
			return slices.Contains(r.Claims.Parents, records[0].Claims.ID) && with(r.Claims)
		})
	}
	question := func(c ect.Claims) bool {
		direction, _ := c.Ext.String(ect.ExtLeg)
		return direction == "reply" && c.InputHash == ""
	}
	switch {
	case below(func(c ect.Claims) bool { return c.InputHash == ect.Hash(sent) }):
		return ", hashes match", nil
	case below(question) && !answers:
		return ", hashes match; the gateway asks this itself, so there is no record of a request to the agent", nil
	case answers && below(func(ect.Claims) bool { return true }):
		return ", hash of the reply matches; that of the answer is in no record: the agent is told in an exchange that goes on", nil
	default:
		return "", errors.New("no proof that the message was translated as it was sent")
	}
}
