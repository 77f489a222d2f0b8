package lifecycle

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"
)

const (
	maxRecord = 64 << 10 // bytes of an encoded record
	maxToken  = 16 << 10 // bytes of a signed token
)

// Record is how an agent's lifecycle stands. It is a value; each transition makes the next one.
// Records can be compared with ==; its times are in UTC.
type Record struct {
	Agent        string    `json:"agent"`                  // its name in the directory; empty: the gateway itself
	Status       Status    `json:"status"`                 // empty: active
	Term         uint64    `json:"term"`                   // grows by one with each transition; 0: there was no transition
	DeprecatedAt time.Time `json:"deprecated_at,omitzero"` // zero: it never was, or is active again
	SunsetAt     time.Time `json:"sunset_at,omitzero"`     // when it is gone; zero: not said
	FinalAt      time.Time `json:"final_at,omitzero"`      // from when a draining agent is retired for good; zero: work is under way, or it does not drain
	Successor    string    `json:"successor,omitempty"`    // https URI of a capability document; empty: not said
	Reason       string    `json:"reason,omitempty"`       // of the last transition
	By           string    `json:"by,omitempty"`           // identity of the operator, or Configuration
	At           time.Time `json:"at,omitzero"`            // of the last transition
	Token        string    `json:"token,omitempty"`        // what was last signed, as it is announced; empty: not signed yet
	Step         Step      `json:"step,omitempty"`         // of a graceful end: how far it has come
}

// Encode writes a record as JSON, equal records as equal bytes: its zero status as active, its
// times in UTC. A record that [Record.Apply] and [Record.Next] cannot make is a [*RecordError].
func (r Record) Encode() ([]byte, error) {
	r.Status = r.Status.orActive()
	r.DeprecatedAt, r.SunsetAt, r.FinalAt, r.At = instant(r.DeprecatedAt), instant(r.SunsetAt), instant(r.FinalAt), instant(r.At)
	if problem := r.check(); problem != "" {
		return nil, &RecordError{problem}
	}
	text, err := json.Marshal(r)
	if err != nil {
		return nil, &RecordError{"a time is outside the years 1 to 9999"} // all else can be written
	}
	return text, nil
}

// Decode reads what [Record.Encode] writes, and nothing else: no unknown member, no member twice, no
// null, times of RFC 3339 in UTC, everything within its bounds. Its error is a [*RecordError].
func Decode(text []byte) (Record, error) {
	if problem := checkMembers(text); problem != "" {
		return Record{}, &RecordError{problem}
	}
	var r Record
	if err := json.Unmarshal(text, &r); err != nil {
		return Record{}, &RecordError{"not one JSON object, or a member is not of its type"}
	}
	r.DeprecatedAt, r.SunsetAt, r.FinalAt, r.At = instant(r.DeprecatedAt), instant(r.SunsetAt), instant(r.FinalAt), instant(r.At)
	if problem := r.check(); problem != "" {
		return Record{}, &RecordError{problem}
	}
	return r, nil
}

// The members of a record, and those of them that are times.
var (
	members = []string{"agent", "status", "term", "deprecated_at", "sunset_at", "final_at", "successor", "reason", "by", "at", "token", "step"}
	times   = []string{"deprecated_at", "sunset_at", "final_at", "at"}
)

// checkMembers says what is wrong with the form of an encoded record; empty: nothing.
// encoding/json alone would take a member twice, in any case of letters, or null.
func checkMembers(text []byte) string {
	if len(text) > maxRecord {
		return "longer than 64 KiB"
	}
	in := json.NewDecoder(bytes.NewReader(text))
	if begin, err := in.Token(); err != nil || begin != json.Delim('{') {
		return "not one JSON object"
	}
	found := make(map[string]bool, len(members))
	for in.More() {
		key, errKey := in.Token()
		var value json.RawMessage
		if err := errors.Join(errKey, in.Decode(&value)); err != nil {
			return "not one JSON object"
		}
		name, _ := key.(string) // as every key is
		if problem := checkMember(name, value, found); problem != "" {
			return problem
		}
		found[name] = true
	}
	if !found["agent"] || !found["term"] { // a missing status is found later, as the empty one
		return "agent or term is missing"
	}
	return ""
}

// checkMember says what is wrong with the form of one member; empty: nothing.
func checkMember(name string, value json.RawMessage, found map[string]bool) string {
	switch {
	case !slices.Contains(members, name):
		return "an unknown member"
	case found[name]:
		return name + " stands twice"
	case string(value) == "null":
		return name + " is null"
	case slices.Contains(times, name) && !bytes.HasSuffix(value, []byte(`Z"`)):
		return name + " is no time of RFC 3339 in UTC"
	}
	return ""
}

// check says what is wrong with a record; empty: nothing.
func (r Record) check() string {
	switch {
	case !validName(r.Agent):
		return "agent is longer than 2048 bytes, or has control characters"
	case r.Successor != "" && !validSuccessor(r.Successor):
		return "successor is no https URI of a capability document"
	case len(r.Token) > maxToken || strings.ContainsFunc(r.Token, notOfToken):
		return "token is no compact signature, or longer than 16 KiB"
	case !r.SunsetAt.IsZero() && r.SunsetAt.Before(r.DeprecatedAt):
		return "sunset_at is before deprecated_at"
	}
	return cmp.Or(r.checkTerm(), r.checkStatus(), r.checkFinal())
}

// checkTerm checks that every transition, and only that, says why, who and when.
func (r Record) checkTerm() string {
	complete := validReason(r.Reason) && validBy(r.By) && !r.At.IsZero()
	empty := r.Reason == "" && r.By == "" && r.At.IsZero() && r.Token == ""
	switch {
	case r.Term > maxTerm:
		return "term is too high"
	case r.Term > 0 && !complete:
		return "a term without a valid reason, by or at"
	case r.Term == 0 && !empty:
		return "reason, by, at or token without a term"
	}
	return ""
}

// checkStatus holds what depends on the state against it.
func (r Record) checkStatus() string {
	if _, ok := transitions[r.Status]; !ok {
		return "status is not active, deprecated, draining or retired"
	}
	isEnding := r.Status == Draining || r.Status == Retired
	switch {
	case r.Status != Active && r.Term == 0:
		return "term is 0, but it is no longer active"
	case r.Status == Active && !(r.DeprecatedAt.IsZero() && r.SunsetAt.IsZero()):
		return "active with deprecated_at or sunset_at"
	case r.Status == Deprecated && r.DeprecatedAt.IsZero():
		return "deprecated without deprecated_at"
	case isEnding && r.SunsetAt.IsZero():
		return "draining or retired without sunset_at"
	case r.Step > Ended || r.Step > 0 && !isEnding:
		return "step without a graceful end"
	}
	return ""
}

// checkFinal holds when an end is final against the state.
func (r Record) checkFinal() string {
	switch {
	case r.FinalAt.IsZero() && r.Step == Retiring:
		return "retiring without final_at"
	case !r.FinalAt.IsZero() && r.Status != Draining && r.Status != Retired:
		return "final_at without an end"
	}
	return ""
}

// notOfToken finds what a compact signature does not consist of.
func notOfToken(c rune) bool { return notOfIdentifier(c) && c != '_' && c != '.' }
