package server

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/gateway/config"
	slimcredential "github.com/aepb/aepb-gateway/gateway/transport/slim/credential"
)

// slimFiles are a key and a key set, and those that will not do.
func slimFiles(t *testing.T) func(name string) string {
	t.Helper()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	public, private, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(private)
	must(t, err)
	large, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	must(t, err)
	other, err := x509.MarshalPKCS8PrivateKey(large)
	must(t, err)
	x := base64.RawURLEncoding.EncodeToString(public)
	for name, text := range map[string]string{
		"key":      string(pem.EncodeToMemory(&pem.Block{Type: pemKey, Bytes: der})),
		"p384":     string(pem.EncodeToMemory(&pem.Block{Type: pemKey, Bytes: other})),
		"no pem":   "key",
		"no key":   string(pem.EncodeToMemory(&pem.Block{Type: pemKey, Bytes: []byte{1}})),
		"keys":     `{"keys":[{"kty":"OKP","crv":"Ed25519","x":"` + x + `","kid":"k"}]}`,
		"secrets":  `{"keys":[{"kty":"OKP","crv":"Ed25519","x":"` + x + `","d":"` + x + `"}]}`,
		"none":     `{"keys":[]}`,
		"secret":   strings.Repeat("s", 32) + "\n",
		"a secret": strings.Repeat("s", 31) + "\n",
	} {
		must(t, os.WriteFile(at(name), []byte(text), 0o600))
	}
	return at
}

// TestSLIM_MemberFiles: what the files of a node say, or what is wrong with them and
// where; nothing of them is quoted.
func TestSLIM_MemberFiles(t *testing.T) {
	t.Parallel()
	at := slimFiles(t)
	byJWT := func(key, keys string) config.SLIMNode {
		return config.SLIMNode{JWT: &config.SLIMJWT{Key: at(key), Keys: at(keys), Issuer: "i"}}
	}
	members, err := readSLIM(config.SLIM{Nodes: []config.SLIMNode{{SecretFile: at("secret")}, byJWT("key", "keys"), {JWTSVID: &config.SLIMJWTSVID{}}}})
	if err != nil || len(members) != 3 || len(members[0].secret) != 32 || members[1].jwt == nil {
		t.Fatalf("%+v %v", members, err)
	}
	token, _, err := members[1].jwt.Mint(t.Context(), slimcredential.TokenRequest{Subject: "org/ns/a"})
	must(t, err)
	if sub, err := members[1].jwt.Judge(t.Context(), token); err != nil || sub != "org/ns/a" {
		t.Errorf("%q %v", sub, err)
	}
	for name, c := range map[string]struct {
		node config.SLIMNode
		want string
	}{
		"no secret":         {config.SLIMNode{SecretFile: at("nothing")}, "slim.nodes[0].shared_secret_file: open"},
		"a short secret":    {config.SLIMNode{SecretFile: at("a secret")}, "shorter than 32 bytes"},
		"no key":            {byJWT("nothing", "keys"), "slim.nodes[0].jwt: open"},
		"a key without PEM": {byJWT("no pem", "keys"), "holds no private key in PEM"},
		"no key in PEM":     {byJWT("no key", "keys"), "holds no PKCS #8 key"},
		"a key too large":   {byJWT("p384", "keys"), "ECDSA on P-256, or Ed25519"},
		"no keys":           {byJWT("key", "nothing"), "slim.nodes[0].jwt: identity: open"},
		"an empty set":      {byJWT("key", "none"), "at least one key"},
		"private keys":      {byJWT("key", "secrets"), "key set"},
	} {
		if _, err := readSLIM(config.SLIM{Nodes: []config.SLIMNode{c.node}}); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "sss") {
			t.Errorf("%s: %v", name, err)
		}
	}
	s := Config{Settings: config.Config{SLIM: config.SLIM{Nodes: []config.SLIMNode{{JWTSVID: &config.SLIMJWTSVID{}}}}}, Identity: Identity{slim: make([]slimMember, 1)}}
	if _, err := s.slimNode(0); err == nil || !strings.Contains(err.Error(), "identity.workload_api") {
		t.Errorf("JWT-SVIDs without a Workload API: %v", err)
	}
}
