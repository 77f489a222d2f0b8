// Package seal encrypts what a driver of state writes where others may read it:
// in a file, its backups, or Redis. Entries hold what callers entrust to the
// gateway (credentials of webhooks, requests that wait for an answer), blobs the contents of
// checkpoints, and a stored answer may repeat such credentials.
//
// A [Box] has the keys: the first seals, all of them open, so a key is rotated
// by putting a new one before it. [Entries], [Answers] and [Blobs] stand between the
// gateway and a driver, which never sees a value in the clear. A value that was not
// sealed is not believed: a program that can write there, and has no key, can remove
// values and put back older ones of the same entry, and not make any.
//
// The form of a sealed value:
//
//	2 bytes  mark: AE 01, which no JSON text begins with
//	4 bytes  name of the key: the first of its SHA-256
//	16 bytes salt, drawn once for each process
//	8 bytes  count of values that this process has sealed
//	         AES-256-GCM of the value, with its 16 bytes of tag
//
// The cipher's key is derived from key and salt (HKDF with SHA-256), its nonce is
// the count: neither repeats, however many values a key seals. The name of the
// entry is additional data: a value that is moved to another entry does not open. A blob is
// sealed for its end, too.
//
// Alternatives considered: random nonces under one key, which are safe for 2^32
// values, about ten days of a busy gateway; encryption of the credentials alone,
// which leaves out the requests and answers that repeat them; Redis' or the
// disk's own encryption, which does not cover dumps and backups.
package seal
