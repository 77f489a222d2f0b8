package egress

import "time"

// Config is what the operator may set. The zero value is safe and works.
type Config struct {
	// AllowHosts, if not empty, are the only hosts that may be called: "host",
	// "host:port" or "*.domain" (any name below it). Hosts of AllowPrivate and
	// of Allow are always among them; those of a CIDR are not.
	AllowHosts []string
	// AllowPrivate are hosts whose addresses may be private: "host", "host:port",
	// or a CIDR, which allows these addresses to every host.
	AllowPrivate []string
	// AllowLoopbackHTTP lets http:// be used toward loopback addresses, for
	// development only. The loopback address itself must be allowed as well.
	AllowLoopbackHTTP bool

	ConnectTimeout   time.Duration // resolution and connection together; 0: 10 s
	HandshakeTimeout time.Duration // TLS; 0: 10 s
	HeaderTimeout    time.Duration // from the request's end to the response's header; 0: 2 min. A request's own deadline may be shorter
	IdleTimeout      time.Duration // of a pooled connection; 0: 90 s

	MaxIdlePerHost int // pooled connections per host and expected identity; 0: 128
	MaxIdle        int // pooled connections per expected identity; 0: 1024
	MaxIdentities  int // expected identities with a pool of their own; 0: 256
}

// maxResponseHeader bounds a response's header, bytes.
const maxResponseHeader = 32 << 10

// bufferSize is the size of a connection's buffer in each direction, in bytes. A request
// with its ECTs fits into one write, where the default of 4 KiB needs two.
const bufferSize = 16 << 10

// receiveBuffer bounds the unread bytes of an HTTP/2 response that are buffered. The default
// is 4 MiB, which is too much while a response waits until the caller may hold more bytes.
const receiveBuffer = 256 << 10

// Liveness of HTTP/2 connections: a ping after so long a silence, and so long
// for its answer, so that a dead connection does not swallow requests.
const (
	pingAfter = 15 * time.Second
	pingLimit = 10 * time.Second
)

func (c Config) withDefaults() Config {
	c.ConnectTimeout = positive(c.ConnectTimeout, 10*time.Second)
	c.HandshakeTimeout = positive(c.HandshakeTimeout, 10*time.Second)
	c.HeaderTimeout = positive(c.HeaderTimeout, 2*time.Minute)
	c.IdleTimeout = positive(c.IdleTimeout, 90*time.Second)
	c.MaxIdlePerHost = positive(c.MaxIdlePerHost, 128)
	c.MaxIdle = positive(c.MaxIdle, 1024)
	c.MaxIdentities = positive(c.MaxIdentities, 256)
	return c
}

func positive[T int | time.Duration](value, otherwise T) T {
	if value > 0 {
		return value
	}
	return otherwise
}
