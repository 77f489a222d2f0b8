package redis

// DigestOf is how a text stands in a key.
func DigestOf(text string) string { return digest(text).hex() }
