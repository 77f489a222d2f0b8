package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/httpapi"
	agentlife "github.com/aepb/aepb-gateway/gateway/lifecycle"
	"github.com/aepb/aepb-gateway/gateway/listing"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/lifecycle"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// unsigned signs and records nothing.
type unsigned struct{}

func (unsigned) Sign(context.Context, attest.Statement) (attest.Signed, error) {
	return attest.Signed{}, nil
}
func (unsigned) Record(context.Context, attest.Signed) error { return nil }
func (unsigned) Keep(context.Context, string) error          { return nil }
func (unsigned) Lifecycles(map[string]int)                   {}

// life is two replicas over one store, the admin API of the first one, and the model that they are held against.
type life struct {
	t          *testing.T
	api        *surface
	entries    *state.Entries
	dev        bool
	all        [2]*agentlife.Service
	leave      func() // nil: no work is under way
	operations string // so far, for messages
	lifeModel
}

// lifeModel is what must be so of the agent, as simple as it can be said.
type lifeModel struct {
	status   lifecycle.Status
	listed   bool
	changed  bool      // it has a record
	earliest time.Time // while it drains: it may not be retired before
	retiring bool      // while it drains: work is not waited for
	noGrace  bool      // while it drains: it may be retired as soon as its work ends
}

// Record, Records and Change are those of the first replica, which is another one after a restart.
func (l *life) Record(agent string) lifecycle.Record { return l.all[0].Record(agent) }
func (l *life) Records() []lifecycle.Record          { return l.all[0].Records() }
func (l *life) Change(ctx context.Context, agent string, o lifecycle.Order) (lifecycle.Record, string, error) {
	return l.all[0].Change(ctx, agent, o)
}

func newLife(t *testing.T) *life {
	t.Helper()
	logger, l := slog.New(slog.DiscardHandler), &life{t: t}
	agents, err := directory.New(directory.Deps{Describers: map[canonical.Binding]transport.Describer{"a2a-v1": quiet{}}, Egress: quiet{}, Now: time.Now, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	registry, err := translators.NewRegistry(a2a.New(translators.Config{}))
	if err != nil {
		t.Fatal(err)
	}
	listed, err := listing.New(listing.Deps{Directory: agents, Now: time.Now, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	handler, err := httpapi.Admin(httpapi.AdminDeps{
		MonitoringDeps: httpapi.MonitoringDeps{Metrics: http.NotFoundHandler(), Ready: func() error { return nil }, Logger: logger},
		Directory:      agents, Agents: listed, Registry: registry, Self: "spiffe://gw.example/aepb", PublicURL: "https://gw.example", Lifecycles: l, Token: "right", Hosts: []string{"127.0.0.1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	l.api = &surface{handler: handler}
	return l
}

// begin forgets all that was, and begins with an agent that is listed and was never changed.
func (l *life) begin(dev bool) {
	memory, err := state.New(state.Config{}, state.Deps{Now: time.Now})
	if err != nil {
		l.t.Fatal(err)
	}
	l.entries, l.dev, l.leave, l.operations, l.lifeModel = memory.Entries(), dev, nil, "", lifeModel{status: lifecycle.Active}
	for i := range l.all {
		l.start(i)
	}
	l.add()
}

func (l *life) start(i int) {
	var err error
	if l.all[i], err = agentlife.New(agentlife.Deps{
		Entries: l.entries, Evidence: func() agentlife.Evidence { return unsigned{} }, Metrics: unsigned{}, Forgets: l.dev,
		Identity: func(string) ect.Identity { return "" }, Successor: func(context.Context, string, string) error { return nil },
		Replica: fmt.Sprint("replica", i), Now: time.Now, Logger: slog.New(slog.DiscardHandler),
	}); err == nil {
		err = l.all[i].Refresh(l.t.Context())
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *life) ask(method, path, body string, status int) (answer struct {
	Status, Warning string
	FinalAt         time.Time `json:"final_at"`
},
) {
	w := l.api.do(method, "https://127.0.0.1:9443/api/agents"+path, body, nil, http.Header{"Authorization": {"Bearer right"}})
	text, _ := io.ReadAll(w.Body)
	if w.Code != status {
		l.t.Fatalf("%s: %d %s, want %d", l.operations, w.Code, text, status)
	}
	_ = json.Unmarshal(text, &answer)
	return answer
}

// order posts one that must be answered with 200 if it is possible, and reports that.
func (l *life) order(possible bool, body string) (ok bool, warning string, finalAt time.Time) {
	status := map[bool]int{true: http.StatusOK, false: http.StatusConflict}[possible]
	if !l.listed && !l.changed {
		status = http.StatusNotFound
	}
	got := l.ask("POST", "/pricing/lifecycle", `{"reason":"because",`+body+`}`, status)
	l.changed = l.changed || status == http.StatusOK
	if final := strings.Contains(got.Warning, "retired for good"); status == http.StatusOK && final != !strings.Contains(body, "active") {
		l.t.Fatalf("%s: what is final is not announced, or what is not: %q", l.operations, got.Warning)
	}
	return status == http.StatusOK, got.Warning, got.FinalAt
}

func (l *life) drain(now bool) {
	if ok, _, _ := l.order(l.status == lifecycle.Active, fmt.Sprintf(`"to":"draining","force":true,"now":%t`, now)); !ok {
		return
	}
	l.status, l.retiring, l.noGrace, l.earliest = lifecycle.Draining, false, now, time.Now()
	if !now {
		l.earliest = l.earliest.Add(lifecycle.Grace)
	}
}

func (l *life) retire() {
	ok, warning, finalAt := l.order(l.status == lifecycle.Draining && !l.retiring, `"to":"retired"`)
	if !ok {
		return
	}
	l.retiring, l.noGrace, l.earliest = true, false, time.Now().Add(lifecycle.Grace)
	if !finalAt.Equal(l.earliest) || !strings.Contains(warning, finalAt.Format(time.RFC3339)) {
		l.t.Fatalf("%s: final at %v, with the warning %q, want %v", l.operations, finalAt, warning, l.earliest)
	}
}

func (l *life) retireNow() {
	if ok, _, _ := l.order(l.status == lifecycle.Draining, `"to":"retired","now":true`); ok {
		l.status = lifecycle.Retired
	}
}

func (l *life) activate() {
	if ok, _, _ := l.order(l.status == lifecycle.Draining, `"to":"active"`); ok {
		l.status = lifecycle.Active
	}
}

func (l *life) forget() {
	if ok, _, _ := l.order(l.dev && l.status == lifecycle.Retired, `"to":"active","forget":true`); ok {
		l.status = lifecycle.Active
	}
}

func (l *life) add() {
	l.ask("POST", "", `{"name":"pricing","endpoints":[{"binding":"a2a-v1","url":"https://pricing.example"}]}`, http.StatusCreated)
	l.listed = true
}

func (l *life) remove() {
	l.ask("DELETE", "/pricing", "", map[bool]int{true: http.StatusNoContent, false: http.StatusNotFound}[l.listed])
	l.listed = false
}

// work begins at the second replica, as the next step of a workflow may, or ends.
func (l *life) work() {
	if l.leave == nil {
		l.leave = l.all[1].Enter("pricing")
		return
	}
	l.leave()
	l.leave = nil
	if l.status == lifecycle.Draining && !l.retiring && !l.noGrace {
		l.earliest = time.Now().Add(lifecycle.Grace)
	}
}

// pass lets time pass, of which the replicas look at the first and the last seconds.
func (l *life) pass(d time.Duration) {
	l.look()
	time.Sleep(d)
	l.look()
	const late = time.Minute // of the last word about work, which is kept for some time
	if l.status == lifecycle.Draining && time.Since(l.earliest) > late && (l.leave == nil || l.retiring) {
		l.t.Fatalf("%s: it is not retired %v after it was due", l.operations, time.Since(l.earliest))
	}
}

func (l *life) look() {
	const looks = 12
	for range looks {
		for i := range l.all {
			if err := l.all[1-i].Step(l.t.Context()); err != nil {
				l.t.Fatal(err)
			}
		}
		l.judge()
		time.Sleep(time.Second)
	}
}

// judge holds what the replica that knows more says against the model.
func (l *life) judge() {
	one, other := l.all[0].Record("pricing"), l.all[1].Record("pricing")
	r := one
	if other.Term > one.Term { // the first replica has not looked yet
		r = other
	}
	if r.Status == lifecycle.Retired && l.status == lifecycle.Draining && !time.Now().Before(l.earliest) && (l.leave == nil || l.retiring) {
		l.status = lifecycle.Retired
	}
	if r.Status != l.status && (r.Status != "" || l.status != lifecycle.Active) || r.Admits().NewWork != (l.status == lifecycle.Active) {
		l.t.Fatalf("%s: it is %s, %s, final at %v; it must be %s and not retired before %v, now is %v", l.operations, r.Status, r.Step, r.FinalAt, l.status, l.earliest, time.Now())
	}
}

// lifeOperations are what may happen, in any order.
var lifeOperations = []struct {
	name string
	do   func(*life)
}{
	{"drain", func(l *life) { l.drain(false) }},
	{"drain now", func(l *life) { l.drain(true) }},
	{"retire", (*life).retire},
	{"retire now", (*life).retireNow},
	{"activate", (*life).activate},
	{"forget", (*life).forget},
	{"remove", (*life).remove},
	{"add", (*life).add},
	{"work begins or ends", (*life).work},
	{"seconds pass", func(l *life) { l.pass(0) }},
	{"nine minutes pass", func(l *life) { l.pass(9 * time.Minute) }},
	{"eleven minutes pass", func(l *life) { l.pass(11 * time.Minute) }},
	{"both replicas restart", func(l *life) {
		if l.leave == nil { // the work of a process ends with it
			l.look() // or what ended in its last second is not known
			l.start(0)
			l.start(1)
		}
	}},
}

func (l *life) play(n int) {
	l.operations += "; " + lifeOperations[n].name
	lifeOperations[n].do(l)
	l.judge()
}

// TestLifecycle_NothingIsFinalUnannounced tries all sequences of three operations, also after a drain, and
// random longer ones: an agent is retired no sooner than ten minutes after its last work or the order to retire it, unless the
// order says now; until then it can be taken back; each order that leads there says so; and only a development
// gateway makes a retired agent active.
func TestLifecycle_NothingIsFinalUnannounced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLife(t)
		const few = 3
		count := 2 // from the start, and after a drain
		for range few {
			count *= len(lifeOperations)
		}
		for n := range count {
			l.begin(n/2%2 == 0)
			if n%2 == 1 {
				l.play(0)
			}
			for rest, i := n/2, 0; i < few; rest, i = rest/len(lifeOperations), i+1 {
				l.play(rest % len(lifeOperations))
			}
		}
		const seed = 1
		random := rand.New(rand.NewPCG(seed, 3))
		for range 500 {
			l.begin(random.IntN(2) == 0)
			some := random.Perm(len(lifeOperations))[:5] // so that a drain is not always taken back soon
			l.play(0)
			for range 20 {
				l.play(some[random.IntN(len(some))])
			}
		}
	})
}
