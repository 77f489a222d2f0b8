package gatewaytest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	tslim "github.com/aepb/aepb-gateway/gateway/transport/slim"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/name"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/plain"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
	"github.com/aepb/aepb-gateway/translators/slim"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// postbox is where changes of work are posted to.
type postbox struct {
	url string

	mu    sync.Mutex
	taken map[string]string // by path
}

func newPostbox(t *testing.T, b *Fixture) *postbox {
	t.Helper()
	p := &postbox{taken: map[string]string{}}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		if why := b.unproven(r, body); why != "" {
			t.Errorf("posted to %s: %s", r.URL.Path, why)
		}
		p.mu.Lock()
		p.taken[r.URL.Path] += string(body)
		p.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	}))
	server.TLS = Serving(b.SVID(t, "/postbox"))
	server.StartTLS()
	t.Cleanup(server.Close)
	p.url = server.URL
	return p
}

// unproven is what is wrong with the evidence of a message that was posted; "": nothing.
func (b *Fixture) unproven(r *http.Request, body []byte) string { return b.unprovenOf(r, body, true) }

// unprovenOf is unproven; followsMessage: the message says what an agent said.
func (b *Fixture) unprovenOf(r *http.Request, body []byte, followsMessage bool) string {
	tokens := r.Header.Values(ect.HeaderName)
	if len(tokens) != 1 {
		return fmt.Sprintf("with %d ECTs", len(tokens))
	}
	v, err := b.Judge.Verify(context.WithoutCancel(r.Context()), tokens[0], ect.Check{Purpose: ect.Parent})
	if err != nil {
		return err.Error()
	}
	if c := v.Claims(); c.Issuer != b.Dev.Gateway.ID || c.OutputHash != ect.Hash(body) || (c.InputHash != "") != followsMessage || followsMessage && len(c.Parents) != 1 {
		return fmt.Sprintf("with an ECT of something else: %+v", c)
	}
	return ""
}

func (p *postbox) has(path, text string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Contains(p.taken[path], text)
}

// Soon looks again until something is so, or there is no time left.
func Soon(ctx context.Context, so func() bool) bool { return SoonIn(ctx, whatLasts, so) }

// SoonIn is [Soon] with a limit of its own.
func SoonIn(ctx context.Context, limit time.Duration, so func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for !so() {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(10 * time.Millisecond):
		}
	}
	return true
}

// pushes: whoever asked for work names a webhook, which is told of its end.
func (c *Caller) pushes(ctx context.Context) string {
	name, h := c.Works(ctx, DoWork)
	defer c.Agents.Finish(name)
	if h.Task() == nil {
		return h.without()
	}
	push := func(verb canonical.Verb, config canonical.PushConfig) *Received {
		config.TaskID = h.Task().ID
		return c.Ask(ctx, c.Request(canonical.OpPush, &canonical.PushRequest{Verb: verb, Config: config}), false, nil)
	}
	made := push(canonical.VerbCreate, *c.hook(name))
	if _, ok := made.last().(*canonical.PushConfig); !ok {
		return made.Otherwise()
	}
	if got, ok := push(canonical.VerbGet, canonical.PushConfig{ID: "p1"}).last().(*canonical.PushConfig); !ok || !strings.HasSuffix(got.URL, name) {
		return "not to be had"
	}
	if list, ok := push(canonical.VerbList, canonical.PushConfig{}).last().(*canonical.PushList); !ok || len(list.Configs) != 1 {
		return "not listed"
	}
	c.Agents.Finish(name)
	if !c.notified(ctx, name) {
		return "not told"
	}
	if gone := push(canonical.VerbDelete, canonical.PushConfig{ID: "p1"}); gone.Refused() != "" {
		return gone.Otherwise()
	}
	return "told"
}

// hook is a webhook of its own.
func (c *Caller) hook(name string) *canonical.PushConfig {
	return &canonical.PushConfig{ID: "p1", URL: c.posts.url + "/" + name, Token: "known"}
}

// notified: somebody was told there of the end of work.
func (c *Caller) notified(ctx context.Context, name string) bool {
	return Soon(ctx, func() bool {
		return c.posts.has("/"+name, "worked") || c.posts.has("/"+name, "ompleted") || c.posts.has("/"+name, "COMPLETED")
	})
}

// aborts: whoever asked does not want it any more, and says so.
func (c *Caller) aborts(ctx context.Context) string {
	work := c.Wid
	m := c.Request(canonical.OpInvoke, c.Invoke(DoToil+" "+work))
	if c.words() == mcp.Binding {
		m.Correlation.Progress = json.RawMessage(`"p"`)
	}
	ask := func(ctx context.Context, m *canonical.Message) *Received { return c.Ask(ctx, m, false, nil) }
	if member := c.members[c.side.version]; member != nil {
		s, err := c.converses(ctx, member)
		if err != nil {
			return err.Error()
		}
		defer s.Close()
		ask = s.ask
	}
	var group sync.WaitGroup
	asking, hangUp := context.WithCancel(ctx)
	defer hangUp()
	group.Go(func() { ask(asking, m) })
	defer func() {
		c.Agents.Finish(work)
		group.Wait()
	}()
	if !Soon(ctx, func() bool { return c.Agents.Job(work) != nil }) {
		return "not begun"
	}
	if strings.HasSuffix(c.side.version, mcp.Modern) {
		hangUp() // which is how that is said there
	} else if h := ask(ctx, c.Request(canonical.OpAbort, &canonical.Abort{Request: m.Correlation.WireID})); h.Refused() != "" {
		return h.Otherwise()
	}
	limited := ctx
	if to := TraitsOf(c.to, c.List[c.to.Binding].Codec); to.Bare || WithinAINP(TraitsOf(c.side, c.form), to) { // which will hear of nothing
		var enough context.CancelFunc
		limited, enough = context.WithTimeout(ctx, 500*time.Millisecond)
		defer enough()
	}
	if !Soon(limited, func() bool { return c.Agents.Job(work).now() == canonical.StateCanceled }) {
		return "goes on"
	}
	return "stopped"
}

// slimSession is one session of MCP on SLIM: what is asked for in it is stopped
// in it. The gateway's own callers have a session for each message.
type slimSession struct {
	*plain.Conversation

	c *Caller
}

func (c *Caller) converses(ctx context.Context, member *tslim.Peer) (*slimSession, error) {
	at, err := name.Parse("org/gw/" + c.agent)
	if err != nil {
		return nil, err
	}
	session, err := member.Converse(ctx, at)
	if err != nil {
		return nil, err
	}
	s := &slimSession{session, c}
	revision, _ := slim.Revision(c.side.version)
	s.ask(ctx, c.Request(canonical.OpDescribe, &canonical.DescribeRequest{Versions: []string{revision}}))
	begun, err := session.Call(ctx, []byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`), nil)
	if err != nil {
		session.Close()
		return nil, err
	}
	begun.Close()
	return s, nil
}

// ask says a message, and hears what answers it, if anything does.
func (s *slimSession) ask(ctx context.Context, m *canonical.Message) *Received {
	out := &Received{}
	wire, _, err := s.c.encode(m, false)
	var sealed transport.Sealed
	if err == nil {
		sealed, err = s.c.sealed(ctx, wire)
	}
	var evidence []string
	if err == nil {
		wire, evidence, err = sealed.Open()
	}
	if err != nil {
		out.failure = err
		return out
	}
	answers, err := s.Call(ctx, wire.Body, map[string]string{"execution-context": strings.Join(evidence, ",")})
	if err != nil {
		out.failure = err
		return out
	}
	defer answers.Close()
	f, err := answers.Next(ctx)
	if errors.Is(err, io.EOF) {
		return out
	}
	if out.failure = err; err == nil {
		out.failure = s.c.hear(translators.Wire{Body: f.Body}, m.Op, false, out)
	}
	return out
}

// race is a loss that happens or does not, as two events come one before the
// other or the other way about. Nothing that a play can wait for decides that.
type race struct {
	Play, mark string // regular expressions of all of it
	Where      func(from, to *Traits) bool
	Because    string
}

// Races are all that there are. What the table has of them is an upper bound.
var Races = []race{
	{
		"task.get", `<(L03|L29|L33)\+`, func(_, to *Traits) bool { return to.Words == mcp.Binding && to.tasks == translators.TaskingWhole },
		"what came of a task its caller hears from the agent itself if he asks first, and as the gateway keeps it if that did",
	},
	{
		"task.get", `<(L02\+|L03-|L18-)`, func(from, to *Traits) bool {
			return onSLIM(from) && to.Words == mcp.Binding && to.tasks == translators.TaskingWhole
		},
		"the same, of a caller on SLIM, who is slow to ask",
	},
	{
		`push|task\.(list|list\.pages|subscribe)`, `<(L02|L18)\+`, func(_, to *Traits) bool { return onSLIM(to) && to.tasks == translators.TaskingWhole },
		"an agent on SLIM, which is slow, may have ended its task before anybody hears that it began",
	},
	{
		`task\.answer`, `<(L03|L33)\+`, func(from, to *Traits) bool { return from.Words == ainp.Binding && onSLIM(to) },
		"an agent on SLIM, which is slow, answers before its caller is promised a task, or after",
	},
	{
		`task\.answer`, `<L33\+`, func(from, to *Traits) bool { return from.Words == ainp.Binding && to.Binding == uacp.Binding },
		"what an agent of µACP says before it goes on is heard, or what comes next has overtaken it",
	},
	{
		`task\.answer`, `<L01-`, func(from, to *Traits) bool { return onSLIM(from) && onSLIM(to) },
		"the same, and then the caller has a name for the task",
	},
	{
		`task\..*|push|abort`, "~.*", func(_, to *Traits) bool {
			return to.Shape == translators.StreamsTask || to.tasks != translators.TaskingNone
		},
		"the gateway asks at intervals how work stands, and not any more once that has ended",
	},
}

// onSLIM: it speaks MCP there.
func onSLIM(n *Traits) bool { return n.Binding == slim.Binding && n.Words == mcp.Binding }

// chance: whether something is lost of a play is chance.
func chance(play, mark string, from, to *Traits) bool {
	for _, h := range Races {
		if h.Covers(play, mark) && h.Where(from, to) {
			return true
		}
	}
	return false
}

func (h race) Covers(play, mark string) bool {
	for pattern, text := range map[string]string{h.Play: play, h.mark: mark} {
		if !regexp.MustCompile("^(?:" + pattern + ")$").MatchString(text) {
			return false
		}
	}
	return true
}

// MatrixEnv, when set, writes the table anew; the diff is then for a person to judge.
const MatrixEnv = "AEPB_UPDATE_LOSSES"

// attempts bounds how often a play is played where the agent was not heard in time.
const attempts = 5

// Background is how long is waited for what the gateway does when its caller has
// been answered.
const Background = 5 * time.Second

// Plays goes one way with one play. Under load the gateway may have promised its
// caller a task before it heard of the agent's: that is another play, and this one
// is played again.
func (tr *Simulator) Plays(t *testing.T, from, to *Traits, p Play, known map[string][]string) Row {
	t.Helper()
	for attempt := 1; ; attempt++ {
		began := time.Now()
		c, outcome := tr.stages(t, from.Side, to.Side, p)
		if d := time.Since(began); d > 2*time.Second {
			t.Logf("%s to %s: %s took %s to come to %q", from.Name, to.Name, p.Name, d.Round(time.Millisecond), outcome)
		}
		r := Row{From: from.Name, To: to.Name, Play: p.Name, Outcome: outcome}
		want, declared := known[r.key()]
		read := func() bool {
			r.losses, r.words = c.losses(t.Context())
			r.weigh(from, to, want)
			return declared && slices.Equal(r.losses, want)
		}
		as := read() || r.short(known) && SoonIn(t.Context(), Background, read)
		if os.Getenv(MatrixEnv) != "" && p.lasts() && !as { // nobody knows yet what there is to wait for
			SoonIn(t.Context(), Background/10, func() bool { return false })
			as = read() || declared
		}
		if as || attempt == attempts || !c.notes.wasLate() {
			return r
		}
	}
}

// AtOnce is how many ways are tried at once: most of the time they wait.
const AtOnce = 8

// Row is one line of the table.
type Row struct {
	From, To, Play, Outcome string
	losses                  []string // what chance decides is in brackets
	words                   []string // of what was lost, each behind its mark
}

// weigh puts what chance decides in brackets; if nothing else of that happened
// than the table has, there is all that the table has.
func (r *Row) weigh(from, to *Traits, known []string) {
	var sure, may []string
	for _, mark := range r.losses {
		if chance(r.Play, mark, from, to) {
			may = append(may, "("+mark+")")
		} else {
			sure = append(sure, mark)
		}
	}
	for _, mark := range known {
		if bare := strings.Trim(mark, "()"); bare != mark && chance(r.Play, bare, from, to) {
			may = append(may, mark)
		}
	}
	slices.Sort(may)
	r.losses = append(sure, slices.Compact(may)...)
}

// short: nothing has happened that the table does not have, but not all of that yet.
func (r *Row) short(known map[string][]string) bool {
	want, declared := known[r.key()]
	return declared && !slices.ContainsFunc(r.losses, func(mark string) bool { return !slices.Contains(want, mark) })
}

// key is what a row is found by.
func (r *Row) key() string {
	return strings.Join([]string{r.From, r.To, r.Play, strconv.Quote(r.Outcome)}, " ")
}

// Tell says of what the table does not have what it was.
func (r *Row) Tell(t *testing.T, known map[string][]string) {
	t.Helper()
	want, declared := known[r.key()]
	for _, words := range r.words {
		mark, _, _ := strings.Cut(words, " ")
		if declared && slices.Contains(r.losses, mark) && !slices.Contains(want, mark) {
			t.Logf("%s: %s", r.key(), words)
		}
	}
}

// String is the row as the table has it.
func (r *Row) String() string { return strings.TrimSpace(r.key() + " " + strings.Join(r.losses, " ")) }
