package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// user of the image, an ordinary one.
const user = "65532:65532"

// writeImage writes an image of two platforms to a folder, as an OCI image layout. Its
// content is that of the programs of the release, so the same release makes the same bytes.
func writeImage(r release, dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range []string{"amd64", "arm64"} {
		image, err := r.image(arch)
		if err != nil {
			return fmt.Errorf("image of linux/%s: %w", arch, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
	}
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	return path.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": r.Version}))
}

// image is that of one architecture: the programs, the public certificate authorities, and
// nothing else.
func (r release) image(arch string) (v1.Image, error) {
	roots := &bytes.Buffer{}
	for root := range bundle.Roots() {
		if err := pem.Encode(roots, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, err
		}
	}
	authorities, err := r.layer(file{"etc/ssl/certs/ca-certificates.crt", roots.Bytes(), 0o644})
	if err != nil {
		return nil, err
	}
	var binaries []file
	for _, name := range programs {
		text, err := r.binary(name, "linux", arch)
		if err != nil {
			return nil, err
		}
		binaries = append(binaries, file{name, text, 0o755})
	}
	content, err := r.layer(binaries...)
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.AppendLayers(base, authorities, content)
	if err != nil {
		return nil, err
	}
	return mutate.ConfigFile(image, r.config(image, arch))
}

// config is what a container engine is told: the same as the Dockerfile says.
func (r release) config(image v1.Image, arch string) *v1.ConfigFile {
	made, _ := image.ConfigFile() // of the layers above: it is in memory
	out := made.DeepCopy()
	out.OS, out.Architecture, out.Created = "linux", arch, v1.Time{Time: r.Time}
	for i := range out.History {
		out.History[i].Created = v1.Time{Time: r.Time}
	}
	out.Config = v1.Config{
		User: user, Entrypoint: []string{"/aepb-gateway"}, Cmd: []string{"serve", "--config", "/etc/aepb/gateway.yaml"},
		ExposedPorts: map[string]struct{}{"8443/tcp": {}, "9443/tcp": {}, "9464/tcp": {}},
		Healthcheck:  &v1.HealthConfig{Test: []string{"CMD", "/aepbctl", "healthz"}, Interval: 10 * time.Second, Timeout: 6 * time.Second, StartPeriod: 30 * time.Second},
		Labels: map[string]string{
			"org.opencontainers.image.title": "aepb-gateway", "org.opencontainers.image.version": r.Version, "org.opencontainers.image.revision": r.Commit,
			"org.opencontainers.image.source": "https://github.com/aepb/aepb-gateway", "org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	return out
}

// file is one of an image.
type file struct {
	name string
	text []byte
	mode int64
}

// layer has files and their folders, all of root and with the time of the release.
func (r release) layer(files ...file) (v1.Layer, error) {
	out := &bytes.Buffer{}
	w := tar.NewWriter(out)
	seen := map[string]bool{".": true}
	for _, f := range files {
		var folders []string
		for dir := filepath.Dir(f.name); !seen[dir]; dir = filepath.Dir(dir) {
			folders, seen[dir] = append([]string{dir}, folders...), true
		}
		for _, dir := range folders {
			if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755, ModTime: r.Time}); err != nil {
				return nil, err
			}
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.text)), ModTime: r.Time}); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.text); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(out.Bytes())), nil }, tarball.WithMediaType(types.OCILayer))
}
