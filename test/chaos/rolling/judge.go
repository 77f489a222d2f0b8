package rolling

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/aepb/aepb-gateway/ect"
	svid "github.com/aepb/aepb-gateway/ect/identity"
)

// What there is to do.
const (
	whatCall     = "call"
	whatStream   = "stream"
	whatTask     = "task"
	whatWaiting  = "waiting"
	whatQuestion = "question"
	whatPushed   = "pushed"
)

// Kind is how the work of one kind went.
type Kind struct {
	Name                   string
	All, Done, Failed, Cut int // Failed: failed or canceled, with a reason; Cut: streams taken up elsewhere
}

// Violation is something that must not happen.
type Violation struct{ Kind, Key, What string }

// Report is what came of the act.
type Report struct {
	Kinds      []Kind
	Violations []Violation
	Evidence   int // ECTs that were verified and looked up at another replica
	Unsaved    int // those that went down with a gateway over a file: it writes that every second
	Retries    int
	Log        string
}

// add judges what the clients of one fleet lived through.
func (r *Report) add(ctx context.Context, s *stage, j *journal, home string) error {
	kinds := map[string]*Kind{}
	for _, w := range s.all {
		name := s.fleet.name + " " + w.kind()
		k := kinds[name]
		if k == nil {
			k = &Kind{Name: name}
			kinds[name] = k
		}
		k.All++
		switch {
		case w.state == stateDone:
			k.Done++
		case ended(w.state):
			k.Failed++
		}
		if w.broken {
			k.Cut++
		}
		for _, what := range w.judge(j.times(w.key), j.times(w.key+answered), s.agents.posts.of(w.key)) {
			r.Violations = append(r.Violations, Violation{name, w.key, what})
		}
	}
	for _, k := range slices.SortedFunc(maps.Values(kinds), func(a, b *Kind) int { return cmp.Compare(a.Name, b.Name) }) {
		if r.Kinds = append(r.Kinds, *k); k.Done+k.Failed == 0 {
			r.Violations = append(r.Violations, Violation{Kind: k.Name, What: "nothing ended: nothing is proved"})
		}
	}
	r.Retries += s.caller.retries
	return r.audit(ctx, s, home)
}

// judge says what went wrong with work that agents did so often, whose answer was taken so
// often, and of whose end a webhook was told this.
func (w *work) judge(runs, answers int, posts []string) []string {
	wrong := slices.Clone(w.wrong)
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	if len(wrong) > 0 {
		return wrong
	}
	if runs > 1 || answers > 1 {
		say("the agent did it %d times, and took the answer %d times", runs, answers)
	}
	switch {
	case w.state == stateDone:
		if runs == 0 || !strings.Contains(w.output, w.key) {
			say("it is said to be done and is not: %.300s", w.output)
		}
		if w.what == whatQuestion && (answers == 0 || w.agent != agentTasks && !strings.Contains(w.output, w.key+answered)) {
			say("the answer did not come to the agent: %.300s", w.output)
		}
	case !ended(w.state):
		say("it never ended: %s", w.state)
	case !w.mayBreak():
		say("it could be asked about or waited for, and ended %s: %s", w.state, w.why)
	case w.why == "":
		say("it ended %s, and nothing is said of why", w.state)
	}
	if w.what == whatPushed && (len(posts) != 1 || posts[0] != w.state) {
		say("its webhook was told of the ends %v, and it ended %s (%s)", posts, w.state, w.why)
	}
	return wrong
}

// auditors ask at once.
const auditors = 8

// audit verifies all evidence that clients received, and looks it up at another replica.
func (r *Report) audit(ctx context.Context, s *stage, home string) error {
	material, err := svid.LoadOrCreate(home, "aepb.dev", time.Now)
	if err != nil {
		return err
	}
	keys, err := svid.NewKeyRing(svid.KeyRingDeps{Bundle: material.Bundle})
	if err != nil {
		return err
	}
	verifier, err := ect.NewVerifier(ect.VerifierDeps{Keys: keys, Now: time.Now})
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var all errgroup.Group
	all.SetLimit(auditors)
	for n, t := range s.caller.tokens {
		all.Go(func() error {
			what, missing := s.caller.lookUp(ctx, verifier, t, n)
			mu.Lock()
			defer mu.Unlock()
			r.Evidence++
			switch {
			case missing && s.fleet.wasUnsaved(t.at):
				r.Unsaved++
			case what != "":
				r.Violations = append(r.Violations, Violation{Kind: s.fleet.name + " evidence", What: what})
			}
			return ctx.Err()
		})
	}
	return all.Wait()
}

// wasUnsaved: what came at that time may have gone down with a gateway that was killed.
func (f *fleet) wasUnsaved(at time.Time) bool {
	return slices.ContainsFunc(f.kills, func(kill time.Time) bool { return kill.Sub(at).Abs() < f.unsaved })
}

// lookUp says what is wrong with one ECT; empty: nothing. missing: nothing but that it is
// not found.
func (c *caller) lookUp(ctx context.Context, verifier *ect.Verifier, t received, n int) (what string, missing bool) {
	v, err := verifier.Verify(ctx, t.token, ect.Check{Purpose: ect.Parent})
	if err != nil {
		return "does not verify: " + err.Error(), false
	}
	id, at := string(v.Claims().ID), c.fleet.other(t.replica, n)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+c.fleet.replicas[at].address+"/ects/"+id, http.NoBody)
	if err != nil {
		return err.Error(), false
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err.Error(), false
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(text), t.token) {
		return fmt.Sprintf("%s of replica %d is not found at replica %d: %d %.200s (%s)", id, t.replica, at, resp.StatusCode, text, v.Claims().Act),
			err == nil && resp.StatusCode == http.StatusNotFound
	}
	return "", false
}
