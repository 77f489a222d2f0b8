// Package mapped keeps files that are mapped into memory from counting for the process that reads
// them.
package mapped
