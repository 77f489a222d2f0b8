package main

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
)

// toMembers is the way to an agent that every workload of the trust domain may call.
const toMembers = "/aepb/translate?from=a2a-v1&dest=members"

// manyRequests lets a flood pass the request limits, which are not what is tried here.
func manyRequests() config.Limits { return config.Limits{Rate: 100_000, Burst: 100_000} }

// floodEvidence sends messages of one caller, each with two parents of 5 KB of his own that live
// as long as a token may, and says how many were taken.
func (b *bed) floodEvidence(t *testing.T, via *http.Client, who *ecttest.Party, messages int) (taken int) {
	t.Helper()
	for range messages {
		body := addBody(b.number())
		recipe := b.recipe(body)
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
		got := b.send(t, letter{via: via, at: toNobody, body: body, tokens: tokens})
		if got.status == http.StatusOK {
			taken++
		}
	}
	return taken
}

// evidenceOf sends messages of the development client and returns the ids of what he signed.
func (b *bed) evidenceOf(t *testing.T, messages int) (ids []ect.ID) {
	t.Helper()
	for range messages {
		body := addBody(b.number())
		recipe := b.recipe(body)
		recipe.Claims.ID = ect.NewID()
		got := b.send(t, letter{at: toMembers, body: body, tokens: []string{ecttest.Mint(t, b.me, recipe)}})
		if got.status != http.StatusOK {
			t.Fatalf("a plain call: %d %s", got.status, got.body)
		}
		ids = append(ids, recipe.Claims.ID)
	}
	return ids
}

// onRecord counts which ids are found by the development client.
func (b *bed) onRecord(t *testing.T, ids []ect.ID) (found int) {
	t.Helper()
	for _, id := range ids {
		if b.send(t, letter{method: http.MethodGet, media: "-", at: "/ects/" + string(id)}).status == http.StatusOK {
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
			b := newBed(t, plan{serve: true, config: config.Config{
				Limits: manyRequests(), State: config.State{Path: path, EvidenceMiB: 4},
			}})
			mallory := b.svid(t, "/mallory")
			victims := b.evidenceOf(t, 10)
			if taken := b.floodEvidence(t, b.caller(t, mallory), b.party(t, mallory), 500); taken == 0 {
				t.Error("the attacker was not even heard")
			}
			if found := b.onRecord(t, victims); found != len(victims) {
				t.Errorf("%d of %d tokens of the victim are left", found, len(victims))
			}
			if after := b.evidenceOf(t, 3); b.onRecord(t, after) != len(after) {
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
	b := newBed(t, plan{serve: true, config: config.Config{
		Limits: manyRequests(), State: config.State{Path: filepath.Join(t.TempDir(), "state")},
	}})
	ids := b.evidenceOf(t, calls)
	if found := b.onRecord(t, ids); found != calls {
		t.Errorf("%d of %d tokens are on record", found, calls)
	}
	var first struct {
		Workflow string `json:"wid"`
	}
	got := b.send(t, letter{method: http.MethodGet, media: "-", at: "/ects/" + string(ids[0])})
	_, claims, _ := strings.Cut(string(got.body), ".")
	claims, _, _ = strings.Cut(claims, ".")
	content, err := base64.RawURLEncoding.DecodeString(claims)
	must(t, err)
	must(t, json.Unmarshal(content, &first))
	if page := b.send(t, letter{method: http.MethodGet, media: "-", at: "/workflows/" + first.Workflow}); page.status != http.StatusOK || strings.Count(string(page.body), "eyJ") < 3 {
		t.Errorf("the workflow of the first call: %d %s", page.status, short(page.body))
	}
}

// TestAttack_ATokenThatNeverEnds is the lasting part of finding 2: parents with an exp in
// the year 9999. Before, they were kept until then. Now they are refused.
func TestAttack_ATokenThatNeverEnds(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{serve: true})
	body := addBody(b.number())
	recipe := b.recipe(body)
	parent := ect.NewID()
	recipe.Claims.Parents = []ect.ID{parent}
	endless := ecttest.Mint(t, b.me, ecttest.Recipe{Claims: ect.Claims{
		ID: parent, Audience: []string{b.self()}, Workflow: recipe.Claims.Workflow, IssuedAt: time.Now().Unix(), Expires: 253402300799,
	}})
	got := b.send(t, letter{body: body, tokens: []string{ecttest.Mint(t, b.me, recipe), endless}})
	if got.status != http.StatusForbidden || !strings.Contains(string(got.body), string(ect.ReasonLifetimeTooLong)) {
		t.Errorf("got %d %s", got.status, got.body)
	}
	if b.onRecord(t, []ect.ID{parent}) != 0 {
		t.Error("it is on record")
	}
}

// TestAttack_OneIssuerFillsRedis is finding 2 for replicas that share a Redis of bounded
// memory. Before, one caller filled it, and the calls of all were refused at every replica
// until an operator deleted keys. Now he loses his own records, and others notice nothing.
func TestAttack_OneIssuerFillsRedis(t *testing.T) {
	t.Parallel()
	server := newRedis(t, "--maxmemory", "12mb", "--appendfsync", "everysec")
	own := config.Config{Limits: manyRequests(), State: server.state()}
	b := newBed(t, plan{serve: true, config: own})
	other := b.beside(t, "gateway-2", config.Config{Limits: manyRequests(), State: own.State})
	mallory := b.svid(t, "/mallory")
	within(t, patience, "the first token is taken", func() bool {
		return b.send(t, b.sealed(t, letter{at: toMembers, body: addBody(1)})).status == http.StatusOK
	})
	victims := b.evidenceOf(t, 5)
	taken := b.floodEvidence(t, b.caller(t, mallory), b.party(t, mallory), 900)
	if found := b.onRecord(t, victims); found != len(victims) {
		t.Errorf("after %d messages of the attacker %d of %d tokens of the victim are left", taken, found, len(victims))
	}
	for _, replica := range []*bed{b, other} {
		body := addBody(b.number())
		if got := replica.send(t, letter{at: toNobody, body: body, tokens: []string{replica.token(t, body)}}); got.status != http.StatusOK {
			t.Errorf("a plain call of the victim: %d %s", got.status, got.body)
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
		"redis":  func(t *testing.T) config.State { return newRedis(t).state() }, //nolint:thelper // a case
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, plan{serve: true, config: config.Config{Limits: manyRequests(), State: state(t)}})
			within(t, patience, "the first token is taken", func() bool {
				return b.send(t, b.sealed(t, letter{at: toMembers, body: addBody(1)})).status == http.StatusOK
			})
			b.namesakesRefuse(t)
		})
	}
}

func (b *bed) namesakesRefuse(t *testing.T) {
	t.Helper()
	svid := b.svid(t, "/member")
	member := attacker{b, b.party(t, svid), b.caller(t, svid)}
	body := addBody(b.number())
	recipe := b.recipe(body)
	recipe.Claims.ID, recipe.Claims.Audience = ect.NewID(), append(recipe.Claims.Audience, string(svid.ID))
	id, wid, token := recipe.Claims.ID, recipe.Claims.Workflow, ecttest.Mint(t, b.me, recipe)
	var last attacker
	for n := range 2 * ect.MaxNamesakes {
		svid := b.svid(t, "/a/mallory"+strconv.Itoa(n))
		last = attacker{b, b.party(t, svid), b.caller(t, svid)}
		claims := ect.Claims{ID: id, Workflow: string(ect.NewID())}
		if got := last.plant(t, claims); got.status != http.StatusOK && n < ect.MaxNamesakes {
			t.Fatalf("namesake %d: %d %s", n, got.status, short(got.body))
		}
	}
	if got := b.send(t, letter{at: toMembers, body: body, tokens: []string{token}}); got.status != http.StatusOK {
		t.Fatalf("the owner's message: %d %s", got.status, short(got.body))
	}
	if got := last.plant(t, ect.Claims{ID: id, Workflow: wid}); got.status != http.StatusForbidden {
		t.Errorf("a namesake in the owner's workflow: %d, want 403", got.status)
	}
	ects := "/ects/" + string(id)
	for name, ask := range map[string]letter{
		"the owner by the jti":        {at: ects},
		"the owner by the workflow":   {at: ects + "?wid=" + wid},
		"the member by the workflow":  {via: member.client, at: ects + "?wid=" + wid},
		"the member by the issuer":    {via: member.client, at: ects + "?iss=" + string(b.me.ID)},
		"the member, by both of them": {via: member.client, at: ects + "?wid=" + wid + "&iss=" + string(b.me.ID)},
	} {
		ask.method, ask.media = http.MethodGet, "-"
		if got := b.send(t, ask); got.status != http.StatusOK || string(got.body) != token {
			t.Errorf("%s: %d, the owner's token: %v", name, got.status, string(got.body) == token)
		}
	}
	if got := last.get(t, ects+"?wid="+wid); got != http.StatusNotFound {
		t.Errorf("an outsider by the workflow: %d, want 404", got)
	}
	body = addBody(b.number())
	child := b.recipe(body)
	child.Claims.ID, child.Claims.Workflow, child.Claims.Parents = ect.NewID(), wid, []ect.ID{id}
	if got := b.send(t, letter{at: toMembers, body: body, tokens: []string{ecttest.Mint(t, b.me, child)}}); got.status != http.StatusOK {
		t.Errorf("a message that follows from it: %d %s", got.status, short(got.body))
	}
	found, err := b.gateway.Evidence.Get(t.Context(), ect.Ref{ID: id, Workflow: wid, Issuer: b.me.ID})
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
	b := newBed(t, plan{config: config.Config{Limits: manyRequests()}, observe: func(k *stores) {
		store.Store = k.evidence
		k.evidence = store
	}})
	wid := string(ect.NewID())
	var wide []ect.ID
	for range 100 {
		body := addBody(b.number())
		recipe := b.recipe(body)
		recipe.Claims.ID, recipe.Claims.Workflow, recipe.Claims.Act = ect.NewID(), wid, ect.ActTranslate
		for range 100 {
			recipe.Claims.Parents = append(recipe.Claims.Parents, ect.NewID())
		}
		b.send(t, letter{body: body, tokens: []string{ecttest.Mint(t, b.me, recipe)}})
		wide = append(wide, recipe.Claims.ID)
	}
	store.ids.Store(0)
	store.rounds.Store(0)
	body := addBody(b.number())
	recipe := b.recipe(body)
	recipe.Claims.Workflow, recipe.Claims.Parents, recipe.Claims.Act = wid, wide, ect.ActTranslate
	got := b.send(t, letter{body: body, tokens: []string{ecttest.Mint(t, b.me, recipe)}})
	if got.status == http.StatusOK {
		t.Errorf("what cannot be counted was let through: %s", got.body)
	}
	if ids, rounds := store.ids.Load(), store.rounds.Load(); ids == 0 || ids > 256 || rounds > 8 {
		t.Errorf("%d ids were looked up in %d rounds", ids, rounds)
	}
}

// TestAttack_TokenOfForeignTask: which token a task goes on after is told to the caller of the task alone. A stranger
// gets the same bytes as for a task that does not exist, and no foreign token puts an answer into the workflow.
func TestAttack_TokenOfForeignTask(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	a := b.attacker(t)
	got := b.send(t, letter{at: "/agents/concierge/a2a", body: textBody("ask: for how many?"), header: map[string]string{"A2A-Version": "1.0"}})
	var question struct {
		Result struct {
			Task struct {
				ID string `json:"id"`
			} `json:"task"`
		} `json:"result"`
	}
	must(t, json.Unmarshal(got.body, &question))
	task := question.Result.Task.ID
	if task == "" {
		t.Fatalf("the agent did not ask: %d %s", got.status, short(got.body))
	}
	following := func(via *http.Client, task string) letter {
		return letter{via: via, method: http.MethodGet, media: "-", at: "/ects?agent=concierge&task=" + task}
	}
	own := b.send(t, following(b.client, task))
	last, _, err := ect.ParseUnverified(string(own.body))
	if own.status != http.StatusOK || err != nil {
		t.Fatalf("the caller of the task gets %d %s", own.status, short(own.body))
	}
	for name, c := range map[string]struct {
		via  *http.Client
		want int
	}{"an attacker": {a.client, http.StatusNotFound}, "without a certificate": {b.anonymous, http.StatusUnauthorized}} {
		foreign, unknown := b.send(t, following(c.via, task)), b.send(t, following(c.via, string(ect.NewID())))
		if foreign.status != c.want || unknown.status != c.want {
			t.Errorf("%s: got %d, and %d for an unknown task, expected %d", name, foreign.status, unknown.status, c.want)
		}
		if withoutRequestID(foreign.body) != withoutRequestID(unknown.body) {
			t.Errorf("%s: a foreign task gets %s, an unknown one %s", name, foreign.body, unknown.body)
		}
	}

	answer := `{"jsonrpc":"2.0","id":"t","method":"SendMessage","params":{"message":{"messageId":"m2","role":"ROLE_USER","taskId":"` + task + `","parts":[{"text":"four"}]}}}`
	token := func(who *ecttest.Party) string {
		recipe := b.recipe(answer)
		recipe.Claims.Workflow, recipe.Claims.Parents = last.Workflow, []ect.ID{last.ID}
		return ecttest.Mint(t, who, recipe)
	}
	answers := letter{at: "/agents/concierge/a2a", body: answer, header: map[string]string{"A2A-Version": "1.0"}}
	answers.via, answers.tokens = a.client, []string{token(a.party)}
	if got := b.send(t, answers); got.status == http.StatusOK && !strings.Contains(string(got.body), `"error"`) {
		t.Errorf("a stranger's answer in the workflow: %d %s", got.status, short(got.body))
	}
	answers.via, answers.tokens = b.client, []string{token(b.me)}
	if got := b.send(t, answers); got.status != http.StatusOK || !strings.Contains(string(got.body), "You said: four") {
		t.Errorf("the caller's own answer: %d %s", got.status, short(got.body))
	}
}

var requestIDs = regexp.MustCompile(`"request_id":"[^"]*"`)

// withoutRequestID is a problem document without what is another one in each.
func withoutRequestID(body []byte) string { return requestIDs.ReplaceAllString(string(body), "") }
