package checkpoint

import (
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/aepb/aepb-gateway/ect"
)

// Path is that of every rollback URI (ATD, Checkpoint ECT Format; RFC 8615).
const Path = "/.well-known/atd/rollback"

// Bounds of atd.ttl.
const (
	MinTTL     = time.Minute
	MaxTTL     = 30 * 24 * time.Hour // as long as evidence can be held beyond its usual end
	DefaultTTL = 24 * time.Hour      // that of the draft's example
)

// Checkpoint is what an atd:checkpoint says.
type Checkpoint struct {
	ID          ect.ID
	Issuer      ect.Identity
	Workflow    string
	Parents     []ect.ID // the token of the action, or the checkpoints that it groups
	Audience    []string
	Reversible  bool
	RollbackURI string
	Target      string // what is changed; free text
	Description string // free text
	TTL         time.Duration
	At          time.Time
	State       string // out_hash: the hash of the state, which is nowhere in the token
}

// InvalidError says which claim of a checkpoint is missing or wrong, and what was expected.
type InvalidError struct {
	ID       ect.ID
	Claim    string
	Expected string
}

func (e *InvalidError) Error() string {
	return fmt.Sprintf("checkpoint %s: %s is missing or wrong: expected %s", e.ID, e.Claim, e.Expected)
}

// AlteredError reports a state that is not the one whose hash its checkpoint has.
type AlteredError struct{ ID ect.ID }

func (e *AlteredError) Error() string {
	return "checkpoint " + string(e.ID) + ": the stored state does not have the hash of its token: it was altered, and nothing is restored from it"
}

// Parse reads the claims of an atd:checkpoint that was verified, or that is on record. Its error is an *InvalidError:
// a claim that the draft requires is not there, or a bound is not kept (ATD, Checkpoint exec_act Table).
func Parse(c ect.Claims) (Checkpoint, error) {
	out := Checkpoint{
		ID: c.ID, Issuer: c.Issuer, Workflow: c.Workflow, Parents: c.Parents, Audience: c.Audience, State: c.OutputHash,
		At: time.Unix(c.IssuedAt, 0).UTC(),
	}
	invalid := func(claim, expected string) (Checkpoint, error) { return out, &InvalidError{c.ID, claim, expected} }
	var ok bool
	seconds, err := strconv.ParseInt(string(c.Ext[ect.ExtTTL]), 10, 64)
	out.TTL = time.Duration(min(max(seconds, 0), int64(MaxTTL/time.Second)+1)) * time.Second
	out.Target, _ = c.Ext.String(ect.ExtTarget)
	out.Description, _ = c.Ext.String(ect.ExtATDDescription)
	out.RollbackURI, _ = c.Ext.String(ect.ExtRollbackURI)
	out.Reversible, ok = c.Ext.Bool(ect.ExtReversible)
	switch {
	case c.Act != ect.ActCheckpoint:
		return invalid("exec_act", string(ect.ActCheckpoint))
	case len(c.Parents) == 0:
		return invalid("par", "the token of the action, or the checkpoints that it groups")
	case c.OutputHash == "":
		return invalid("out_hash", "the hash of the state")
	case !ok:
		return invalid(ect.ExtReversible, "true or false")
	case err != nil || out.TTL < MinTTL || out.TTL > MaxTTL:
		return invalid(ect.ExtTTL, "a whole number of seconds from 60 to 2592000")
	case !IsRollbackURI(out.RollbackURI):
		return invalid(ect.ExtRollbackURI, "an https URL with the path "+Path)
	}
	return out, nil
}

// IsRollbackURI reports whether a text is a URL at which rollbacks may be requested: https, a host, the path of the
// draft, and nothing else. Whose host it is, is not judged here.
func IsRollbackURI(text string) bool {
	at, err := url.Parse(text)
	return err == nil && at.Scheme == "https" && at.Host != "" && at.Path == Path && at.RawPath == "" && at.User == nil && at.RawQuery == "" && !at.ForceQuery && at.Fragment == ""
}

// Ext is the ext claim of the checkpoint. Its texts are cut to what a token may hold (R11).
func (c Checkpoint) Ext() ect.Ext {
	ext := ect.Ext{}
	ext.SetBool(ect.ExtReversible, c.Reversible)
	ext.SetString(ect.ExtRollbackURI, c.RollbackURI)
	ext.SetInt(ect.ExtTTL, int64(c.TTL/time.Second))
	if c.Target != "" {
		ext.SetText(ect.ExtTarget, c.Target)
	}
	if c.Description != "" {
		ext.SetText(ect.ExtATDDescription, c.Description)
	}
	return ext
}

// Ends is when the checkpoint is over: it is stored until then, and purged after it.
func (c Checkpoint) Ends() time.Time { return c.At.Add(c.TTL) }

// Within is how long a rollback to the checkpoint may take (ATD, Rollback Timeout and Escalation).
func (c Checkpoint) Within() time.Duration { return c.TTL / 2 }

// Work is a message as far as it decides whether a checkpoint precedes it.
type Work struct {
	Begins     bool // it asks an agent to do something
	InWorkflow bool // its workflow has a start on record
	Required   bool // policy says atd.checkpoint: required
	Changes    bool // the agent says that the tool changes or destroys something
	ReadOnly   bool // the operator says that the tool only reads
}

// Needs reports whether a checkpoint precedes the message: the table is in the package documentation (ATD, Checkpoint
// Placement Policy; R22).
func (w Work) Needs() bool {
	switch {
	case !w.Begins:
		return false
	case w.Required:
		return true
	case !w.InWorkflow:
		return false
	default:
		return w.Changes || !w.ReadOnly
	}
}

// Bounds of the rate at which one caller may have checkpoints made in one workflow (ATD, Checkpoint Flooding).
const (
	Rate  = 20  // a second
	Burst = 100 // at once
)

// Budget is how many checkpoints one caller may have made in one workflow now. The zero value is a full one.
type Budget struct {
	full time.Time // when it is full again
}

// Admit takes one checkpoint out of the budget; false: it is used up, and after wait there is one again.
func (b Budget) Admit(now time.Time) (left Budget, wait time.Duration, ok bool) {
	const interval = time.Second / Rate
	if now.After(b.full) {
		b.full = now
	}
	next := b.full.Add(interval)
	if wait := next.Sub(now) - Burst*interval; wait > 0 {
		return b, wait, false
	}
	return Budget{next}, 0, true
}
