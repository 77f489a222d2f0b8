// Package descriptor stores the descriptors of workflows, in versions that never change (ATD, Optional Declarative
// Workflow Format: orchestrators may store and version them; R27).
//
// A name has one record, which lists its versions, and each text has an entry of its own under its hash. The text is
// written first: a version that is on record has its text, and of two replicas that store a version at once each gets
// its own number. A text whose version was not recorded after all takes space and nothing else.
//
// # Alternatives considered
//
// All texts in one record: it would be 25 MB. One entry for each version under its number: a replica that ends between
// two writes would leave a number that is taken and not listed.
package descriptor
