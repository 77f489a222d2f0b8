//go:build !manual

package release

import "github.com/spf13/cobra"

// Manual adds nothing: programs that run have no command that writes man pages.
func Manual(*cobra.Command) {}
