package redis_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/aepb/aepb-gateway/gateway/state/redis"
)

// A Redis that would forget is refused at the start, with the reason (R18).
func TestOpen_UnsuitableRedisRefused(t *testing.T) {
	t.Parallel()
	evicting, volatile, cluster := serve(t, "--maxmemory-policy", "allkeys-lru"), serve(t, "--appendonly", "no"), serve(t, "--cluster-enabled", "yes")
	locked := serve(t, "--requirepass", "a-secret")
	for name, tc := range map[string]struct {
		config redis.Config
		says   string
	}{
		"evicts":           {redis.Config{Addresses: []string{evicting.address}}, "maxmemory-policy"},
		"not on disk":      {redis.Config{Addresses: []string{volatile.address}}, "appendonly"},
		"asserted":         {redis.Config{Addresses: []string{volatile.address}, Assert: true}, ""},
		"a cluster":        {redis.Config{Addresses: []string{cluster.address}}, "cluster"},
		"no password":      {redis.Config{Addresses: []string{locked.address}}, "NOAUTH"},
		"wrong password":   {redis.Config{Addresses: []string{locked.address}, Password: "another"}, "WRONGPASS"},
		"password":         {redis.Config{Addresses: []string{locked.address}, Password: "a-secret"}, ""},
		"no address":       {redis.Config{}, "address"},
		"far and plain":    {redis.Config{Addresses: []string{"192.0.2.1:6379"}}, "TLS"},
		"name and plain":   {redis.Config{Addresses: []string{"redis.example:6379"}}, "TLS"},
		"negative wait":    {redis.Config{Addresses: []string{locked.address}, Wait: -1}, "replicas"},
		"too slow":         {redis.Config{Addresses: []string{locked.address}, Timeout: time.Minute}, "operation"},
		"two ways at once": {redis.Config{Addresses: []string{locked.address}, Cluster: true, Master: "m"}, "both"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := redis.Open(tc.config, redis.Deps{})
			if err == nil {
				err = s.Close()
			}
			if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want it to say %q", err, tc.says)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("a secret stands in %v", err)
			}
		})
	}
}

// A Redis that cannot be reached is waited for: state is kept from the moment it comes.
func TestOpen_WaitsForARedisThatIsAway(t *testing.T) {
	t.Parallel()
	server := serve(t)
	server.kill()
	s := open(t, redis.Config{Addresses: []string{server.address}, Username: "default", Password: "a-secret"})
	if err := s.Failing(); err == nil || err.Error() != "Redis at "+server.address+" cannot be reached" {
		t.Errorf("failing: %v", err)
	}
	wantUnavailable(t, soon, func() error { return swapOne(s, "1") })
	server.args = append(server.args, "--requirepass", "another")
	server.start()
	eventually(t, soon, "what is wrong is told", func() bool {
		err := s.Failing()
		return err != nil && strings.Contains(err.Error(), "WRONGPASS") && !strings.Contains(err.Error(), "a-secret")
	})
	server.kill()
	server.args = append(server.args, "--requirepass", "a-secret")
	server.start()
	eventually(t, soon, "it is used", func() bool { return s.Failing() == nil && swapOne(s, "1") == nil })
}

// A Redis that becomes unfit while it is used is as good as away.
func TestStore_BecomesUnsuitable(t *testing.T) {
	t.Parallel()
	server := serve(t)
	s, c := open(t, redis.Config{Addresses: []string{server.address}}), server.client(goredis.Options{})
	set := func(policy string) {
		if err := c.ConfigSet(t.Context(), "maxmemory-policy", policy).Err(); err != nil {
			t.Fatal(err)
		}
	}
	set("allkeys-lru")
	eventually(t, soon, "it is noticed", func() bool { return s.Failing() != nil })
	if err := s.Failing(); !strings.Contains(err.Error(), server.address+": redis is not set up to keep this: maxmemory-policy is \"allkeys-lru\", not noeviction") {
		t.Errorf("failing: %v", err)
	}
	wantUnavailable(t, soon, func() error { return swapOne(s, "1") })
	set("noeviction")
	eventually(t, soon, "it is taken again", func() bool { return swapOne(s, "1") == nil })
}

// certificate makes a self-signed certificate for loopback.
func certificate(t *testing.T) (certFile, keyFile string, pool *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	err = errors.Join(os.WriteFile(certFile, certPEM, 0o600),
		os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(certPEM)
	return certFile, keyFile, pool
}

func TestOpen_TLS(t *testing.T) {
	t.Parallel()
	certFile, keyFile, pool := certificate(t)
	for name, tc := range map[string]struct {
		protocols string
		roots     *x509.CertPool
		ok        bool
	}{
		"1.3":             {"TLSv1.3", pool, true},
		"only 1.2":        {"TLSv1.2", pool, false},
		"another's roots": {"TLSv1.3", x509.NewCertPool(), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plain := serve(t, "--tls-protocols", tc.protocols) // which port is for TLS comes below
			plain.kill()
			_, port, err := net.SplitHostPort(plain.address)
			if err != nil {
				t.Fatal(err)
			}
			plain.args = append(plain.args, "--port", "0", "--tls-port", port, "--tls-cert-file", certFile,
				"--tls-key-file", keyFile, "--tls-ca-cert-file", certFile, "--tls-auth-clients", "no")
			plain.start()
			s, err := redis.Open(redis.Config{Addresses: []string{plain.address}, TLS: &tls.Config{RootCAs: tc.roots, MinVersion: tls.VersionTLS12}}, redis.Deps{}) // which Open raises to 1.3
			if (err == nil) != tc.ok {
				t.Errorf("got %v", err)
			}
			if err == nil {
				err = errors.Join(swapOne(s, "1"), s.Close())
			}
			if tc.ok && err != nil {
				t.Error(err)
			}
		})
	}
}

// TestOpen_RoleOfANode: a single Redis that is a replica is refused; a node of a cluster that has become one is waited for, since the cluster has another
// master soon.
func TestOpen_RoleOfANode(t *testing.T) {
	t.Parallel()
	one, many := redis.Config{Addresses: []string{"127.0.0.1:1"}}, redis.Config{Addresses: []string{"127.0.0.1:1", "127.0.0.1:2"}, Cluster: true}
	for name, tc := range map[string]struct {
		config       redis.Config
		info         string
		final, wrong bool
	}{
		"a replica":             {one, "role:slave\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\ncluster_enabled:0\r\n", true, true},
		"a node after failover": {many, "role:slave\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\ncluster_enabled:1\r\n", false, true},
		"a replica, no cluster": {many, "role:slave\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\ncluster_enabled:0\r\n", true, true},
		"a node that evicts":    {many, "role:master\r\nmaxmemory_policy:allkeys-lru\r\naof_enabled:1\r\ncluster_enabled:1\r\n", true, true},
		"a master":              {many, "role:master\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\ncluster_enabled:1\r\n", false, false},
	} {
		if final, err := redis.FitOf(tc.config, tc.info); final != tc.final || (err != nil) != tc.wrong {
			t.Errorf("%s: %v, for good: %t", name, err, final)
		}
	}
}
