package checkpoint_test

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/lifecycle/checkpoint"
)

func claims() ect.Claims {
	c := checkpoint.Checkpoint{
		Reversible: true, RollbackURI: "https://agent-b.example.com" + checkpoint.Path, Target: "router-07.example.com",
		Description: "Update BGP peer config", TTL: 24 * time.Hour,
	}
	return ect.Claims{
		ID: ect.NewID(), Issuer: "spiffe://example.com/agent/b", Act: ect.ActCheckpoint, Workflow: "w", Parents: []ect.ID{ect.NewID()},
		IssuedAt: 1_800_000_000, OutputHash: ect.Hash([]byte("state")), Ext: c.Ext(),
	}
}

// TestParse_Form: a checkpoint as the draft shows it is read with all that it says, and its end and half follow from
// its ttl (ATD, Checkpoint ECT Format; Rollback Timeout and Escalation).
func TestParse_Form(t *testing.T) {
	t.Parallel()
	c := claims()
	got, err := checkpoint.Parse(c)
	if err != nil {
		t.Fatal(err)
	}
	if !got.Reversible || got.RollbackURI != "https://agent-b.example.com/.well-known/atd/rollback" || got.Target != "router-07.example.com" ||
		got.Description != "Update BGP peer config" || got.State != c.OutputHash || !slices.Equal(got.Parents, c.Parents) || got.Issuer != c.Issuer {
		t.Errorf("read as %+v", got)
	}
	if at := time.Unix(c.IssuedAt, 0); !got.Ends().Equal(at.Add(24*time.Hour)) || got.Within() != 12*time.Hour {
		t.Errorf("it ends at %s, a rollback may take %s", got.Ends(), got.Within())
	}
}

// TestParse_Mistakes: each claim that the draft requires is required, and names itself in the error.
func TestParse_Mistakes(t *testing.T) {
	t.Parallel()
	ext := func(key, raw string) func(*ect.Claims) {
		return func(c *ect.Claims) {
			if raw == "" {
				delete(c.Ext, key)
			} else {
				c.Ext[key] = json.RawMessage(raw)
			}
		}
	}
	for name, c := range map[string]struct {
		claim string
		spoil func(*ect.Claims)
	}{
		"another act":             {"exec_act", func(c *ect.Claims) { c.Act = ect.ActError }},
		"no parent":               {"par", func(c *ect.Claims) { c.Parents = nil }},
		"no hash":                 {"out_hash", func(c *ect.Claims) { c.OutputHash = "" }},
		"reversible is not there": {ect.ExtReversible, ext(ect.ExtReversible, "")},
		"reversible is a text":    {ect.ExtReversible, ext(ect.ExtReversible, `"true"`)},
		"no ttl":                  {ect.ExtTTL, ext(ect.ExtTTL, "")},
		"ttl of a second":         {ect.ExtTTL, ext(ect.ExtTTL, "1")},
		"ttl of ever":             {ect.ExtTTL, ext(ect.ExtTTL, "9223372036854775807")},
		"ttl below zero":          {ect.ExtTTL, ext(ect.ExtTTL, "-86400")},
		"ttl with a fraction":     {ect.ExtTTL, ext(ect.ExtTTL, "86400.5")},
		"no rollback uri":         {ect.ExtRollbackURI, ext(ect.ExtRollbackURI, "")},
		"another path":            {ect.ExtRollbackURI, ext(ect.ExtRollbackURI, `"https://agent-b.example.com/admin"`)},
		"another scheme":          {ect.ExtRollbackURI, ext(ect.ExtRollbackURI, `"http://agent-b.example.com/.well-known/atd/rollback"`)},
		"an escaped path":         {ect.ExtRollbackURI, ext(ect.ExtRollbackURI, `"https://agent-b.example.com/.well-known%2Fatd/rollback"`)},
		"a query":                 {ect.ExtRollbackURI, ext(ect.ExtRollbackURI, `"https://agent-b.example.com/.well-known/atd/rollback?x=1"`)},
		"a user":                  {ect.ExtRollbackURI, ext(ect.ExtRollbackURI, `"https://u@agent-b.example.com/.well-known/atd/rollback"`)},
	} {
		made := claims()
		c.spoil(&made)
		_, err := checkpoint.Parse(made)
		if invalid, ok := errors.AsType[*checkpoint.InvalidError](err); !ok || invalid.Claim != c.claim {
			t.Errorf("%s: %v, expected an error about %s", name, err, c.claim)
		}
	}
}

// TestWork_Needs: every row of the table, and what an agent says of itself makes the gateway more careful alone.
func TestWork_Needs(t *testing.T) {
	t.Parallel()
	for bits := range 32 {
		w := checkpoint.Work{Begins: bits&1 != 0, InWorkflow: bits&2 != 0, Required: bits&4 != 0, Changes: bits&8 != 0, ReadOnly: bits&16 != 0}
		want := w.Begins && (w.Required || w.InWorkflow && (w.Changes || !w.ReadOnly))
		if w.Needs() != want {
			t.Errorf("%+v needs one: %t", w, !want)
		}
		more := w
		if more.Changes = true; w.Needs() && !more.Needs() {
			t.Errorf("%+v needs none because of what the agent says", w)
		}
	}
}

// TestBudget_Admit: a burst at once, then as many as the rate, and what is refused costs nothing.
func TestBudget_Admit(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	var b checkpoint.Budget
	take := func() (n int) {
		for {
			left, wait, ok := b.Admit(now)
			if b = left; !ok {
				if _, _, again := b.Admit(now.Add(wait)); !again {
					t.Errorf("after %s there is none", wait)
				}
				return n
			}
			n++
		}
	}
	if n := take(); n != checkpoint.Burst {
		t.Errorf("%d at once", n)
	}
	now = now.Add(2 * time.Second)
	if n := take(); n != 2*checkpoint.Rate {
		t.Errorf("%d after two seconds", n)
	}
	now = now.Add(-time.Hour) // a clock that is set back
	if n := take(); n != 0 {
		t.Errorf("%d after the clock was set back", n)
	}
}
