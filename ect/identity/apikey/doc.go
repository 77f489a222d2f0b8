// Package apikey finds out who is calling from an API key, for callers in the simplest case: they have neither a
// certificate nor an issuer of tokens.
//
// # How to read it
//
// key.go is a key and its text, file.go the file of all keys, keys.go who shows one in a request.
//
// # Rules
//
// The text of a key is aepb_ID_SECRET. Who has it is the caller, as with a JWT-SVID, so it is taken in header
// fields alone and never in a URL. The file has a hash of the secret. The secret is 256 random bits, which cannot
// be guessed, so a slow hash for passwords would only cost time: the hash is SHA-256 of a salt and the secret.
// Hashes are compared in constant time, and a key that does not exist costs as much as one with a wrong secret.
// Ids are no secrets. Refusals are *identity.CredentialError and never quote a key.
//
// # Alternatives considered
//
// A keyed hash (HMAC) would need one more secret of the operator, and protects nothing that a salt and 256 bits
// leave open. Keys in the state of the gateway would need an API that makes them; a file has its owner and its mode.
package apikey
