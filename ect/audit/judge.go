package audit

import (
	"errors"
	"fmt"
	"slices"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/dag"
)

// Kind is what a finding is about.
type Kind string

// The kinds of findings.
const (
	NotVerified  Kind = "not_verified" // a token does not hold
	Incomplete   Kind = "incomplete"   // what a record names, or needs to be proof, was not given
	Contradicted Kind = "contradicted" // what was given says something else than a token
	NotCompared  Kind = "not_compared" // what was given is in no token, or nothing here can compare it
)

// Finding is one reason not to accept what was given.
type Finding struct {
	Kind   Kind   `json:"kind"`
	Record int    `json:"record,omitempty"` // 1 for the first of [Ordered]; 0: it is about none
	ID     ect.ID `json:"jti,omitempty"`    // of that record
	Text   string `json:"text"`             // one sentence; it may quote what others have written
}

// problems are the words for why a token does not hold.
var problems = map[ect.Reason]string{
	ect.ReasonInvalidSignature: "the token was changed after it was signed",
	ect.ReasonKeyNotTrusted:    "its certificate is not signed by a CA that was given",
	ect.ReasonUnsupportedAlg:   "its algorithm is not one of ES256 and EdDSA, so that its signature proves nothing",
	ect.ReasonIssuerMismatch:   "its issuer is another identity than its certificate is for",
}

// problemOf is an error of verification in words.
func problemOf(err error) string {
	invalid, ok := errors.AsType[*ect.InvalidError](err)
	if !ok {
		return err.Error()
	}
	if words := problems[invalid.Reason]; words != "" {
		return err.Error() + ": " + words
	}
	return err.Error()
}

// maxFindings bounds the findings about records: what is forged at length must not fill the memory.
const maxFindings = 1000

// Judge finds what is wrong with records in the order of [Ordered]: tokens that do not hold, parents that
// are missing, ids used twice, parents younger than their children, circles, requests and streams without
// an end. absent says why a parent is not there. It lists 1000 findings at most, and says so if there are more.
func Judge(records []Record, absent string) []Finding {
	j := judging{index: indexOf(records), absent: absent}
	for i := range records {
		j.token(i)
		j.parents(i)
		j.end(i)
	}
	j.circle()
	return j.findings
}

type judging struct {
	*index
	absent   string
	findings []Finding
}

func (j *judging) find(kind Kind, record int, format string, args ...any) {
	switch {
	case len(j.findings) > maxFindings:
		return
	case len(j.findings) == maxFindings:
		format, args = "and later ones: there are more than %d findings, and the others are not listed", []any{maxFindings}
	}
	j.findings = append(j.findings, Finding{Kind: kind, Record: record + 1, ID: j.records[record].Claims.ID, Text: fmt.Sprintf(format, args...)})
}

// token judges a record by itself and beside the first of its id and issuer.
func (j *judging) token(i int) {
	r := j.records[i]
	if !r.Verified() {
		j.find(NotVerified, i, "%s", r.Problem)
		return
	}
	if first := j.own[link{r.Claims.Issuer, r.Claims.ID}]; first < i && j.records[first].Compact != r.Compact {
		j.find(Contradicted, i, "its id is that of record %d, which says something else", first+1)
	}
}

func (j *judging) parents(i int) {
	r := j.records[i]
	for _, parent := range r.Claims.Parents {
		if len(j.here[parent]) == 0 {
			j.find(Incomplete, i, "names parent %s, which %s", parent, j.absent)
		}
		if born := j.born[parent]; r.Verified() && born > r.Claims.IssuedAt+dag.Tolerance {
			j.find(Contradicted, i, "its parent %s was issued %d seconds after it", parent, born-r.Claims.IssuedAt)
		}
	}
}

// circle finds tokens that are their own ancestors. Such tokens cannot all be genuine.
func (j *judging) circle() {
	const open, done = 1, 2
	state := make([]int, len(j.records))
	var path []ect.ID
	var visit func(i int) bool
	visit = func(i int) bool {
		state[i] = open
		path = append(path, j.records[i].Claims.ID)
		for _, parent := range j.records[i].Claims.Parents {
			for _, at := range j.here[parent] {
				if state[at] == open {
					cycle := path[slices.Index(path, parent):]
					j.find(Contradicted, at, "it is its own ancestor: %s", dag.CycleText(cycle))
					return true
				}
				if state[at] == 0 && visit(at) {
					return true
				}
			}
		}
		state[i], path = done, path[:len(path)-1]
		return false
	}
	for i := range j.records {
		if state[i] == 0 && visit(i) {
			return
		}
	}
}

// end finds a request that has no reply among the records, and a stream that was opened and not closed.
func (j *judging) end(i int) {
	c := j.records[i].Claims
	stream, _ := c.Ext.String(ect.ExtStream)
	switch {
	case !j.records[i].Verified():
	case c.Act.Translation() && isRequest(c) && c.InputHash != "" && !oneWay(c) && !j.answered(i): // without inp_hash it is the gateway's own question
		j.find(Incomplete, i, "is a request without a reply: the reply's record is missing, or the work goes on")
	case stream == "open" && !j.closed(i):
		j.find(Incomplete, i, "opens a stream that no record closes: that record is missing, or the stream goes on")
	}
}

func isRequest(c ect.Claims) bool {
	direction, _ := c.Ext.String(ect.ExtLeg)
	return direction != "reply"
}

// oneWay: a message to which there is no reply.
func oneWay(c ect.Claims) bool { return string(c.Ext[ect.ExtOneWay]) == "true" }

// Signers are the identities that signed translations, in the order of the records.
func Signers(records []Record) (ids []ect.Identity) {
	for _, r := range records {
		if translated(r) && !slices.Contains(ids, r.Claims.Issuer) {
			ids = append(ids, r.Claims.Issuer)
		}
	}
	return ids
}

// Foreign finds translations that are signed by others than the gateways that are expected, or that name another
// gateway than their issuer. Any workload of the trust domain can sign a token that says it translated something.
func Foreign(records []Record, gateways []ect.Identity) (findings []Finding) {
	for i, r := range records {
		named, there := r.Claims.Ext.String(ect.ExtGatewayID)
		switch {
		case !translated(r):
		case len(gateways) > 0 && !slices.Contains(gateways, r.Claims.Issuer):
			findings = append(findings, Finding{Contradicted, i + 1, r.Claims.ID, "is a translation signed by " + string(r.Claims.Issuer) + ", which is not a gateway that you named"})
		case there && named != string(r.Claims.Issuer):
			findings = append(findings, Finding{Contradicted, i + 1, r.Claims.ID, "says that the gateway " + named + " made it, and " + string(r.Claims.Issuer) + " signed it"})
		}
	}
	return findings
}

func translated(r Record) bool {
	return r.Verified() && (r.Claims.Act.Translation() || r.Claims.Act == ect.ActTranslateError)
}

// Unanswered finds messages of which no record says what became of them: tokens of those who sent them, which
// no record names as parent. It is for inputs that are said to be whole.
func Unanswered(records []Record) (findings []Finding) {
	named, replies := map[ect.ID]bool{}, map[ect.ID]bool{}
	for _, r := range records {
		for _, parent := range r.Claims.Parents {
			named[parent] = true
		}
		if r.Claims.Act.Translation() && !isRequest(r.Claims) {
			replies[r.Claims.ID] = true
		}
	}
	for i, r := range records {
		sent := len(r.Claims.Parents) == 0 || slices.ContainsFunc(r.Claims.Parents, func(id ect.ID) bool { return replies[id] })
		if r.Verified() && sent && !named[r.Claims.ID] && !r.Claims.Act.Namespaced() {
			findings = append(findings, Finding{Incomplete, i + 1, r.Claims.ID, "is about a message, and no record says what became of it: those records are missing"})
		}
	}
	return findings
}
