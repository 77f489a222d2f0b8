package server

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/ect/identity/oauth"
	"github.com/aepb/aepb-gateway/gateway"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/config/advice"
	"github.com/aepb/aepb-gateway/gateway/state/redis"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	tainp "github.com/aepb/aepb-gateway/gateway/transport/ainp"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/hitl"
	"github.com/aepb/aepb-gateway/policy/limit"
)

// Config is what a way of running a gateway decides. [Production] and [Development] make all of it but the
// sockets, the program and the factories.
type Config struct {
	Settings    config.Config // what the operator wrote
	Identity    Identity
	Policy      Policy
	State       State
	Names       Names
	Sockets     Sockets
	AdminToken  string // admits to the admin API (R17); empty: operators show certificates
	Development bool   // callers need no credentials, and loopback needs no TLS (R3)
	Program     Program
	Factories   []Factory // of protocols beside the built-in ones
	Hooks       Hooks
	Logger      *slog.Logger
}

// Identity is who the gateway is, and whom it trusts.
type Identity struct {
	Source   *identity.Source
	SVID     *identity.SVID
	Bundle   *identity.Bundle
	Workload *identity.Workload // nil: files say who we are
	AINP     tainp.Identity     // zero: AINP is not spoken

	files identityFiles // as they were at the start
	slim  []slimMember  // of the configured SLIM nodes
}

// Policy are the rules that files name.
type Policy struct {
	Document  policy.Document
	Approvals hitl.Rules // of the document and of the configuration
}

// State says where state is kept, beside what config.State says.
type State struct {
	Redis *redis.Config // nil: not in Redis
	Keys  [][]byte      // of state.key; none: not configured
}

// Names are those under which callers reach the gateway.
type Names struct {
	URL   string   // where callers reach us when their Host header is none of ours
	Hosts []string // names without a port
}

// Program is the program that runs the gateway.
type Program struct {
	Version, Commit string
	Supervisor      []string // the command that supervises the programs of agents; none: they run without
}

// Hooks let a test, or a demonstration, look into a gateway. The zero value has none.
type Hooks struct {
	Observe func(*Stored)    // sees what is stored, and may put something before it
	Clock   func() time.Time // of circuit breakers; nil: time.Now
	Epoch   time.Time        // since when state in memory knows every use of a token; zero: since the next second
}

// Stored is what a gateway stores.
type Stored struct {
	Evidence ect.Store
	Entries  store.Entries
}

// version is the gateway's own (AEPB, Versioning).
func (s Config) version() string { return cmp.Or(s.Settings.Version, s.Program.Version) }

// restartKeys are what only a restart changes.
func (s Config) restartKeys() map[string]string { return advice.RestartKeys(s.Settings, s.Development) }

// Pipeline is the configuration as the pipeline takes it.
func (s Config) Pipeline() gateway.Settings {
	c := s.Settings
	return gateway.Settings{
		Constraints: c.Constraints(), Document: s.Policy.Document, Gateways: c.Gateways(), RequireECT: c.ECT.Require,
		Timeout: time.Duration(c.Timeout), TaskUnchanged: time.Duration(c.Limits.TaskUnchanged),
		AnswerWait: time.Duration(c.Limits.AnswerWait), Version: s.version(), ECTInBody: c.InBody(),
		Approvals: s.Policy.Approvals, CheckpointTTL: c.Policy.CheckpointLifetime(), Groups: c.Consensus.List(), Operators: s.operators(),
		Schedule: c.Policy.Schedule(c.Agents),
	}
}

// operators are those of the configuration; with a token, as dev has it, also the developer who shows it.
func (s Config) operators() []policy.Operator {
	all := slices.Collect(maps.Values(s.Settings.Operators()))
	if s.AdminToken != "" {
		all = append(all, policy.Operator{Name: "developer", Roles: policy.Roles()})
	}
	return all
}

// limits are wider on a development gateway, where one caller is everybody.
func (s Config) limits() limit.Config {
	limits := s.Settings.Limit()
	if s.Development && limits.Rate == 0 {
		limits.Rate = 1000
	}
	if s.Development && limits.Burst == 0 {
		limits.Burst = 2000
	}
	return limits
}

// Connections are bounds of connections that stay open. On a development gateway,
// where all callers may be one, that one may have them all.
func (s Config) Connections(b config.ConnectionBounds) config.ConnectionBounds {
	whole := s.Settings.Sockets(b)
	if s.Development && b.PerCaller == 0 {
		whole.PerCaller = whole.Total
	}
	if s.Development && b.PerAddress == 0 {
		whole.PerAddress = whole.Unidentified
	}
	return whole
}

// reserved is what the ids that access tokens give begin with, which no other credential may show; empty: none are
// accepted.
func (s Config) reserved() string {
	if len(s.Settings.OAuth) == 0 {
		return ""
	}
	return oauth.Prefix(s.Identity.Bundle.TrustDomain())
}

// Anonymous is who callers without credentials are; empty: they are refused (R3).
func (s Config) Anonymous() ect.Identity {
	if !s.Development {
		return ""
	}
	return identity.Anonymous(s.Identity.Bundle.TrustDomain()).ID
}
