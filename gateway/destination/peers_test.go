package destination_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/dag"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/destination"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

const otherID = "spiffe://other.example/gateway" // of another peer, behind peerID in order

func other() directory.Peer {
	return directory.Peer{ID: otherID, URL: "https://other.example/aepb/translate", Rules: only(callerID)}
}

// through is a path of a message through gateways.
func through(ids ...ect.Identity) (p dag.Path) {
	for _, id := range ids {
		p.Nodes = append(p.Nodes, dag.Node{Issuer: id})
	}
	return p
}

// TestReach_TranslationAlone: for a pair that is not served here other gateways are
// asked, where the message has evidence.
func TestReach_TranslationAlone(t *testing.T) {
	t.Parallel()
	served := map[string]string{peerID + " a2a-v1>far-v1@2": "{}", otherID + " mcp-v1>far-v1": "{}"}
	for name, c := range map[string]struct {
		query destination.Query
		want  []string
	}{
		"served here": {destination.Query{To: mcp.Binding, Attested: true}, []string{"- mcp-v1"}},
		"a version that a peer serves": {
			destination.Query{To: far, Version: "2", Attested: true},
			[]string{"- a2a-v1 via " + peerID + " a2a-v1>far-v1@2 for  unlisted", peerID + " a2a-v1>far-v1@2"},
		},
		"in another protocol, of the second peer": {
			destination.Query{To: far, Attested: true},
			[]string{"- mcp-v1 via " + otherID + " mcp-v1>far-v1 for  unlisted", peerID + " a2a-v1>far-v1", peerID + " mcp-v1>far-v1", otherID + " a2a-v1>far-v1", otherID + " mcp-v1>far-v1"},
		},
		"without evidence": {destination.Query{To: far}, []string{"- - no path"}},
		"a version of ours that is served nowhere": {
			destination.Query{To: mcp.Binding, Version: "1", Attested: true},
			[]string{"- mcp-v1 no path unsupported_version", peerID + " a2a-v1>mcp-v1@1", peerID + " mcp-v1>mcp-v1@1", otherID + " a2a-v1>mcp-v1@1", otherID + " mcp-v1>mcp-v1@1"},
		},
		"a name that is too long": {destination.Query{To: canonical.Binding(strings.Repeat("x", 65)), Attested: true}, []string{"- - no path"}},
	} {
		e := newEnv(t)
		e.peers(other(), peer())
		e.network.pages = served
		c.query.Caller, c.query.From = outsider(), a2a.Binding
		if diff := cmp.Diff(c.want, e.reach(c.query)); diff != "" {
			t.Errorf("%s: -want +got\n%s", name, diff)
		}
	}
}

// TestReach_WhichPeersAreAsked: which gateways are asked about an agent, and how.
func TestReach_WhichPeersAreAsked(t *testing.T) {
	t.Parallel()
	unlisted := destination.Query{Caller: caller(), To: far, Agent: unlistedID, Attested: true}
	for name, c := range map[string]struct {
		edit     func(*env, *destination.Query)
		want     []string // who is asked
		forwards string   // how many more gateways that one may ask
		kind     string   // why it is not reached; empty: it is
	}{
		"the first that serves it":         {func(*env, *destination.Query) {}, []string{peerID + " a2a-v1"}, "1", ""},
		"the message's own protocol first": {func(_ *env, q *destination.Query) { q.From = mcp.Binding }, []string{peerID + " mcp-v1", peerID + " a2a-v1"}, "1", ""},
		"after two gateways":               {func(_ *env, q *destination.Query) { q.Path = through("spiffe://a/b", "spiffe://c/d") }, []string{peerID + " a2a-v1"}, "0", ""},
		"after too many": {func(_ *env, q *destination.Query) {
			q.Path = through(slices.Repeat([]ect.Identity{"spiffe://a/b"}, 9)...)
		}, []string{peerID + " a2a-v1"}, "0", ""},
		"not one that it came through": {func(_ *env, q *destination.Query) { q.Path = through(peerID) }, []string{otherID + " a2a-v1", otherID + " mcp-v1"}, "0", "no path unknown_agent"},
		"not one that is not open to the caller": {func(e *env, _ *destination.Query) {
			closed := peer()
			closed.Rules = only(string(outsider().ID))
			e.peers(closed, other())
		}, []string{otherID + " a2a-v1", otherID + " mcp-v1"}, "1", "no path unknown_agent"},
		"a name that is too long": {func(_ *env, q *destination.Query) { q.Agent += strings.Repeat("x", 2048) }, nil, "", "no path"},
		"behind one alone": {func(e *env, q *destination.Query) {
			e.must(e.directory.Put(behind("behind", only(callerID), far)))
			q.Agent = "behind"
		}, []string{peerID + " a2a-v1"}, "1", ""},
		"a loop": {func(e *env, q *destination.Query) {
			e.must(e.directory.Put(behind("behind", only(callerID), far)))
			q.Agent, q.Path = "behind", through(peerID)
		}, nil, "", "loop"},
		"behind a peer that is listed no more": {func(e *env, q *destination.Query) {
			e.must(e.directory.Put(behind("behind", only(callerID), far)))
			q.Agent = "behind"
			e.peers(other())
		}, nil, "", "no path"},
		"an agent without the protocol": {func(e *env, q *destination.Query) {
			e.must(e.directory.Put(direct("tools", only(callerID), mcp.Binding)))
			q.Agent = "tools"
		}, nil, "", "no path"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, q := newEnv(t), unlisted
			e.peers(other(), peer())
			q.From = a2a.Binding
			c.edit(e, &q)
			e.network.pages = map[string]string{peerID + " a2a-v1>far-v1 for " + unlistedID: "{}", peerID + " a2a-v1>far-v1 for behind": "{}"}
			d, err := e.Find(q)
			e.must(err)
			d = e.Reach(t.Context(), q, d)
			var got []string
			for _, line := range e.network.requests {
				way, _, _ := strings.Cut(line, ">")
				got = append(got, way)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("asked, -want +got\n%s", diff)
			}
			if slices.ContainsFunc(e.network.forwards, func(n string) bool { return n != c.forwards }) {
				t.Errorf("gateways may ask %q others, expected %q", e.network.forwards, c.forwards)
			}
			if (d.Via != nil) != (c.kind == "") || d.Unreachable != nil && kind(d.Unreachable) != c.kind {
				t.Errorf("%s, expected %q", summary(d), c.kind)
			}
			if d.Via != nil && destination.MayCall(outsider(), d.Agent.Rules) == nil {
				t.Errorf("%s: an outsider may call it, under %+v", summary(d), d.Agent.Rules)
			}
			if looped := slices.Contains(e.denied, policy.ConstraintLoop); looped != (c.kind == "loop") {
				t.Errorf("counted are %q", e.denied)
			}
		})
	}
}

// TestReach_GatewaysOfADocument: those that an agent's own document names are asked
// first, and all of them a bounded number of times about one message.
func TestReach_GatewaysOfADocument(t *testing.T) {
	t.Parallel()
	e := newEnv(t, described("foreign", only(callerID)))
	e.peers(peer(), other())
	e.network.pages["foreign.example"] = strings.Replace(document("foreign", directory.Active, "null", far, "rare-v1"), `"protocols"`, `"translation_gateways":["`+other().URL+`"],"protocols"`, 1)
	q := destination.Query{Caller: caller(), From: a2a.Binding, Agent: "foreign", Native: true}
	want := []string{"foreign - no path", "foreign.example"}
	for _, to := range []string{"far-v1", "rare-v1"} {
		for _, id := range []string{otherID, peerID} {
			for _, from := range []string{"a2a-v1", "mcp-v1"} {
				want = append(want, id+" "+from+">"+to+" for spiffe://example.com/agents/foreign")
			}
		}
	}
	if diff := cmp.Diff(want, e.reach(q)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	q.To, q.Native = "rare-v1", false
	e.network.requests = nil
	if got := e.reach(q); got[0] != "foreign - no path" || slices.ContainsFunc(got, func(line string) bool { return strings.Contains(line, ">far-v1") }) {
		t.Errorf("for one protocol: %q", got)
	}

	var many []directory.Peer
	for i := range 40 {
		name := "gateway" + strconv.Itoa(i) + ".example"
		many = append(many, directory.Peer{ID: ect.Identity("spiffe://" + name + "/gateway"), URL: "https://" + name + "/aepb/translate"})
	}
	e.peers(many...)
	e.network.requests = nil
	if got := e.reach(q); got[0] != "foreign - no path" || len(got) != 1+32 {
		t.Errorf("%s after %d questions, expected 32", got[0], len(got)-1)
	}
}

// TestServes_WhoLearnsWhat: whether this gateway serves a pair or an agent, who is asked
// for that, and for how long that holds.
func TestServes_WhoLearnsWhat(t *testing.T) {
	t.Parallel()
	const (
		ageOfPair  = time.Hour
		ageOfAgent = time.Minute
		foreignID  = "spiffe://example.com/agents/foreign"
	)
	anonymous := identity.Anonymous("example.com")
	foreign := []string{"foreign.example", peerID + " a2a-v1>far-v1 for " + foreignID}
	for name, c := range map[string]struct {
		caller   identity.Caller
		from, to string
		dest     string
		forwards int
		serves   bool
		age      time.Duration
		want     []string // who is asked
	}{
		"a pair, anonymous":                   {anonymous, "a2a-v1", "mcp-v1", "", 3, true, ageOfPair, nil},
		"a pair, without identity":            {identity.Caller{}, "a2a-v1", "mcp-v1", "", 3, true, ageOfPair, nil},
		"of a peer, anonymous":                {anonymous, "a2a-v1", "far-v1", "", 3, false, ageOfPair, nil},
		"of a peer, without identity":         {identity.Caller{}, "a2a-v1", "far-v1", "", 3, false, ageOfPair, nil},
		"of a peer":                           {outsider(), "a2a-v1", "far-v1", "", 3, true, ageOfPair, []string{peerID + " a2a-v1>far-v1"}},
		"of a peer, no more forwards":         {outsider(), "a2a-v1", "far-v1", "", 0, false, ageOfPair, nil},
		"from a protocol that we lack":        {outsider(), "rare-v1", "far-v1", "", 3, false, ageOfPair, nil},
		"from a version that we lack":         {outsider(), "a2a-v1@9", "far-v1", "", 3, false, ageOfPair, nil},
		"from a version of ours":              {outsider(), "a2a-v1@1.0", "far-v1", "", 3, true, ageOfPair, []string{peerID + " a2a-v1>far-v1"}},
		"the peer itself asks":                {identity.Caller{Peer: ect.Peer{ID: peerID}}, "a2a-v1", "far-v1", "", 3, false, ageOfPair, nil},
		"an agent":                            {caller(), "a2a-v1", "mcp-v1", "tools", 3, true, ageOfAgent, nil},
		"an agent, from what we lack":         {caller(), "rare-v1", "mcp-v1", "tools", 3, false, ageOfAgent, nil},
		"an agent, in what it lacks":          {caller(), "mcp-v1", "a2a-v1", "tools", 3, false, ageOfAgent, nil},
		"an agent, to an outsider":            {outsider(), "a2a-v1", "mcp-v1", "tools", 3, false, ageOfAgent, nil},
		"an agent, anonymous":                 {anonymous, "a2a-v1", "mcp-v1", "tools", 3, false, ageOfPair, nil},
		"an agent, without identity":          {identity.Caller{}, "a2a-v1", "mcp-v1", "tools", 3, false, ageOfPair, nil},
		"by its document":                     {caller(), "a2a-v1", "mcp-v1", "live", 3, true, ageOfAgent, []string{"live.example"}},
		"by its document, to an outsider":     {outsider(), "a2a-v1", "mcp-v1", "live", 3, false, ageOfAgent, nil},
		"lost":                                {caller(), "a2a-v1", "mcp-v1", "lost", 3, false, ageOfAgent, []string{"lost.example"}},
		"ended":                               {caller(), "a2a-v1", "mcp-v1", "finished", 3, false, ageOfAgent, []string{"finished.example"}},
		"ended, with a successor":             {caller(), "a2a-v1", "mcp-v1", "ended", 3, true, ageOfAgent, []string{"ended.example", "heir.example"}},
		"ended, the successor to an outsider": {outsider(), "a2a-v1", "mcp-v1", "open", 3, false, ageOfAgent, []string{"open.example", "heir.example"}},
		"behind a peer":                       {caller(), "a2a-v1", "far-v1", "behind", 3, true, ageOfAgent, []string{peerID + " a2a-v1>far-v1 for behind"}},
		"behind a peer, which asks no others": {caller(), "a2a-v1", "far-v1", "behind", 1, true, ageOfAgent, []string{peerID + " a2a-v1>far-v1 for behind"}},
		"behind a peer, to an outsider":       {outsider(), "a2a-v1", "far-v1", "behind", 3, false, ageOfAgent, nil},
		"behind a peer, no more forwards":     {caller(), "a2a-v1", "far-v1", "behind", 0, false, ageOfAgent, nil},
		"of a protocol that a peer speaks":    {caller(), "a2a-v1", "far-v1", "foreign", 3, true, ageOfAgent, foreign},
		"the same, to an outsider":            {outsider(), "a2a-v1", "far-v1", "foreign", 3, false, ageOfAgent, nil},
		"only a peer knows it":                {caller(), "a2a-v1", "far-v1", unlistedID, 3, true, ageOfAgent, []string{peerID + " a2a-v1>far-v1 for " + unlistedID}},
		"only a peer, to an outsider":         {outsider(), "a2a-v1", "far-v1", unlistedID, 3, false, ageOfAgent, nil},
		"only a peer, no more forwards":       {caller(), "a2a-v1", "far-v1", unlistedID, 0, false, ageOfAgent, nil},
		"unknown":                             {caller(), "a2a-v1", "far-v1", "stranger", 3, false, ageOfAgent, []string{peerID + " a2a-v1>far-v1 for stranger", peerID + " mcp-v1>far-v1 for stranger"}},
		"a name that is too long":             {caller(), "a2a-v1", "far-v1", strings.Repeat("x", 2049), 3, false, ageOfPair, nil},
		"by the URL of a document":            {caller(), "a2a-v1", "far-v1", visitedURL, 0, false, ageOfAgent, nil},
		"more forwards than there may be":     {caller(), "a2a-v1", "far-v1", "behind", 99, true, ageOfAgent, []string{peerID + " a2a-v1>far-v1 for behind"}},
		"an agent that only its peer calls":   {identity.Caller{Peer: ect.Peer{ID: peerID}}, "a2a-v1", "far-v1", unlistedID, 3, false, ageOfAgent, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := world(t)
			e.network.pages[peerID+" a2a-v1>far-v1"] = "{}"
			e.network.pages["open.example"] = document("open", directory.Retired, heirURL, mcp.Binding)
			e.must(e.directory.Put(described("open", policy.Rules{Open: true})))
			serves, age := e.Serves(t.Context(), transport.PairQuery{
				From: translators.ParseSide(c.from), To: translators.ParseSide(c.to), Dest: c.dest, Caller: c.caller, Forwards: c.forwards,
			})
			if serves != c.serves || age > c.age || age < c.age-time.Minute || age < time.Second {
				t.Errorf("served: %t, for %v, expected %t, %v", serves, age, c.serves, c.age)
			}
			if diff := cmp.Diff(c.want, e.network.requests); diff != "" {
				t.Errorf("asked, -want +got\n%s", diff)
			}
			if want := strconv.Itoa(min(c.forwards, policy.DefaultMaxHops-1) - 1); slices.ContainsFunc(e.network.forwards, func(n string) bool { return n != want }) {
				t.Errorf("gateways may ask %q others, expected %s", e.network.forwards, want)
			}
		})
	}
}
