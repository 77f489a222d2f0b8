package trial

import "github.com/spf13/cobra"

// Command is `aepb-gateway init`. word writes a path so that a shell reads it as one word.
func Command(word func(string) string) *cobra.Command {
	var c Config
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Write a complete set-up for a first gateway under serve: CA, certificates, configuration",
		Long: "Write a complete set-up for a first gateway under serve: a CA, certificates for the gateway,\n" +
			"its first operator and a first caller, and a configuration file with comments. Nothing that\n" +
			"exists is overwritten. The commands to go on with are printed.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if c.Public == "" {
				c.Public = "127.0.0.1:8443"
				if len(c.Hosts) > 0 {
					c.Public = ":8443"
				}
			}
			t, err := Create(c)
			if err != nil {
				return err
			}
			return t.Print(cmd.OutOrStdout(), word)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&c.Dir, "dir", "aepb-trial", "the folder to make")
	flags.StringSliceVar(&c.Hosts, "host", nil, "name or address under which callers reach the gateway, besides localhost; the first stands in public_url (repeatable)")
	flags.StringVar(&c.TrustDomain, "trust-domain", "example.test", "trust domain of the certificates")
	flags.StringVar(&c.Public, "addr", "", "public listener (default 127.0.0.1:8443, with --host :8443)")
	flags.StringVar(&c.Admin, "admin-addr", "127.0.0.1:9443", "admin listener")
	flags.StringVar(&c.Metrics, "metrics-addr", "127.0.0.1:9464", "listener for metrics and probes")
	return cmd
}
