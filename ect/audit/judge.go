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

// Judge finds what is wrong with records in the order of [Ordered]: tokens that do not hold, parents that
// are missing, ids used twice, parents younger than their children, circles, requests and streams without
// an end. absent says why a parent is not there.
func Judge(records []Record, absent string) []Finding {
	j := judging{records: records, here: map[ect.ID][]int{}, absent: absent, exchanges: map[int]int{}}
	for i, r := range records {
		j.here[r.Claims.ID] = append(j.here[r.Claims.ID], i)
	}
	for i := range records {
		j.token(i)
		j.parents(i)
		j.end(i)
	}
	j.circle()
	return j.findings
}

type judging struct {
	records   []Record
	here      map[ect.ID][]int // the records of an id
	absent    string
	exchanges map[int]int // of requests: see exchange
	findings  []Finding
}

func (j *judging) find(kind Kind, record int, format string, args ...any) {
	j.findings = append(j.findings, Finding{Kind: kind, Record: record + 1, ID: j.records[record].Claims.ID, Text: fmt.Sprintf(format, args...)})
}

// token judges a record by itself and beside those of its id.
func (j *judging) token(i int) {
	r := j.records[i]
	if !r.Verified() {
		j.find(NotVerified, i, "%s", r.Problem)
		return
	}
	for _, other := range j.here[r.Claims.ID] {
		if o := j.records[other]; other < i && o.Claims.Issuer == r.Claims.Issuer && o.Compact != r.Compact {
			j.find(Contradicted, i, "its id is that of record %d, which says something else", other+1)
		}
	}
}

func (j *judging) parents(i int) {
	r := j.records[i]
	for _, parent := range r.Claims.Parents {
		places := j.here[parent]
		if len(places) == 0 {
			j.find(Incomplete, i, "names parent %s, which %s", parent, j.absent)
		}
		for _, at := range places {
			if p := j.records[at].Claims; r.Verified() && p.IssuedAt > r.Claims.IssuedAt+dag.Tolerance {
				j.find(Contradicted, i, "its parent %s was issued %d seconds after it", parent, p.IssuedAt-r.Claims.IssuedAt)
			}
		}
	}
}

// circle finds tokens that are their own ancestors. Such tokens cannot all be genuine.
func (j *judging) circle() {
	nodes := make([]dag.Node, len(j.records))
	for i, r := range j.records {
		nodes[i] = dag.NodeOfClaims(r.Claims)
	}
	if cycle := dag.Build("", nodes).Cycle(); len(cycle) > 0 {
		j.find(Contradicted, j.here[cycle[0]][0], "it is its own ancestor: %s", dag.CycleText(cycle))
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

// answered reports whether there is a reply to a request, or to the exchange that it belongs to: a gateway
// asks further on behind a request, such as how far its task is, and signs one reply to all of it. A reply
// names a request of its exchange as parent.
func (j *judging) answered(i int) bool {
	if j.failed(i) {
		return true
	}
	exchange, issuer := j.exchange(i), j.records[i].Claims.Issuer
	before := j.records[exchange].Claims.Parents
	return slices.ContainsFunc(j.records, func(r Record) bool {
		return r.Claims.Issuer == issuer && !isRequest(r.Claims) && slices.ContainsFunc(r.Claims.Parents, func(parent ect.ID) bool {
			return slices.ContainsFunc(j.here[parent], func(at int) bool {
				return j.exchange(at) == exchange || slices.Contains(before, parent) && j.records[at].Claims.Issuer != issuer
			})
		})
	})
}

// failed reports whether the exchange of a request ended with a failure. Its record names the request as
// parent, or what the first request of the exchange came from.
func (j *judging) failed(i int) bool {
	first := j.records[j.exchange(i)].Claims
	return slices.ContainsFunc(j.records, func(r Record) bool {
		return r.Claims.Act == ect.ActTranslateError && r.Claims.Issuer == first.Issuer && slices.ContainsFunc(r.Claims.Parents, func(id ect.ID) bool {
			return id == first.ID || id == j.records[i].Claims.ID || slices.Contains(first.Parents, id)
		})
	})
}

// exchange is the first of the requests that belong together: each is below another one of its issuer.
func (j *judging) exchange(i int) int {
	if at, known := j.exchanges[i]; known {
		return at
	}
	j.exchanges[i] = i // also where a circle leads back here
	for _, parent := range j.records[i].Claims.Parents {
		for _, at := range j.here[parent] {
			p := j.records[at].Claims
			if p.Act.Translation() && isRequest(p) && p.Issuer == j.records[i].Claims.Issuer {
				j.exchanges[i] = j.exchange(at)
				return j.exchanges[i]
			}
		}
	}
	return i
}

// closed reports whether a stream that a record opens has an end: the record that closes it, which is a
// child of what opened it or of its parents, or that of the failure of its exchange.
func (j *judging) closed(i int) bool {
	open := j.records[i].Claims
	for _, parent := range open.Parents {
		if slices.ContainsFunc(j.here[parent], j.failed) {
			return true
		}
	}
	return slices.ContainsFunc(j.records, func(r Record) bool {
		stream, _ := r.Claims.Ext.String(ect.ExtStream)
		shares := slices.Contains(r.Claims.Parents, open.ID) || slices.ContainsFunc(r.Claims.Parents, func(id ect.ID) bool { return slices.Contains(open.Parents, id) })
		return stream == "close" && r.Claims.Issuer == open.Issuer && shares
	})
}

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
