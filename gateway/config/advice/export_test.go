package advice

// ReadersOfMode is readersOf, for the tests.
var ReadersOfMode = readersOf

// TakesRestart reports whether only a restart changes a key.
func TakesRestart(key string) bool { return ruleOf(key).restart }
