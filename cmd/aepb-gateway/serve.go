package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/spf13/cobra"

	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/config/advice"
	"github.com/aepb/aepb-gateway/gateway/httpapi"
	"github.com/aepb/aepb-gateway/gateway/telemetry"
	"github.com/aepb/aepb-gateway/lifecycle"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/hitl"
)

// workloadPatience is how long a start waits for the Workload API.
const workloadPatience = 30 * time.Second

func serveCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "serve --config FILE",
		Short: "Run a gateway in production",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serve(cmd.Context(), file, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration file (YAML)")
	if err := cmd.MarkFlagRequired("config"); err != nil {
		cmd.RunE = func(*cobra.Command, []string) error { return err }
	}
	return cmd
}

func checkConfigCommand() *cobra.Command {
	var before string
	cmd := &cobra.Command{
		Use:   "check-config FILE",
		Short: "Say what is wrong with a configuration, or that nothing is",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := checked(args[0])
			c := s.config
			if err == nil && before != "" {
				err = mayFollow(before, c)
			}
			if err != nil {
				return err
			}
			for _, warning := range warnings(s) {
				fmt.Fprintf(cmd.OutOrStdout(), "warning: %s\n", warning)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "ok\nmemory: at most %d MiB with these bounds\n", c.MemoryBound()>>20)
			return err
		},
	}
	cmd.Flags().StringVar(&before, "before", "", "the configuration that is in force: a protocol that FILE takes from callers needs a higher major version")
	return cmd
}

// handlesCritical reports whether a rule says what becomes of a workflow after a critical error (ATD, HITL Escalation on
// Error).
func handlesCritical(rules hitl.Rules) bool {
	_, handled := rules.MatchError("critical", "")
	return handled
}

// checked reads a configuration for serve, and finds every mistake in it and in the files
// that it names.
func checked(file string) (settings, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return settings{}, err
	}
	c, err := config.Parse(data)
	if !config.Readable(c) {
		return settings{}, fmt.Errorf("%s: %w", file, err)
	}
	s, beyond := production(c, nil, slog.New(slog.DiscardHandler))
	if err = config.Place(c, err, beyond); err != nil {
		return s, fmt.Errorf("%s: %w", file, err)
	}
	return s, nil
}

// warnings are what an operator should look at in a configuration that serve takes.
func warnings(s settings) []advice.Warning {
	facts := advice.Facts{Readers: advice.ReadersOf, HandlesCritical: handlesCritical(s.approvals)}
	switch {
	case s.files.public != nil:
		facts.Certificate = s.files.public.Leaf
	case s.files.svid != nil:
		facts.Certificate = s.files.svid.Chain[0]
	}
	return advice.Warnings(s.config, facts)
}

// mayFollow says whether a configuration may come after another one (AEPB, Versioning).
func mayFollow(file string, after config.Config) error {
	before, err := load(file)
	if err != nil {
		return err
	}
	if err := lifecycle.CheckVersion(described(before.config), described(after)); err != nil {
		return fmt.Errorf("version: %w", err)
	}
	return nil
}

func serve(ctx context.Context, file string, stdout, stderr io.Writer) (err error) {
	hangup, deaf := hangups()
	defer deaf()
	httpapi.Quiet()
	from, err := load(file)
	if err != nil {
		_, err = checked(file) // which finds the other mistakes too
		return err
	}
	c := from.config
	logger := telemetry.NewLogger(stderr, c.LogLevel())
	limitMemory(ctx, c, memlimit.FromCgroup, logger)
	workload, err := openWorkload(ctx, c.Identity, logger)
	if err != nil {
		return err
	}
	if workload != nil {
		defer func() { err = errors.Join(err, workload.Close()) }()
	}
	s, err := production(c, workload, logger)
	if err != nil {
		return err
	}
	ports, err := open(c.Listen.WithDefaults())
	if err != nil {
		return err
	}
	if s.supervisor, err = supervisor(); err != nil {
		return errors.Join(err, ports.close())
	}
	s.uacp, s.grpc, s.metrics = ports.uacp, ports.grpc, ports.metrics
	s.listening, s.listens = portOf(ports.public), ports.addresses().listens()
	service, err := wire(s)
	if err != nil {
		return errors.Join(err, ports.close())
	}
	ports.addresses().ready(stdout)
	announceGRPC(stdout, s.grpc)
	service.watch = service.watcher(from, hangup)
	service.started(ctx)
	for _, warning := range warnings(s) {
		logger.WarnContext(ctx, "the configuration is probably not as it is meant", slog.String("found", warning.Found), slog.String("do", warning.Remedy))
	}
	return service.run(ctx, ports.public, ports.admin)
}

// production reads everything that the configuration names, and so finds every
// mistake before anything listens.
func production(c config.Config, workload *identity.Workload, logger *slog.Logger) (settings, error) {
	s := settings{config: c, workload: workload, publicURL: c.PublicURL, logger: logger}
	var err error
	errs := []error{c.Serve()}
	if s.files, err = read(c, workload); err != nil {
		errs = append(errs, err)
	}
	if _, err := os.Stat(filepath.Dir(c.State.Path)); c.State.Path != "" && err != nil {
		errs = append(errs, fmt.Errorf("config: state.path: the folder of the file cannot be used: %w", err))
	}
	if s.redis, err = loadRedis(c.State.Redis); err != nil {
		errs = append(errs, fmt.Errorf("config: state.redis: %w", err))
	}
	if s.stateKeys, err = loadStateKeys(c.State.Key); err != nil {
		errs = append(errs, fmt.Errorf("config: state.key: %w", err))
	}
	if _, wrong := c.Policy.ApprovalRules(); wrong != nil {
		errs = append(errs, wrong) // and config.Parse says where
	} else if s.document, s.approvals, err = loadPolicy(&c); err != nil {
		errs = append(errs, fmt.Errorf("config: policy.document: %w", err))
	}
	if s.slim, err = readSLIM(c.SLIM); err != nil {
		errs = append(errs, err)
	}
	if s.ainp, err = ainpIdentity(c.AINP); err != nil {
		errs = append(errs, fmt.Errorf("config: ainp.key: %w", err))
	}
	if s.hosts, err = hosts(c); err != nil {
		errs = append(errs, fmt.Errorf("config: public_url: %w", err))
	}
	if err := errors.Join(errs...); err != nil || s.files.svid == nil || s.files.bundle == nil {
		return s, config.Place(c, err)
	}
	s.svid, s.bundle = s.files.svid, s.files.bundle
	s.source, err = identity.NewSourceFrom(identity.SourceDeps{SVID: s.svid, Bundle: s.bundle, Public: s.files.public, SystemRoots: true})
	return s, err
}

// openWorkload asks the Workload API who we are, if that is configured.
func openWorkload(ctx context.Context, c config.Identity, logger *slog.Logger) (*identity.Workload, error) {
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

func readDocument(file string) ([]byte, error) { return os.ReadFile(file) } //nolint:gosec // the operator names the file

// loadPolicy reads the policy document, if there is a file of one, and the rules of both it and the configuration
// that say which calls humans approve.
func loadPolicy(c *config.Config) (document policy.Document, approvals hitl.Rules, err error) {
	if approvals, err = c.Policy.ApprovalRules(); err != nil || c.Policy.Document == "" {
		return document, approvals, err
	}
	data, err := readDocument(c.Policy.Document)
	if err != nil {
		return document, approvals, err
	}
	if document, err = policy.ParseDocument(data); err != nil {
		return document, approvals, err
	}
	more, err := hitl.ParseDocumentRules(data)
	if err != nil {
		return document, approvals, err
	}
	if missing := c.Admin.Unlisted(more); len(missing) > 0 {
		return document, approvals, fmt.Errorf("document: a rule asks for %q, expected a name of admin.operators", missing[0])
	}
	approvals, err = hitl.Join(approvals, more)
	return document, approvals, err
}

func loadPublic(c config.TLS) (*tls.Certificate, error) {
	if c.Certificate == "" {
		return nil, nil //nolint:nilnil // no certificate of its own: the SVID is shown
	}
	pair, err := tls.LoadX509KeyPair(c.Certificate, c.Key)
	return &pair, err
}

// hosts are the names that we answer to.
func hosts(c config.Config) ([]string, error) {
	u, err := url.Parse(c.PublicURL)
	if err != nil || u.Scheme != "https" || u.Host == "" || (u.Path != "" && u.Path != "/") {
		return nil, errors.New("not an https URL without a path")
	}
	return append([]string{u.Hostname(), "localhost", "127.0.0.1", "::1"}, c.Admin.Hosts...), nil
}
