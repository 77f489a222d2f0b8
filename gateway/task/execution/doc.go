// Package execution is what becomes of one request to an agent until its outcome is final, as a
// state machine (architecture section 10): pure, without a clock, over one table.
//
// state.go names states, events and facts; table.go is the table, and the one function that reads
// it. testdata/next.txt is the same table cell by cell: what each state does with each event.
//
// # Alternatives considered
//
// Flags that together mean a state: most combinations of them cannot be, and no reader can tell
// which.
package execution
