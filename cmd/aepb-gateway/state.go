package main

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/conversation"
	"github.com/aepb/aepb-gateway/gateway/idempotency"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/state/bolt"
	"github.com/aepb/aepb-gateway/gateway/state/redis"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/policy/limit"
)

// kept is state, whoever keeps it.
type kept struct {
	backend       string // memory, bolt or redis
	evidence      ect.Store
	replay        ect.ReplayCache
	answers       idempotency.Store
	conversations conversation.Store
	entries       store.Entries
	limits        limit.Bucket // nil: every process has its own
	failing       func() error
	close         func() error
	filled        func() map[string]float64 // how full each kind of state is
	ignored       func() uint64             // what was found and not believed; nil: that cannot be
}

// openState opens what the operator named, or keeps state in memory: what was
// used before this start is then unknown, and ECTs from before it are refused (R6).
func openState(s settings) (kept, error) {
	bounds := stateBounds(s.config.State, s.dev)
	switch path := s.config.State.Path; {
	case s.redis != nil:
		config := *s.redis
		config.Bounds, config.Bulky, config.Keys = bounds, []string{store.KindTask}, s.stateKeys
		store, err := redis.Open(config, redis.Deps{Now: time.Now, Logger: s.logger})
		if err != nil {
			return kept{}, err
		}
		return kept{"redis", store, store, store, store, store.Entries(), store, store.Failing, store.Close, func() map[string]float64 {
			return map[string]float64{"memory": store.Filled()}
		}, store.Ignored}, nil
	case path != "":
		store, err := bolt.Open(bolt.Config{Path: path, Bounds: bounds}, bolt.Deps{Now: time.Now, Logger: s.logger})
		if err != nil {
			return kept{}, err
		}
		return kept{"bolt", store, store, store, store, store.Entries(), nil, store.Failing, store.Close, store.Filled, nil}, nil
	}
	memory, err := state.New(bounds, state.Deps{Now: time.Now, Epoch: time.Now().Truncate(time.Second)})
	if err != nil {
		return kept{}, err
	}
	healthy := func() error { return nil }
	return kept{"memory", memory, memory, memory, memory, memory.Entries(), nil, healthy, healthy, memory.Filled, nil}, nil
}

// stateBounds are those of the configuration in the words of package state.
func stateBounds(c config.State, dev bool) state.Config {
	bounds := state.Config{
		MaxTokenBytes: int64(c.EvidenceMiB) << 20, MaxTokenBytesPerHolder: int64(c.EvidenceShareMiB) << 20,
		MaxEntries: c.Records, MaxEntriesBytes: int64(c.RecordsMiB) << 20,
		MaxEntriesPerOwner: c.CallerRecords, MaxEntriesBytesPerOwner: int64(c.CallerRecordsKiB) << 10,
		MaxAnswersBytes: int64(c.AnswersMiB) << 20, MaxAnswersBytesPerOwner: int64(c.CallerAnswersKiB) << 10,
	}
	if dev && bounds.MaxTokenBytesPerHolder == 0 { // one caller is everybody
		bounds.MaxTokenBytesPerHolder = cmp.Or(bounds.MaxTokenBytes, state.DefaultMaxTokenBytes)
	}
	return bounds
}

// loadRedis reads the files that state.redis names; nil: there is no Redis.
func loadRedis(c config.Redis) (*redis.Config, error) {
	if !c.Used() {
		return nil, nil //nolint:nilnil // state is kept elsewhere
	}
	out := redis.Config{
		Addresses: c.Addresses, Cluster: c.Cluster, Master: c.Master, Wait: c.Wait,
		Timeout: time.Duration(c.Timeout), Assert: c.Durability == "asserted", Prefix: c.Prefix,
	}
	var errs []error
	for _, secret := range []struct {
		file string
		to   *string
	}{
		{c.UsernameFile, &out.Username},
		{c.PasswordFile, &out.Password},
		{c.SentinelUsernameFile, &out.SentinelUsername},
		{c.SentinelPasswordFile, &out.SentinelPassword},
	} {
		var err error
		*secret.to, err = loadSecret(secret.file)
		errs = append(errs, err)
	}
	if c.Plaintext == "" {
		var err error
		out.TLS, err = redisTLS(c.TLS)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &out, out.WithDefaults().Validate()
}

// loadSecret reads a file of one line; no file, no secret.
func loadSecret(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	secret := string(bytes.TrimSpace(text))
	if secret == "" {
		return "", fmt.Errorf("%s is empty", file)
	}
	return secret, nil
}

func redisTLS(c config.RedisTLS) (*tls.Config, error) {
	out := &tls.Config{MinVersion: tls.VersionTLS13, ServerName: c.ServerName}
	if c.CA != "" {
		text, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, err
		}
		if out.RootCAs = x509.NewCertPool(); !out.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s holds no certificate", c.CA)
		}
	}
	if c.Certificate == "" {
		return out, nil
	}
	pair, err := tls.LoadX509KeyPair(c.Certificate, c.Key)
	out.Certificates = []tls.Certificate{pair}
	return out, err
}
