package pairs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"

	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/slim"
)

// consentFile has the table of what becomes of answers, between its two marks.
const consentFile = "../../translators/README.md"

// consentBegin and consentEnd are around it.
const (
	consentBegin = "<!-- consent: made by TestConsent_Matrix, with " + gatewaytest.MatrixEnv + " set -->"
	consentEnd   = "<!-- consent: end -->"
)

func responses() []gatewaytest.Response {
	yes := func(value string) canonical.Answer {
		return canonical.Answer{Action: canonical.Accept, Value: json.RawMessage(value)}
	}
	good := yes(`{"name":"Ada"}`)
	return []gatewaytest.Response{
		{Name: "accept", Accepts: true, Answer: good},
		{Name: "accept, twice", Accepts: true, Answer: good, Twice: true},
		{Name: "accept, more values", Accepts: true, Answer: yes(`{"name":"Ada","age":1}`)},
		{Name: "accept, another type", Answer: yes(`{"name":7}`)},
		{Name: "accept, no values", Answer: canonical.Answer{Action: canonical.Accept}},
		{Name: "accept, another key", Answer: good, Key: "other"},
		{Name: "decline", Answer: canonical.Answer{Action: canonical.Decline}},
		{Name: "cancel", Answer: canonical.Answer{Action: canonical.Cancel}},
		{Name: "error", Failure: true},
		{Name: "nothing", Empty: true},
		{Name: "accept, another caller", Accepts: true, Answer: good, Other: true}, // and then the caller
	}
}

// TestConsent_Matrix: what becomes of each way to answer, from callers of every
// protocol and revision to agents of each. "Accept" reaches an agent only from a caller
// that accepted with values that fit the form. The table in the README of translators
// is what was seen.
func TestConsent_Matrix(t *testing.T) {
	t.Parallel()
	tr := gatewaytest.Everybody(t)
	others := gatewaytest.NewSimulatorOf(t, tr.Stage, tr.Stage.SVID(t, "/another"), nil, gatewaytest.SpeakToy)
	var callers, agents []*gatewaytest.Traits
	for _, s := range tr.Sides() {
		n := gatewaytest.TraitsOf(s, tr.List[s.Binding].Codec)
		if n.Toy || n.Bare || n.Asks == translators.AskNone {
			continue
		}
		callers = append(callers, n)
		if tr.Hires(t, s) {
			agents = append(agents, n)
		}
	}
	var mu sync.Mutex
	seen := map[string]map[string][]string{} // by way of asking and caller, then by response
	var group errgroup.Group
	group.SetLimit(gatewaytest.AtOnce)
	for _, to := range agents {
		for _, from := range callers {
			if from.Side == to.Side || gatewaytest.Relayed(from, to) {
				continue
			}
			for _, r := range responses() {
				if !r.Of(from) {
					continue
				}
				group.Go(func() error {
					c := tr.Caller(t, from.Side, to.Side, gatewaytest.Player)
					ctx, cancel := context.WithTimeout(t.Context(), gatewaytest.PatienceOfPlays)
					defer cancel()
					if from.Binding == slim.Binding {
						gatewaytest.Soon(ctx, func() bool { return c.Exposed(ctx) })
					}
					other := others.Caller(t, from.Side, to.Side, gatewaytest.Player)
					received := c.Responds(ctx, r, other, (*gatewaytest.Received).Outcome)
					if gatewaytest.Ends(from, to, received) {
						gatewaytest.SoonIn(t.Context(), gatewaytest.Background, func() bool { return len(tr.AnswersOf(c.Wid)) > 0 })
					}
					notices := tr.AnswersOf(c.Wid)
					if foreign := tr.AnswersOf(other.Wid); foreign != nil {
						t.Errorf("%s to %s: of another caller the agent is told %q", from.Name, to.Name, foreign)
					}
					if strings.HasPrefix(received, "broken") || errors.Is(ctx.Err(), context.DeadlineExceeded) {
						t.Errorf("%s to %s: %s does not end: %s", from.Name, to.Name, r.Name, received)
					}
					for _, one := range notices {
						if word, _, _ := strings.Cut(one, " "); word == string(canonical.Accept) && !r.Accepts {
							t.Errorf("%s to %s: %s is told as %q", from.Name, to.Name, r.Name, one)
						}
					}
					mu.Lock()
					defer mu.Unlock()
					key := askedHow(to) + "\x00" + from.Name
					if seen[key] == nil {
						seen[key] = map[string][]string{}
					}
					cell := cmp.Or(strings.Join(notices, ", "), "–") + " → " + received
					if !slices.Contains(seen[key][r.Name], cell) {
						seen[key][r.Name] = append(seen[key][r.Name], cell)
					}
					return nil
				})
			}
		}
	}
	gatewaytest.Must(t, group.Wait())
	holdConsent(t, seen, tr.KindsOfQuestions(t, others))
}

// askedHow is how agents of a side ask.
func askedHow(n *gatewaytest.Traits) string {
	switch {
	case n.Asks == translators.AskStream && n.Binding == ainp.Binding:
		return "an AINP agent, on its socket"
	case n.Asks == translators.AskStream:
		return "an MCP server until 2025-11-25, by a request"
	case n.Asks == translators.AskReply:
		return "an MCP server of 2026-07-28, in a result"
	default:
		return "an agent with tasks (A2A, µACP, AINP), by a task that waits for input"
	}
}

func holdConsent(t *testing.T, seen map[string]map[string][]string, more string) {
	t.Helper()
	var b strings.Builder
	keys := make([]string, 0, len(seen))
	for key := range seen {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	ways := map[string][]string{} // rows by way of asking
	for _, key := range keys {
		way, from, _ := strings.Cut(key, "\x00")
		row := []string{from}
		for _, r := range responses() {
			cells := seen[key][r.Name]
			slices.Sort(cells)
			row = append(row, strings.ReplaceAll(strings.Join(cells, "; "), "|", "/"))
		}
		ways[way] = append(ways[way], "| "+strings.Join(row, " | ")+" |")
	}
	var names []string
	for way := range ways {
		names = append(names, way)
	}
	slices.Sort(names)
	for _, way := range names {
		head := []string{"caller"}
		for _, r := range responses() {
			head = append(head, r.Name)
		}
		b.WriteString("\nAsked by " + way + ":\n\n| " + strings.Join(head, " | ") + " |\n|" + strings.Repeat("---|", len(head)) + "\n" +
			strings.Join(ways[way], "\n") + "\n")
	}
	text, err := os.ReadFile(consentFile)
	gatewaytest.Must(t, err)
	before, rest, ok := strings.Cut(string(text), consentBegin)
	old, after, ends := strings.Cut(rest, consentEnd)
	if !ok || !ends {
		t.Fatalf("%s does not have the marks of the table", consentFile)
	}
	now := "\n" + b.String() + more + "\n"
	if os.Getenv(gatewaytest.MatrixEnv) != "" {
		gatewaytest.Must(t, os.WriteFile(consentFile, []byte(before+consentBegin+now+consentEnd+after), 0o600))
		return
	}
	if old != now {
		t.Errorf("%s does not say what was seen: set %s, run again and read the diff. Seen:\n%s", consentFile, gatewaytest.MatrixEnv, now)
	}
}
