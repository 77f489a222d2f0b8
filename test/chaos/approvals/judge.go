package approvals

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/aepb/aepb-gateway/ect"
)

// Kind is how the calls of one kind went in one group.
type Kind struct {
	Name                                     string
	All, Sent, Done, Refused, Failed, Untold int
}

// Violation is something that must not happen.
type Violation struct{ Kind, Key, What, Why string }

// Report is what came of the act.
type Report struct {
	Kinds      []Kind
	Violations []Violation
	Kills      map[string]int // by group and phase
	Approvals  map[string]int // by group and state
	Failures   map[string]int // by what their callers were told
	Evidence   int            // ECTs that were verified
	Unsaved    int            // decisions that went down with a gateway over a file before it wrote their evidence
	Log        string
}

func (r *Report) add(other Report) {
	r.Kinds = append(r.Kinds, other.Kinds...)
	slices.SortFunc(r.Kinds, func(a, b Kind) int { return cmp.Compare(a.Name, b.Name) })
	r.Violations = append(r.Violations, other.Violations...)
	r.Evidence, r.Unsaved = r.Evidence+other.Evidence, r.Unsaved+other.Unsaved
	r.Kills, r.Approvals, r.Failures = sum(r.Kills, other.Kills), sum(r.Approvals, other.Approvals), sum(r.Failures, other.Failures)
}

func sum(a, b map[string]int) map[string]int {
	all := maps.Clone(a)
	if all == nil {
		all = map[string]int{}
	}
	for name, n := range b {
		all[name] += n
	}
	return all
}

// Words that tell a caller what is known of its call.
const (
	notKnown  = "not known"
	neverSent = "nothing was sent"
)

// judge says what is wrong with a call that the agent got so often, and of which so many approvals were consumed.
func (c *call) judge(sent, consumed int) []string {
	var wrong []string
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	if c.failure != "" {
		say("%s", c.failure)
	}
	if sent > consumed {
		say("it was sent %d times, and %d of its approvals were consumed", sent, consumed)
	}
	if !strings.HasPrefix(c.key, wantGrant) && sent > 0 {
		say("no approver granted it, and it was sent %d times", sent)
	}
	if c.waits() && (sent > 1 || consumed > 1) {
		say("its task waits once, it was sent %d times, and %d approvals were consumed", sent, consumed)
	}
	switch c.state {
	case taskDone, endResult:
		if sent == 0 {
			say("it has a result, and was never sent")
		}
	case taskRejected, endRefused:
		if sent > 0 && c.waits() {
			say("it was rejected, and sent %d times: %s", sent, c.why)
		}
	case taskFailed:
		switch {
		case strings.Contains(c.why, notKnown):
		case strings.Contains(c.why, neverSent) && sent == 0:
		default:
			say("it was sent %d times, and its caller does not learn that this is not known: %s", sent, c.why)
		}
	case endUnclear:
		if !c.waits() && !strings.Contains(c.why, notKnown) {
			say("its caller is told neither of an approval nor that it is not known: %s", c.why)
		}
	}
	return wrong
}

// enough calls of one kind have a result if all is well. Of fewer ones chance may spare none.
const enough = 20

// judge judges what the callers, the approvers and the agent of a group lived through.
func (g *group) judge(ctx context.Context) (rep Report, err error) {
	rep.Kills, rep.Approvals, rep.Failures = g.Struck(), map[string]int{}, map[string]int{}
	approvals, err := g.list(ctx, 0, "")
	if err != nil {
		return rep, err
	}
	say := func(kind, key, what, why string) {
		rep.Violations = append(rep.Violations, Violation{g.Name + " " + kind, key, what, why})
	}
	of, err := g.byKey(ctx, approvals)
	if err != nil {
		return rep, err
	}
	for _, a := range of[""] {
		say("approval", a.ID, "its text is lost", listed([]approval{a}))
	}
	kinds := map[string]*Kind{}
	for _, c := range g.calls {
		name := g.Name + " " + c.kind
		if kinds[name] == nil {
			kinds[name] = &Kind{Name: name}
		}
		sent := g.journal.times(c.key)
		kinds[name].count(c, sent)
		for _, what := range c.judge(sent, consumed(of[c.key])) {
			say(c.kind, c.key, what, listed(of[c.key]))
		}
		if c.state == taskFailed || c.state == endUnclear {
			rep.Failures[g.Name+" "+cause(c.why)]++
		}
	}
	results := 0
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		k := kinds[name]
		rep.Kinds, results = append(rep.Kinds, *k), results+k.Done
		if k.Done == 0 && k.All >= enough {
			say("", name, "no call has a result: nothing is proved", "")
		}
	}
	if results == 0 {
		say("", g.Name, "no call has a result: nothing is proved", "")
	}
	for _, a := range approvals {
		rep.Approvals[g.Name+" "+a.State]++
		if (a.State == statePending || a.State == stateGranted) && time.Since(a.Opened) > endsIn {
			say("approval", a.ID, "it still waits: "+a.State, "")
		}
	}
	var wrong []string
	rep.Evidence, rep.Unsaved, wrong, err = g.audit(ctx, approvals)
	for _, what := range wrong {
		say("evidence", "", what, "")
	}
	return rep, err
}

// cause is the part of a failure by which failures are counted.
func cause(why string) string {
	for _, words := range []string{"released the call was lost", "agent has finished is not known", neverSent, "approved, and failed", notKnown} {
		if strings.Contains(why, words) {
			return words
		}
	}
	return "other"
}

func (k *Kind) count(c *call, sent int) {
	k.All++
	k.Sent += sent
	switch {
	case c.waits() && c.task == "":
		k.Untold++
	case c.state == taskDone || c.state == endResult:
		k.Done++
	case c.state == taskRejected || c.state == endRefused:
		k.Refused++
	default:
		k.Failed++
	}
}

// byKey is the approvals by the key in their text.
func (g *group) byKey(ctx context.Context, approvals []approval) (map[string][]approval, error) {
	found := map[string][]approval{}
	for n, a := range approvals {
		full, err := g.show(ctx, n, a.ID)
		if err != nil {
			return nil, err
		}
		key := keyIn(full.Text)
		found[key] = append(found[key], full)
	}
	return found, nil
}

// consumed counts the approvals that were consumed.
func consumed(approvals []approval) (n int) {
	for _, a := range approvals {
		if a.State == stateUsed {
			n++
		}
	}
	return n
}

// listed is approvals as a violation names them.
func listed(approvals []approval) string {
	var b strings.Builder
	for _, a := range approvals {
		fmt.Fprintf(&b, "; approval %s of %s is %s after %d decisions, workflow %s", a.ID, a.Opened.Format(time.TimeOnly), a.State, len(a.Decisions), a.WID)
	}
	return b.String()
}

// keyIn is the key in the text of an approval.
func keyIn(text string) string {
	_, after, _ := strings.Cut(text, `"key": "`)
	key, _, _ := strings.Cut(after, `"`)
	return key
}

// auditors ask at once.
const auditors = 4

// audit verifies the evidence of all workflows, and that each decision has one request at most.
func (g *group) audit(ctx context.Context, approvals []approval) (evidence, lost int, wrong []string, err error) {
	verifier, err := g.Verifier()
	if err != nil {
		return 0, 0, nil, err
	}
	var mu sync.Mutex
	var all errgroup.Group
	all.SetLimit(auditors)
	for n, a := range approvals {
		all.Go(func() error {
			claims, why := g.workflow(ctx, verifier, n, a.WID)
			mu.Lock()
			defer mu.Unlock()
			evidence += len(claims)
			wrong = append(wrong, why...)
			for _, d := range a.Decisions {
				switch what, missing := follows(claims, d.Token); {
				case missing && g.WasUnsaved(d.At, d.At):
					lost++
				case what != "":
					wrong = append(wrong, fmt.Sprintf("approval %s (%s): %s", a.ID, a.State, what))
				}
			}
			return ctx.Err()
		})
	}
	return evidence, lost, wrong, all.Wait()
}

// follows says what is wrong with what follows from a decision.
func follows(claims []ect.Claims, decision ect.ID) (what string, missing bool) {
	known := slices.ContainsFunc(claims, func(c ect.Claims) bool { return c.ID == decision })
	if decision == "" || !known {
		return fmt.Sprintf("its decision %q is not on record", decision), true
	}
	requests := 0
	for _, c := range claims {
		if c.Act == ect.ActTranslate && slices.Contains(c.Parents, decision) {
			requests++
		}
	}
	if requests > 1 {
		return fmt.Sprintf("%d requests follow from its decision %s", requests, decision), false
	}
	return "", false
}

// workflow reads and verifies the evidence of a workflow.
func (g *group) workflow(ctx context.Context, verifier *ect.Verifier, first int, wid string) (claims []ect.Claims, wrong []string) {
	var page struct {
		ECTs []string `json:"ects"`
	}
	if err := g.anyAdmin(ctx, first, http.MethodGet, "/api/workflows/"+wid, nil, &page); err != nil {
		return nil, []string{"workflow " + wid + ": " + err.Error()}
	}
	for _, compact := range page.ECTs {
		v, err := verifier.Verify(ctx, compact, ect.Check{Purpose: ect.Parent})
		if err != nil {
			wrong = append(wrong, "workflow "+wid+": a token does not verify: "+err.Error())
			continue
		}
		claims = append(claims, v.Claims())
	}
	return claims, wrong
}
