package rollback_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/lifecycle/checkpoint"
	"github.com/aepb/aepb-gateway/lifecycle/rollback"
)

const ofResult = ect.ID("0b5e3a8e-8f0c-4b1c-9d1e-2f3a4b5c6d7e")

// result are the claims of a rollback result, as the draft shows it.
func result() ect.Claims {
	ext := ect.Ext{ect.ExtCascaded: json.RawMessage(`[{"agent":"spiffe://example.com/agent/c","status":"completed"}, {"status":"escalated","agent":"spiffe://example.com/agent/d"}]`)}
	ext.SetString(ect.ExtStatus, "completed")
	ext.SetString(ect.ExtCheckpointID, string(ofResult))
	return ect.Claims{Act: ect.ActRollbackResult, Issuer: agentB, OutputHash: ect.Hash([]byte("state")), Ext: ext}
}

func TestParseResult_Form(t *testing.T) {
	t.Parallel()
	got, err := rollback.ParseResult(result())
	want := rollback.Result{
		Status: rollback.StatusCompleted, Checkpoint: ofResult, OutHash: ect.Hash([]byte("state")),
		Cascaded: []rollback.AgentStatus{{Agent: "spiffe://example.com/agent/c", Status: rollback.StatusCompleted}, {Agent: "spiffe://example.com/agent/d", Status: rollback.StatusEscalated}},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
	short := result()
	delete(short.Ext, ect.ExtCascaded)
	if got, err := rollback.ParseResult(short); err != nil || got.Cascaded != nil {
		t.Errorf("without atd.cascaded: %+v, %v", got, err)
	}
	short.Ext[ect.ExtCascaded] = entries(256)
	if got, err := rollback.ParseResult(short); err != nil || len(got.Cascaded) != 256 {
		t.Errorf("256 entries: %d, %v", len(got.Cascaded), err)
	}
}

func entries(n int) json.RawMessage {
	return json.RawMessage("[" + strings.Join(slices.Repeat([]string{`{"agent":"a","status":"failed"}`}, n), ",") + "]")
}

// TestParseResult_OfAJournal: what a gateway writes, another one reads.
func TestParseResult_OfAJournal(t *testing.T) {
	t.Parallel()
	j := after(t, begin(rollback.Never, rollback.ByCall), of(1, sent), of(1, undone))
	j.From = ofResult
	got, err := rollback.ParseResult(ect.Claims{Act: ect.ActRollbackResult, OutputHash: j.OutHash(), Ext: j.Ext()})
	if err != nil || got.Status != rollback.StatusPartial || len(got.Cascaded) != 2 || got.Cascaded[0] != (rollback.AgentStatus{Agent: "agent2", Status: rollback.StatusEscalated}) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestParseResult_Mistakes(t *testing.T) {
	t.Parallel()
	cascaded := func(raw string) func(*ect.Claims) {
		return func(c *ect.Claims) { c.Ext[ect.ExtCascaded] = json.RawMessage(raw) }
	}
	const list = `atd.cascaded is missing or wrong: expected a list of at most 256 {"agent": NAME, "status": STATUS}`
	for name, c := range map[string]struct {
		spoil func(*ect.Claims)
		want  string
	}{
		"another act":      {func(c *ect.Claims) { c.Act = ect.ActRollbackRequest }, "exec_act is missing or wrong: expected atd:rollback_result"},
		"no ext":           {func(c *ect.Claims) { c.Ext = nil }, "atd.status is missing or wrong: expected completed, partial, escalated or failed"},
		"another status":   {func(c *ect.Claims) { c.Ext.SetString(ect.ExtStatus, "done") }, "atd.status is missing or wrong: expected completed, partial, escalated or failed"},
		"no checkpoint":    {func(c *ect.Claims) { delete(c.Ext, ect.ExtCheckpointID) }, "atd.checkpoint_id is missing or wrong: expected the id of the checkpoint, a UUID"},
		"no list":          {cascaded(`{}`), list},
		"null":             {cascaded(`null`), list},
		"a list in a list": {cascaded(`[[]]`), list},
		"an agent alone":   {cascaded(`[{"agent":"a"}]`), list},
		"another member":   {cascaded(`[{"agent":"a","status":"failed","why":"x"}]`), list},
		"other letters":    {cascaded(`[{"Agent":"a","status":"failed"}]`), list},
		"a member twice":   {cascaded(`[{"agent":"a","agent":"b","status":"failed"}]`), list},
		"no text":          {cascaded(`[{"agent":1,"status":"failed"}]`), list},
		"no agent":         {cascaded(`[{"agent":"","status":"failed"}]`), list},
		"no status of it":  {cascaded(`[{"agent":"a","status":"skipped"}]`), list},
		"an open list":     {cascaded(`[{"agent":"a","status":"failed"}`), list},
		"something after":  {cascaded(`[] []`), list},
		"257 entries":      {func(c *ect.Claims) { c.Ext[ect.ExtCascaded] = entries(257) }, list},
		"a long name":      {cascaded(`[{"agent":"` + strings.Repeat("a", 2049) + `","status":"failed"}]`), list},
	} {
		made := result()
		c.spoil(&made)
		got, err := rollback.ParseResult(made)
		if _, ok := errors.AsType[*rollback.ResultError](err); !ok || err.Error() != "result of a rollback: "+c.want || got.Status != "" {
			t.Errorf("%s: %+v, %v\nwant %s", name, got, err, c.want)
		}
	}
}

func TestResult_Restores(t *testing.T) {
	t.Parallel()
	c := checkpoint.Checkpoint{ID: ofResult, State: ect.Hash([]byte("state"))}
	for name, row := range map[string]struct {
		spoil func(*rollback.Result)
		claim string // empty: it restores the state
	}{
		"completed":          {func(*rollback.Result) {}, ""},
		"partial":            {func(r *rollback.Result) { r.Status = rollback.StatusPartial }, ect.ExtStatus},
		"another checkpoint": {func(r *rollback.Result) { r.Checkpoint = ect.NewID() }, ect.ExtCheckpointID},
		"another state":      {func(r *rollback.Result) { r.OutHash = ect.Hash(nil) }, "out_hash"},
		"no state":           {func(r *rollback.Result) { r.OutHash = "" }, "out_hash"},
	} {
		r, err := rollback.ParseResult(result())
		if err != nil {
			t.Fatal(err)
		}
		row.spoil(&r)
		err = r.Restores(c)
		if wrong, is := errors.AsType[*rollback.ResultError](err); is != (row.claim != "") || is && wrong.Claim != row.claim {
			t.Errorf("%s: %v", name, err)
		}
	}
	c.State = ""
	if err := (rollback.Result{Status: rollback.StatusCompleted, Checkpoint: ofResult}).Restores(c); err == nil {
		t.Error("a checkpoint without a state is restored by a result without one")
	}
}

func FuzzResult_Parse(f *testing.F) {
	f.Add("completed", string(ofResult), []byte(`[{"agent":"a","status":"failed"}]`))
	f.Add("partial", "c", []byte(`[{"agent":"a","agent":"b"}]`))
	f.Add("failed", string(ofResult), []byte(`[{}] x`))
	f.Fuzz(func(t *testing.T, status, of string, cascaded []byte) {
		c := result()
		c.Ext.SetString(ect.ExtStatus, status)
		c.Ext.SetString(ect.ExtCheckpointID, of)
		c.Ext[ect.ExtCascaded] = cascaded
		r, err := rollback.ParseResult(c)
		if err != nil {
			return
		}
		var list []map[string]string
		if err := json.Unmarshal(cascaded, &list); cascaded != nil && err != nil || len(list) != len(r.Cascaded) || len(list) > 256 {
			t.Errorf("%q is read as %+v: %v", cascaded, r.Cascaded, err)
		}
		for i, entry := range r.Cascaded {
			if list[i]["agent"] != entry.Agent || list[i]["status"] != string(entry.Status) || len(list[i]) != 2 {
				t.Errorf("%q is read as %+v", cascaded, entry)
			}
		}
	})
}
