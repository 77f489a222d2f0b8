package rollbacks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/policy/hitl"
	"github.com/aepb/aepb-gateway/test/harness/fleet"
	"github.com/aepb/aepb-gateway/test/harness/wait"
	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// The phases of a rollback that a failure begins.
const (
	failing  phase = "failed"   // the caller has the answer of the call that failed
	asking   phase = "asking"   // the agent that rolls back itself is asked to
	restored phase = "restored" // it has answered
	canceled phase = "canceled" // the agent has answered the compensating call
	waiting  phase = "waiting"  // an approval waits
	granting phase = "granting" // the grant is sent to the gateway
	granted  phase = "granted"  // the gateway has answered it
)

// places are where the gateway that carries the rollback is killed: a phase, and how long after its begin.
var places = []struct {
	phase phase
	delay time.Duration
}{
	{failing, 0},
	{failing, answersIn / 4},
	{asking, 0},
	{asking, answersIn / 2},
	{restored, 0},
	{undoing, 0},
	{undoing, answersIn / 2},
	{canceled, 0},
	{waiting, 0},
	{granting, 0},
	{granted, 0},
}

// The steps of a journey.
const (
	stepSibling = iota // a finished branch of its own
	stepMail           // cannot be undone
	stepBooking        // undone by a compensating call
	stepReserve        // undone by its agent
	stepPayment        // fails
	stepsOfJourney
)

// journey is a workflow whose last step fails, and what came of that.
type journey struct {
	*trip

	paused     bool   // the workflow was, while an approver was waited for
	goesOn     string // what the workflow's next call was answered after the grant; empty: it was done
	rolledBack []deed // requests to the agent that rolls back itself
}

func newJourney() *journey {
	t := &trip{want: -1, from: -1}
	for i, s := range [stepsOfJourney]step{
		{agent: agentHotel, tool: toolCreate},
		{agent: agentHotel, tool: toolMail},
		{agent: agentHotel, tool: toolCreate},
		{agent: agentDock, tool: toolReserve},
		{agent: agentHotel, tool: toolPay},
	} {
		s.args = args{Key: uuid.NewString(), Guest: fmt.Sprintf("guest %d", i)}
		t.steps = append(t.steps, &s)
	}
	return &journey{trip: t}
}

// failuresConfig is the configuration of the group whose failures undo what led to them.
func failuresConfig(hotel, dock, document string) string {
	text := strings.Replace(configOf(hotel), "roles: [auditor]", "roles: [viewer, operator, approver, auditor]", 1)
	return text + strings.NewReplacer("DOCK", dock, "DOCUMENT", document).Replace(`
  dock:
    callers: ["spiffe://DOMAIN/client"]
    endpoints: [{binding: mcp-v1, url: "DOCK"}]
    rollback: own
policy: {document: "DOCUMENT"}
`)
}

// playFailures plays the workflows in which a step fails, and judges them.
func playFailures(ctx context.Context, s Setup, trust *devgateway.Trust, signer *ect.Signer, h *hotel) (rep Report, err error) {
	dock, err := serveDock(trust)
	if err != nil {
		return rep, err
	}
	defer dock.stop()
	dir := filepath.Join(s.Dir, s.Failures.Name)
	document := filepath.Join(dir, "policy.json")
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(document, []byte(`{"constraints":{"atd.cascade":true}}`), 0o600)); err != nil {
		return rep, err
	}
	g := &group{hotel: h, dock: dock, signer: signer, waits: s.Waits}
	g.Fleet, err = fleet.Launch(ctx, s.Failures, fleet.Deps{
		Binary: s.Binary, Dir: dir, Trust: trust, Config: failuresConfig(h.server.URL, dock.server.URL, document),
	})
	if g.Fleet == nil {
		return rep, err
	}
	defer func() {
		printed, failed := g.Stop()
		rep.Log, err = printed, errors.Join(err, failed)
	}()
	if err != nil {
		return rep, err
	}
	// Gateways do not know whether an ECT of the second in which they began was used before.
	if now := time.Now(); !wait.Pause(ctx, now.Truncate(time.Second).Add(time.Second).Sub(now)) {
		return rep, ctx.Err()
	}
	journeys, err := g.fail(ctx)
	if err != nil {
		return rep, fmt.Errorf("group %s: %w", g.Name, err)
	}
	return g.judgeFailures(ctx, journeys)
}

// fail has a workflow fail for each place and kill, and kills the gateway there that carries its rollback. The end of a workflow is
// waited for while the next ones go on.
func (g *group) fail(ctx context.Context) (journeys []*journey, err error) {
	var ends sync.WaitGroup
	defer ends.Wait()
	for n := range g.Kills * len(places) {
		p := places[n%len(places)]
		r := &round{phase: p.phase, replica: n % g.Replicas, reached: make(chan struct{})}
		j := newJourney()
		journeys = append(journeys, j)
		g.walk(ctx, j, r)
		if j.failure != "" {
			continue
		}
		ends.Go(func() { g.decide(ctx, j, r) })
		if err := g.within(ctx, r, p.delay); err != nil {
			return journeys, err
		}
	}
	ends.Wait()
	for _, j := range journeys {
		g.goOn(ctx, j)
	}
	return journeys, nil
}

// walk makes the calls of a journey, of which the last one fails.
func (g *group) walk(ctx context.Context, j *journey, r *round) {
	if !g.begin(ctx, j.trip, r) {
		return
	}
	g.hotel.expect(j.steps[stepBooking].args.Key, func(d deed) { j.cancels(d, r) })
	g.dock.expect(j.workflow, func(d deed) {
		r.reach(map[bool]phase{false: asking, true: restored}[d.over])
	})
	parent := j.start
	for i, s := range j.steps {
		g.call(ctx, j.trip, s, &round{replica: r.replica}, parent)
		if s.checkpoint == "" {
			j.failure = fmt.Sprintf("step %d: %s", i, s.why)
			return
		}
		if i != stepSibling {
			parent = s.tokens[len(s.tokens)-1]
		}
	}
	j.called = time.Now()
	r.reach(failing)
}

// cancels says that the compensating call has come, or was answered.
func (j *journey) cancels(d deed, r *round) {
	if d.tool == toolCancel {
		r.reach(map[bool]phase{false: undoing, true: canceled}[d.over])
	}
}

// approval is one as operators see it.
type approval struct {
	ID    string     `json:"id"`
	State hitl.State `json:"state"`
	WID   string     `json:"wid"`
	Shown string     `json:"shown"`
}

// decide waits for the approval that the rollback opens, grants it, and has the workflow go on.
func (g *group) decide(ctx context.Context, j *journey, r *round) {
	ctx, cancel := context.WithTimeout(ctx, endsIn)
	defer cancel()
	var one approval
	for one.ID == "" {
		var list struct{ Approvals []approval }
		err := g.operate(ctx, r.replica, http.MethodGet, "/api/approvals?state=pending&wid="+j.workflow, nil, &list)
		at := slices.IndexFunc(list.Approvals, func(a approval) bool { return a.WID == j.workflow })
		if err == nil && at >= 0 {
			one = list.Approvals[at]
		} else if !wait.Pause(ctx, retryEvery) {
			j.failure = fmt.Sprintf("no approval waits within %s: %v", endsIn, err)
			return
		}
	}
	r.reach(waiting)
	j.paused = g.stands(ctx, j, true)
	for one.State == hitl.Pending {
		if err := g.operate(ctx, r.replica, http.MethodGet, "/api/approvals/"+one.ID, nil, &one); err == nil && one.State == hitl.Pending {
			order, _ := json.Marshal(map[string]string{"decision": "approve", "shown": one.Shown, "reason": "the mail can stay"})
			r.reach(granting)
			_ = g.operate(ctx, r.replica, http.MethodPost, "/api/approvals/"+one.ID+"/decision", order, nil) // its state says what came of it
			r.reach(granted)
		}
		if !wait.Pause(ctx, retryEvery) {
			j.failure = fmt.Sprintf("the approval is %s", one.State)
			return
		}
	}
	if !g.stands(ctx, j, false) {
		j.failure = "the workflow is paused after the grant"
		return
	}
	j.ended = time.Now()
}

// knownIn is how long it takes at most until all replicas know of a pause or its end, if one was just killed.
const knownIn = 10 * time.Second

// goOn makes one more call of a journey. No gateway is killed meanwhile, so it has an answer.
func (g *group) goOn(ctx context.Context, j *journey) {
	if j.failure != "" {
		return
	}
	tokens := j.steps[stepSibling].tokens
	next := &step{agent: agentHotel, tool: toolMail, args: args{Key: uuid.NewString()}}
	if g.call(ctx, j.trip, next, &round{}, tokens[len(tokens)-1]); !next.answered {
		j.goesOn = next.why
	}
}

// stands waits until each replica says that the workflow of a journey is paused, or that it is not. False: they do not in time.
func (g *group) stands(ctx context.Context, j *journey, paused bool) bool {
	ctx, cancel := context.WithTimeout(ctx, knownIn)
	defer cancel()
	for n := 0; n < g.Replicas; {
		var list struct {
			Levels []struct {
				WID   string    `json:"wid"`
				Level hitl.Mode `json:"level"`
			}
		}
		err := errStopped
		if base := g.Admin(n); base != "" {
			err = g.operateAt(ctx, http.MethodGet, base+"/api/levels", nil, &list)
		}
		is := false
		for _, one := range list.Levels {
			is = is || one.WID == j.workflow && one.Level == hitl.Paused
		}
		if err == nil && is == paused {
			n++
		} else if !wait.Pause(ctx, retryEvery) {
			return false
		}
	}
	return true
}

// operate sends a request of the operator to one replica after the other, each once, until one answers it with 200.
func (g *group) operate(ctx context.Context, first int, method, path string, body []byte, into any) error {
	var errs []error
	for n := range g.Replicas {
		err := errStopped
		if base := g.Admin(first + n); base != "" {
			err = g.operateAt(ctx, method, base+path, body, into)
		}
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (g *group) operateAt(ctx context.Context, method, url string, body []byte, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := g.Boss.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %d %.300s", url, resp.StatusCode, text)
	}
	if err != nil || into == nil {
		return err
	}
	return json.Unmarshal(text, into)
}
