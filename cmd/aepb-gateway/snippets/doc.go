// Package snippets prints the first programs that call an agent through a development
// gateway: with curl, in JavaScript, Python and Go, each with what makes it trust the
// gateway's CA. They are run as printed by the tests in test/interop and test/python.
package snippets
