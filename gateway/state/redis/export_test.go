package redis

import (
	"errors"

	goredis "github.com/redis/go-redis/v9"
)

// DigestOf is how a text stands in a key.
func DigestOf(text string) string { return digest(text).hex() }

// EpochKeyOf is the key of the epoch of the slot that a token without issuer and workflow is in.
func EpochKeyOf(config Config, id string) string {
	name := digest("", "", id)
	return (&Store{config: config}).epochKey(int(name[0]) % replayShards)
}

// FitOf judges what a server says of itself, and reports whether it would not become fit by itself.
func FitOf(config Config, info string) (final bool, err error) {
	client := goredis.NewUniversalClient(config.WithDefaults().options())
	err = (&Store{config: config, client: client}).fit(infoOf(info))
	return unfit(err), errors.Join(err, client.Close())
}
