// Package terminal writes what others have written to a terminal: escaped, on one line, with
// lengths of time as people say them and a line about what is waited for.
package terminal
