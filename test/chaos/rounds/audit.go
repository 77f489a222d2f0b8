package rounds

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/policy/consensus"
	"github.com/aepb/aepb-gateway/policy/consensus/signed"
	"github.com/aepb/aepb-gateway/test/harness/wait"
)

// evidenceIn is how long evidence of votes may take: a replica that was killed had the work for up to 30 seconds.
const evidenceIn = 60 * time.Second

// audit is what is left of a round.
type audit struct {
	outcome  consensus.Outcome
	compact  string
	votes    map[string]ect.Identity // that were saved: voters by hash
	refused  string                  // what aepbctl said against it
	evidence evidence
}

// evidence is what is on record of a round.
type evidence struct {
	all                int
	proposed, commits  []ect.Claims
	votes              map[string]int // by hash
	strays, unverified []string
}

// whole reports whether the evidence has all that it is to have.
func (e evidence) whole(votes map[string]ect.Identity) bool {
	return len(e.proposed) > 0 && len(e.commits) > 0 && len(e.votes) >= len(votes)
}

// learn asks for a round whose proposer did not learn that it was opened.
func (g *group) learn(ctx context.Context, r *round) bool {
	a, err := g.insist(ctx, g.members[r.plan.proposer], openIn, http.MethodGet, r.path(), nil)
	if err != nil || a.status != http.StatusOK {
		return false
	}
	return json.Unmarshal(a.body, &r.opened) == nil
}

// inspect reads what is left of all rounds that are decided.
func (g *group) inspect(ctx context.Context, played []*round) error {
	verifier, err := g.Verifier()
	if err != nil {
		return err
	}
	var all errgroup.Group
	all.SetLimit(atOnce)
	end := time.Now().Add(evidenceIn)
	for _, r := range played {
		if !r.last.decided() {
			continue
		}
		all.Go(func() error {
			if err := g.save(ctx, r); err != nil {
				return err
			}
			for {
				found, err := g.evidence(ctx, r, verifier)
				if err != nil {
					return err
				}
				r.audit.evidence = found
				if found.whole(r.audit.votes) || time.Now().After(end) || !wait.Pause(ctx, time.Second) {
					return ctx.Err()
				}
			}
		})
	}
	return all.Wait()
}

// save saves a round with aepbctl, has that verify it, and reads the votes.
func (g *group) save(ctx context.Context, r *round) error {
	m, err := signed.Parse[consensus.Outcome](r.last.Outcome)
	if err != nil {
		return err // it was read before
	}
	r.audit.outcome, r.audit.compact, r.audit.votes = m.Content, m.Compact, map[string]ect.Identity{}
	reader := g.members[g.chance(size)]
	if m.Content.Result == consensus.Commit {
		if err := g.acknowledge(ctx, r, reader, consensus.Executed, []string{m.Compact}); err != nil {
			return err
		}
	}
	dir := filepath.Join(g.dir, r.id)
	for _, args := range [][]string{
		{"show", r.id, "--save", dir, "--gateway", g.Public(g.any()), "--cert", reader.cert, "--key", reader.key, "--ca", filepath.Join(g.dir, "ca.pem")},
		{"verify", dir, "--bundle", filepath.Join(g.dir, "bundle.json"), "--trust-domain", domain, "--coordinator", g.Trust.GatewayID()},
	} {
		out, err := exec.CommandContext(ctx, g.tool, append([]string{"consensus"}, args...)...).CombinedOutput()
		if err != nil {
			r.audit.refused = fmt.Sprintf("aepbctl consensus %s: %v: %s", args[0], err, complaints(string(out)))
			return ctx.Err()
		}
	}
	return r.readVotes(dir)
}

// complaints are the lines that say what failed; all, if none does.
func complaints(out string) string {
	var lines []string
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "FAILED") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	if lines == nil {
		return out
	}
	return strings.Join(lines, "; ")
}

// readVotes reads the votes of a folder.
func (r *round) readVotes(dir string) error {
	pages, err := filepath.Glob(filepath.Join(dir, "messages*.json"))
	if err != nil {
		return err
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		var p struct {
			Messages []struct {
				Kind    string          `json:"kind"`
				Message json.RawMessage `json:"message"`
			} `json:"messages"`
		}
		if err := json.Unmarshal(text, &p); err != nil {
			return err
		}
		for _, one := range p.Messages {
			if one.Kind != "vote" {
				continue
			}
			m, err := signed.Parse[consensus.Vote](one.Message)
			if err != nil {
				return err // aepbctl read it
			}
			r.audit.votes[m.Hash] = m.Content.Voter
		}
	}
	return nil
}

// evidence reads and verifies what is on record of a round, as one of its members.
func (g *group) evidence(ctx context.Context, r *round, verifier *ect.Verifier) (e evidence, err error) {
	e.votes = map[string]int{}
	m := g.members[g.chance(size)]
	for after := ""; ; {
		a, err := g.insist(ctx, m, openIn, http.MethodGet, "/workflows/"+r.last.Workflow+"?after="+url.QueryEscape(after), nil)
		if err != nil {
			return e, err
		}
		var page struct {
			ECTs []string `json:"ects"`
			Next string   `json:"next"`
		}
		if a.status == http.StatusNotFound {
			return e, nil // all of it is lost
		}
		if err := json.Unmarshal(a.body, &page); err != nil || a.status != http.StatusOK {
			return e, fmt.Errorf("rounds: the evidence of a round cannot be read: %d %.300s %w", a.status, a.body, err)
		}
		for _, compact := range page.ECTs {
			e.add(ctx, r, verifier, compact)
		}
		if after = page.Next; after == "" {
			return e, nil
		}
	}
}

func (e *evidence) add(ctx context.Context, r *round, verifier *ect.Verifier, compact string) {
	e.all++
	if _, err := verifier.Verify(ctx, compact, ect.Check{Purpose: ect.Parent}); err != nil {
		e.unverified = append(e.unverified, err.Error())
		return
	}
	claims, err := ect.ParseRecorded(compact)
	if err != nil {
		e.unverified = append(e.unverified, err.Error())
		return
	}
	switch claims.Act {
	case ect.ActConsensusPropose:
		e.proposed = append(e.proposed, claims)
		return
	case ect.ActConsensusCommit:
		e.commits = append(e.commits, claims)
	case ect.ActConsensusVote:
		e.votes[claims.InputHash]++
	default:
		e.strays = append(e.strays, string(claims.Act))
	}
	if !slices.Equal(claims.Parents, []ect.ID{r.last.Proposed}) {
		e.strays = append(e.strays, fmt.Sprintf("%s with the parents %v", claims.Act, claims.Parents))
	}
}
