package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/aepb/aepb-gateway/gateway/state/seal"
)

// maxKeyFile bounds the file with the keys of the state, bytes.
const maxKeyFile = 4 << 10

// onlyOwner is the mode of a file with a secret.
const onlyOwner fs.FileMode = 0o600

// errNoStateKey: no way of running the gateway leaves Redis unverified by itself.
var errNoStateKey = errors.New("state in redis has no key: set state.key, or state.unverified: true")

// loadStateKeys reads state.key; no file, no keys.
func loadStateKeys(file string) ([][]byte, error) {
	if file == "" {
		return nil, nil
	}
	opened, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(opened, maxKeyFile+1))
	if err = errors.Join(err, opened.Close()); err != nil {
		return nil, err
	}
	if len(text) > maxKeyFile {
		return nil, seal.ErrKeys
	}
	keys, err := seal.ParseKeys(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return keys, nil
}

// stateKeyAt reads a key file of our own, which only we may read, and makes it
// first when there is none.
func stateKeyAt(file string) ([][]byte, error) {
	created, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, onlyOwner)
	switch {
	case err == nil:
		_, err = created.Write(seal.NewKey())
		if err = errors.Join(err, created.Sync(), created.Close()); err != nil {
			return nil, errors.Join(err, os.Remove(file))
		}
	case !errors.Is(err, fs.ErrExist):
		return nil, err
	}
	if err := os.Chmod(file, onlyOwner); err != nil {
		return nil, err
	}
	return loadStateKeys(file)
}

// sealed puts encryption between the gateway and a driver that writes to a file
// or to Redis. A file has a key beside it when none is configured. In Redis, which
// several replicas share, nothing is sealed where the operator says state.unverified,
// and plain says so.
func (k kept) sealed(s settings) (out kept, plain bool, err error) {
	keys := s.stateKeys
	switch {
	case k.backend == "memory":
		return k, false, nil
	case len(keys) == 0 && k.backend == "bolt":
		if keys, err = stateKeyAt(s.config.State.Path + ".key"); err != nil {
			return k, false, fmt.Errorf("the key of the state: %w", err)
		}
	case len(keys) == 0 && s.config.State.Unverified:
		s.logger.WarnContext(context.Background(), "state in redis is not sealed: what any program writes there is believed, and webhooks with credentials are refused; configure state.key, the same for all replicas, instead of state.unverified")
		return k, true, nil
	case len(keys) == 0:
		return k, false, errNoStateKey
	}
	box, err := seal.NewBox(seal.Deps{Now: time.Now, Logger: s.logger}, keys...)
	if err != nil {
		return k, false, err
	}
	ignored := k.ignored
	k.ignored = func() uint64 {
		if ignored == nil {
			return box.Refused()
		}
		return ignored() + box.Refused()
	}
	k.entries = seal.NewEntries(k.entries, box)
	if shared, ok := k.answers.(seal.SharedStore); ok {
		k.answers = seal.NewSharedAnswers(shared, box)
	} else {
		k.answers = seal.NewAnswers(k.answers, box)
	}
	return k, false, nil
}
