// Package config is what an operator writes: one strict YAML file.
//
// Every key has a default that works. An unknown key, a wrong type or a value
// out of range is an error with its line and column; all of them are listed at
// once. Secrets never stand in the file, only paths to them.
package config
