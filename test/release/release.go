package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// programs of a release.
var programs = []string{"aepb-gateway", "aepbctl"}

// errRelease says that a release is not as it must be.
var errRelease = errors.New("release")

// release is a folder that GoReleaser has written.
type release struct {
	root      string // relative paths of artifacts begin there
	Version   string
	Commit    string
	Time      time.Time // of the commit
	Artifacts []artifact
}

// artifact is one file of a release.
type artifact struct {
	Name, Path, Goos, Goarch, Type string
	Extra                          struct{ ID, Binary string }
}

// readRelease reads what GoReleaser says of what is in dist.
func readRelease(dist string) (release, error) {
	r := release{root: filepath.Dir(dist)}
	var metadata struct {
		Version, Commit string
		Runtime         struct{ Goos string }
	}
	for name, into := range map[string]any{"metadata.json": &metadata, "artifacts.json": &r.Artifacts} {
		text, err := os.ReadFile(filepath.Join(dist, name))
		if err != nil {
			return r, err
		}
		if err := json.Unmarshal(text, into); err != nil {
			return r, fmt.Errorf("%s: %w", name, err)
		}
	}
	r.Version, r.Commit = metadata.Version, metadata.Commit
	info, err := os.Stat(filepath.Join(r.root, r.one("Binary", programs[0], "linux", "amd64").Path)) // has the time of the commit
	if err != nil {
		return r, err
	}
	r.Time = info.ModTime().UTC()
	return r, nil
}

// one is the artifact of a kind for a platform; without a path: there is none.
func (r release) one(kind, id, goos, goarch string) artifact {
	i := slices.IndexFunc(r.Artifacts, func(a artifact) bool {
		return a.Type == kind && a.Goos == goos && a.Goarch == goarch && a.Extra.ID == id
	})
	if i < 0 {
		return artifact{}
	}
	return r.Artifacts[i]
}

// binary is a program as it is in the archives.
func (r release) binary(id, goos, goarch string) ([]byte, error) {
	a := r.one("Binary", id, goos, goarch)
	if a.Path == "" {
		return nil, fmt.Errorf("%w: no %s for %s/%s", errRelease, id, goos, goarch)
	}
	return os.ReadFile(filepath.Join(r.root, a.Path))
}
