//go:build manual

package release

import (
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// Manual adds the command `manual DIR` to a program, which writes its man pages there. Only a
// build for that has it. SOURCE_DATE_EPOCH is the date that the pages bear.
func Manual(root *cobra.Command) {
	root.AddCommand(&cobra.Command{
		Use: "manual DIR", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			epoch, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
			if err != nil {
				return err
			}
			date := time.Unix(epoch, 0).UTC()
			root.DisableAutoGenTag = true
			return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Date: &date, Source: root.Name() + " " + Version, Manual: "AEPB gateway"}, args[0])
		},
	})
}
