// Package release says which version of the programs this is, and from which
// commit it was built. Both programs print it and the gateway puts it into its
// capability document and into every ECT that it signs.
package release

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Version is the semantic version of the programs (AEPB, Versioning).
const Version = "0.1.0"

// Build is what a program knows of its making.
type Build struct {
	Commit    string // with -modified if it was not that commit alone; unknown: built without version control
	GoVersion string
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
	b := Build{Commit: "unknown", GoVersion: info.GoVersion}
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

// Text is what a program prints for its version: one line each for the program,
// the commit and Go.
func Text(program string) string {
	b := Current()
	return fmt.Sprintf("%s %s\ncommit %s\n%s\n", program, Version, b.Commit, b.GoVersion)
}
