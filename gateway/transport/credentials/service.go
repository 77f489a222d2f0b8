package credentials

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
	"github.com/aepb/aepb-gateway/gateway/transport/stdio"
)

const fieldAuthorization = "Authorization"

// Subjects find the OAuth token that the caller of a request showed, and its type; false: it showed none.
type Subjects interface {
	SubjectToken(ctx context.Context) (token, kind string, ok bool)
}

// ContextSubjects are those of [transport.WithSubjectToken].
type ContextSubjects struct{}

// SubjectToken implements Subjects.
func (ContextSubjects) SubjectToken(ctx context.Context) (token, kind string, ok bool) {
	return transport.SubjectToken(ctx)
}

// Deps is what a Service needs.
type Deps struct {
	Client   transport.Client // asks token endpoints; its guard has ClientSecrets; required
	Subjects Subjects         // nil: ContextSubjects
	// Assert vouches for the gateway with its SVID, for an audience; an empty client is the SPIFFE id. Nil: it cannot.
	Assert func(ctx context.Context, client, audience string) (Assertion, error)
	// Run runs a command and returns at most most bytes of its output. Nil: stdio.Output.
	Run   func(ctx context.Context, program stdio.Program, most int) ([]byte, error)
	NewID func() string // of assertions; required
	Now   func() time.Time
}

// Service says what requests show to agents. It is safe for concurrent use; Close ends it.
type Service struct {
	deps Deps
	life context.Context //nolint:containedctx // of fetches, which serve several requests
	stop context.CancelFunc
	work sync.WaitGroup

	mu      sync.Mutex
	agents  map[string]*agent
	tokens  *cache
	flights map[flightKey]*flight
}

var _ egress.Credentials = (*Service)(nil)

// agent is one with a credential. Only its minting changes.
type agent struct {
	name    string
	config  Config
	field   *source[egress.Credential] // of a header, a file or a certificate; nil: tokens are fetched
	mint    func(context.Context, subjectToken) (issued, error)
	minting minting
}

// New makes a Service without agents.
func New(deps Deps) (*Service, error) {
	if deps.Client == nil || deps.NewID == nil {
		return nil, errors.New("credentials: incomplete Deps: expected a client and ids")
	}
	if deps.Subjects == nil {
		deps.Subjects = ContextSubjects{}
	}
	if deps.Assert == nil {
		deps.Assert = func(context.Context, string, string) (Assertion, error) { return Assertion{}, errNoSVID }
	}
	if deps.Run == nil {
		deps.Run = stdio.Output
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	s := &Service{deps: deps, agents: map[string]*agent{}, tokens: newCache(), flights: map[flightKey]*flight{}}
	s.life, s.stop = context.WithCancel(context.Background())
	return s, nil
}

var errNoSVID = errors.New("credentials: this gateway has no SVID to vouch for it")

// Close ends fetches and waits for them.
func (s *Service) Close() error {
	s.stop()
	s.work.Wait()
	return nil
}

// Use puts the credentials of agents in force, by name. What has not changed keeps its tokens.
func (s *Service) Use(all map[string]Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := make(map[string]*agent, len(all))
	for name, config := range all {
		if old := s.agents[name]; old != nil && reflect.DeepEqual(old.config, config) {
			next[name] = old
			continue
		}
		next[name] = s.agent(name, config)
	}
	s.tokens.dropAgents(func(name string) bool { return next[name] == nil || next[name] != s.agents[name] })
	s.agents = next
}

func (s *Service) agent(name string, c Config) *agent {
	a := &agent{name: name, config: c}
	field := func(load func() (egress.Credential, error)) {
		a.field = &source[egress.Credential]{load: load, now: s.deps.Now}
	}
	switch {
	case c.Header != nil:
		field(func() (egress.Credential, error) {
			value, err := ReadField(c.Header.ValueFile)
			return egress.Credential{Field: c.Header.Name, Value: value}, err
		})
	case c.Bearer != nil && c.Bearer.TokenFile != "":
		field(func() (egress.Credential, error) {
			value, err := ReadField(c.Bearer.TokenFile)
			return bearer(value), err
		})
	case c.Bearer != nil:
		a.mint = func(ctx context.Context, _ subjectToken) (issued, error) { return s.command(ctx, c.Bearer.Command) }
	case c.Basic != nil:
		field(func() (egress.Credential, error) {
			password, err := ReadSecret(c.Basic.PasswordFile)
			return egress.Credential{Field: fieldAuthorization, Value: basicOf(c.Basic.User, string(password))}, err
		})
	case c.Certificate != nil:
		field(c.Certificate.load)
	case c.OAuth != nil:
		a.mint = func(ctx context.Context, subject subjectToken) (issued, error) {
			return s.request(ctx, c.OAuth, subject)
		}
	}
	return a
}

func bearer(token string) egress.Credential {
	return egress.Credential{Field: fieldAuthorization, Value: "Bearer " + token}
}

func (c Certificate) load() (egress.Credential, error) {
	pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
	if err != nil {
		return egress.Credential{}, err
	}
	sum := sha256.Sum256(pair.Certificate[0])
	return egress.Credential{Certificate: &pair, CertificateID: hex.EncodeToString(sum[:])}, nil
}

// ownKey is that of the gateway's own token for an agent.
func (a *agent) ownKey() tokenKey { return tokenKey{agent: a.name} }

// of is the agent that a request goes to, if its credential may be shown there; nil: none.
func (s *Service) of(r *http.Request) (*agent, egress.Purpose) {
	purpose, ok := egress.PurposeFrom(r.Context())
	if !ok {
		return nil, purpose
	}
	s.mu.Lock()
	a := s.agents[purpose.Agent]
	s.mu.Unlock()
	if a == nil || !slices.Contains(a.config.Origins, Origin(r.URL)) {
		return nil, purpose
	}
	return a, purpose
}

// For implements egress.Credentials. Its error is a *transport.CredentialError, or the request's context's.
func (s *Service) For(r *http.Request) (egress.Credential, error) {
	a, purpose := s.of(r)
	switch {
	case a == nil:
		return egress.Credential{}, nil
	case a.field != nil:
		shown, err := a.field.get(false)
		if err != nil {
			return egress.Credential{}, a.error(&failure{reason: "its file cannot be used", err: err})
		}
		return shown, nil
	}
	key, subject, err := s.whose(r.Context(), a, purpose)
	if err != nil {
		return egress.Credential{}, err
	}
	t, err := s.token(r.Context(), a, key, subject)
	if err != nil {
		return egress.Credential{}, err
	}
	return bearer(t.value), nil
}

// whose is for whom a token is, and what is exchanged for it.
func (s *Service) whose(ctx context.Context, a *agent, purpose egress.Purpose) (tokenKey, subjectToken, error) {
	if a.config.Kind() != KindExchange || purpose.Own {
		return a.ownKey(), subjectToken{}, nil
	}
	value, kind, ok := s.deps.Subjects.SubjectToken(ctx)
	if !ok || value == "" {
		return tokenKey{}, subjectToken{}, a.error(&failure{reason: "it is called in the name of callers, and this one has shown no OAuth token", caller: true})
	}
	subject := subjectToken{value, kind}
	return tokenKey{a.name, purpose.Caller, subject.hash()}, subject, nil
}

// Refused implements egress.Credentials. A token that was fetched within a second is not fetched again.
func (s *Service) Refused(r *http.Request, shown egress.Credential) bool {
	a, purpose := s.of(r)
	if a == nil || a.config.Certificate != nil {
		return false
	}
	if a.field != nil {
		now, err := a.field.get(true)
		return err == nil && now != shown
	}
	key, _, err := s.whose(r.Context(), a, purpose)
	if err != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.known(a, key)
	switch {
	case known.value != "" && bearer(known.value) != shown:
		return true // another request was first
	case known.value != "" && s.deps.Now().Sub(known.fetched) < pause:
		return false
	case key == a.ownKey():
		a.minting.own = token{}
	default:
		s.tokens.drop(key)
	}
	return true
}

// Status is what operators may know of a credential.
type Status struct {
	Kind   string
	Ends   time.Time // of the gateway's own token; zero: there is none
	Failed string    // why the last attempt failed; empty: it did not
}

// Status says how the credential of an agent stands; false: it has none.
func (s *Service) Status(name string) (Status, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.agents[name]
	if a == nil {
		return Status{}, false
	}
	out := Status{Kind: a.config.Kind(), Ends: a.minting.own.ends}
	failed := a.minting.failure
	if a.field != nil {
		if _, err := a.field.get(false); err != nil {
			failed = a.error(&failure{reason: "its file cannot be used"})
		}
	}
	if why, ok := errors.AsType[*transport.CredentialError](failed); ok {
		out.Failed = why.Reason
	}
	return out, true
}

// Exchanges reports whether an agent is called with tokens that were exchanged for those of callers.
func (s *Service) Exchanges(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.agents[name]
	return a != nil && a.config.Kind() == KindExchange
}
