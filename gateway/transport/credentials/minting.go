package credentials

import (
	"context"
	"errors"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport"
)

// Times of renewals and pauses.
const (
	pause      = time.Second // after a failure, between attempts for one agent
	renewLead  = time.Minute // before its end a token is renewed at the latest, if it lives for two minutes
	renewTenth = 8           // of ten parts of its life have gone: it is renewed
)

// minting is how the fetches of one agent stand. The mutex of the service guards it.
type minting struct {
	own     token // the gateway's; zero: there is none
	failure error // of the last attempt; nil: it succeeded
	tried   time.Time
	trying  bool // after a failure, one attempt is under way
}

// flightKey is for whom a fetch is. An agent has another one after its configuration has changed: what the former
// fetches is not for the places of the new one.
type flightKey struct {
	agent *agent
	key   tokenKey
}

// flight is a fetch for all who wait.
type flight struct {
	done  chan struct{}
	token token
}

// renewal is when a token is renewed: at 80 % of its life or one minute before its end, whichever is first, but not in
// the first half of its life.
func renewal(life time.Duration) time.Duration {
	return min(life*renewTenth/10, max(life-renewLead, life/2))
}

// token is a valid token for a key: one that is known, or a new one. A token that is to be renewed is still given.
func (s *Service) token(ctx context.Context, a *agent, key tokenKey, subject subjectToken) (token, error) {
	s.mu.Lock()
	known, now := s.known(a, key), s.deps.Now()
	valid := known.valid(now)
	refusedNow := known.err != nil && now.Before(known.ends)
	f := s.flights[flightKey{a, key}]
	switch {
	case valid && now.Before(known.renew):
	case refusedNow:
		s.mu.Unlock()
		return token{}, known.err
	case f == nil && a.rests(now):
		if err := a.minting.failure; !valid {
			s.mu.Unlock()
			return token{}, err
		}
	case f == nil:
		f = s.begin(a, key, subject) //nolint:contextcheck // it serves others too, and outlives this request
	}
	s.mu.Unlock()
	if valid {
		return known, nil
	}
	select {
	case <-ctx.Done():
		return token{}, context.Cause(ctx)
	case <-f.done:
		return f.token, f.token.err
	}
}

// known is the token of a key; zero: there is none.
func (s *Service) known(a *agent, key tokenKey) token {
	if key == a.ownKey() {
		return a.minting.own
	}
	if s.agents[a.name] != a { // those that are known are for the places of another configuration
		return token{}
	}
	known, _ := s.tokens.get(key)
	return known
}

// rests reports whether no attempt is made now, because the last one failed.
func (a *agent) rests(now time.Time) bool {
	return a.minting.failure != nil && (a.minting.trying || now.Sub(a.minting.tried) < pause)
}

// begin fetches a token for all who want it. The mutex is locked.
func (s *Service) begin(a *agent, key tokenKey, subject subjectToken) *flight {
	f := &flight{done: make(chan struct{})}
	s.flights[flightKey{a, key}] = f
	a.minting.tried, a.minting.trying = s.deps.Now(), true
	s.work.Go(func() {
		ctx, cancel := context.WithTimeout(s.life, fetchLimit)
		defer cancel()
		got, err := a.mint(ctx, subject)
		s.end(a, key, f, got, err)
	})
	return f
}

// end notes what a fetch came to.
func (s *Service) end(a *agent, key tokenKey, f *flight, got issued, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer close(f.done)
	now := s.deps.Now()
	delete(s.flights, flightKey{a, key})
	a.minting.trying, a.minting.tried, a.minting.failure = false, now, nil
	switch why, _ := errors.AsType[*failure](err); {
	case err == nil:
		f.token = token{value: got.value, fetched: now, renew: now.Add(renewal(got.life)), ends: now.Add(got.life)}
		s.note(a, key, f.token)
	case why != nil && why.err == nil && !why.ours && key != a.ownKey(): // what was answered about one caller's token concerns no other
		f.token = token{err: a.error(err), ends: now.Add(pause)}
		if !s.known(a, key).valid(now) {
			s.note(a, key, f.token)
		}
	default:
		a.minting.failure = a.error(err)
		f.token = token{err: a.minting.failure}
	}
}

// valid reports whether there is a value that has not ended.
func (t token) valid(now time.Time) bool { return t.value != "" && now.Before(t.ends) }

// note has a token used, if its agent is still the one in force.
func (s *Service) note(a *agent, key tokenKey, t token) {
	switch {
	case s.agents[a.name] != a:
	case key == a.ownKey():
		a.minting.own = t
	default:
		s.tokens.put(key, t)
	}
}

// error is what a failure is to callers. It is not wrapped whole: what a library says could quote a URL's query.
func (a *agent) error(err error) error {
	if why, ok := errors.AsType[*failure](err); ok {
		return &transport.CredentialError{Agent: a.name, Reason: why.reason, Caller: why.caller, Err: why.err}
	}
	return &transport.CredentialError{Agent: a.name, Reason: "a fault of the gateway", Err: err}
}
