package redis

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/aepb/aepb-gateway/gateway/state"
)

// Config is where Redis is, and what is asked of it. A zero field takes its
// default; Addresses has none.
type Config struct {
	Addresses []string // host:port of a server, of nodes of a cluster, or of Sentinels
	Cluster   bool     // the one address is a cluster's; several are one anyway
	Master    string   // what the Sentinels call the master; empty: the addresses are no Sentinels
	Username  string
	Password  string

	SentinelUsername string
	SentinelPassword string

	TLS      *tls.Config      // nil: in the clear, which is good for loopback addresses alone
	Wait     int              // replicas that must have a durable entry before it counts (R18); never discovered
	Timeout  time.Duration    // of one operation
	Assert   bool             // the operator vouches for durability: a master without appendonly is taken
	Fleeting []string         // kinds of entries that need not outlive a master: no waiting for replicas
	Keys     [][]byte         // of 32 bytes, the same for all replicas: what they vouch for is believed, the first vouches; none: all that Redis holds is believed
	Prefix   string           // of every key and channel
	Bounds   state.Config     // what is kept; bounds in all are Redis's own (maxmemory), but for evidence and, unless it is a cluster, entries
	Blobs    state.BlobBounds // of the contents of checkpoints; in a cluster those of groups alone
}

// Defaults of a Config.
const (
	DefaultTimeout = time.Second
	MaxTimeout     = 10 * time.Second
	MaxWait        = 16
	// DefaultMaxTokenBytes is how much evidence all holders may have together, unless
	// a quarter of Redis's maxmemory is less.
	DefaultMaxTokenBytes = 1 << 30
	DefaultPrefix        = "aepb:"
	// DefaultMaxBlobsBytes is how many bytes of blobs there may be.
	DefaultMaxBlobsBytes = 256 << 20
)

// Crowded is the part of maxmemory beyond which entries begin only in the place of ended ones, but for records
// (state.Config.RecordKinds): those have the reserve that other kinds leave.
const Crowded = 0.875

// WithDefaults fills the zero fields.
func (c Config) WithDefaults() Config {
	c.Timeout, c.Prefix = cmp.Or(c.Timeout, DefaultTimeout), cmp.Or(c.Prefix, DefaultPrefix)
	c.Bounds.MaxTokenBytes = cmp.Or(c.Bounds.MaxTokenBytes, DefaultMaxTokenBytes)
	c.Blobs.MaxBytes = cmp.Or(c.Blobs.MaxBytes, DefaultMaxBlobsBytes)
	c.Blobs = c.Blobs.WithDefaults()
	c.Bounds = c.Bounds.WithDefaults()
	return c
}

// Validate refuses what cannot be meant.
func (c Config) Validate() error {
	switch {
	case len(c.Addresses) == 0:
		return errors.New("state: redis needs an address")
	case c.Master != "" && c.Cluster:
		return errors.New("state: redis is found through Sentinels or is a cluster, not both")
	case c.Wait < 0 || c.Wait > MaxWait:
		return fmt.Errorf("state: redis: between 0 and %d replicas can be waited for", MaxWait)
	case c.Timeout < 10*time.Millisecond || c.Timeout > MaxTimeout:
		return fmt.Errorf("state: redis: an operation has between 10ms and %s", MaxTimeout)
	}
	for _, address := range c.Addresses {
		if _, _, err := net.SplitHostPort(address); err != nil {
			return fmt.Errorf("state: redis: %w", err)
		}
		if c.TLS == nil && !loopback(address) {
			return fmt.Errorf("state: redis: %s is not a loopback address, so it needs TLS", address)
		}
	}
	return errors.Join(c.Bounds.Validate(), c.Blobs.Validate())
}

// loopback is true for an address of this very machine. Names are not looked up.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// mostConnections bounds the connections to each server, and so the operations at once:
// others wait for their turn, behind those of a caller who has many.
const mostConnections = 256

// options are the client's. It never waits longer than an operation may.
func (c Config) options() *goredis.UniversalOptions {
	o := &goredis.UniversalOptions{
		Addrs: slices.Clone(c.Addresses), IsClusterMode: c.Cluster, MasterName: c.Master,
		Username: c.Username, Password: c.Password,
		SentinelUsername: c.SentinelUsername, SentinelPassword: c.SentinelPassword,
		DialTimeout: c.Timeout, ReadTimeout: c.Timeout, WriteTimeout: c.Timeout, PoolTimeout: c.Timeout,
		DialerRetries: 1, DialerRetryTimeout: time.Millisecond,
		MaxRetries: 2, MinRetryBackoff: 5 * time.Millisecond, MaxRetryBackoff: 50 * time.Millisecond,
		ContextTimeoutEnabled: true, DisableIdentity: true, PoolSize: mostConnections,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if c.TLS != nil {
		o.TLSConfig = c.TLS.Clone()
		o.TLSConfig.MinVersion = tls.VersionTLS13
		return o
	}
	plain := goredis.NewDialer(&goredis.Options{DialTimeout: c.Timeout})
	o.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
		if !loopback(address) { // told by a cluster or a Sentinel
			return nil, fmt.Errorf("%w: %s is not a loopback address, so it needs TLS", errUnsafe, address)
		}
		return plain(ctx, network, address)
	}
	return o
}

// Deps is what a Store needs.
type Deps = state.DriverDeps
