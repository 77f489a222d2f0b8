package rolling

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// good is work that went well.
func good(what, agent string) work {
	return work{what: what, protocol: protocolA2A, agent: agent, key: "k", task: "t", state: stateDone, output: "done k" + answered}
}

// TestJudge_Planted: each thing that must not happen is found, and what may happen is not.
func TestJudge_Planted(t *testing.T) {
	t.Parallel()
	failed := func(w *work) { w.state, w.output, w.why = stateFailed, "", "the gateway was lost" }
	killed := func(w *work) { w.abrupt = true; failed(w) }
	for name, tc := range map[string]struct {
		work          work
		plant         func(w *work)
		runs, answers int
		posts         []string
		want          string // empty: nothing is wrong
	}{
		"it went well":                {work: good(whatTask, agentWorker), runs: 1},
		"an answered question":        {work: good(whatQuestion, agentTools), runs: 1, answers: 1},
		"one post":                    {work: good(whatPushed, agentTasks), runs: 1, posts: []string{stateDone}},
		"a call that broke":           {work: good(whatTask, agentTools), plant: killed, runs: 1},
		"a question that broke":       {work: good(whatQuestion, agentHeld), plant: failed, runs: 1},
		"a client saw a failure":      {work: good(whatCall, agentTools), plant: func(w *work) { w.fails("503") }, runs: 1, want: "503"},
		"done twice":                  {work: good(whatTask, agentWorker), runs: 2, want: "2 times"},
		"answered twice":              {work: good(whatQuestion, agentWorker), runs: 1, answers: 2, want: "2 times"},
		"done, and not at the agent":  {work: good(whatTask, agentWorker), want: "is not"},
		"done with another's answer":  {work: good(whatTask, agentWorker), plant: func(w *work) { w.output = "done x" }, runs: 1, want: "is not"},
		"an answer that got lost":     {work: good(whatQuestion, agentTools), runs: 1, want: "did not come"},
		"it never ended":              {work: good(whatTask, agentWorker), plant: func(w *work) { w.state = "TASK_STATE_WORKING" }, runs: 1, want: "never ended"},
		"lost, and could be asked":    {work: good(whatTask, agentWorker), plant: killed, runs: 1, want: "could be asked"},
		"lost in an orderly end":      {work: good(whatTask, agentTools), plant: failed, runs: 1, want: "could be asked"},
		"lost without a reason":       {work: good(whatTask, agentTools), plant: func(w *work) { killed(w); w.why = "" }, runs: 1, want: "nothing is said"},
		"no post":                     {work: good(whatPushed, agentWorker), runs: 1, want: "webhook"},
		"two posts":                   {work: good(whatPushed, agentWorker), runs: 1, posts: []string{stateDone, stateDone}, want: "webhook"},
		"a post that says otherwise":  {work: good(whatPushed, agentWorker), runs: 1, posts: []string{stateFailed}, want: "webhook"},
		"a post of work that is lost": {work: good(whatPushed, agentTools), plant: killed, runs: 1, posts: []string{stateFailed}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := tc.work
			if tc.plant != nil {
				tc.plant(&w)
			}
			wrong := w.judge(tc.runs, tc.answers, tc.posts)
			if got := strings.Join(wrong, "\n"); len(wrong) > 1 || (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// TestFleet_WasUnsaved: only what came shortly before a kill, and only over a file.
func TestFleet_WasUnsaved(t *testing.T) {
	t.Parallel()
	kill := time.Unix(1000, 0)
	file := &fleet{unsaved: time.Second, kills: []time.Time{kill}}
	for name, tc := range map[string]struct {
		fleet *fleet
		at    time.Time
		want  bool
	}{
		"just before":        {file, kill.Add(-999 * time.Millisecond), true},
		"while it is killed": {file, kill.Add(time.Millisecond), true},
		"long before":        {file, kill.Add(-time.Second), false},
		"over Redis":         {&fleet{kills: file.kills}, kill, false},
		"in an orderly end":  {&fleet{unsaved: time.Second}, kill, false},
	} {
		if got := tc.fleet.wasUnsaved(tc.at); got != tc.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

// TestFleet_Other is another replica wherever there is one.
func TestFleet_Other(t *testing.T) {
	t.Parallel()
	three, one := &fleet{replicas: make([]*replica, 3)}, &fleet{replicas: make([]*replica, 1)}
	for n := range 6 {
		for i := range three.replicas {
			if got := three.other(i, n); got == i || got < 0 || got > 2 {
				t.Errorf("other(%d, %d) of three: %d", i, n, got)
			}
		}
		if got := one.other(0, n); got != 0 {
			t.Errorf("of one: %d", got)
		}
	}
}
