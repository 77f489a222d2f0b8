package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/config"
	tslim "github.com/aepb/aepb-gateway/gateway/transport/slim"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/credential"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/slim"
)

// readSecrets reads the secret of every SLIM node, in their order.
func readSecrets(c config.SLIM) ([][]byte, error) {
	secrets := make([][]byte, len(c.Nodes))
	var errs []error
	for i, n := range c.Nodes {
		secret, err := os.ReadFile(n.SecretFile)
		secrets[i] = bytes.TrimSpace(secret)
		if err == nil && len(secrets[i]) < credential.MinSecret {
			err = fmt.Errorf("shorter than %d octets", credential.MinSecret)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("config: slim.nodes[%d].shared_secret_file: %w", i, err))
		}
	}
	return secrets, errors.Join(errs...)
}

// speakSLIM connects to the configured nodes when the service runs.
func speakSLIM(out *service) (protocol, error) {
	deps := tslim.NetworkDeps{Egress: out.guard, Logger: out.logger}
	for i, n := range out.settings.config.SLIM.Nodes {
		address, plain := n.Address()
		out.guard.Allow(address)
		deps.Nodes = append(deps.Nodes, tslim.NodeConfig{
			Address: address, Plain: plain, ID: ect.Identity(n.ID), Org: n.Organization, Namespace: n.Namespace,
			Secret: out.settings.slim[i], Caller: ect.Identity(n.Caller),
		})
	}
	network, err := tslim.NewNetwork(deps)
	if err != nil {
		return protocol{}, err
	}
	form := slim.New(translators.Config{})
	dialer, err := tslim.NewDialer(tslim.DialerDeps{Network: network, Form: form})
	if err != nil || len(deps.Nodes) == 0 {
		return protocol{form: form, dialer: dialer}, err
	}
	listener, err := tslim.NewListener(tslim.ListenerDeps{
		Network: network, Form: form, Agents: out.exposed, Anonymous: out.settings.anonymous(), Version: version,
	})
	return protocol{form: form, dialer: dialer, listener: listener}, err
}

// exposed are the agents that callers may know by name.
func (out *service) exposed() []string {
	agents := out.directory.List()
	names := make([]string, 0, len(agents))
	for _, agent := range agents {
		names = append(names, agent.Name)
	}
	return names
}
