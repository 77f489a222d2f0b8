// Command toolbox is an MCP server over standard input and output, for the scripts: the
// server of the demo, built with the official SDK for Go.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
)

func main() {
	if err := peers.ServeStdio(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "toolbox:", err)
		os.Exit(1)
	}
}
