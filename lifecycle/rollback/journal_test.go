package rollback_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/lifecycle/rollback"
)

// planOf is a plan whose steps are undone in these ways, the last of them that of From.
func planOf(ways ...rollback.How) rollback.Plan {
	p := rollback.Plan{From: "c1", Cascade: true, At: noon, By: noon.Add(time.Hour)}
	for i, how := range ways {
		n := len(ways) - i
		p.Steps = append(p.Steps, rollback.Step{Checkpoint: ect.ID(fmt.Sprint("c", n)), Action: ect.ID(fmt.Sprint("r", n)), Agent: fmt.Sprint("agent", n), How: how})
	}
	return p
}

func begin(ways ...rollback.How) rollback.Journal {
	return rollback.Begin(planOf(ways...), "w", agentA, "request", "runner 1")
}

// The events of the tests, in time.
var (
	sent       = rollback.Event{Kind: rollback.Sent, At: noon, Token: "request.a.b"}
	unanswered = rollback.Event{Kind: rollback.Unanswered, At: noon}
	undone     = rollback.Event{Kind: rollback.Undone, At: noon, Restored: ect.Hash([]byte("state"))}
	failed     = rollback.Event{Kind: rollback.Failed, At: noon, Reason: "the booking is paid"}
	took       = rollback.Event{Kind: rollback.Took, At: noon, Runner: "runner 2"}
	overdue    = rollback.Event{Kind: rollback.Overdue, At: noon.Add(time.Hour), Token: "error.a.b"}
	escalated  = rollback.Event{Kind: rollback.Escalated, At: noon, Token: "escalate.a.b"}
	ended      = rollback.Event{Kind: rollback.Ended, At: noon, Token: "result.a.b"}
)

func of(step int, e rollback.Event) rollback.Event { e.Step = step; return e }

// after applies events, which all fit.
func after(tb testing.TB, j rollback.Journal, events ...rollback.Event) rollback.Journal {
	tb.Helper()
	for i, e := range events {
		next, err := j.Next(e)
		if err != nil {
			tb.Fatalf("event %d: %v", i, err)
		}
		j = next
	}
	return j
}

func times(n int, e rollback.Event) (list []rollback.Event) {
	for range n {
		list = append(list, e)
	}
	return list
}

// states is a journal in one line.
func states(j rollback.Journal) string {
	var list []string
	for _, p := range j.Steps {
		list = append(list, fmt.Sprint(p.State, " ", p.Tries))
	}
	return strings.Join(list, ", ") + "; " + string(j.Status)
}

// TestJournal_Rows: each row of the table, with what it changes and what is due then.
func TestJournal_Rows(t *testing.T) {
	t.Parallel()
	type effect = rollback.Effect
	for name, c := range map[string]struct {
		ways   []rollback.How
		events []rollback.Event
		want   string
		due    effect
	}{
		"begun":              {[]rollback.How{rollback.ByCall, rollback.ByAgent}, nil, "waiting 0, waiting 0; ", effect{Kind: rollback.Sign}},
		"begun, nothing":     {[]rollback.How{rollback.Nothing, rollback.ByAgent}, nil, "skipped 0, waiting 0; ", effect{Kind: rollback.Sign, Step: 1}},
		"begun, no way":      {[]rollback.How{rollback.Never, rollback.ByAgent}, nil, "escalated 0, waiting 0; ", effect{Kind: rollback.Sign, Step: 1}},
		"begun, no way only": {[]rollback.How{rollback.Never}, nil, "escalated 0; ", effect{Kind: rollback.Escalate}},
		"begun, no step":     {nil, nil, "; ", effect{Kind: rollback.End}},
		"took":               {[]rollback.How{rollback.ByCall}, []rollback.Event{took}, "waiting 0; ", effect{Kind: rollback.Sign}},
		"took what is sent":  {[]rollback.How{rollback.ByCall}, []rollback.Event{sent, took}, "sent 1; ", effect{Kind: rollback.Send}},
		"sent":               {[]rollback.How{rollback.ByCall}, []rollback.Event{sent}, "sent 1; ", effect{Kind: rollback.Send}},
		"lost":               {[]rollback.How{rollback.ByCall}, []rollback.Event{sent, unanswered, unanswered}, "sent 3; ", effect{Kind: rollback.Send}},
		"lost too often":     {[]rollback.How{rollback.ByCall}, append([]rollback.Event{sent}, times(10, unanswered)...), "failed 10; ", effect{Kind: rollback.End}},
		"undone":             {[]rollback.How{rollback.ByCall, rollback.ByCall}, []rollback.Event{sent, undone}, "completed 1, waiting 0; ", effect{Kind: rollback.Sign, Step: 1}},
		"the next is sent":   {[]rollback.How{rollback.ByCall, rollback.ByCall}, []rollback.Event{sent, undone, of(1, sent)}, "completed 1, sent 1; ", effect{Kind: rollback.Send, Step: 1}},
		"failed":             {[]rollback.How{rollback.ByCall, rollback.ByCall}, []rollback.Event{sent, failed}, "failed 1, waiting 0; ", effect{Kind: rollback.End}},
		"overdue":            {[]rollback.How{rollback.ByCall, rollback.ByCall}, []rollback.Event{sent, overdue}, "escalated 1, escalated 0; ", effect{Kind: rollback.Escalate}},
		"escalated":          {[]rollback.How{rollback.ByCall}, []rollback.Event{sent, overdue, escalated}, "escalated 1; ", effect{Kind: rollback.End}},
		"ended":              {[]rollback.How{rollback.ByCall}, []rollback.Event{sent, undone, ended}, "completed 1; completed", effect{Kind: rollback.Done}},
		"ended for a human":  {[]rollback.How{rollback.Never}, []rollback.Event{escalated, ended}, "escalated 0; escalated", effect{Kind: rollback.Done}},
	} {
		j := after(t, begin(c.ways...), c.events...)
		if states(j) != c.want || j.Due(noon) != c.due || j.Term != uint64(1+len(c.events)) {
			t.Errorf("%s: %s, due %+v, term %d\nwant %s, due %+v", name, states(j), j.Due(noon), j.Term, c.want, c.due)
		}
		if _, err := j.Encode(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	late := noon.Add(time.Hour)
	for name, j := range map[string]rollback.Journal{"waiting": begin(rollback.ByCall), "sent": after(t, begin(rollback.ByCall), sent)} {
		if got := j.Due(late); got.Kind != rollback.Report {
			t.Errorf("%s, and the time is over: due %+v", name, got)
		}
	}
	if got := after(t, begin(rollback.ByCall), sent, undone).Due(late); got.Kind != rollback.End {
		t.Errorf("undone, and the time is over: due %+v", got)
	}
}

// TestJournal_Misfits: what the table does not have is refused, and changes nothing.
func TestJournal_Misfits(t *testing.T) {
	t.Parallel()
	two := []rollback.How{rollback.ByCall, rollback.ByCall}
	one := two[:1]
	at := func(at time.Time, e rollback.Event) rollback.Event { e.At = at; return e }
	with := func(token string, e rollback.Event) rollback.Event { e.Token = token; return e }
	by := func(runner string) rollback.Event { e := took; e.Runner = runner; return e }
	late := noon.Add(time.Hour)
	for name, c := range map[string]struct {
		ways   []rollback.How
		before []rollback.Event
		event  rollback.Event
		want   string
	}{
		"the second first":                 {two, nil, of(1, sent), "this is not the step that is undone now"},
		"a step that is not there":         {two, nil, of(2, sent), "this is not the step that is undone now"},
		"a step below zero":                {two, nil, of(-1, sent), "this is not the step that is undone now"},
		"sent twice":                       {one, []rollback.Event{sent}, sent, "its request is signed already: send that one"},
		"sent too late":                    {one, nil, at(late, sent), "the time for the rollback is over"},
		"sent without a token":             {one, nil, with("", sent), "it needs the compact token that was signed, of at most 16 KiB"},
		"sent with something else":         {one, nil, with("a b", sent), "it needs the compact token that was signed, of at most 16 KiB"},
		"sent with too much":               {one, nil, with(strings.Repeat("a", 16<<10+1), sent), "it needs the compact token that was signed, of at most 16 KiB"},
		"lost before it is sent":           {one, nil, unanswered, "its request is not signed yet"},
		"undone before it is sent":         {one, nil, undone, "its request is not signed yet"},
		"failed before it is sent":         {one, nil, failed, "its request is not signed yet"},
		"undone twice":                     {two, []rollback.Event{sent, undone}, undone, "this is not the step that is undone now"},
		"undone after it failed":           {one, []rollback.Event{sent, failed}, undone, "this is not the step that is undone now"},
		"failed after it is undone":        {one, []rollback.Event{sent, undone}, failed, "this is not the step that is undone now"},
		"the next one after a failure":     {two, []rollback.Event{sent, failed}, of(1, sent), "this is not the step that is undone now"},
		"undone after the report":          {one, []rollback.Event{sent, overdue}, undone, "this is not the step that is undone now"},
		"undone with something else":       {one, []rollback.Event{sent}, rollback.Event{Kind: rollback.Undone, Restored: "state"}, "what was restored is no hash of 43 characters"},
		"overdue too early":                {one, nil, at(noon, overdue), "the time for the rollback is not over"},
		"overdue twice":                    {one, []rollback.Event{overdue}, overdue, "no step is left to undo"},
		"overdue when all is undone":       {one, []rollback.Event{sent, undone}, overdue, "no step is left to undo"},
		"overdue without a token":          {one, nil, with("", overdue), "it needs the compact token that was signed, of at most 16 KiB"},
		"escalated while a step is left":   {[]rollback.How{rollback.Never, rollback.ByCall}, nil, escalated, "steps are left to undo, or no step needs a human, or it was escalated before"},
		"escalated twice":                  {[]rollback.How{rollback.Never}, []rollback.Event{escalated}, escalated, "steps are left to undo, or no step needs a human, or it was escalated before"},
		"escalated without need":           {one, []rollback.Event{sent, undone}, escalated, "steps are left to undo, or no step needs a human, or it was escalated before"},
		"ended while a step is left":       {one, nil, ended, "steps are left to undo, or a human was not told yet"},
		"ended before a human is told":     {[]rollback.How{rollback.Never}, nil, ended, "steps are left to undo, or a human was not told yet"},
		"ended twice":                      {one, []rollback.Event{sent, undone, ended}, ended, "the rollback has ended"},
		"took by the same runner":          {one, nil, by("runner 1"), "this runner has it already"},
		"took without a runner":            {one, nil, by(""), "it needs the name of the runner, of 1 to 256 bytes"},
		"took after the end":               {nil, []rollback.Event{ended}, took, "the rollback has ended"},
		"an unknown kind":                  {one, nil, rollback.Event{Kind: "undo"}, "there is no such kind of event"},
		"undone what had nothing to undo":  {[]rollback.How{rollback.Nothing}, nil, undone, "this is not the step that is undone now"},
		"sent what cannot be undone":       {[]rollback.How{rollback.Never}, nil, sent, "this is not the step that is undone now"},
		"lost after the last try":          {one, append([]rollback.Event{sent}, times(10, unanswered)...), unanswered, "this is not the step that is undone now"},
		"overdue after a failure":          {two, []rollback.Event{sent, failed}, overdue, "no step is left to undo"},
		"escalated after a failure":        {two, []rollback.Event{sent, failed}, escalated, "steps are left to undo, or no step needs a human, or it was escalated before"},
		"took by a runner with a line end": {one, nil, by("a\nb"), "it needs the name of the runner, of 1 to 256 bytes"},
	} {
		j := after(t, begin(c.ways...), c.before...)
		got, err := j.Next(c.event)
		state, ok := errors.AsType[*rollback.StateError](err)
		if !ok || state.Kind != c.event.Kind || !strings.HasSuffix(err.Error(), " does not fit: "+c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
		if diff := cmp.Diff(j, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	_, err := after(t, begin(two...), sent, undone).Next(undone)
	if want := `rollback: event "undone" about step 0, which is completed, does not fit: this is not the step that is undone now`; err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// TestJournal_Immutable: an event changes the journal that comes back alone.
func TestJournal_Immutable(t *testing.T) {
	t.Parallel()
	j := begin(rollback.ByCall, rollback.ByCall)
	after(t, j, sent, undone, of(1, sent), overdue, escalated, ended)
	if diff := cmp.Diff(begin(rollback.ByCall, rollback.ByCall), j); diff != "" {
		t.Error(diff)
	}
}

// TestJournal_Reasons: what is told about a step that was not undone, bounded.
func TestJournal_Reasons(t *testing.T) {
	t.Parallel()
	long := failed
	long.Reason = strings.Repeat("ä\n", 1000)
	two := begin(rollback.ByCall, rollback.ByCall)
	for name, c := range map[string]struct {
		got  rollback.Progress
		want string
	}{
		"failed":         {after(t, two, sent, failed).Steps[0], "the booking is paid"},
		"left":           {after(t, two, sent, failed).Steps[1], ""},
		"a long one":     {after(t, two, sent, long).Steps[0], strings.Repeat("ä ", 170) + "ä"},
		"no answer":      {after(t, two, append([]rollback.Event{sent}, times(10, unanswered)...)...).Steps[0], "no answer came: it is not known whether the agent undid it"},
		"overdue":        {after(t, two, sent, overdue).Steps[0], "the time for the rollback is over: no answer came: it is not known whether the agent undid it"},
		"overdue, later": {after(t, two, sent, overdue).Steps[1], "the time for the rollback is over"},
		"no way":         {begin(rollback.Never).Steps[0], "the action cannot be undone, or its checkpoint has ended"},
	} {
		if c.got.Reason != c.want {
			t.Errorf("%s: %q, want %q", name, c.got.Reason, c.want)
		}
	}
}

// TestJournal_Outcome: the status, what is told about the other steps, and what was restored.
func TestJournal_Outcome(t *testing.T) {
	t.Parallel()
	state := ect.Hash([]byte("state"))
	lines := func(ids ...string) string {
		return ect.Hash([]byte(strings.Join(ids, " "+state+"\n") + " " + state + "\n"))
	}
	group := func(j rollback.Journal) rollback.Journal { j.From = "g"; return j }
	const call, none, never = rollback.ByCall, rollback.Nothing, rollback.Never
	for name, c := range map[string]struct {
		j        rollback.Journal
		status   rollback.Status
		cascaded string
		outHash  string
	}{
		"all":                  {after(t, begin(call, call), sent, undone, of(1, sent), of(1, undone)), "completed", `[{"agent":"agent2","status":"completed"}]`, state},
		"alone":                {after(t, begin(call), sent, undone), "completed", `[]`, state},
		"nothing to undo":      {begin(none, none), "completed", `[{"agent":"agent2","status":"completed"}]`, ""},
		"no step":              {begin(), "completed", `[]`, ""},
		"one failed":           {after(t, begin(call, call), sent, undone, of(1, sent), of(1, failed)), "partial", `[{"agent":"agent2","status":"completed"}]`, lines("c2")},
		"one has no way":       {after(t, begin(never, call), of(1, sent), of(1, undone)), "partial", `[{"agent":"agent2","status":"escalated"}]`, state},
		"the first failed":     {after(t, begin(call, call, call), sent, failed), "failed", `[{"agent":"agent3","status":"failed"},{"agent":"agent2","status":"failed"}]`, ""},
		"one failed, one not":  {after(t, begin(none, never, call), of(2, sent), of(2, failed)), "failed", `[{"agent":"agent3","status":"completed"},{"agent":"agent2","status":"escalated"}]`, ""},
		"no way":               {begin(never), "escalated", `[]`, ""},
		"no way, nothing":      {begin(none, never), "escalated", `[{"agent":"agent2","status":"completed"}]`, ""},
		"overdue":              {after(t, begin(call), overdue), "escalated", `[]`, ""},
		"under way":            {begin(call), "failed", `[]`, ""},
		"of a group":           {group(after(t, begin(call, call), sent, undone, of(1, sent), of(1, undone))), "completed", `[{"agent":"agent2","status":"completed"},{"agent":"agent1","status":"completed"}]`, lines("c2", "c1")},
		"of a group, one":      {group(after(t, begin(call, none), sent, undone)), "completed", `[{"agent":"agent2","status":"completed"},{"agent":"agent1","status":"completed"}]`, lines("c2")},
		"of a group, no state": {group(after(t, begin(call), sent, rollback.Event{Kind: rollback.Undone})), "completed", `[{"agent":"agent1","status":"completed"}]`, ect.Hash([]byte("c1 \n"))},
	} {
		ext := c.j.Ext()
		status, _ := ext.String(ect.ExtStatus)
		from, _ := ext.String(ect.ExtCheckpointID)
		if c.j.Outcome() != c.status || status != string(c.status) || from != string(c.j.From) || string(ext[ect.ExtCascaded]) != c.cascaded || c.j.OutHash() != c.outHash {
			t.Errorf("%s: %s, ext %s, out_hash %q; want %s, %s, %q", name, c.j.Outcome(), ext, c.j.OutHash(), c.status, c.cascaded, c.outHash)
		}
	}
}

// TestJournal_CascadedIsBounded: what does not fit is counted.
func TestJournal_CascadedIsBounded(t *testing.T) {
	t.Parallel()
	ways := make([]rollback.How, rollback.MaxSteps)
	for i := range ways {
		ways[i] = rollback.Nothing
	}
	ext := begin(ways...).Ext()
	var list []rollback.AgentStatus
	if err := json.Unmarshal(ext[ect.ExtCascaded], &list); err != nil {
		t.Fatal(err)
	}
	if size := len(ext[ect.ExtCascaded]); size > 2500 || size < 2400 {
		t.Errorf("atd.cascaded has %d bytes", size)
	}
	if omitted := string(ext["atd.cascaded_omitted"]); omitted != fmt.Sprint(rollback.MaxSteps-1-len(list)) {
		t.Errorf("%d steps are there, %s are left out", len(list), omitted)
	}
}
