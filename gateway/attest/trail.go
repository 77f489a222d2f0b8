package attest

import (
	"slices"
	"sync"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Bounds of a trail.
const (
	maxRequests = 16      // request tokens that are remembered of one execution: the first, and the latest
	maxProof    = 8 << 10 // bytes of tokens that go back with an answer

	// MaxSignatures is how many tokens a message may bring: each costs a signature to
	// verify (architecture section 5, step 4).
	MaxSignatures = 8
)

// Trail is what the gateway signed, learned and lost for one message of an execution. It is
// the only object of an execution that changes, and safe for concurrent use.
type Trail struct {
	requests *requests

	mu             sync.Mutex
	tokens         []string // ours, oldest first
	ids            []ect.ID
	request, reply ect.ID
	losses         []canonical.Loss
	learned        []string // tokens of gateways further on, for a caller that is one
	unbound        []string // ids of tokens that came with replies and do not testify to them (R4)
	failures       []ect.ID // of others, that came with what an agent or a gateway answered
}

// requests are the ids of the request tokens of an execution. All its trails share them.
type requests struct {
	mu  sync.Mutex
	ids []ect.ID
}

// Begin makes the trail of a new execution.
func Begin() *Trail { return &Trail{requests: &requests{}} }

// Resume makes the trail of an execution that is taken up from its record, with the ids of
// its request tokens.
func Resume(earlier []ect.ID) *Trail { return &Trail{requests: &requests{ids: slices.Clone(earlier)}} }

// Again makes a trail of the same execution for another message about it.
func (t *Trail) Again() *Trail { return &Trail{requests: t.requests} }

// Tokens are ours so far, oldest first. The slice is not to be changed.
func (t *Trail) Tokens() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clip(t.tokens)
}

// Count is how many Tokens there are.
func (t *Trail) Count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.tokens)
}

// IDs are those of Tokens.
func (t *Trail) IDs() []ect.ID {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clip(t.ids)
}

// Losses are those of all translations so far.
func (t *Trail) Losses() []canonical.Loss {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clip(t.losses)
}

// Request is the id of the token of the latest request; empty: there is none.
func (t *Trail) Request() ect.ID {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.request
}

// Follow makes the token of an earlier message the latest request.
func (t *Trail) Follow(id ect.ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.request = id
}

// Reply is the id of the token of the latest reply; empty: there is none.
func (t *Trail) Reply() ect.ID {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reply
}

// Replied makes the token that closes a stream that of the reply.
func (t *Trail) Replied(id ect.ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reply = id
}

// Requests are the ids of the request tokens of the execution: earlier are those of the time
// before it was taken up from its record.
func (t *Trail) Requests(earlier []ect.ID) []ect.ID {
	t.requests.mu.Lock()
	defer t.requests.mu.Unlock()
	earlier = slices.Clone(earlier)
	for _, id := range t.requests.ids {
		if !slices.Contains(earlier, id) {
			earlier = append(earlier, id)
		}
	}
	if len(earlier) > maxRequests {
		earlier = slices.Delete(earlier, 1, 1+len(earlier)-maxRequests)
	}
	return earlier
}

// Proof returns the evidence for an answer: our tokens, and for a gateway the tokens that it cannot
// have seen, as many as fit (R4).
func (t *Trail) Proof() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	out, size := slices.Clip(t.tokens), 0
	for _, compact := range out {
		size += len(compact)
	}
	for _, compact := range t.learned {
		if size += len(compact); size <= maxProof && len(out) < MaxSignatures {
			out = append(out, compact)
		}
	}
	return out
}

// requested notes the request token of a message.
func (t *Trail) requested(id ect.ID) {
	r := t.requests
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ids = append(r.ids, id)
	if len(r.ids) > maxRequests {
		r.ids = slices.Delete(r.ids, 1, 2)
	}
}

// issued notes a token of ours, and what its translation lost.
func (t *Trail) issued(compact string, id ect.ID, losses []canonical.Loss) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tokens, t.ids = append(t.tokens, compact), append(t.ids, id)
	t.losses = append(t.losses, losses...)
}

// Add notes a token of ours that covers no message, and that goes back with the answer.
func (t *Trail) Add(compact string, id ect.ID) { t.issued(compact, id, nil) }

// translated notes the token of a request or a reply.
func (t *Trail) translated(d Direction, id ect.ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if d == Request {
		t.request = id
	} else {
		t.reply = id
	}
}

// learn takes note of another's evidence for a caller that is a gateway: the graph is
// whole only where the message came from.
func (t *Trail) learn(sub Subject, v ect.Verified) {
	act := v.Act()
	if act == ect.ActError || act == ect.ActTranslateError {
		t.fail(v.ID())
	}
	if !sub.Gateway || !act.Translation() && act != ect.ActTranslateError {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.learned = append(t.learned, v.Compact())
}

// fail takes note of another's error.
func (t *Trail) fail(id ect.ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !slices.Contains(t.failures, id) && len(t.failures) < maxRequests {
		t.failures = append(t.failures, id)
	}
}

// Failures are the ids of the errors that came with answers, the nearest first as far as the answers say.
func (t *Trail) Failures() []ect.ID {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clip(t.failures)
}

// leaveUnbound declares a token that does not testify to a reply.
func (t *Trail) leaveUnbound(id ect.ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unbound = append(t.unbound, string(id))
}

func (t *Trail) notBound() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clip(t.unbound)
}
