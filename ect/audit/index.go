package audit

import (
	"slices"

	"github.com/aepb/aepb-gateway/ect"
)

// link is an id beside the issuer of a token: of the token with the id, or of one that names the id as parent.
type link struct {
	issuer ect.Identity
	id     ect.ID
}

// index finds records by what they name. Each question to it costs no more than the parents of one record, however many
// tokens of one id there are.
type index struct {
	records   []Record
	here      map[ect.ID][]int // the records of an id: the first of each issuer
	own       map[link]int     // the first record of an id and issuer
	born      map[ect.ID]int64 // the latest time at which a token of an id was issued
	exchanges map[int]int      // of requests: see exchange
	failures  map[int]bool     // see failed

	failedFor map[link]bool // named as parent by a failure of the issuer
	closedFor map[link]bool // named as parent by the end of a stream of the issuer
	repliedTo map[link]bool // named as parent by a reply of the issuer
	steps     int           // of requestsOf, so far
	finished  map[int]bool  // exchanges with a reply
}

func indexOf(records []Record) *index {
	x := &index{
		records: records, here: map[ect.ID][]int{}, own: map[link]int{}, born: map[ect.ID]int64{}, exchanges: map[int]int{}, failures: map[int]bool{},
		failedFor: map[link]bool{}, closedFor: map[link]bool{}, repliedTo: map[link]bool{}, finished: map[int]bool{},
	}
	for i, r := range records {
		c := r.Claims
		x.born[c.ID] = max(x.born[c.ID], c.IssuedAt)
		if _, twice := x.own[link{c.Issuer, c.ID}]; !twice {
			x.own[link{c.Issuer, c.ID}] = i
			x.here[c.ID] = append(x.here[c.ID], i)
		}
	}
	for _, r := range records {
		x.parents(r.Claims)
	}
	return x
}

// parents notes what a record says of its parents.
func (x *index) parents(c ect.Claims) {
	stream, _ := c.Ext.String(ect.ExtStream)
	reply := !isRequest(c)
	for _, parent := range c.Parents {
		to := link{c.Issuer, parent}
		at, ours := x.own[to]
		switch {
		case reply && ours:
			x.finished[x.exchange(at)] = true
			fallthrough
		case reply:
			x.repliedTo[to] = true
		case c.Act == ect.ActTranslateError:
			x.failedFor[to] = true
		}
		if stream == "close" {
			x.closedFor[to] = true
		}
	}
}

// answered reports whether there is a reply to a request, or to the exchange that it belongs to: a gateway
// asks further on behind a request, such as how far its task is, and signs one reply to all of it. A reply
// names a request of its exchange as parent, or what the first of them came from.
func (x *index) answered(i int) bool {
	exchange, issuer := x.exchange(i), x.records[i].Claims.Issuer
	return x.failed(i) || x.finished[exchange] || slices.ContainsFunc(x.records[exchange].Claims.Parents, func(id ect.ID) bool {
		return x.repliedTo[link{issuer, id}] && slices.ContainsFunc(x.here[id], func(at int) bool { return x.records[at].Claims.Issuer != issuer })
	})
}

// failed reports whether the exchange of a request ended with a failure. Its record names the request as
// parent, or what the first request of the exchange came from.
func (x *index) failed(i int) bool {
	if failed, known := x.failures[i]; known {
		return failed
	}
	first := x.records[x.exchange(i)].Claims
	named := func(id ect.ID) bool { return x.failedFor[link{first.Issuer, id}] }
	x.failures[i] = named(first.ID) || named(x.records[i].Claims.ID) || slices.ContainsFunc(first.Parents, named)
	return x.failures[i]
}

// exchange is the first of the requests that belong together: each is below another one of its issuer.
func (x *index) exchange(i int) int {
	if at, known := x.exchanges[i]; known {
		return at
	}
	x.exchanges[i] = i // also where a circle leads back here
	issuer := x.records[i].Claims.Issuer
	for _, parent := range x.records[i].Claims.Parents {
		at, ours := x.own[link{issuer, parent}]
		if ours && x.records[at].Claims.Act.Translation() && isRequest(x.records[at].Claims) {
			x.exchanges[i] = x.exchange(at)
			break
		}
	}
	return x.exchanges[i]
}

// closed reports whether a stream that a record opens has an end: the record that closes it, which is a
// child of what opened it or of its parents, or that of the failure of its exchange.
func (x *index) closed(i int) bool {
	open := x.records[i].Claims
	ends := func(id ect.ID) bool { return x.closedFor[link{open.Issuer, id}] }
	return ends(open.ID) || slices.ContainsFunc(open.Parents, func(id ect.ID) bool {
		return ends(id) || slices.ContainsFunc(x.here[id], x.failed)
	})
}

// requestsOf are the records that may hold the request to which a record replies: the first requests above it of its
// issuer that a message was translated for, and what they and the replies came from. An exchange before it is not among them.
func (x *index) requestsOf(reply int) map[int]bool {
	found := map[int]bool{}
	for queue := []int{reply}; len(queue) > 0 && x.steps <= maxSteps; queue = queue[1:] {
		c := x.records[queue[0]].Claims
		for _, at := range x.above(c) {
			p := x.records[at].Claims
			ours := p.Issuer == c.Issuer && p.Act.Translation()
			if found[at] {
				continue
			}
			found[at] = true
			switch {
			case ours && (!isRequest(p) || p.InputHash == ""): // a reply before, such as that of a stream, and what the gateway asked itself
				queue = append(queue, at)
			case ours:
				for _, source := range x.above(p) {
					found[source] = found[source] || !x.records[source].Claims.Act.Translation()
				}
			}
		}
	}
	return found
}

// above are the records of the parents of a token.
func (x *index) above(c ect.Claims) (records []int) {
	x.steps += len(c.Parents)
	for _, parent := range c.Parents {
		records = append(records, x.here[parent]...)
	}
	return records
}
