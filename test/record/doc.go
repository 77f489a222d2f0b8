// Package record kills real processes at each step of a decision, over a real Redis: those that come after
// them must tell the same outcome, with its evidence.
//
// How to read it: the test starts its own program again as the processes that decide; each gets the step at
// which it ends.
package record
