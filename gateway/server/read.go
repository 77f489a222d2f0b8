package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/config/advice"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/hitl"
)

// workloadPatience is how long a start waits for the Workload API.
const workloadPatience = 30 * time.Second

// Production reads everything that the configuration names, and so finds every
// mistake before anything listens. The workload is that of [OpenWorkload]; nil where files say who we are. After an
// error [Warnings] still takes what it returns.
func Production(c config.Config, workload *identity.Workload, logger *slog.Logger) (Config, error) {
	s := Config{Settings: c, Identity: Identity{Workload: workload}, Names: Names{URL: c.PublicURL}, Logger: logger}
	var err error
	errs := []error{c.Serve()}
	if s.Identity.files, err = read(c, workload); err != nil {
		errs = append(errs, err)
	}
	if _, err := os.Stat(filepath.Dir(c.State.Path)); c.State.Path != "" && err != nil {
		errs = append(errs, fmt.Errorf("config: state.path: the folder of the file cannot be used: %w", err))
	}
	errs = append(errs, s.readFiles(""))
	if s.Names.Hosts, err = hosts(c); err != nil {
		errs = append(errs, fmt.Errorf("config: public_url: %w", err))
	}
	if err := errors.Join(errs...); err != nil || s.Identity.files.svid == nil || s.Identity.files.bundle == nil {
		return s, config.Place(c, err)
	}
	s.Identity.SVID, s.Identity.Bundle = s.Identity.files.svid, s.Identity.files.bundle
	s.Identity.Source, err = identity.NewSourceFrom(identity.SourceDeps{SVID: s.Identity.SVID, Bundle: s.Identity.Bundle, Public: s.Identity.files.public, SystemRoots: true})
	return s, err
}

// OpenWorkload asks the Workload API who we are, if that is configured.
func OpenWorkload(ctx context.Context, c config.Identity, logger *slog.Logger) (*identity.Workload, error) {
	if c.WorkloadAPI == "" {
		return nil, nil //nolint:nilnil // files say it
	}
	failed, err := logFailures(ctx, c.WorkloadAPI, logger)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, workloadPatience)
	defer cancel()
	return identity.OpenWorkload(ctx, identity.WorkloadDeps{Address: c.WorkloadAPI, Failed: failed})
}

// loadBundle reads the trust anchors of our own trust domain and of the federated ones.
func loadBundle(c config.Identity) (*identity.Bundle, error) {
	own, err := loadAnchors(c.Bundle, c.TrustDomain)
	if err != nil {
		return nil, err
	}
	var errs []error
	for domain, file := range c.Federated {
		other, err := loadAnchors(file, domain)
		if err != nil {
			errs = append(errs, fmt.Errorf("of the federated trust domain %s: %w", domain, err))
			continue
		}
		own.Federate(other)
	}
	return own, errors.Join(errs...)
}

// loadAnchors reads the trust anchors of one trust domain in PEM or as a SPIFFE bundle.
func loadAnchors(file, trustDomain string) (*identity.Bundle, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		return identity.ParseBundle(trustDomain, data)
	}
	return identity.LoadBundle(file, trustDomain)
}

// loadPolicy reads the policy document, if there is a file of one, and the rules of both it and the configuration
// that say which calls humans approve.
func loadPolicy(c *config.Config) (p Policy, err error) {
	if p.Approvals, err = c.Policy.ApprovalRules(); err != nil || c.Policy.Document == "" {
		return p, err
	}
	data, err := os.ReadFile(c.Policy.Document) //nolint:gosec // the operator names the file
	if err != nil {
		return p, err
	}
	if p.Document, err = policy.ParseDocument(data); err != nil {
		return p, err
	}
	more, err := hitl.ParseDocumentRules(data)
	if err != nil {
		return p, err
	}
	if missing := c.Admin.Unlisted(more); len(missing) > 0 {
		return p, fmt.Errorf("document: a rule asks for %q, expected a name of admin.operators", missing[0])
	}
	p.Approvals, err = hitl.Join(p.Approvals, more)
	return p, err
}

// DevelopmentDeps is what a development gateway is made of.
type DevelopmentDeps struct {
	Material   *identity.Development
	Settings   config.Config
	Sockets    Sockets
	Dir        string // where the keys of AINP, and of state in Redis, are kept and first made; empty: it speaks AINP only with a configured key
	AdminToken string
	Logger     *slog.Logger
}

// Development is a gateway on which callers need no credentials, with certificates of its own CA. It reads what the
// settings name.
func Development(deps DevelopmentDeps) (Config, error) {
	extra := deps.Settings
	s := Config{
		Settings: extra, Sockets: deps.Sockets, AdminToken: deps.AdminToken, Development: true, Logger: deps.Logger,
		Identity: Identity{SVID: deps.Material.Gateway, Bundle: deps.Material.Bundle},
		Names:    Names{URL: deps.Sockets.Addresses().Public, Hosts: []string{"localhost", "127.0.0.1", "::1"}},
	}
	var err error
	if s.Identity.Source, err = identity.NewSource(deps.Material.Gateway, deps.Material.Bundle); err != nil {
		return Config{}, err
	}
	if err = errors.Join(s.readFiles(deps.Dir), s.Identity.files.readKeys(extra, s.Identity.Bundle.TrustDomain())); err != nil {
		return Config{}, err
	}
	if deps.Dir != "" && extra.State.Key == "" && !extra.State.Unverified && extra.State.Redis.Used() {
		if s.State.Keys, err = stateKeyAt(filepath.Join(deps.Dir, "state-key")); err != nil {
			return Config{}, err
		}
	}
	return s, nil
}

// readFiles reads what every way of running may have files of. A folder is that of a development gateway.
func (s *Config) readFiles(dir string) error {
	c := s.Settings
	var errs []error
	note := func(key string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("config: %s: %w", key, err))
		}
	}
	var err error
	s.State.Redis, err = loadRedis(c.State.Redis)
	note("state.redis", err)
	s.State.Keys, err = loadStateKeys(c.State.Key)
	note("state.key", err)
	if _, wrong := c.Policy.ApprovalRules(); wrong != nil {
		errs = append(errs, wrong) // and config.Parse says where
	} else {
		s.Policy, err = loadPolicy(&c)
		note("policy.document", err)
	}
	s.Identity.slim, err = readSLIM(c.SLIM)
	errs = append(errs, err)
	s.Identity.AINP, err = developmentAINP(c.AINP, dir)
	note("ainp.key", err)
	errs = append(errs, config.ReadCredentials(c))
	return errors.Join(errs...)
}

// Warnings are what an operator should look at in a configuration that [Production] takes.
func Warnings(s Config) []advice.Warning {
	facts := advice.Facts{Readers: advice.ReadersOf, HandlesCritical: handlesCritical(s.Policy.Approvals)}
	switch files := s.Identity.files; {
	case files.public != nil:
		facts.Certificate = files.public.Leaf
	case files.svid != nil:
		facts.Certificate = files.svid.Chain[0]
	}
	return advice.Warnings(s.Settings, facts)
}

// handlesCritical reports whether a rule says what becomes of a workflow after a critical error (ATD, HITL Escalation on
// Error).
func handlesCritical(rules hitl.Rules) bool {
	_, handled := rules.MatchError("critical", "")
	return handled
}
