package redis

import (
	"context"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"
)

// KeySize is the size of a key of Config.Keys in bytes.
const KeySize = 32

// evidenceKey says what a key that is derived from a key of Config.Keys is for.
const evidenceKey = "aepb: evidence in redis, version 1"

// sayEvery is how often it is said that Redis holds what no replica wrote.
const sayEvery = time.Minute

var errKeySize = errors.New("state: redis: a key has 32 bytes")

// authenticator tells what a replica wrote from what others wrote into Redis: with each record,
// root, member and conversation stands an authentication code. What lacks it is not there for anyone.
// Without keys everything in Redis is believed.
type authenticator struct {
	keys    [][]byte // the first makes codes, all check them
	logger  *slog.Logger
	now     func() time.Time
	refused atomic.Uint64
	warned  atomic.Int64 // when, in Unix seconds
}

func newVoucher(keys [][]byte, logger *slog.Logger, now func() time.Time) (*authenticator, error) {
	v := &authenticator{logger: logger, now: now}
	for _, key := range keys {
		if len(key) != KeySize {
			return nil, errKeySize
		}
		derived, err := hkdf.Key(sha256.New, key, nil, evidenceKey, sha256.Size)
		if err != nil {
			return nil, err
		}
		v.keys = append(v.keys, derived)
	}
	return v, nil
}

// vouchTurn says that a code is for where a conversation stands.
const vouchTurn = "turn"

// unsigned stands where there is no key to make a code with.
const unsigned = "1"

// code vouches for texts, whose order and lengths count.
func (v *authenticator) code(texts ...string) string {
	if len(v.keys) == 0 {
		return unsigned
	}
	return base64.RawStdEncoding.EncodeToString(codeOf(v.keys[0], texts))
}

func codeOf(key []byte, texts []string) []byte {
	h := hmac.New(sha256.New, key)
	for _, text := range texts {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(text)))
		_, _ = h.Write(size[:])
		_, _ = h.Write([]byte(text))
	}
	return h.Sum(nil)
}

// holds reports whether a replica vouched for texts.
func (v *authenticator) holds(ctx context.Context, code string, texts ...string) bool {
	if len(v.keys) == 0 {
		return true
	}
	got, err := base64.RawStdEncoding.DecodeString(code)
	for _, key := range v.keys {
		if err == nil && hmac.Equal(got, codeOf(key, texts)) {
			return true
		}
	}
	v.refuse(ctx)
	return false
}

// refuse counts and says that Redis holds what no replica wrote.
func (v *authenticator) refuse(ctx context.Context) {
	v.refused.Add(1)
	if now, last := v.now().Unix(), v.warned.Load(); now-last >= int64(sayEvery/time.Second) && v.warned.CompareAndSwap(last, now) {
		v.logger.ErrorContext(ctx, "redis holds what no replica wrote, or with a key that is not known here: it is ignored",
			slog.Uint64("ignored", v.refused.Load()))
	}
}

// Ignored counts what was found in Redis and not believed.
func (s *Store) Ignored() uint64 { return s.vouch.refused.Load() }
