package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// maxProgram is how large a program may be, in bytes.
const maxProgram = 40_000_000

// platforms are those of the archives.
var platforms = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64", "windows/arm64"}

// inPackages are files that each package has.
var inPackages = []string{
	"/usr/bin/aepb-gateway", "/usr/bin/aepbctl", "/usr/lib/systemd/system/aepb-gateway.service", "/usr/lib/sysusers.d/aepb-gateway.conf",
	"/usr/share/man/man1/aepb-gateway-serve.1.gz", "/usr/share/man/man1/aepbctl-send.1.gz", "/usr/share/bash-completion/completions/aepbctl",
}

// check judges a release and its image.
func check(r release, image string) error {
	errs := []error{r.checkSums()}
	archives := map[string]bool{}
	for _, a := range r.Artifacts {
		path := filepath.Join(r.root, a.Path)
		switch a.Type {
		case "Archive":
			archives[a.Goos+"/"+a.Goarch] = true
			errs = append(errs, r.checkArchive(a))
		case "Linux Package":
			errs = append(errs, checkPackage(path))
		case "SBOM":
			text, err := os.ReadFile(path)
			if err == nil && !bytes.Contains(text, []byte("github.com/gin-gonic/gin")) {
				err = fmt.Errorf("%w: %s lists no modules", errRelease, a.Name)
			}
			errs = append(errs, err)
		}
	}
	for _, p := range platforms {
		if !archives[p] {
			errs = append(errs, fmt.Errorf("%w: no archive for %s", errRelease, p))
		}
	}
	for kind, want := range map[string]int{"Archive": len(platforms), "Linux Package": 4, "SBOM": len(platforms)} {
		if got := r.count(kind); got != want {
			errs = append(errs, fmt.Errorf("%w: %d of %s, want %d", errRelease, got, kind, want))
		}
	}
	return errors.Join(append(errs, r.checkImage(image))...)
}

func (r release) count(kind string) (n int) {
	for _, a := range r.Artifacts {
		if a.Type == kind {
			n++
		}
	}
	return n
}

// checkSums compares checksums.txt with the files.
func (r release) checkSums() error {
	text, err := os.ReadFile(filepath.Join(r.root, "dist", "checksums.txt"))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		want, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		content, err := os.ReadFile(filepath.Join(r.root, "dist", name))
		if err != nil {
			return err
		}
		if got := sha256.Sum256(content); hex.EncodeToString(got[:]) != want {
			return fmt.Errorf("%w: %s is not what checksums.txt says", errRelease, name)
		}
	}
	return nil
}

// checkArchive judges the programs of an archive, and runs those for this machine.
func (r release) checkArchive(a artifact) error {
	files, err := unarchive(filepath.Join(r.root, a.Path))
	if err != nil {
		return fmt.Errorf("%s: %w", a.Name, err)
	}
	for _, name := range []string{"LICENSE", "README.md", "man/aepbctl-send.1.gz", "completions/aepb-gateway.bash", "deploy/systemd/aepb-gateway.service", "deploy/examples/single.yaml", "docs/operate.md"} {
		if files[name] == nil {
			return fmt.Errorf("%w: %s has no %s", errRelease, a.Name, name)
		}
	}
	for _, name := range programs {
		if a.Goos == "windows" {
			name += ".exe"
		}
		if err := r.checkProgram(a, name, files[name]); err != nil {
			return fmt.Errorf("%s: %s: %w", a.Name, name, err)
		}
	}
	return nil
}

func (r release) checkProgram(a artifact, name string, content []byte) error {
	if len(content) == 0 || len(content) > maxProgram {
		return fmt.Errorf("%w: %d bytes, want 1 to %d", errRelease, len(content), maxProgram)
	}
	info, err := buildinfo.Read(bytes.NewReader(content))
	if err != nil {
		return err
	}
	if info.Main.Version != "v"+r.Version {
		return fmt.Errorf("%w: it is of version %s, want v%s", errRelease, info.Main.Version, r.Version)
	}
	if a.Goos != runtime.GOOS || a.Goarch != runtime.GOARCH {
		return nil
	}
	dir, err := os.MkdirTemp("", "aepb-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, content, 0o700); err != nil {
		return err
	}
	out, err := exec.Command(path, "version", "-o", "json").Output()
	if err != nil {
		return err
	}
	if got := string(out); !strings.Contains(strings.ReplaceAll(got, " ", ""), `"version":"`+r.Version+`"`) || !strings.Contains(got, r.Commit) {
		return fmt.Errorf("%w: it says %s, want version %s and commit %s", errRelease, got, r.Version, r.Commit)
	}
	return nil
}

// unarchive is the content of an archive by name.
func unarchive(path string) (map[string][]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	if strings.HasSuffix(path, ".zip") {
		r, err := zip.NewReader(bytes.NewReader(text), int64(len(text)))
		if err != nil {
			return nil, err
		}
		for _, f := range r.File {
			content, err := f.Open()
			if err != nil {
				return nil, err
			}
			if files[f.Name], err = io.ReadAll(content); err != nil {
				return nil, err
			}
		}
		return files, nil
	}
	zipped, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	return files, untar(zipped, func(h *tar.Header, content io.Reader) (err error) {
		files[h.Name], err = io.ReadAll(content)
		return err
	})
}

// untar calls each for each regular file.
func untar(from io.Reader, each func(*tar.Header, io.Reader) error) error {
	r := tar.NewReader(from)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Typeflag == tar.TypeReg {
			if err := each(h, r); err != nil {
				return err
			}
		}
	}
}

// checkPackage looks for files in a package, with the tools of its kind that are installed.
func checkPackage(path string) error {
	var list *exec.Cmd
	switch filepath.Ext(path) {
	case ".deb":
		list = exec.Command("dpkg-deb", "--contents", path)
	case ".rpm":
		if _, err := exec.LookPath("rpm"); err != nil {
			return nil //nolint:nilerr // its content is that of the deb: both are made of one list
		}
		list = exec.Command("rpm", "-qlp", path)
	default:
		return fmt.Errorf("%w: unknown package %s", errRelease, path)
	}
	out, err := list.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", path, err, out)
	}
	for _, name := range inPackages {
		if !strings.Contains(string(out), name) {
			return fmt.Errorf("%w: %s has no %s", errRelease, path, name)
		}
	}
	return nil
}

// checkImage judges the image of both platforms.
func (r release) checkImage(dir string) error {
	images, err := readImages(dir)
	if err != nil {
		return err
	}
	for _, arch := range []string{"amd64", "arm64"} {
		image, ok := images[arch]
		if !ok {
			return fmt.Errorf("%w: no image of linux/%s", errRelease, arch)
		}
		config, err := image.ConfigFile()
		if err != nil {
			return err
		}
		if config.Config.User != user || config.Config.Labels["org.opencontainers.image.version"] != r.Version {
			return fmt.Errorf("%w: the image runs as %q with the labels %v", errRelease, config.Config.User, config.Config.Labels)
		}
		files, err := imageFiles(image)
		if err != nil {
			return err
		}
		for _, name := range programs {
			want, err := r.binary(name, "linux", arch)
			if err != nil {
				return err
			}
			if !bytes.Equal(files[name], want) {
				return fmt.Errorf("%w: %s of the image is not that of the archives", errRelease, name)
			}
		}
	}
	return nil
}

// readImages are the images of a layout by architecture.
func readImages(dir string) (map[string]v1.Image, error) {
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, err
	}
	outer, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	if len(outer.Manifests) != 1 {
		return nil, fmt.Errorf("%w: %d images in the layout, want one of two platforms", errRelease, len(outer.Manifests))
	}
	if index, err = index.ImageIndex(outer.Manifests[0].Digest); err != nil {
		return nil, err
	}
	inner, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	images := map[string]v1.Image{}
	for _, m := range inner.Manifests {
		if images[m.Platform.Architecture], err = index.Image(m.Digest); err != nil {
			return nil, err
		}
	}
	return images, nil
}

func imageFiles(image v1.Image) (map[string][]byte, error) {
	files := map[string][]byte{}
	content := mutate.Extract(image)
	err := untar(content, func(h *tar.Header, content io.Reader) (err error) {
		files[h.Name], err = io.ReadAll(content)
		return err
	})
	return files, errors.Join(err, content.Close())
}

// unpack writes the files of the image for this machine below root.
func unpack(dir, root string) error {
	images, err := readImages(dir)
	if err != nil {
		return err
	}
	image, ok := images[runtime.GOARCH]
	if !ok {
		return fmt.Errorf("%w: no image for %s", errRelease, runtime.GOARCH)
	}
	content := mutate.Extract(image)
	err = untar(content, func(h *tar.Header, content io.Reader) error {
		path := filepath.Join(root, filepath.Clean("/"+h.Name))
		text, err := io.ReadAll(content)
		return errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, text, os.FileMode(h.Mode)))
	})
	return errors.Join(err, content.Close())
}

// same reports each program of other that is not that of r.
func same(r, other release) error {
	var errs []error
	compared := 0
	for _, a := range other.Artifacts {
		if a.Type != "Binary" || !slices.Contains(programs, a.Extra.ID) {
			continue
		}
		compared++
		one, err := r.binary(a.Extra.ID, a.Goos, a.Goarch)
		two, err2 := other.binary(a.Extra.ID, a.Goos, a.Goarch)
		if errors.Join(err, err2) != nil || !bytes.Equal(one, two) {
			errs = append(errs, fmt.Errorf("%w: %s of %s/%s differs between two builds", errRelease, a.Extra.ID, a.Goos, a.Goarch), err, err2)
		}
	}
	if compared == 0 {
		errs = append(errs, fmt.Errorf("%w: nothing to compare", errRelease))
	}
	return errors.Join(errs...)
}
