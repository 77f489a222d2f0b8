package rollbacks

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/lifecycle/rollback"
	"github.com/aepb/aepb-gateway/test/harness/wait"
)

// Kind is how the workflows of one group went.
type Kind struct {
	Name                                                       string
	All, Rolled, Completed, Other, Refused, Untouched, Unsaved int
}

// Violation is something that must not happen.
type Violation struct{ Kind, Key, What, Why string }

// Report is what came of the act.
type Report struct {
	Kinds      []Kind
	Violations []Violation
	Kills      map[string]int // by group and phase
	Results    map[string]int // by group and status; of requests without a result by what was said
	Calls      map[string]int // by group: what undoes calls, by how often it came
	Evidence   int            // ECTs that were verified
	Log        string
}

func (r *Report) add(other Report) {
	r.Kinds = append(r.Kinds, other.Kinds...)
	slices.SortFunc(r.Kinds, func(a, b Kind) int { return cmp.Compare(a.Name, b.Name) })
	r.Violations = append(r.Violations, other.Violations...)
	r.Evidence += other.Evidence
	r.Log += other.Log
	r.Kills, r.Results, r.Calls = sum(r.Kills, other.Kills), sum(r.Results, other.Results), sum(r.Calls, other.Calls)
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

// fate is what a result says of one step.
type fate string

const (
	inPlace fate = "in place"
	undone  fate = "undone"
	unknown fate = "unknown"
)

// fates are what the result of a trip says of its steps. The steps of a rollback are those whose checkpoint is on record, backwards.
func (t *trip) fates(result rollback.Result) (fates []fate, wrong string) {
	fates = make([]fate, len(t.steps))
	for i := range fates {
		fates[i] = inPlace
	}
	if t.result == "" {
		return fates, ""
	}
	others, named := result.Cascaded, 0
	for i := len(t.steps) - 1; i > t.from && t.cascade; i-- {
		if !t.steps[i].recorded {
			continue
		}
		if named < len(others) && others[named].Status == rollback.StatusCompleted {
			fates[i] = undone
		}
		named++
	}
	if named != len(others) {
		return fates, fmt.Sprintf("the result names %d steps, expected %d", len(others), named)
	}
	completed := !slices.ContainsFunc(others, func(s rollback.AgentStatus) bool { return s.Status != rollback.StatusCompleted })
	failed := slices.ContainsFunc(others, func(s rollback.AgentStatus) bool { return s.Status == rollback.StatusFailed })
	switch {
	case result.Status == rollback.StatusCompleted && !completed:
		return fates, "the rollback is completed, and a step of it is not"
	case result.Status == rollback.StatusCompleted:
		fates[t.from] = undone
	case result.Status == rollback.StatusPartial && !completed && !failed:
		fates[t.from] = unknown
	}
	return fates, ""
}

// judge says what is wrong with the calls of a trip.
func (t *trip) judge() (wrong []string) {
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	if t.failure != "" {
		say("%s", t.failure)
	}
	for i, s := range t.steps {
		if len(s.deeds) > 1 {
			say("step %d was done %d times", i, len(s.deeds))
		}
		if s.answered && len(s.deeds) == 0 {
			say("step %d has an answer, and was never done", i)
		}
		if len(s.undone) == 0 {
			continue
		}
		if t.result == "" {
			say("step %d was undone, and no rollback has a result", i)
		}
		if i < t.from || t.from >= 0 && i > t.from && !t.cascade {
			say("step %d was undone, and the rollback does not cover it", i)
		}
		for _, d := range s.undone {
			if first := s.undone[0]; d.token != first.token || d.hash != first.hash || d.token == "" {
				say("the call that undoes step %d came with the tokens %q and %q, and the hashes %s and %s", i, first.token, d.token, first.hash, d.hash)
			}
		}
	}
	return wrong
}

// compare says where the bookings are not as the result of a trip says.
func (t *trip) compare(result rollback.Result, bookings map[string]booking) (wrong []string) {
	fates, what := t.fates(result)
	if what != "" {
		return []string{what}
	}
	for i, s := range t.steps {
		b, there := bookings[s.args.of()]
		if there && len(s.deeds) > 0 && fates[i] != unknown && s.isUndone(b) != (fates[i] == undone) {
			wrong = append(wrong, fmt.Sprintf("the result says that step %d is %s, and the booking is %+v", i, fates[i], b))
		}
	}
	return wrong
}

// runsAtMost is how long a call may run, for the gateway: one that was lost can be undone then.
const runsAtMost = 65 * time.Second

// doubt says what is wrong with a refusal: only a call that may still run is in the way of a rollback.
func (t *trip) doubt(waited time.Duration) []string {
	switch {
	case t.refusal == "", t.from < 0 && !t.steps[0].answered, strings.Contains(t.refusal, wordsRunning) && waited < runsAtMost:
		return nil
	case !t.cascade && strings.Contains(t.refusal, wordsDepend) && slices.ContainsFunc(t.steps[t.from:], func(s *step) bool { return !s.answered }):
		return nil // a later call came to the agent, and its caller does not know its checkpoint
	}
	return []string{"the rollback was refused: " + t.refusal}
}

// isUndone reports whether a booking is as if the step had not been done.
func (s *step) isUndone(b booking) bool {
	if s.tool == toolCreate {
		return b.canceled
	}
	return b.guest == s.before
}

// enough workflows of one group are rolled back completely, if all is well.
const enough = 1

// judge judges what the callers and the hotel of a group lived through.
func (g *group) judge(ctx context.Context) (rep Report, err error) {
	rep.Kills, rep.Results, rep.Calls = g.Struck(), map[string]int{}, map[string]int{}
	verifier, err := g.Verifier()
	if err != nil {
		return rep, err
	}
	kind := Kind{Name: g.Name}
	for n, t := range g.trips {
		bookings := g.remember(t)
		tokens, wrong := g.audit(ctx, verifier, n, t)
		rep.Evidence += len(tokens)
		whole := t.place(tokens)
		result, why := t.read()
		wrong = append(append(wrong, why...), t.judge()...)
		differs := append(t.compare(result, bookings), t.doubt(g.waits)...)
		if len(differs) > 0 && !whole && g.WasUnsaved(t.began, t.called) {
			kind.Unsaved++ // what a call did whose checkpoint is lost cannot be undone
		} else {
			wrong = append(wrong, differs...)
		}
		for _, what := range wrong {
			rep.Violations = append(rep.Violations, Violation{g.Name, t.workflow, what, t.description()})
		}
		kind.count(t, result)
		switch {
		case t.result != "":
			rep.Results[g.Name+" "+string(result.Status)]++
		case t.want >= 0:
			rep.Results[g.Name+" "+cause(t.refusal)]++
		}
		for _, s := range t.steps {
			if n := len(s.undone); n > 0 {
				rep.Calls[fmt.Sprintf("%s %dx", g.Name, n)]++
			}
		}
	}
	if kind.Completed < enough {
		rep.Violations = append(rep.Violations, Violation{g.Name, "", "no rollback was completed: nothing is proved", ""})
	}
	rep.Kinds = []Kind{kind}
	return rep, ctx.Err()
}

// remember adds to the steps of a trip what the hotel got, and returns its bookings.
func (g *group) remember(t *trip) map[string]booking {
	bookings := map[string]booking{}
	for _, s := range t.steps {
		b, there, deeds := g.hotel.account(s.args.of())
		if there {
			bookings[s.args.of()] = b
		}
		for _, d := range deeds {
			switch {
			case s.isDo(d):
				s.deeds = append(s.deeds, d)
			case s.isUndo(d):
				s.undone = append(s.undone, d)
			}
		}
	}
	return bookings
}

// read reads the result of a trip.
func (t *trip) read() (rollback.Result, []string) {
	if t.result == "" {
		return rollback.Result{}, nil
	}
	claims, _, err := ect.ParseUnverified(t.result) // it is verified with the evidence
	if err != nil {
		return rollback.Result{}, []string{"the result is no token: " + err.Error()}
	}
	result, err := rollback.ParseResult(claims)
	if err != nil {
		return result, []string{"the result is not as the draft has it: " + err.Error()}
	}
	if result.Checkpoint != t.steps[t.from].checkpoint {
		return result, []string{"the result is about another checkpoint"}
	}
	return result, nil
}

// description says what the caller of a trip was told, for a violation.
func (t *trip) description() string {
	var b strings.Builder
	fmt.Fprintf(&b, "from step %d (cascade %t), %d requests, refusal %q", t.from, t.cascade, t.requests, t.refusal)
	for i, s := range t.steps {
		fmt.Fprintf(&b, "; step %d: %d done, %d undone, recorded %t, %s", i, len(s.deeds), len(s.undone), s.recorded, s.why)
	}
	return b.String()
}

// cause is the part of a refusal by which refusals are counted.
func cause(refusal string) string {
	for _, words := range []string{wordsRunning, wordsDepend, "no part", "not found", "no call has a checkpoint"} {
		if strings.Contains(refusal, words) {
			return "refused: " + words
		}
	}
	return "other: " + refusal
}

func (k *Kind) count(t *trip, result rollback.Result) {
	k.All++
	switch {
	case t.want < 0:
		k.Untouched++
	case t.result == "":
		k.Refused++
	case result.Status == rollback.StatusCompleted:
		k.Rolled, k.Completed = k.Rolled+1, k.Completed+1
	default:
		k.Rolled, k.Other = k.Rolled+1, k.Other+1
	}
}

// place finds the checkpoints of the steps in the evidence. False: one that its caller was told of is not there, or the start is not.
func (t *trip) place(tokens []string) (whole bool) {
	requests, checkpoints := map[ect.ID]ect.ID{}, map[ect.ID]ect.ID{} // by the first parent
	for _, compact := range tokens {
		claims, _, err := ect.ParseUnverified(compact)
		if whole = whole || claims.ID == t.start; err != nil || len(claims.Parents) == 0 {
			continue
		}
		if claims.Act == ect.ActTranslate {
			requests[claims.Parents[0]] = claims.ID
		}
		if claims.Act == ect.ActCheckpoint {
			checkpoints[claims.Parents[0]] = claims.ID
		}
	}
	for _, s := range t.steps {
		found, there := checkpoints[requests[s.task]]
		whole = whole && (there || s.checkpoint == "")
		if s.recorded = there; there {
			s.checkpoint = found
		}
	}
	return whole
}

// audit verifies the evidence of a trip, in which its result is. Evidence that went down with a gateway over a file may lack.
func (g *group) audit(ctx context.Context, verifier *ect.Verifier, first int, t *trip) (tokens, wrong []string) {
	if t.workflow == "" {
		return nil, nil
	}
	tokens, err := g.evidence(ctx, first, t.workflow)
	if err != nil && !(errors.Is(err, errNoWorkflow) && g.WasUnsaved(t.began, t.called)) {
		return nil, []string{err.Error()}
	}
	for _, compact := range tokens {
		if _, err := verifier.Verify(ctx, compact, ect.Check{Purpose: ect.Parent}); err != nil {
			wrong = append(wrong, "a token does not verify: "+err.Error())
		}
	}
	if t.result != "" && !slices.Contains(tokens, t.result) && !g.WasUnsaved(t.called, t.ended) {
		wrong = append(wrong, "the result is not on record")
	}
	return tokens, wrong
}

// evidence reads the tokens of a workflow, each page at one replica after the other until one answers.
func (g *group) evidence(ctx context.Context, first int, wid string) (tokens []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for n, after := first, ""; ; n++ {
		page, next, err := g.page(ctx, n, wid, after)
		switch {
		case errors.Is(err, errNoWorkflow), err == nil && next == "":
			return append(tokens, page...), err
		case err == nil:
			tokens, after = append(tokens, page...), next
		case !wait.Pause(ctx, retryEvery):
			return nil, fmt.Errorf("no replica has the evidence of workflow %s: %w", wid, err)
		}
	}
}

var (
	errStopped    = errors.New("the replica does not run")
	errNoWorkflow = errors.New("the workflow is not on record")
)

func (g *group) page(ctx context.Context, replica int, wid, after string) (tokens []string, next string, err error) {
	base := g.Admin(replica)
	if base == "" {
		return nil, "", errStopped
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/api/workflows/"+wid+"?after="+url.QueryEscape(after), http.NoBody)
	if err != nil {
		return nil, "", err
	}
	resp, err := g.Boss.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err == nil && resp.StatusCode == http.StatusNotFound {
		return nil, "", fmt.Errorf("replica %d: %w", replica, errNoWorkflow)
	}
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("replica %d: %d %.300s", replica, resp.StatusCode, text)
	}
	var page struct {
		ECTs []string `json:"ects"`
		Next string   `json:"next"`
	}
	if err == nil {
		err = json.Unmarshal(text, &page)
	}
	return page.ECTs, page.Next, err
}
