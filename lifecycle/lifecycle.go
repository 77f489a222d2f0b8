package lifecycle

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Status is where an agent stands in its life (AEPB, "Lifecycle States"). The zero Status of a
// record is that of an agent that was never changed: it counts as Active.
type Status string

// The four states.
const (
	Active     Status = "active"     // normal operation
	Deprecated Status = "deprecated" // works, and will be retired
	Draining   Status = "draining"   // finishes its work, takes no new one
	Retired    Status = "retired"    // offline, for ever, unless a development gateway forgets it
)

// Notice is the least time between deprecated and draining, so that callers with a cached
// capability document learn of it (AEPB, "Graceful Shutdown").
const Notice = 24 * time.Hour

// Configuration is who makes the transitions that the configuration asks for.
const Configuration = "configuration"

// Bounds of what an order and a record say.
const (
	maxReason    = 500     // characters
	maxSuccessor = 2048    // bytes
	maxIdentity  = 2048    // bytes of a name or an identity
	maxTerm      = 1 << 53 // beyond it a store's scripts would round
)

// transitions says what may follow each state (AEPB, "Lifecycle State Transitions"; R16).
var transitions = map[Status][]Status{
	Active:     {Deprecated, Draining},
	Deprecated: {Active, Draining},
	Draining:   {Active, Retired},
	Retired:    {}, // and Active by an order that forgets
}

// ParseStatus parses a state of documents and commands. Text that is empty or
// anything else is a [*StatusError].
func ParseStatus(text string) (Status, error) {
	if _, ok := transitions[Status(text)]; !ok {
		return "", &StatusError{}
	}
	return Status(text), nil
}

func (s Status) orActive() Status {
	return cmp.Or(s, Active)
}

// Order asks for a transition. JSON does not say who orders it, and when.
type Order struct {
	To        Status    `json:"to"`
	Reason    string    `json:"reason"`              // required, 1 to 500 characters
	By        string    `json:"-"`                   // required: identity of the operator, or Configuration
	Successor string    `json:"successor,omitempty"` // https URI of a capability document; empty: as before
	At        time.Time `json:"-"`                   // required: now
	Sunset    time.Time `json:"sunset_at,omitzero"`  // with Deprecated and Draining: when the agent will be gone; zero: see Apply
	Force     bool      `json:"force,omitempty"`     // with Draining: cut the notice short
	Now       bool      `json:"now,omitempty"`       // with Draining and Retired: without the grace
	Forget    bool      `json:"forget,omitempty"`    // with Active: take back that the agent is retired; only development gateways allow it
}

// Change is a transition that was made.
type Change struct {
	Agent    string // its name in the directory; empty: the gateway itself
	From, To Status
	Reason   string
	Forced   bool   // the notice was cut short
	Warning  string // what the operator should know; empty: nothing
}

// Apply makes the transition that an order asks for, or says why it cannot be: [*StatusError],
// [*TransitionError], [*ReasonError], [*SuccessorError], [*OrderError], [*TooSoonError] or
// [*RecordError]; the record then comes back as it was.
//
// Draining sets SunsetAt to the order's, or to At. Deprecated sets it if the order does. Back to
// active clears DeprecatedAt, SunsetAt, FinalAt, Step and, unless the order names one, Successor:
// callers would be sent away from an agent that serves. The new record is not signed yet.
//
// Retired without Now begins the [Grace] instead: the record stays Draining in its term and comes to the step
// Retiring, and [Record.Next] makes the transition when FinalAt has come.
func (r Record) Apply(o Order) (Record, Change, error) {
	change, err := r.judge(o)
	if err != nil {
		return r, Change{}, err
	}
	next := r
	next.Reason, next.By = o.Reason, o.By
	if change.To != o.To {
		next.Step, next.FinalAt = Retiring, instant(o.At.Add(Grace))
		return next, change, nil
	}
	next.Status, next.Term, next.Token, next.At = o.To, r.Term+1, "", instant(o.At)
	if o.Successor != "" || o.To == Active {
		next.Successor = o.Successor
	}
	sunset := instant(o.Sunset)
	switch o.To {
	case Deprecated:
		next.DeprecatedAt, next.SunsetAt = next.At, sunset
	case Draining:
		next.SunsetAt, next.Step = sunset, 0
		if sunset.IsZero() {
			next.SunsetAt = later(next.At, r.DeprecatedAt) // clocks of replicas differ
		}
		if o.Now {
			next.FinalAt = next.At
		}
	case Active:
		next.DeprecatedAt, next.SunsetAt, next.FinalAt, next.Step = time.Time{}, time.Time{}, time.Time{}, 0
	case Retired: // keeps all else: how it came to its end
		next.FinalAt = next.At
	}
	return next, change, nil
}

// Check says whether an order of a configuration could ever be followed. Its errors are those
// of [Record.Apply].
func (o Order) Check() error {
	if o.To == Active && o.Successor != "" {
		return &OrderError{"successor: what is active needs none"}
	}
	o.At, o.Force = later(o.Sunset, time.Unix(0, 0)), true
	before := Record{} // of which most become something else by an order
	if o.To == Active {
		before.Status = Deprecated
	}
	_, _, err := before.Apply(o)
	return err
}

// Due reports whether the order of a configuration is still to be followed. Once an operator has
// ordered something, the record is the operators': what they want now, only they know.
func (r Record) Due(o Order) bool {
	if r.Term > 0 && r.By != Configuration {
		return false
	}
	switch from := r.Status.orActive(); o.To {
	case Deprecated:
		return from == Active
	case Draining:
		return from == Active || from == Deprecated
	case Active:
		return from == Deprecated
	default:
		return false
	}
}

// Differs reports whether a record that stands as a configuration ordered says something else
// than the order says now: a transition said it once.
func (r Record) Differs(o Order) bool {
	return r.By == Configuration && r.Status == o.To && o.To != Active &&
		(r.Successor != o.Successor || r.Reason != o.Reason || !o.Sunset.IsZero() && !r.SunsetAt.Equal(later(o.Sunset, r.At)))
}

// judge holds an order against the table, its own form and the notice, in this order.
func (r Record) judge(o Order) (Change, error) {
	if _, err := ParseStatus(string(o.To)); err != nil {
		return Change{}, err
	}
	change := Change{Agent: r.Agent, From: r.Status.orActive(), To: o.To, Reason: o.Reason}
	if because, ok := r.mayBecome(o); !ok {
		return Change{}, &TransitionError{From: change.From, To: o.To, because: because}
	}
	if err := r.checkOrder(o); err != nil {
		return Change{}, err
	}
	if o.To == Draining {
		until, early := r.notice(o.At)
		if early && !o.Force {
			return Change{}, &TooSoonError{Until: until}
		}
		change.Forced = early
	}
	if o.To == Retired && !o.Now && r.Step < Ended {
		change.To = Draining // for the time of the grace
	}
	change.Warning = r.warning(o, change)
	return change, nil
}

// warning is what an operator should know of a change, above all what is final.
func (r Record) warning(o Order, c Change) string {
	var all []string
	if c.Forced {
		all = append(all, "the 24 hours of notice were cut short: callers with a cached capability document do not know yet that this agent drains")
	}
	switch {
	case o.To == Draining && o.Now:
		all = append(all, "it is retired for good as soon as its last work has ended, within seconds if it has none")
	case o.To == Draining:
		all = append(all, "it is retired for good ten minutes after its last work has ended: until then an order to active takes it back")
	case o.To == Retired && c.To == Draining:
		all = append(all, "it is retired for good at "+instant(o.At.Add(Grace)).Format(time.RFC3339)+", also if it has work then: until then an order to active takes it back")
	case o.To == Retired && r.Step < Ended:
		all = append(all, "it is retired for good now: the graceful end was cut short, work under way is lost, and no aepb:shutdown is signed")
	}
	return strings.Join(all, "; ")
}

// mayBecome looks into the table. Only an operator ends or takes back a drain by an order: a
// configuration that is read again must not undo what an operator began. After the signed
// shutdown there is no way back.
func (r Record) mayBecome(o Order) (because string, ok bool) {
	from := r.Status.orActive()
	switch {
	case from == Retired && o.To == Active && o.Forget:
		return "", o.By != Configuration
	case o.Forget && from != Retired:
		return "only a retired agent can be forgotten", false
	case !slices.Contains(transitions[from], o.To):
		return "", false
	case from != Draining:
		return "", true
	case r.Step >= Ended && o.To != Retired:
		return "its aepb:shutdown is signed, so it can only become retired", false
	case r.Step < Ended && o.By == Configuration:
		return "only the graceful end or an operator ends a drain, not the configuration", false
	case r.Step == Retiring && o.To == Retired && !o.Now:
		return "that is ordered already, and happens at " + r.FinalAt.Format(time.RFC3339) + "; order it with now to have it at once", false
	}
	return "", true
}

// checkOrder judges an order by itself.
func (r Record) checkOrder(o Order) error {
	since := o.At
	if o.To == Draining {
		since = r.DeprecatedAt
	}
	switch {
	case !validReason(o.Reason):
		return &ReasonError{}
	case !validBy(o.By):
		return &OrderError{"by: give the identity of an operator, at most 2048 bytes without control characters"}
	case o.Successor != "" && !validSuccessor(o.Successor):
		return &SuccessorError{}
	case o.At.IsZero() || !validTime(o.At):
		return &OrderError{"at: give the time of the transition, in the years 1 to 9999"}
	case !o.Sunset.IsZero() && !o.validSunset(since):
		return &OrderError{"sunset: only deprecated and draining have one, not before the agent was deprecated; leave it out or give a later one"}
	case o.Now && o.To != Draining && o.To != Retired:
		return &OrderError{"now: only draining and retired have a grace that it could skip; leave it out"}
	case r.Term >= maxTerm:
		return &RecordError{"term: no higher one is left"}
	}
	return nil
}

// validSunset accepts what may be announced of an agent that is deprecated since then.
func (o Order) validSunset(since time.Time) bool {
	return (o.To == Deprecated || o.To == Draining) && validTime(o.Sunset) && !o.Sunset.Before(since)
}

// notice says until when an agent must stay deprecated, and whether that is still to come. One
// that is active, or whose record does not say since when it is deprecated, would begin now.
func (r Record) notice(at time.Time) (until time.Time, early bool) {
	since := r.DeprecatedAt
	if r.Status.orActive() != Deprecated || since.IsZero() {
		since = at
	}
	until = instant(since.Add(Notice))
	return until, at.Before(until)
}

// Verdict is what a record lets through.
type Verdict struct {
	Serves  bool // work that is under way, and questions about it
	NewWork bool // new delegations
}

// Admits says what a record lets through: a retired agent nothing, a draining one the work
// under way, every other one all. A state that is unknown lets nothing through.
func (r Record) Admits() Verdict {
	switch r.Status.orActive() {
	case Active, Deprecated:
		return Verdict{Serves: true, NewWork: true}
	case Draining:
		return Verdict{Serves: true}
	default:
		return Verdict{}
	}
}

// workflowsFor is how long the workflows under way go on where no sunset gives them a deadline.
const workflowsFor = time.Hour

// Workflows is when a drain was ordered, as long as those that had work here before that may take their next
// step (R16): until the sunset, if the order names one. Zero: none may, now or at all.
func (r Record) Workflows(now time.Time) time.Time {
	until := r.SunsetAt
	if !until.After(r.At) {
		until = r.At.Add(workflowsFor)
	}
	if r.Status != Draining || r.Step >= Ended || !now.Before(until) {
		return time.Time{}
	}
	return r.At
}

func validReason(text string) bool {
	return strings.TrimSpace(text) != "" && utf8.RuneCountInString(text) <= maxReason && printable(text)
}

func validBy(text string) bool { return text != "" && validName(text) }

func validName(text string) bool { return len(text) <= maxIdentity && printable(text) }

// printable text is valid UTF-8 without control characters. The character that stands for what
// could not be read is refused with the rest: evidence writes it as a space.
func printable(text string) bool {
	return !strings.ContainsFunc(text, func(c rune) bool { return unicode.IsControl(c) || c == utf8.RuneError })
}

// validSuccessor accepts the https URI of a capability document (AEPB, "Successor Discovery").
// It goes into the header Link, between < and >, so it holds only what a URI may.
func validSuccessor(text string) bool {
	if len(text) > maxSuccessor || strings.ContainsFunc(text, notOfURI) {
		return false
	}
	u, err := url.Parse(text)
	return err == nil && u.Scheme == "https" && u.Hostname() != "" && u.User == nil
}

// notOfURI finds what a URI without a fragment does not consist of (RFC 3986, appendix A).
func notOfURI(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune("#\"<>\\^`{|}", c) }

// instant is a time as records hold it: in UTC, without the reading of the process's own clock.
func instant(t time.Time) time.Time { return t.Round(0).UTC() }

// validTime accepts what RFC 3339 can write.
func validTime(t time.Time) bool {
	year := t.UTC().Year()
	return year >= 1 && year <= 9999
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
