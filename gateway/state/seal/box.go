package seal

import (
	"bytes"
	"cmp"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Sizes in bytes.
const (
	KeySize  = 32            // of a key
	Overhead = headSize + 16 // by which a sealed value is larger
)

const (
	maxKeys    = 16  // of one box
	maxProcess = 256 // ciphers of other processes that are remembered

	nameSize, saltSize, countSize = 4, 16, 8
	saltAt                        = 2 + nameSize
	countAt                       = saltAt + saltSize
	headSize                      = countAt + countSize
	nonceSize                     = 12
)

// Why keys or values are refused.
var (
	// ErrKeys: the text of a key file is not one to 16 keys.
	ErrKeys = fmt.Errorf("seal: a key file has 1 to %d lines, each with a key of %d bytes in hexadecimal or base64", maxKeys, KeySize)
	// ErrUnknownKey: a value was sealed with a key that the box does not have.
	ErrUnknownKey = errors.New("seal: the state was written with a key that is not in the key file; put the former key on a line behind the new one")
	// ErrBroken: a value is not what was sealed for this entry, or was never sealed.
	ErrBroken = errors.New("seal: a value in the state was written, changed or moved by another program, or before there was a key: it is not used")
)

var mark = [2]byte{0xAE, 0x01}

type keyName [nameSize]byte

type salt [saltSize]byte

// process names the cipher of one process under one key.
type process struct {
	key  keyName
	salt salt
}

// logEvery is how often values that do not open are logged.
const logEvery = time.Minute

// Deps are what a Box uses.
type Deps struct {
	Now    func() time.Time // nil: the time of the machine
	Logger *slog.Logger     // nil: nothing is logged
}

// Box seals and opens values. It is safe for concurrent use.
type Box struct {
	deps  Deps
	keys  map[keyName][]byte
	own   process
	with  cipher.AEAD
	count atomic.Uint64

	refused atomic.Uint64 // values that did not open
	logged  atomic.Int64  // when, in Unix seconds

	mu    sync.RWMutex
	known map[process]cipher.AEAD // of other processes
}

// ParseKeys reads a key file: one key on each line, the newest first. Its error
// does not quote the text.
func ParseKeys(text []byte) ([][]byte, error) {
	var keys [][]byte
	for line := range bytes.Lines(text) {
		word := string(bytes.TrimSpace(line))
		if word == "" {
			continue
		}
		key, err := hex.DecodeString(word)
		if err != nil {
			key, err = base64.StdEncoding.DecodeString(word)
		}
		if err != nil || len(key) != KeySize || len(keys) == maxKeys {
			return nil, ErrKeys
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, ErrKeys
	}
	return keys, nil
}

// NewKey is a random key as a line of a key file.
func NewKey() []byte {
	var key [KeySize]byte
	_, _ = rand.Read(key[:]) // it never fails
	return append(hex.AppendEncode(nil, key[:]), '\n')
}

// NewBox makes a box: the first key seals, all open.
func NewBox(deps Deps, keys ...[]byte) (*Box, error) {
	if deps.Now == nil {
		deps.Now = time.Now
	}
	deps.Logger = cmp.Or(deps.Logger, slog.New(slog.DiscardHandler))
	if len(keys) == 0 || len(keys) > maxKeys {
		return nil, ErrKeys
	}
	b := &Box{deps: deps, keys: map[keyName][]byte{}, known: map[process]cipher.AEAD{}}
	for _, key := range keys {
		if len(key) != KeySize {
			return nil, ErrKeys
		}
		b.keys[nameOf(key)] = bytes.Clone(key)
	}
	b.own.key = nameOf(keys[0])
	_, _ = rand.Read(b.own.salt[:]) // it never fails
	var err error
	b.with, err = b.cipher(b.own)
	return b, err
}

func nameOf(key []byte) keyName {
	sum := sha256.Sum256(key)
	return keyName(sum[:nameSize])
}

// cipher derives what one process seals with under one key.
func (b *Box) cipher(of process) (cipher.AEAD, error) {
	derived, err := hkdf.Key(sha256.New, b.keys[of.key], of.salt[:], "aepb state", KeySize)
	if err != nil {
		return nil, fmt.Errorf("seal: derive key: %w", err)
	}
	block, err := aes.NewCipher(derived)
	if err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	return cipher.NewGCM(block)
}

// seal encrypts a value for the entry of this name.
func (b *Box) seal(name, value []byte) []byte {
	size := headSize + len(value) + b.with.Overhead()
	buffer := make([]byte, size+nonceSize) // one allocation for both
	out, nonce := buffer[:headSize:size], buffer[size:]
	copy(out, mark[:])
	copy(out[len(mark):], b.own.key[:])
	copy(out[saltAt:], b.own.salt[:])
	binary.BigEndian.PutUint64(out[countAt:], b.count.Add(1))
	setNonce(nonce, out)
	return b.with.Seal(out, nonce, value, name) //nolint:gosec // each count is used once
}

// open is the value that was sealed for this name. One that does not open is counted
// and logged; one that was never sealed does not open either.
func (b *Box) open(ctx context.Context, name, sealed []byte) ([]byte, error) {
	value, err := b.opened(name, sealed)
	if err == nil {
		return value, nil
	}
	refused := b.refused.Add(1)
	now, last := b.deps.Now().Unix(), b.logged.Load()
	if now-last >= int64(logEvery/time.Second) && b.logged.CompareAndSwap(last, now) {
		b.deps.Logger.ErrorContext(ctx, "state holds a value that does not open: it is not used",
			slog.Any("error", err), slog.Uint64("refused", refused))
	}
	return nil, err
}

func (b *Box) opened(name, sealed []byte) ([]byte, error) {
	if len(sealed) < headSize || [2]byte(sealed) != mark {
		return nil, ErrBroken
	}
	with, err := b.find(process{keyName(sealed[len(mark):]), salt(sealed[saltAt:])})
	if err != nil {
		return nil, err
	}
	var nonce [nonceSize]byte
	setNonce(nonce[:], sealed)
	value, err := with.Open(nil, nonce[:], sealed[headSize:], name)
	if err != nil {
		return nil, ErrBroken
	}
	return value, nil
}

// Refused is how many values did not open since the start.
func (b *Box) Refused() uint64 { return b.refused.Load() }

// setNonce makes the nonce of a sealed value's count.
func setNonce(nonce, sealed []byte) { copy(nonce[nonceSize-countSize:], sealed[countAt:headSize]) }

// find is the cipher of a process, ours or another.
func (b *Box) find(of process) (cipher.AEAD, error) {
	if of == b.own {
		return b.with, nil
	}
	if _, ok := b.keys[of.key]; !ok {
		return nil, ErrUnknownKey
	}
	b.mu.RLock()
	found, ok := b.known[of]
	b.mu.RUnlock()
	if ok {
		return found, nil
	}
	made, err := b.cipher(of)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.known) >= maxProcess {
		clear(b.known)
	}
	b.known[of] = made
	return made, nil
}
