// Package contents looks into stores as they are written, for tests of what may not be there, and changes it.
package contents

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.etcd.io/bbolt"
)

// Store is a store that no gateway uses now.
type Store struct {
	// Values are all that is there, by names.
	Values func(tb testing.TB) map[string][]byte
	// Flip changes one bit of the content of every blob.
	Flip func(tb testing.TB)
}

// InFile is a file of bbolt.
func InFile(file string) Store {
	open := func(tb testing.TB, do func(tx *bbolt.Tx) error) {
		tb.Helper()
		db, err := bbolt.Open(file, 0o600, nil)
		if err == nil {
			err = errors.Join(db.Update(do), db.Close())
		}
		must(tb, err)
	}
	return Store{
		Values: func(tb testing.TB) map[string][]byte {
			tb.Helper()
			found := map[string][]byte{}
			open(tb, func(tx *bbolt.Tx) error {
				return tx.ForEach(func(bucket []byte, values *bbolt.Bucket) error {
					return values.ForEach(func(name, value []byte) error {
						found[string(bucket)+" "+string(name)] = slices.Concat(name, []byte(" "), value)
						return nil
					})
				})
			})
			return found
		},
		Flip: func(tb testing.TB) {
			tb.Helper()
			open(tb, func(tx *bbolt.Tx) error {
				values := tx.Bucket([]byte("blob bytes"))
				return values.ForEach(func(name, value []byte) error { return values.Put(name, flipped(value)) })
			})
		},
	}
}

// InRedis is a server of Redis at an address, until the test ends.
func InRedis(tb testing.TB, address string) Store {
	tb.Helper()
	client := redis.NewClient(&redis.Options{Addr: address})
	tb.Cleanup(func() { _ = client.Close() })
	return Store{
		Values: func(tb testing.TB) map[string][]byte {
			tb.Helper()
			found := map[string][]byte{}
			keys, err := client.Keys(tb.Context(), "*").Result()
			must(tb, err)
			for _, key := range keys {
				dump, err := client.Dump(tb.Context(), key).Result() // strings that are long may be compressed in it
				must(tb, err)
				found[key] = []byte(key + " " + dump + " " + strings.Join(valuesOf(tb, client, key), " "))
			}
			return found
		},
		Flip: func(tb testing.TB) {
			tb.Helper()
			keys, err := client.Keys(tb.Context(), "*b:{*").Result()
			must(tb, err)
			for _, key := range keys {
				value, err := client.HGet(tb.Context(), key, "value").Bytes()
				if errors.Is(err, redis.Nil) {
					continue
				}
				must(tb, err)
				must(tb, client.HSet(tb.Context(), key, "value", flipped(value)).Err())
			}
		},
	}
}

// valuesOf are the values of a key of Redis, of whatever type it is.
func valuesOf(tb testing.TB, client *redis.Client, key string) (found []string) {
	tb.Helper()
	kind, err := client.Type(tb.Context(), key).Result()
	must(tb, err)
	switch kind {
	case "string":
		value, failed := client.Get(tb.Context(), key).Result()
		found, err = []string{value}, failed
	case "hash":
		var fields map[string]string
		fields, err = client.HGetAll(tb.Context(), key).Result()
		for name, value := range fields {
			found = append(found, name, value)
		}
	case "list":
		found, err = client.LRange(tb.Context(), key, 0, -1).Result()
	case "set":
		found, err = client.SMembers(tb.Context(), key).Result()
	case "zset":
		found, err = client.ZRange(tb.Context(), key, 0, -1).Result()
	default:
		tb.Fatalf("a key of the type %q, expected one that is read here", kind)
	}
	must(tb, err)
	return found
}

// flipped is a value with one bit changed, in its middle.
func flipped(value []byte) []byte {
	value = slices.Clone(value)
	value[len(value)/2] ^= 1
	return value
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
