package main

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/aepb/aepb-gateway/ect/identity"
)

const (
	trustDomain = "example.test"
	// lifetime of the certificates, which are not renewed.
	lifetime = 30 * 24 * time.Hour
	// user of the images.
	user = 65532
)

// Names of the demo agents.
const (
	concierge  = "concierge"  // A2A
	calculator = "calculator" // MCP
)

// setup writes to dir what the parts of the cluster prove themselves with; a folder that
// was set up already is left as it is. Each part reads its own folders alone. The key of the
// CA is not written: no further identity can be made.
//
//	ca.pem             the CA that all of them trust
//	svid/              cert.pem, key.pem, bundle.pem of the gateway
//	secrets/state/     key, with which state is encrypted
//	secrets/redis/     password, ca.pem
//	redis/             cert.pem, key.pem; and the data of Redis
//	concierge/, calculator/  cert.pem, key.pem
//	client/            for aepbctl --dir: ca.pem, client.pem, client-key.pem, addresses.json
func setup(dir, public, admin string) error {
	if _, err := os.Stat(filepath.Join(dir, "client", "addresses.json")); err == nil {
		return nil
	}
	authority, err := identity.NewAuthority(identity.AuthorityDeps{TrustDomain: trustDomain})
	if err != nil {
		return err
	}
	bundle, err := authority.Bundle()
	if err != nil {
		return err
	}
	var anchors []byte
	for _, anchor := range bundle.Anchors() {
		anchors = append(anchors, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: anchor.Raw})...)
	}
	for _, one := range []struct{ id, folder, cert, key string }{
		{"/gateway", "svid", "cert.pem", "key.pem"},
		{"/redis", "redis", "cert.pem", "key.pem"},
		{"/agents/" + concierge, concierge, "cert.pem", "key.pem"},
		{"/agents/" + calculator, calculator, "cert.pem", "key.pem"},
		{"/operator", "client", "client.pem", "client-key.pem"},
	} {
		names := identity.SVIDRequest{TTL: lifetime, DNSNames: []string{"localhost", filepath.Base(one.id)}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}}
		svid, err := authority.Issue(one.id, names)
		if err != nil {
			return err
		}
		at := filepath.Join(dir, one.folder)
		if err := errors.Join(os.MkdirAll(at, 0o700), svid.WritePEM(filepath.Join(at, one.cert), filepath.Join(at, one.key))); err != nil {
			return err
		}
	}
	addresses, err := json.Marshal(map[string]string{"public": public, "admin": admin})
	if err != nil {
		return err
	}
	for name, text := range map[string][]byte{
		"ca.pem": anchors, "svid/bundle.pem": anchors, "secrets/redis/ca.pem": anchors, "client/ca.pem": anchors,
		"secrets/state/key": random(), "secrets/redis/password": random(),
		"client/addresses.json": addresses,
	} {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, text, 0o600)); err != nil {
			return err
		}
	}
	if os.Geteuid() != 0 {
		return nil
	}
	return filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(name, user, user))
	})
}

// random is 32 bytes in hexadecimal.
func random() []byte {
	raw := make([]byte, 32)
	_, _ = rand.Read(raw) // never fails
	return []byte(hex.EncodeToString(raw))
}
