package attacks

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/server"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// floodEvidence sends messages of one caller, each with two parents of 5 KB of his own that live
// as long as a token may, and says how many were taken.
func floodEvidence(t *testing.T, b *gatewaytest.Fixture, via *http.Client, who *ecttest.Party, messages int) (taken int) {
	t.Helper()
	for range messages {
		body := gatewaytest.AddBody(b.Number())
		recipe := b.Recipe(body)
		var tokens []string
		for range 2 {
			parent := ecttest.Recipe{Payload: ecttest.Raw{"padding": strconv.Quote(strings.Repeat("x", 4<<10))}, Claims: ect.Claims{
				ID: ect.NewID(), Audience: recipe.Claims.Audience, Workflow: recipe.Claims.Workflow,
				IssuedAt: time.Now().Unix(), Expires: time.Now().Unix() + 86_400,
			}}
			tokens = append(tokens, ecttest.Mint(t, who, parent))
			recipe.Claims.Parents = append(recipe.Claims.Parents, parent.Claims.ID)
		}
		tokens = append([]string{ecttest.Mint(t, who, recipe)}, tokens...)
		got := b.Send(t, gatewaytest.HTTPRequest{Via: via, At: gatewaytest.ToNobody, Body: body, Tokens: tokens})
		if got.Status == http.StatusOK {
			taken++
		}
	}
	return taken
}

// evidenceOf sends messages of the development client and returns the ids of what he signed.
func evidenceOf(t *testing.T, b *gatewaytest.Fixture, messages int) (ids []ect.ID) {
	t.Helper()
	for range messages {
		body := gatewaytest.AddBody(b.Number())
		recipe := b.Recipe(body)
		recipe.Claims.ID = ect.NewID()
		got := b.Send(t, gatewaytest.HTTPRequest{At: gatewaytest.ToMembers, Body: body, Tokens: []string{ecttest.Mint(t, b.Me, recipe)}})
		if got.Status != http.StatusOK {
			t.Fatalf("a plain call: %d %s", got.Status, got.Body)
		}
		ids = append(ids, recipe.Claims.ID)
	}
	return ids
}

// onRecord counts which ids are found by the development client.
func onRecord(t *testing.T, b *gatewaytest.Fixture, ids []ect.ID) (found int) {
	t.Helper()
	for _, id := range ids {
		if b.Send(t, gatewaytest.HTTPRequest{Method: http.MethodGet, Media: "-", At: "/ects/" + string(id)}).Status == http.StatusOK {
			found++
		}
	}
	return found
}

// TestAttack_OneIssuerFlushesAllEvidence is finding 2 for one process: a caller without any
// permission brings large parents of his own that live long. Before, his records pushed out
// those of all others, which end sooner. Now they push out his own, and the victim's are there.
func TestAttack_OneIssuerFlushesAllEvidence(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{"memory": "", "file": filepath.Join(t.TempDir(), "state")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true, Config: config.Config{
				Limits: gatewaytest.ManyRequests(), State: config.State{Path: path, EvidenceMiB: 4},
			}})
			mallory := b.SVID(t, "/mallory")
			victims := evidenceOf(t, b, 10)
			if taken := floodEvidence(t, b, b.Caller(t, mallory), b.Party(t, mallory), 500); taken == 0 {
				t.Error("the attacker was not even heard")
			}
			if found := onRecord(t, b, victims); found != len(victims) {
				t.Errorf("%d of %d tokens of the victim are left", found, len(victims))
			}
			if after := evidenceOf(t, b, 3); onRecord(t, b, after) != len(after) {
				t.Error("new evidence of the victim is lost at once")
			}
		})
	}
}

// TestEvidence_BusyCallerKeepsAll: one caller makes far more calls than the memory of a
// gateway with a file would hold evidence of. The token of each call is on record, and the
// workflow of the first call lists both legs.
func TestEvidence_BusyCallerKeepsAll(t *testing.T) {
	t.Parallel()
	const calls = 3000
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true, Config: config.Config{
		Limits: gatewaytest.ManyRequests(), State: config.State{Path: filepath.Join(t.TempDir(), "state")},
	}})
	ids := evidenceOf(t, b, calls)
	if found := onRecord(t, b, ids); found != calls {
		t.Errorf("%d of %d tokens are on record", found, calls)
	}
	var first struct {
		Workflow string `json:"wid"`
	}
	got := b.Send(t, gatewaytest.HTTPRequest{Method: http.MethodGet, Media: "-", At: "/ects/" + string(ids[0])})
	_, claims, _ := strings.Cut(string(got.Body), ".")
	claims, _, _ = strings.Cut(claims, ".")
	content, err := base64.RawURLEncoding.DecodeString(claims)
	gatewaytest.Must(t, err)
	gatewaytest.Must(t, json.Unmarshal(content, &first))
	if page := b.Send(t, gatewaytest.HTTPRequest{Method: http.MethodGet, Media: "-", At: "/workflows/" + first.Workflow}); page.Status != http.StatusOK || strings.Count(string(page.Body), "eyJ") < 3 {
		t.Errorf("the workflow of the first call: %d %s", page.Status, gatewaytest.Short(page.Body))
	}
}

// TestAttack_ATokenThatNeverEnds is the lasting part of finding 2: parents with an exp in
// the year 9999. Before, they were kept until then. Now they are refused.
func TestAttack_ATokenThatNeverEnds(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true})
	body := gatewaytest.AddBody(b.Number())
	recipe := b.Recipe(body)
	parent := ect.NewID()
	recipe.Claims.Parents = []ect.ID{parent}
	endless := ecttest.Mint(t, b.Me, ecttest.Recipe{Claims: ect.Claims{
		ID: parent, Audience: []string{b.Self()}, Workflow: recipe.Claims.Workflow, IssuedAt: time.Now().Unix(), Expires: 253402300799,
	}})
	got := b.Send(t, gatewaytest.HTTPRequest{Body: body, Tokens: []string{ecttest.Mint(t, b.Me, recipe), endless}})
	if got.Status != http.StatusForbidden || !strings.Contains(string(got.Body), string(ect.ReasonLifetimeTooLong)) {
		t.Errorf("got %d %s", got.Status, got.Body)
	}
	if onRecord(t, b, []ect.ID{parent}) != 0 {
		t.Error("it is on record")
	}
}

// TestAttack_OneIssuerFillsRedis is finding 2 for replicas that share a Redis of bounded
// memory. Before, one caller filled it, and the calls of all were refused at every replica
// until an operator deleted keys. Now he loses his own records, and others notice nothing.
func TestAttack_OneIssuerFillsRedis(t *testing.T) {
	t.Parallel()
	server := gatewaytest.NewRedis(t, "--maxmemory", "12mb", "--appendfsync", "everysec")
	own := config.Config{Limits: gatewaytest.ManyRequests(), State: server.State()}
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true, Config: own})
	other := b.Beside(t, "gateway-2", config.Config{Limits: gatewaytest.ManyRequests(), State: own.State})
	mallory := b.SVID(t, "/mallory")
	gatewaytest.Within(t, gatewaytest.Patience, "the first token is taken", func() bool {
		return b.Send(t, b.Sealed(t, gatewaytest.HTTPRequest{At: gatewaytest.ToMembers, Body: gatewaytest.AddBody(1)})).Status == http.StatusOK
	})
	victims := evidenceOf(t, b, 5)
	taken := floodEvidence(t, b, b.Caller(t, mallory), b.Party(t, mallory), 900)
	if found := onRecord(t, b, victims); found != len(victims) {
		t.Errorf("after %d messages of the attacker %d of %d tokens of the victim are left", taken, found, len(victims))
	}
	for _, replica := range []*gatewaytest.Fixture{b, other} {
		body := gatewaytest.AddBody(b.Number())
		if got := replica.Send(t, gatewaytest.HTTPRequest{At: gatewaytest.ToNobody, Body: body, Tokens: []string{replica.Token(t, body)}}); got.Status != http.StatusOK {
			t.Errorf("a plain call of the victim: %d %s", got.Status, got.Body)
		}
	}
}

// TestAttack_NamesakesRefuseTheOwner is the rest of finding N8: more identities than there
// are places use the jti of a token before its owner sends it, each in a workflow of its
// own. Before, the owner was refused with 403 for as long as their tokens were kept. Now its
// message and those that follow from it pass; the owner finds its token by the jti, and a
// member of its workflow by the jti and the workflow or the issuer; the identities do not
// get into the workflow; and a lookup of the jti finds no more than its bound.
func TestAttack_NamesakesRefuseTheOwner(t *testing.T) {
	t.Parallel()
	for name, state := range map[string]func(*testing.T) config.State{
		"memory": func(*testing.T) config.State { return config.State{} },
		"redis":  func(t *testing.T) config.State { return gatewaytest.NewRedis(t).State() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true, Config: config.Config{Limits: gatewaytest.ManyRequests(), State: state(t)}})
			gatewaytest.Within(t, gatewaytest.Patience, "the first token is taken", func() bool {
				return b.Send(t, b.Sealed(t, gatewaytest.HTTPRequest{At: gatewaytest.ToMembers, Body: gatewaytest.AddBody(1)})).Status == http.StatusOK
			})
			namesakesRefuse(t, b)
		})
	}
}

func namesakesRefuse(t *testing.T, b *gatewaytest.Fixture) {
	t.Helper()
	svid := b.SVID(t, "/member")
	member := gatewaytest.Attacker{Fixture: b, Party: b.Party(t, svid), Client: b.Caller(t, svid)}
	body := gatewaytest.AddBody(b.Number())
	recipe := b.Recipe(body)
	recipe.Claims.ID, recipe.Claims.Audience = ect.NewID(), append(recipe.Claims.Audience, string(svid.ID))
	id, wid, token := recipe.Claims.ID, recipe.Claims.Workflow, ecttest.Mint(t, b.Me, recipe)
	var last gatewaytest.Attacker
	for n := range 2 * ect.MaxNamesakes {
		svid := b.SVID(t, "/a/mallory"+strconv.Itoa(n))
		last = gatewaytest.Attacker{Fixture: b, Party: b.Party(t, svid), Client: b.Caller(t, svid)}
		claims := ect.Claims{ID: id, Workflow: string(ect.NewID())}
		if got := last.Plant(t, claims); got.Status != http.StatusOK && n < ect.MaxNamesakes {
			t.Fatalf("namesake %d: %d %s", n, got.Status, gatewaytest.Short(got.Body))
		}
	}
	if got := b.Send(t, gatewaytest.HTTPRequest{At: gatewaytest.ToMembers, Body: body, Tokens: []string{token}}); got.Status != http.StatusOK {
		t.Fatalf("the owner's message: %d %s", got.Status, gatewaytest.Short(got.Body))
	}
	if got := last.Plant(t, ect.Claims{ID: id, Workflow: wid}); got.Status != http.StatusForbidden {
		t.Errorf("a namesake in the owner's workflow: %d, want 403", got.Status)
	}
	ects := "/ects/" + string(id)
	for name, ask := range map[string]gatewaytest.HTTPRequest{
		"the owner by the jti":        {At: ects},
		"the owner by the workflow":   {At: ects + "?wid=" + wid},
		"the member by the workflow":  {Via: member.Client, At: ects + "?wid=" + wid},
		"the member by the issuer":    {Via: member.Client, At: ects + "?iss=" + string(b.Me.ID)},
		"the member, by both of them": {Via: member.Client, At: ects + "?wid=" + wid + "&iss=" + string(b.Me.ID)},
	} {
		ask.Method, ask.Media = http.MethodGet, "-"
		if got := b.Send(t, ask); got.Status != http.StatusOK || string(got.Body) != token {
			t.Errorf("%s: %d, the owner's token: %v", name, got.Status, string(got.Body) == token)
		}
	}
	if got := last.Get(t, ects+"?wid="+wid); got != http.StatusNotFound {
		t.Errorf("an outsider by the workflow: %d, want 404", got)
	}
	body = gatewaytest.AddBody(b.Number())
	child := b.Recipe(body)
	child.Claims.ID, child.Claims.Workflow, child.Claims.Parents = ect.NewID(), wid, []ect.ID{id}
	if got := b.Send(t, gatewaytest.HTTPRequest{At: gatewaytest.ToMembers, Body: body, Tokens: []string{ecttest.Mint(t, b.Me, child)}}); got.Status != http.StatusOK {
		t.Errorf("a message that follows from it: %d %s", got.Status, gatewaytest.Short(got.Body))
	}
	found, err := b.Gateway().Evidence.Get(t.Context(), ect.Ref{ID: id, Workflow: wid, Issuer: b.Me.ID})
	if err != nil || len(found[0]) > ect.MaxNamesakes+1 {
		t.Errorf("a lookup finds %d records, %v", len(found[0]), err)
	}
}

// counting is a store that counts the ids that are looked up.
type counting struct {
	ect.Store
	ids, rounds atomic.Int64
}

func (c *counting) Get(ctx context.Context, refs ...ect.Ref) ([][]ect.Record, error) {
	c.ids.Add(int64(len(refs)))
	c.rounds.Add(1)
	return c.Store.Get(ctx, refs...)
}

// TestAttack_LineageWalkCostsTenThousandLookups is finding 9: a hundred tokens with a
// hundred unknown parents each, and a message that names them all. Before, that one message
// cost 10,000 reads of the store, one after the other. Now it costs one read a level, and
// no more than 256 ids.
func TestAttack_LineageWalkCostsTenThousandLookups(t *testing.T) {
	t.Parallel()
	store := &counting{}
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: config.Config{Limits: gatewaytest.ManyRequests()}, Observe: func(k *server.Stored) {
		store.Store = k.Evidence
		k.Evidence = store
	}})
	wid := string(ect.NewID())
	var wide []ect.ID
	for range 100 {
		body := gatewaytest.AddBody(b.Number())
		recipe := b.Recipe(body)
		recipe.Claims.ID, recipe.Claims.Workflow, recipe.Claims.Act = ect.NewID(), wid, ect.ActTranslate
		for range 100 {
			recipe.Claims.Parents = append(recipe.Claims.Parents, ect.NewID())
		}
		b.Send(t, gatewaytest.HTTPRequest{Body: body, Tokens: []string{ecttest.Mint(t, b.Me, recipe)}})
		wide = append(wide, recipe.Claims.ID)
	}
	store.ids.Store(0)
	store.rounds.Store(0)
	body := gatewaytest.AddBody(b.Number())
	recipe := b.Recipe(body)
	recipe.Claims.Workflow, recipe.Claims.Parents, recipe.Claims.Act = wid, wide, ect.ActTranslate
	got := b.Send(t, gatewaytest.HTTPRequest{Body: body, Tokens: []string{ecttest.Mint(t, b.Me, recipe)}})
	if got.Status == http.StatusOK {
		t.Errorf("what cannot be counted was let through: %s", got.Body)
	}
	if ids, rounds := store.ids.Load(), store.rounds.Load(); ids == 0 || ids > 256 || rounds > 8 {
		t.Errorf("%d ids were looked up in %d rounds", ids, rounds)
	}
}

// TestAttack_TokenOfForeignTask: which token a task goes on after is told to the caller of the task alone. A stranger
// gets the same bytes as for a task that does not exist, and no foreign token puts an answer into the workflow.
func TestAttack_TokenOfForeignTask(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	a := b.Attacker(t)
	got := b.Send(t, gatewaytest.HTTPRequest{At: "/agents/concierge/a2a", Body: gatewaytest.TextBody("ask: for how many?"), Header: map[string]string{"A2A-Version": "1.0"}})
	var question struct {
		Result struct {
			Task struct {
				ID string `json:"id"`
			} `json:"task"`
		} `json:"result"`
	}
	gatewaytest.Must(t, json.Unmarshal(got.Body, &question))
	task := question.Result.Task.ID
	if task == "" {
		t.Fatalf("the agent did not ask: %d %s", got.Status, gatewaytest.Short(got.Body))
	}
	following := func(via *http.Client, task string) gatewaytest.HTTPRequest {
		return gatewaytest.HTTPRequest{Via: via, Method: http.MethodGet, Media: "-", At: "/ects?agent=concierge&task=" + task}
	}
	own := b.Send(t, following(b.Client, task))
	last, _, err := ect.ParseUnverified(string(own.Body))
	if own.Status != http.StatusOK || err != nil {
		t.Fatalf("the caller of the task gets %d %s", own.Status, gatewaytest.Short(own.Body))
	}
	for name, c := range map[string]struct {
		via  *http.Client
		want int
	}{"an attacker": {a.Client, http.StatusNotFound}, "without a certificate": {b.Anonymous, http.StatusUnauthorized}} {
		foreign, unknown := b.Send(t, following(c.via, task)), b.Send(t, following(c.via, string(ect.NewID())))
		if foreign.Status != c.want || unknown.Status != c.want {
			t.Errorf("%s: got %d, and %d for an unknown task, expected %d", name, foreign.Status, unknown.Status, c.want)
		}
		if withoutRequestID(foreign.Body) != withoutRequestID(unknown.Body) {
			t.Errorf("%s: a foreign task gets %s, an unknown one %s", name, foreign.Body, unknown.Body)
		}
	}

	answer := `{"jsonrpc":"2.0","id":"t","method":"SendMessage","params":{"message":{"messageId":"m2","role":"ROLE_USER","taskId":"` + task + `","parts":[{"text":"four"}]}}}`
	token := func(who *ecttest.Party) string {
		recipe := b.Recipe(answer)
		recipe.Claims.Workflow, recipe.Claims.Parents = last.Workflow, []ect.ID{last.ID}
		return ecttest.Mint(t, who, recipe)
	}
	answers := gatewaytest.HTTPRequest{At: "/agents/concierge/a2a", Body: answer, Header: map[string]string{"A2A-Version": "1.0"}}
	answers.Via, answers.Tokens = a.Client, []string{token(a.Party)}
	if got := b.Send(t, answers); got.Status == http.StatusOK && !strings.Contains(string(got.Body), `"error"`) {
		t.Errorf("a stranger's answer in the workflow: %d %s", got.Status, gatewaytest.Short(got.Body))
	}
	answers.Via, answers.Tokens = b.Client, []string{token(b.Me)}
	if got := b.Send(t, answers); got.Status != http.StatusOK || !strings.Contains(string(got.Body), "You said: four") {
		t.Errorf("the caller's own answer: %d %s", got.Status, gatewaytest.Short(got.Body))
	}
}

var requestIDs = regexp.MustCompile(`"request_id":"[^"]*"`)

// withoutRequestID is a problem document without what is another one in each.
func withoutRequestID(body []byte) string { return requestIDs.ReplaceAllString(string(body), "") }
