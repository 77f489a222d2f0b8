package config

import (
	"net"
	"net/netip"
	"strconv"
	"time"
)

// Bounds and defaults of the keys of state.redis.
const (
	defaultReplicas = 3
	maxReplicas     = 1000
	maxRedisWait    = 16
	maxRedisTimeout = 10 * time.Second
	minRedisTimeout = 10 * time.Millisecond
	maxAddresses    = 64
)

// Used is true if state is kept in Redis.
func (r Redis) Used() bool { return len(r.Addresses) > 0 }

// replicas is how many share the limits.
func (r Redis) replicas() int {
	switch {
	case !r.Used():
		return 1
	case r.Replicas == 0:
		return defaultReplicas
	default:
		return r.Replicas
	}
}

// check finds the mistakes of state.redis.
func (s State) check(say func(path, reason string)) {
	r := s.Redis
	if s.Unverified && (s.Key != "" || !r.Used()) {
		say("$.state.unverified", "true is for redis without state.key: leave out one of them")
	}
	if !r.Used() {
		if r.set() {
			say("$.state.redis", "nothing without addresses")
		}
		return
	}
	if s.Path != "" {
		say("$.state.path", "state is kept in a file or in redis, not both")
	}
	if len(r.Addresses) > maxAddresses {
		say("$.state.redis.addresses", "more than "+strconv.Itoa(maxAddresses))
	}
	if r.Master != "" && r.Cluster {
		say("$.state.redis.cluster", "a cluster has no Sentinels")
	}
	if r.Wait < 0 || r.Wait > maxRedisWait {
		say("$.state.redis.wait", "must be between 0 and "+strconv.Itoa(maxRedisWait))
	}
	if r.Durability != "" && r.Durability != "asserted" {
		say("$.state.redis.durability", "asserted, or nothing")
	}
	if r.Replicas < 0 || r.Replicas > maxReplicas {
		say("$.state.redis.max_replicas", "must be between 1 and "+strconv.Itoa(maxReplicas))
	}
	if t := time.Duration(r.Timeout); t != 0 && (t < minRedisTimeout || t > maxRedisTimeout) {
		say("$.state.redis.timeout", "must be between 10ms and 10s")
	}
	r.checkTransport(say)
}

// serve: what Redis gives is verified, or the operator says that it is not.
func (s State) serve() []error {
	if !s.Redis.Used() || s.Key != "" || s.Unverified {
		return nil
	}
	return []error{&Error{Reason: "state.key: missing, and required by serve with state.redis: name a file with a key that all replicas have " +
		"(openssl rand -hex 32), or set state.unverified: true to believe every program that can write to this Redis"}}
}

func (r Redis) set() bool {
	return r.Cluster || r.Master != "" || r.Wait != 0 || r.Durability != "" || r.Replicas != 0 || r.Timeout != 0 || r.Prefix != "" ||
		r.Plaintext != "" || r.UsernameFile != "" || r.PasswordFile != "" || r.SentinelUsernameFile != "" || r.SentinelPasswordFile != "" ||
		r.TLS != (RedisTLS{})
}

// checkTransport: TLS, or loopback said aloud.
func (r Redis) checkTransport(say func(path, reason string)) {
	plain := r.Plaintext == "loopback"
	if r.Plaintext != "" && !plain {
		say("$.state.redis.plaintext", "loopback, or nothing")
	}
	if plain && r.TLS != (RedisTLS{}) {
		say("$.state.redis.tls", "plaintext has none")
	}
	if (r.TLS.Certificate == "") != (r.TLS.Key == "") {
		say("$.state.redis.tls", "certificate and key go together")
	}
	if r.UsernameFile != "" && r.PasswordFile == "" {
		say("$.state.redis.username_file", "a name without a password")
	}
	for i, address := range r.Addresses {
		path := "$.state.redis.addresses[" + strconv.Itoa(i) + "]"
		host, _, err := net.SplitHostPort(address)
		if err != nil || host == "" {
			say(path, "not host:port")
			continue
		}
		ip, err := netip.ParseAddr(host)
		if plain && host != "localhost" && (err != nil || !ip.Unmap().IsLoopback()) {
			say(path, "not a loopback address, so it needs TLS")
		}
	}
}
