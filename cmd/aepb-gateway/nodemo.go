//go:build nodemo

package main

import (
	"errors"

	"github.com/spf13/cobra"
)

// demoCommand says where the demo is: a release leaves out its agents, which are built
// with the SDKs of their protocols.
func demoCommand() *cobra.Command {
	return &cobra.Command{
		Use: "demo", Short: "Say how to run the demo, which this build leaves out",
		DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("this build leaves out the demo; with Go: go run github.com/aepb/aepb-gateway/cmd/aepb-gateway@v" + version() + " demo")
		},
	}
}
