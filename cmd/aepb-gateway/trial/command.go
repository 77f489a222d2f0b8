package trial

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// options is what the command line asks for.
type options struct {
	Config

	callers, agents, operators []string
	roles                      []string
	renew, renewCA, list       bool
}

// Command is `aepb-gateway init`. word writes a path so that a shell reads it as one word.
func Command(word func(string) string) *cobra.Command {
	var c options
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Write a complete set-up for a first gateway under serve: CA, certificates, configuration",
		Long: "Write a complete set-up for a first gateway under serve: a CA, certificates for the gateway,\n" +
			"its first operator and a first caller, and a configuration file with comments. Nothing that\n" +
			"exists is overwritten. The commands to go on with are printed.\n\n" +
			"In a folder that has such a CA: issue certificates for callers, agents and operators, list\n" +
			"them, renew those that end soon, or make a new CA.",
		Example: "  aepb-gateway init --dir gw\n" +
			"  aepb-gateway init --dir gw --caller shop --caller billing\n" +
			"  aepb-gateway init --dir gw --agent calculator --host calculator.example.com\n" +
			"  aepb-gateway init --dir gw --operator ann --role operator --role auditor\n" +
			"  aepb-gateway init --dir gw --list\n" +
			"  aepb-gateway init --dir gw --renew             # those with less than a third of their time left\n" +
			"  aepb-gateway init --dir gw --renew shop        # this one now\n" +
			"  aepb-gateway init --dir gw --renew-ca",
		RunE: func(cmd *cobra.Command, names []string) error {
			if len(names) > 0 && !c.renew {
				return fmt.Errorf("%q is no flag: names of certificates go with --renew alone", names[0])
			}
			if len(c.callers)+len(c.agents)+len(c.operators) > 0 || c.renew || c.renewCA || c.list {
				return c.inFolder(cmd, word, names)
			}
			if err := onlyWith(cmd, "a new set-up", "dir", "host", "trust-domain", "addr", "admin-addr", "metrics-addr"); err != nil {
				return err
			}
			if c.Public == "" {
				c.Public = "127.0.0.1:8443"
				if len(c.Hosts) > 0 {
					c.Public = ":8443"
				}
			}
			t, err := Create(c.Config)
			if err != nil {
				return err
			}
			return t.Print(cmd.OutOrStdout(), word)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&c.Dir, "dir", "aepb-trial", "the folder to make, or that has the CA")
	flags.StringSliceVar(&c.Hosts, "host", nil, "name or address under which callers reach the gateway, besides localhost; public_url has the first one. With --agent: name or address of the agent's server, in place of localhost (repeatable)")
	flags.StringVar(&c.TrustDomain, "trust-domain", "example.test", "trust domain of the certificates")
	flags.StringVar(&c.Public, "addr", "", "public listener (default 127.0.0.1:8443, with --host :8443)")
	flags.StringVar(&c.Admin, "admin-addr", "127.0.0.1:9443", "admin listener")
	flags.StringVar(&c.Metrics, "metrics-addr", "127.0.0.1:9464", "listener for metrics and probes")
	flags.StringArrayVar(&c.callers, "caller", nil, "issue a certificate for a caller of this name (repeatable)")
	flags.StringArrayVar(&c.agents, "agent", nil, "issue a certificate for an agent of this name (repeatable)")
	flags.StringArrayVar(&c.operators, "operator", nil, "issue a certificate for an operator of this name, with --role (repeatable)")
	flags.StringSliceVar(&c.roles, "role", nil, "role of the new operators: viewer, operator, approver, auditor (repeatable)")
	flags.BoolVar(&c.renew, "renew", false, "issue certificates again: those whose names follow, else all with less than a third of their time left")
	flags.BoolVar(&c.renewCA, "renew-ca", false, "make a new CA, and trust the former one until its end")
	flags.BoolVar(&c.list, "list", false, "list the certificates, and warn of those that end within 14 days")
	return cmd
}

// onlyWith refuses flags that say nothing for what is to be done.
func onlyWith(cmd *cobra.Command, what string, allowed ...string) error {
	var errs []error
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		if !slices.Contains(allowed, flag.Name) {
			errs = append(errs, fmt.Errorf("--%s does not go with %s: expected --%s alone", flag.Name, what, strings.Join(allowed, ", --")))
		}
	})
	return errors.Join(errs...)
}

// inFolder does what takes a folder that has a CA.
func (c options) inFolder(cmd *cobra.Command, word func(string) string, names []string) error {
	what, allowed := c.action()
	if err := onlyWith(cmd, what, append(allowed, "dir", "trust-domain")...); err != nil {
		return err
	}
	f, err := Open(c.Dir, time.Now)
	if err != nil {
		return err
	}
	if cmd.Flags().Changed("trust-domain") && c.TrustDomain != f.bundle.TrustDomain() {
		return fmt.Errorf("--trust-domain %s: the CA in %s is of %s and issues for no other: leave the flag out, or name another folder with --dir", c.TrustDomain, f.dir, f.bundle.TrustDomain())
	}
	out := cmd.OutOrStdout()
	switch {
	case c.list:
		return f.PrintList(out, cmd.ErrOrStderr())
	case c.renewCA:
		if err := f.RenewCA(); err != nil {
			return err
		}
		return f.PrintRenewedCA(out, word)
	case c.renew:
		done, err := f.Renew(names)
		if err != nil && len(done.Issued) == 0 {
			return err
		}
		return errors.Join(err, f.PrintRenewal(out, word, done))
	}
	made, err := f.Issue(c.requests())
	if err != nil {
		return err
	}
	return f.PrintIssued(out, word, made)
}

// action is what is to be done, and the flags that say more about it.
func (c options) action() (what string, allowed []string) {
	switch {
	case c.list:
		return "--list", []string{"list"}
	case c.renewCA:
		return "--renew-ca", []string{"renew-ca"}
	case c.renew:
		return "--renew", []string{"renew"}
	case len(c.agents) > 0 && len(c.operators) > 0:
		return "new certificates", []string{"caller", "agent", "operator", "host", "role"}
	case len(c.agents) > 0:
		return "--agent", []string{"caller", "agent", "host"}
	case len(c.operators) > 0:
		return "--operator", []string{"caller", "operator", "role"}
	default:
		return "--caller", []string{"caller"}
	}
}

// requests are the certificates to issue.
func (c options) requests() []Request {
	var all []Request
	for _, name := range c.callers {
		all = append(all, Request{Kind: KindCaller, Name: name})
	}
	for _, name := range c.agents {
		all = append(all, Request{Kind: KindAgent, Name: name, Hosts: c.Hosts})
	}
	for _, name := range c.operators {
		all = append(all, Request{Kind: KindOperator, Name: name, Roles: c.roles})
	}
	return all
}
