package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"

	"github.com/spf13/cobra"

	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/httpapi"
	"github.com/aepb/aepb-gateway/gateway/telemetry"
	"github.com/aepb/aepb-gateway/policy"
)

// Where serve listens when the file does not say.
const (
	defaultPublic = ":8443"
	defaultAdmin  = "127.0.0.1:9443"
	minToken      = 26 // characters of an admin token: 128 bits in base 32
)

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
	return &cobra.Command{
		Use:   "check-config FILE",
		Short: "Say what is wrong with a configuration, or that nothing is",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := readConfig(args[0])
			if err == nil {
				_, err = production(c, io.Discard)
			}
			if err == nil {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), "ok")
			}
			return err
		},
	}
}

func serve(ctx context.Context, file string, stdout, stderr io.Writer) error {
	httpapi.Quiet()
	c, err := readConfig(file)
	if err != nil {
		return err
	}
	s, err := production(c, stderr)
	if err != nil {
		return err
	}
	service, err := wire(s)
	if err != nil {
		return err
	}
	public, err := net.Listen("tcp", orDefault(c.Listen.Public, defaultPublic))
	if err != nil {
		return err
	}
	admin, err := net.Listen("tcp", orDefault(c.Listen.Admin, defaultAdmin))
	if err != nil {
		return errors.Join(err, public.Close())
	}
	fmt.Fprintf(stdout, "ready public https://%s\nready admin https://%s\n", public.Addr(), admin.Addr())
	service.watch = service.watcher(file)
	return service.run(ctx, public, admin)
}

// production reads everything that the configuration names, and so finds every
// mistake before anything listens.
func production(c config.Config, logs io.Writer) (settings, error) {
	s := settings{config: c, publicURL: c.PublicURL, logger: telemetry.NewLogger(logs, c.LogLevel())}
	if err := c.Serve(); err != nil {
		return s, err
	}
	var errs []error
	note := func(what string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("config: %s: %w", what, err))
		}
	}
	var err error
	s.svid, err = identity.LoadSVID(c.Identity.Certificate, c.Identity.Key)
	note("identity", err)
	s.bundle, err = loadBundle(c.Identity)
	note("identity.bundle", err)
	s.adminToken, err = loadToken(c.Admin.Token)
	note("admin.token", err)
	s.redis, err = loadRedis(c.State.Redis)
	note("state.redis", err)
	public, err := loadPublic(c.TLS)
	note("tls", err)
	s.document, err = loadPolicy(c.Policy.Document)
	note("policy.document", err)
	s.hosts, err = hosts(c)
	note("public_url", err)
	if len(errs) == 0 {
		s.source, err = identity.NewSourceFrom(identity.SourceDeps{SVID: s.svid, Bundle: s.bundle, Public: public, SystemRoots: true})
		note("identity", err)
	}
	return s, errors.Join(errs...)
}

// loadBundle reads trust anchors in PEM or as a SPIFFE bundle.
func loadBundle(c config.Identity) (*identity.Bundle, error) {
	data, err := os.ReadFile(c.Bundle)
	if err != nil {
		return nil, err
	}
	if bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		return identity.ParseBundle(c.TrustDomain, data)
	}
	return identity.LoadBundle(c.Bundle, c.TrustDomain)
}

func loadToken(file string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	token := string(bytes.TrimSpace(data))
	if len(token) < minToken {
		return "", fmt.Errorf("shorter than %d characters", minToken)
	}
	return token, nil
}

// loadPolicy reads a policy document; without a file there is none.
func loadPolicy(file string) (policy.Document, error) {
	if file == "" {
		return policy.Document{}, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return policy.Document{}, err
	}
	return policy.ParseDocument(data)
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

func orDefault(value, fallback string) string {
	if value == "" {
		return fallback
	}
	return value
}
