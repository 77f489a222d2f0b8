package rollback

// MaxRecord bounds an encoded journal, in bytes.
const MaxRecord = maxRecord
