package rollback_test

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/lifecycle/rollback"
)

// TestJournal_Stored: the stored form, to the letter, and it is read back as it was.
func TestJournal_Stored(t *testing.T) {
	t.Parallel()
	j := after(t, begin(rollback.Never, rollback.ByCall), of(1, sent), of(1, undone), escalated, ended)
	const want = `{"version":1,"term":5,"workflow":"w","from":"c1","cascade":true,"issuer":"spiffe://example.com/a","request":"request",` +
		`"accepted":"2027-01-15T08:00:00Z","by":"2027-01-15T09:00:00Z","runner":"runner 1","steps":[` +
		`{"checkpoint":"c2","action":"r2","agent":"agent2","how":"irreversible","state":"escalated","reason":"the action cannot be undone, or its checkpoint has ended"},` +
		`{"checkpoint":"c1","action":"r1","agent":"agent1","how":"compensation","state":"completed","tries":1,"request":"request.a.b","restored":"5NZNwaZ7WD3cQuXe37nz9qkCWVIz6TwhKn58GQlQgn8"}],` +
		`"escalation":"escalate.a.b","result":"result.a.b","status":"partial","ended":"2027-01-15T08:00:00Z"}`
	text, err := j.Encode()
	if err != nil || strings.ReplaceAll(string(text), ect.Hash([]byte("state")), "5NZNwaZ7WD3cQuXe37nz9qkCWVIz6TwhKn58GQlQgn8") != want {
		t.Errorf("%v\ngot  %s\nwant %s", err, text, want)
	}
	if again, err := rollback.Decode(text); err != nil || !reflect.DeepEqual(again, j) {
		t.Errorf("%v: read as %+v, was %+v", err, again, j)
	}
}

// TestDecode_Mistakes: what is not written by Encode is not read.
func TestDecode_Mistakes(t *testing.T) {
	t.Parallel()
	text, err := after(t, begin(rollback.ByCall, rollback.ByCall), sent, undone).Encode()
	if err != nil {
		t.Fatal(err)
	}
	second := `{"checkpoint":"c1","action":"r1","agent":"agent1","how":"compensation","state":`
	both := `"completed","tries":1,"request":"request.a.b","restored":"` + ect.Hash([]byte("state")) + `"},` + second + `"waiting"}]}`
	const form = "a member is unknown, stands twice, or is not written as this program writes it"
	for name, c := range map[string]struct{ old, with, want string }{
		"no object":           {`{"version"`, `["version"`, "not one JSON object, or a member is not of its type"},
		"another version":     {`"version":1`, `"version":2`, "version is not 1"},
		"no version":          {`"version":1,`, ``, "version is not 1"},
		"a float":             {`"term":3`, `"term":3.0`, "not one JSON object, or a member is not of its type"},
		"no term":             {`"term":3`, `"term":0`, "term is zero or too high"},
		"a high term":         {`"term":3`, `"term":9007199254740993`, "term is zero or too high"},
		"an unknown member":   {`"workflow"`, `"why":"x","workflow"`, form},
		"a member twice":      {`"workflow":"w"`, `"workflow":"x","workflow":"w"`, form},
		"other letters":       {`"workflow"`, `"Workflow"`, form},
		"null":                {`"cascade":true`, `"cascade":null`, form},
		"a space":             {`{"version"`, ` {"version"`, form},
		"another zone":        {`09:00:00Z`, `10:00:00+01:00`, form},
		"in a step":           {`"how":"compensation"`, `"how":"compensation","why":"x"`, form},
		"no steps":            {`"steps":[`, `"steps":null,"x":[`, "steps are missing, or more than 500"},
		"no workflow":         {`"workflow":"w"`, `"workflow":""`, "workflow, from, request or issuer is empty, too long, or has control characters"},
		"no runner":           {`"runner 1"`, `""`, "runner is empty, longer than 256 bytes, or has control characters"},
		"by before accepted":  {`T09:00:00Z`, `T07:00:00Z`, "accepted is missing, or by is before it"},
		"a checkpoint twice":  {`"checkpoint":"c1"`, `"checkpoint":"c2"`, "step 1: its checkpoint stands twice"},
		"another way":         {`"how":"compensation"`, `"how":"magic"`, "step 0: how is not agent, compensation, nothing or irreversible"},
		"a way without state": {`"how":"compensation"`, `"how":"nothing"`, "step 0: its state does not fit how it is undone"},
		"another state":       {`"state":"waiting"`, `"state":"asleep"`, "step 1: its state does not fit how it is undone"},
		"before its turn":     {both, `"waiting"},` + second + `"sent","tries":1,"request":"a"}]}`, "step 1: it began before its turn"},
		"an error too early":  {both, `"escalated","reason":"x"},` + second + `"waiting"}],"error":"a"}`, "error is no compact token, or does not fit the steps"},
		"restored too early":  {`"completed"`, `"sent"`, "step 0: restored is no hash, or the step is not completed"},
		"no request":          {`"request":"request.a.b",`, ``, "step 0: request is missing, is there too early, or is no compact token"},
		"no tries":            {`"tries":1,`, ``, "step 0: tries do not fit request"},
		"many tries":          {`"tries":1,`, `"tries":11,`, "step 0: tries do not fit request"},
		"a reason":            {`"state":"waiting"`, `"state":"waiting","reason":"x"`, "step 1: reason is too long, or the step neither failed nor is escalated"},
		"an error":            {`}]}`, `}],"error":"a"}`, "error is no compact token, or does not fit the steps"},
		"an escalation":       {`}]}`, `}],"escalation":"a"}`, "escalation is no compact token, or does not fit the steps"},
		"a result alone":      {`}]}`, `}],"result":"a"}`, "result, status and ended do not fit each other"},
		"an end":              {`}]}`, `}],"result":"a","status":"partial","ended":"2027-01-15T08:00:00Z"}`, "status does not fit the steps"},
	} {
		if !bytes.Contains(text, []byte(c.old)) {
			t.Fatalf("%s: %s is not in %s", name, c.old, text)
		}
		_, err := rollback.Decode(bytes.Replace(text, []byte(c.old), []byte(c.with), 1))
		if _, ok := errors.AsType[*rollback.RecordError](err); !ok || err.Error() != "rollback: invalid journal: "+c.want {
			t.Errorf("%s: %v\nwant %s", name, err, c.want)
		}
	}
	if _, err := rollback.Decode(make([]byte, 64<<20)); err == nil || !strings.Contains(err.Error(), "longer than ") {
		t.Errorf("64 MiB: %v", err)
	}
}

// TestJournal_FitsItsBound: the largest journal can be stored, since each of its steps fits.
func TestJournal_FitsItsBound(t *testing.T) {
	t.Parallel()
	size := func(n int) int {
		plan := planOf(make([]rollback.How, n)...)
		for i := range plan.Steps {
			plan.Steps[i].How, plan.Steps[i].Agent = rollback.ByCall, strings.Repeat("<", 2048)
			plan.Steps[i].Checkpoint, plan.Steps[i].Action = ect.ID(fmt.Sprint(strings.Repeat("<", 127), i)), ect.ID(strings.Repeat("<", 128))
		}
		j := rollback.Begin(plan, strings.Repeat("<", 128), ect.Identity(strings.Repeat("<", 2048)), ect.ID(strings.Repeat("<", 128)), strings.Repeat("<", 256))
		token := strings.Repeat("a", 16<<10)
		for i := range j.Steps {
			p := &j.Steps[i]
			p.State, p.Tries, p.Request, p.Reason = rollback.StepEscalated, 10, token, strings.Repeat("<", 512)
		}
		j.Error, j.Escalation, j.Result, j.Status, j.Ended = token, token, token, rollback.StatusEscalated, noon
		text, err := j.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := rollback.Decode(text); err != nil {
			t.Errorf("%d bytes: %v", len(text), err)
		}
		return len(text)
	}
	one, two := size(1), size(2)
	if whole := one + (two-one)*(rollback.MaxSteps-1); whole > rollback.MaxRecord {
		t.Errorf("the largest journal has %d bytes, at most %d are read", whole, rollback.MaxRecord)
	}
}

func FuzzDecode_Roundtrip(f *testing.F) {
	for _, j := range []rollback.Journal{
		begin(), begin(rollback.ByCall, rollback.Never),
		after(f, begin(rollback.ByCall, rollback.ByAgent), sent, unanswered, undone, of(1, sent), of(1, failed), ended),
		after(f, begin(rollback.ByCall), sent, overdue, escalated, ended),
	} {
		text, err := j.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		j, err := rollback.Decode(text)
		if err != nil {
			return
		}
		if again, err := j.Encode(); err != nil || !bytes.Equal(again, text) {
			t.Errorf("%v: written again as %s", err, again)
		}
		if j.Term > 1<<50 || j.By.Year() > 9000 { // it goes on beyond what can be stored
			return
		}
		late := j.By.Add(time.Hour)
		for n := 0; j.Due(late).Kind != rollback.Done; n++ {
			kind := map[rollback.EffectKind]rollback.EventKind{rollback.Report: rollback.Overdue, rollback.Escalate: rollback.Escalated, rollback.End: rollback.Ended}[j.Due(late).Kind]
			if j, err = j.Next(rollback.Event{Kind: kind, At: late, Token: "token"}); err != nil || n > 3 {
				t.Fatalf("it does not end: %v", err)
			}
			if _, err := j.Encode(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
