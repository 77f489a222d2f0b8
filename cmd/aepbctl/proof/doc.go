// Package proof reads what an auditor is given, such as tokens, files of this program, folders and archives
// of evidence, has package audit judge it, and says what it found. It asks no gateway.
//
// Nothing of an input is passed over: a member of a file that is said beside a token is compared with the
// token, a message with the hashes, and what nothing here can compare is named.
package proof
