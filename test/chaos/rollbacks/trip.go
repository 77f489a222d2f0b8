package rollbacks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/test/harness/wait"
)

const (
	maxBody    = 4 << 20
	sendTime   = 90 * time.Second // one request: a rollback answers within a minute
	patience   = 40 * time.Second // until one of the replicas answers
	retryEvery = 200 * time.Millisecond
	callsFor   = 4 * time.Second // how long a call is sent again
	endsIn     = 3 * time.Minute // a rollback
	takenFor   = 5 * time.Second // how long a request is sent again that a lost replica took; then another one is signed
)

// step is one call of a trip, and what undoes it.
type step struct {
	agent         string
	tool          string
	args          args
	before        string // the guest that a renaming replaces
	task          ect.ID // that the caller signed
	checkpoint    ect.ID // that the caller was told of, or that is on record
	recorded      bool   // the checkpoint is on record
	answered      bool
	why           string   // it has no answer
	deeds, undone []deed   // as the hotel got them
	tokens        []ect.ID // that the caller was told of
}

// isUndo reports whether a call undoes the step.
func (s *step) isUndo(d deed) bool {
	if s.tool == toolCreate {
		return d.tool == toolCancel
	}
	return d.tool == toolRename && d.args.Guest == s.before
}

// isDo reports whether a call is that of the step.
func (s *step) isDo(d deed) bool { return d.tool == s.tool && d.args == s.args }

// trip is one workflow, and how it went.
type trip struct {
	workflow string
	start    ect.ID
	steps    []*step
	// want is the step from whose checkpoint it is to be rolled back; -1: it is not. from is the step that it came to.
	want, from int
	cascade    bool

	began, called, ended time.Time // the workflow, its last call, and its rollback
	requests             int       // rollback requests that were signed
	result               string    // compact token
	refusal              string    // of the rollback; nothing was to be undone
	failure              string    // what was wrong
}

// newTrip plans a workflow that books and renames twice.
func newTrip(want int, cascade bool) *trip {
	t := &trip{want: want, from: -1, cascade: cascade}
	for range 2 {
		key := uuid.NewString()
		t.steps = append(t.steps,
			&step{agent: agentHotel, tool: toolCreate, args: args{Key: key, Guest: "Ada " + key}},
			&step{agent: agentHotel, tool: toolRename, args: args{ID: key, Guest: "Grace " + key}, before: "Ada " + key})
	}
	return t
}

// answer is what one request came to.
type answer struct {
	status int
	tokens []string
	text   string
}

func (a answer) ids() (ids []ect.ID) {
	for _, compact := range a.tokens {
		if claims, _, err := ect.ParseUnverified(compact); err == nil {
			ids = append(ids, claims.ID)
		}
	}
	return ids
}

// post sends a body to one replica.
func (g *group) post(ctx context.Context, replica int, path, token string, body []byte) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, sendTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.Public(replica)+path, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set(ect.HeaderName, token)
	}
	resp, err := g.HTTP.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	a := answer{status: resp.StatusCode, text: string(text)}
	for _, value := range resp.Header.Values(ect.HeaderName) {
		for one := range strings.SplitSeq(value, ",") {
			a.tokens = append(a.tokens, strings.TrimSpace(one))
		}
	}
	return a, err
}

// away reports whether a request that got this answer is sent again: the replica was lost, or cannot do it now.
func away(a answer, err error) bool {
	return err != nil || a.status >= http.StatusInternalServerError || a.status == http.StatusTooManyRequests
}

// busy reports whether the same request is asked about again later.
func (a answer) busy() bool { return strings.Contains(a.text, `"in_progress"`) }

// insist sends a request to one replica after the other until one answers it, for at most a time. It returns the last answer.
func (g *group) insist(ctx context.Context, first int, limit time.Duration, path, token string, body []byte) (a answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for n := first; ; n++ {
		got, err := g.post(ctx, n, path, token, body)
		if !away(got, err) && !(got.busy() && path != rollbackPath) {
			return got, nil
		}
		if err == nil {
			a = got
		}
		if !wait.Pause(ctx, retryEvery) {
			return a, fmt.Errorf("no replica answers %s within %s: %d %.300s %w", path, limit, a.status, a.text, err)
		}
	}
}

// run plays a trip from its begin to the result of its rollback. Its requests go first to one replica, which may be killed.
func (g *group) run(ctx context.Context, t *trip, r *round) {
	for _, s := range t.steps {
		g.hotel.expect(s.args.of(), func(d deed) { t.comes(d, r) })
	}
	if !g.begin(ctx, t, r) {
		return
	}
	last := t.start
	for _, s := range t.steps {
		if g.call(ctx, t, s, r, last); !s.answered {
			break
		}
		last = s.tokens[len(s.tokens)-1]
	}
	t.called = time.Now()
	if t.want < 0 {
		return
	}
	if tokens, err := g.evidence(ctx, r.replica, t.workflow); err == nil { // else it knows what it was told
		t.place(tokens)
	}
	if t.from = t.reached(); t.from < 0 {
		t.refusal = "no call has a checkpoint that its caller knows"
		return
	}
	g.rollBack(ctx, t, r)
}

// begin begins the workflow of a trip.
func (g *group) begin(ctx context.Context, t *trip, r *round) bool {
	a, err := g.insist(ctx, r.replica, patience, "/atd/workflows", "", nil)
	var began struct {
		WID string `json:"wid"`
		JTI ect.ID `json:"jti"`
	}
	if err != nil || json.Unmarshal([]byte(a.text), &began) != nil || began.WID == "" {
		t.failure = fmt.Sprintf("no workflow began: %d %.300s %v", a.status, a.text, err)
		return false
	}
	t.workflow, t.start, t.began = began.WID, began.JTI, time.Now()
	return true
}

// comes says that a call of the trip has come to the hotel.
func (t *trip) comes(d deed, r *round) {
	if d.over {
		return
	}
	if slices.ContainsFunc(t.steps, func(s *step) bool { return s.isDo(d) }) {
		r.reach(calling)
	} else if slices.ContainsFunc(t.steps, func(s *step) bool { return s.isUndo(d) }) {
		r.reach(undoing)
	}
}

// reached is the step from which the trip is rolled back: the one that is wanted, or the last one before with a checkpoint
// that the caller knows. Without a cascade it is the last one of all.
func (t *trip) reached() int {
	for i, s := range slices.Backward(t.steps) {
		if s.checkpoint != "" && (!t.cascade || i <= t.want) {
			return i
		}
	}
	return -1
}

// call makes one call of a trip.
func (g *group) call(ctx context.Context, t *trip, s *step, r *round, parent ect.ID) {
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": uuid.NewString(), "method": "SendMessage", "params": map[string]any{
		"message": map[string]any{"messageId": uuid.NewString(), "role": "ROLE_USER", "parts": []any{
			map[string]any{"data": map[string]any{"skill": s.tool, "input": s.args}, "mediaType": "application/json"},
		}},
	}})
	if err != nil {
		t.failure = err.Error()
		return
	}
	token, err := g.signer.Sign(ect.Claims{
		Audience: []string{g.Trust.GatewayID()}, Workflow: t.workflow, Act: "send_task", Parents: []ect.ID{parent}, OutputHash: ect.Hash(body),
	})
	if err != nil {
		t.failure = err.Error()
		return
	}
	s.task = token.ID()
	r.reach(checkpointing)
	a, err := g.insist(ctx, r.replica, callsFor, "/aepb/translate?from=a2a-v1&dest="+s.agent, token.Compact(), body)
	s.tokens = a.ids()
	for _, compact := range a.tokens {
		if claims, _, err := ect.ParseUnverified(compact); err == nil && claims.Act == ect.ActCheckpoint {
			s.checkpoint = claims.ID
		}
	}
	s.answered = err == nil && a.status == http.StatusOK && s.checkpoint != "" && !strings.Contains(a.text, `"error"`)
	if !s.answered {
		s.why = fmt.Sprintf("%d %.300s %v", a.status, a.text, err)
	}
}

var errUsedUp = errors.New("the token of the request is not taken any more")

// rollBack rolls a trip back, and sends the request once more to each replica.
func (g *group) rollBack(ctx context.Context, t *trip, r *round) {
	for {
		token, err := g.requestOf(t)
		if err == nil {
			r.reach(rolling)
			err = g.ask(ctx, t, r, token)
		}
		if errors.Is(err, errUsedUp) && t.requests < maxRequests {
			continue // the replica ended before it began with it
		}
		if err != nil {
			t.failure = err.Error()
		}
		return
	}
}

// maxRequests bounds the requests that are signed for one trip.
const maxRequests = 8

// requestOf signs a rollback request.
func (g *group) requestOf(t *trip) (string, error) {
	t.requests++
	ext := ect.Ext{}
	ext.SetString(ect.ExtATDReason, "the trip is off")
	ext.SetBool(ect.ExtCascade, t.cascade)
	token, err := g.signer.Sign(ect.Claims{
		Audience: []string{g.Trust.GatewayID()}, Workflow: t.workflow, Act: ect.ActRollbackRequest,
		Parents: []ect.ID{t.steps[t.from].checkpoint}, Ext: ext,
	})
	if err != nil {
		return "", err
	}
	return token.Compact(), nil
}

const rollbackPath = "/.well-known/atd/rollback"

// Words of refusals.
const (
	wordsTaken   = "was received before"
	wordsRunning = "still run"
	wordsDepend  = "depend on what would be undone"
)

// ask sends a rollback request until it has a result, and then to each replica. errUsedUp: the gateway does not know it, and
// does not take its token any more.
func (g *group) ask(ctx context.Context, t *trip, r *round, token string) error {
	var a answer
	for began := time.Now(); ; {
		var err error
		if a, err = g.insist(ctx, r.replica, endsIn, rollbackPath, token, nil); err != nil {
			return err
		}
		took, isTaken, runs := time.Since(began), strings.Contains(a.text, wordsTaken), strings.Contains(a.text, wordsRunning)
		if isTaken && took > takenFor || a.status == http.StatusForbidden && strings.Contains(a.text, "ect_") {
			return errUsedUp
		}
		if !a.busy() || runs && took > g.waits {
			break
		}
		if took > endsIn || !wait.Pause(ctx, retryEvery) {
			return fmt.Errorf("the rollback did not end within %s: %d %.300s", endsIn, a.status, a.text)
		}
	}
	if a.status != http.StatusOK || len(a.tokens) == 0 {
		t.refusal = fmt.Sprintf("%d %.400s", a.status, a.text)
		return nil
	}
	t.result = a.tokens[0]
	t.ended = time.Now()
	for n := range g.Replicas {
		other, err := g.insist(ctx, n, patience, rollbackPath, token, nil)
		if err != nil {
			return err
		}
		if other.status != http.StatusOK || len(other.tokens) == 0 || other.tokens[0] != t.result {
			return fmt.Errorf("the same request got another answer: %d %.300s", other.status, other.text)
		}
	}
	return nil
}
