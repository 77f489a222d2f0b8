package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// made is a release of two programs for both platforms of the image.
func made(t *testing.T) release {
	t.Helper()
	r := release{root: t.TempDir(), Version: "1.2.3", Commit: "abc", Time: time.Unix(1_700_000_000, 0).UTC()}
	for _, arch := range []string{"amd64", "arm64"} {
		for _, name := range programs {
			a := artifact{Name: name, Path: name + arch, Goos: "linux", Goarch: arch, Type: "Binary"}
			a.Extra.ID = name
			if err := os.WriteFile(filepath.Join(r.root, a.Path), []byte(name+" for "+arch), 0o600); err != nil {
				t.Fatal(err)
			}
			r.Artifacts = append(r.Artifacts, a)
		}
	}
	return r
}

func TestImage_HasTheProgramsAndNoMore(t *testing.T) {
	t.Parallel()
	r, dir := made(t), t.TempDir()
	if err := writeImage(r, dir); err != nil {
		t.Fatal(err)
	}
	if err := r.checkImage(dir); err != nil {
		t.Error(err)
	}
	images, err := readImages(dir)
	if err != nil {
		t.Fatal(err)
	}
	files, err := imageFiles(images["arm64"])
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 3 || string(files["aepbctl"]) != "aepbctl for arm64" || bytes.Count(files["etc/ssl/certs/ca-certificates.crt"], []byte("BEGIN CERTIFICATE")) < 50 {
		t.Errorf("%d files; aepbctl is %q", len(files), files["aepbctl"])
	}
}

func TestImage_IsTheSameTwice(t *testing.T) {
	t.Parallel()
	r := made(t)
	var digests []string
	for range 2 {
		dir := t.TempDir()
		if err := writeImage(r, dir); err != nil {
			t.Fatal(err)
		}
		index, err := os.ReadFile(filepath.Join(dir, "index.json"))
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, string(index))
	}
	if digests[0] != digests[1] {
		t.Errorf("two images of one release differ:\n%s\n%s", digests[0], digests[1])
	}
}

func TestCheck_FindsAnotherProgram(t *testing.T) {
	t.Parallel()
	r, dir := made(t), t.TempDir()
	if err := writeImage(r, dir); err != nil {
		t.Fatal(err)
	}
	other := made(t)
	if err := errors.Join(same(r, other), other.checkImage(dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(other.root, "aepbctlamd64"), []byte("changed"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := same(r, other); !errors.Is(err, errRelease) {
		t.Errorf("another build: %v", err)
	}
	if err := other.checkImage(dir); !errors.Is(err, errRelease) {
		t.Errorf("an image of another release: %v", err)
	}
	if err := same(r, release{}); !errors.Is(err, errRelease) {
		t.Errorf("nothing to compare: %v", err)
	}
}

func TestUnpack_WritesBelowTheRoot(t *testing.T) {
	t.Parallel()
	r, dir, root := made(t), t.TempDir(), t.TempDir()
	if err := errors.Join(writeImage(r, dir), unpack(dir, root)); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(root, "aepb-gateway"))
	if err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("%v %v", info, err)
	}
}
