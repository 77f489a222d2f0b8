// Package release says which version of the programs this is, and from which
// commit it was built. Both programs print it and the gateway puts it into its
// capability document and into every ECT that it signs.
package release

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// Version is the semantic version that the source is of (AEPB, Versioning).
const Version = "0.1.0"

// Build is what a program knows of its making.
type Build struct {
	Version   string `json:"version"`       // that of the tag it was built from, without v; of any other commit: Version
	Commit    string `json:"commit"`        // with -modified if it was not that commit alone; unknown: built without version control
	GoVersion string `json:"go"`            // of the Go toolchain
	Sum       string `json:"sum,omitempty"` // the module's hash as in go.sum (h1:...); empty: built in a checkout, not as a module
}

// Current is the build that runs.
func Current() Build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{GoVersion: runtime.Version()}
	}
	return From(info)
}

// From reads what the Go tool wrote into a program.
func From(info *debug.BuildInfo) Build {
	b := Build{Version: Version, Commit: "unknown", GoVersion: info.GoVersion, Sum: info.Main.Sum}
	if tag, ok := strings.CutPrefix(info.Main.Version, "v"); ok && tagged(tag) {
		b.Version = tag
	}
	modified := ""
	for _, setting := range info.Settings {
		switch {
		case setting.Key == "vcs.revision":
			b.Commit = setting.Value
		case setting.Key == "vcs.modified" && setting.Value == "true":
			modified = "-modified"
		}
	}
	b.Commit += modified
	return b
}

// tagged reports whether a version is that of a tag. For a commit without one the Go tool
// makes a version that ends with the time, 14 digits, and 12 digits of the commit; for a
// checkout with changes one that ends with +dirty.
func tagged(version string) bool {
	made, err := regexp.MatchString(`[-.]\d{14}-[0-9a-f]{12}$|\+dirty$`, version)
	return err == nil && !made
}

// Text is what a program prints for its version: one line each for the program,
// the commit and Go.
func (b Build) Text(program string) string {
	return fmt.Sprintf("%s %s\ncommit %s\n%s\n", program, b.Version, b.Commit, b.GoVersion)
}

// JSON is the same as one JSON object and a newline.
func (b Build) JSON() string {
	text, _ := json.Marshal(b) // four texts: it cannot fail
	return string(text) + "\n"
}

// Flag gives a program's root command the flag --version, which prints Text in place of
// the command's own work. Cobra's own flag links text/template, whose calls of methods
// by name keep every method in the program: a third of its size.
func Flag(root *cobra.Command) {
	version := root.Flags().BoolP("version", "v", false, "version for "+root.Name())
	work := root.RunE
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if !*version {
			return work(cmd, args)
		}
		_, err := io.WriteString(cmd.OutOrStdout(), Current().Text(root.Name()))
		return err
	}
}
