package redis

// DigestOf is how a text stands in a key.
func DigestOf(text string) string { return digest(text).hex() }

// EpochKeyOf is the key of the epoch of the slot that a token without issuer and workflow is in.
func EpochKeyOf(config Config, id string) string {
	name := digest("", "", id)
	return (&Store{config: config}).epochKey(int(name[0]) % replayShards)
}
