package egress

import (
	"errors"
	"net/http"
	"net/netip"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect"
)

// TestFailures_PostsPerHostAreBounded: a host that refuses its posts is sent a bounded number
// of them, other hosts notice nothing, and after a while it may be tried again.
func TestFailures_PostsPerHostAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var f failures
		sent := 0
		for range 10 * maxFailures {
			if f.allow("Hook.test", "ann", time.Now()) {
				sent++
				f.add("hook.test", "ann", time.Now())
			}
		}
		if sent != maxFailures {
			t.Errorf("%d posts were sent to a host that takes none", sent)
		}
		if !f.allow("other.test", "ann", time.Now()) {
			t.Error("another host is refused")
		}
		<-time.After(2 * failureEvery)
		if !f.allow("hook.test", "ann", time.Now()) {
			t.Error("the host is refused for good")
		}
	})
}

// TestAttack_PostsOfOneCallerStopAnothers: a caller whose posts to a host fail is refused there alone; many callers
// whose posts fail are refused together, and so is one whose posts fail at too many hosts, but not another there.
func TestAttack_PostsOfOneCallerStopAnothers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var f failures
		fail := func(host string, caller ect.Identity, times int) (sent int) {
			for range times {
				if f.allow(host, caller, time.Now()) {
					sent++
					f.add(host, caller, time.Now())
				}
			}
			return sent
		}
		if sent := fail("hook.test", "eve", 10*maxFailures); sent != maxFailures || !f.allow("hook.test", "ann", time.Now()) {
			t.Errorf("%d posts were sent that failed, and another caller's is refused", sent)
		}
		sent := 0
		for i := range 3 * manyCallers {
			sent += fail("hook.test", ect.Identity("caller"+strconv.Itoa(i)), maxFailures)
		}
		if want := maxFailures * manyCallers; sent > want || sent < want-2*maxFailures || f.allow("hook.test", "ann", time.Now()) {
			t.Errorf("of many callers %d posts were sent to a host that takes none, want at most %d", sent, want)
		}
		for i := range 2 * maxFailing {
			fail("h"+strconv.Itoa(i)+".test", "eve", 1)
		}
		if f.allow("new.test", "eve", time.Now()) || !f.allow("new.test", "ann", time.Now()) {
			t.Error("posts fail at too many hosts, and their caller is not refused at the next, or another is")
		}
		for i := range 2 * maxHosts {
			fail("h"+strconv.Itoa(i)+".test", ect.Identity("caller"+strconv.Itoa(i%(2*maxFailing))), 1)
		}
		if len(f.hosts) > maxHosts || len(f.callers) > maxFailing {
			t.Errorf("%d hosts and %d callers are remembered", len(f.hosts), len(f.callers))
		}
		<-time.After(2 * time.Minute)
		if fail("h1.test", "new", 1) != 1 || len(f.callers) != 1 || !f.allow("new.test", "eve", time.Now()) {
			t.Errorf("%d callers are remembered after all was forgotten", len(f.callers))
		}
	})
}

// TestFailures_StopPostsToRefusingHost: Tell counts what is refused, and sends no more.
func TestFailures_StopPostsToRefusingHost(t *testing.T) {
	t.Parallel()
	var refusing atomic.Bool
	w := newWorld(t, func(rw http.ResponseWriter, _ *http.Request) {
		if refusing.Load() {
			rw.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	g := w.near(t, Config{})
	tell := func() error {
		response, err := g.Tell(get(t, w.server.URL), "ann", "")
		if err == nil {
			read(t, response)
		}
		return err
	}
	for range 2 * maxFailures {
		if err := tell(); err != nil {
			t.Fatalf("a host that takes its posts: %v", err)
		}
	}
	refusing.Store(true)
	w.requests.Store(0)
	for range 2 * maxFailures {
		if err := tell(); err != nil && reasonOf(err) != ReasonFailing {
			t.Fatal(err)
		}
	}
	if n := w.requests.Load(); n > maxFailures+maxFailures/2 {
		t.Errorf("%d posts were sent to a host that takes none", n)
	}
}

// TestRefuses_ByNameAndAddress: what is refused by name is not called, nor is what is refused by
// address and reached by another name.
func TestRefuses_ByNameAndAddress(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	refused := "listed.test:443"
	g, _ := w.guard(t, Deps{Resolver: names("agent.test", []string{publicIP}), Refuses: func(at string) bool { return at == refused }})
	if got := reasonOf(g.Judge("https://Listed.test/x")); got != ReasonTaken {
		t.Errorf("by name: %q", got)
	}
	refused = publicIP + ":443"
	if got := reasonOf(call(t, g, "https://agent.test/", "")); got != ReasonTaken {
		t.Errorf("by address: %q", got)
	}
}

// TestJudge_NamesThatMeanAddresses: a webhook by a name or number that means no public
// address is refused when it is registered, with the reason, without a look at any
// resolver; where loopback is open, it is taken.
func TestJudge_NamesThatMeanAddresses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	closed, _ := w.guard(t, Deps{Resolver: names("nothing.test")})
	open, _ := w.guard(t, Deps{
		Resolver: names("nothing.test"), Config: Config{AllowPrivate: []string{"127.0.0.0/8", "::1/128"}},
		Refuses: func(at string) bool { return at == "127.0.0.1:7443" },
	})
	for host, tc := range map[string]struct{ closed, open Reason }{
		"localhost":                {ReasonLoopback, ""},
		"LOCALHOST.":               {ReasonLoopback, ""},
		"a.localhost":              {ReasonLoopback, ""},
		"localhost.localdomain":    {ReasonLoopback, ""},
		"ip6-localhost":            {ReasonLoopback, ""},
		"ip6-loopback":             {ReasonLoopback, ""},
		"2130706433":               {ReasonLoopback, ""},
		"0x7f000001":               {ReasonLoopback, ""},
		"0X7F.1":                   {ReasonLoopback, ""},
		"0x7f.1":                   {ReasonLoopback, ""},
		"127.1":                    {ReasonLoopback, ""},
		"127.0.1":                  {ReasonLoopback, ""},
		"0177.0.0.1":               {ReasonLoopback, ""},
		"127.0.0.1":                {ReasonLoopback, ""},
		"[::1]":                    {ReasonLoopback, ""},
		"0":                        {ReasonUnspecified, ReasonUnspecified},
		"10.1":                     {ReasonPrivate, ReasonPrivate},
		"3232235777":               {ReasonPrivate, ReasonPrivate}, // 192.168.1.1
		"0xa9fea9fe":               {ReasonMetadata, ReasonMetadata},
		"169.254.43518":            {ReasonMetadata, ReasonMetadata},
		"metadata.google.internal": {ReasonMetadata, ReasonMetadata},
		"1.2.3.4.5":                {ReasonNoAddress, ReasonNoAddress},
		"4294967296":               {ReasonNoAddress, ReasonNoAddress},
		"256.1.1.1":                {ReasonNoAddress, ReasonNoAddress},
		"a.b.7":                    {ReasonNoAddress, ReasonNoAddress},
		"0x":                       {ReasonNoAddress, ReasonNoAddress},
		"127.1:7443":               {ReasonLoopback, ReasonTaken},
		"localhost:7443":           {ReasonLoopback, ReasonTaken},
		"134744072":                {"", ""}, // 8.8.8.8
		"8.8.8.8":                  {"", ""},
		"hooks.example":            {"", ""},
		"127.1.example":            {"", ""},
		"localhost.example":        {"", ""},
		"notlocalhost":             {"", ""},
		"0xa.dev":                  {"", ""},
		"1e100":                    {"", ""},
	} {
		if got := reasonOf(closed.Judge("https://" + host + "/x")); got != tc.closed {
			t.Errorf("%s: %q, want %q", host, got, tc.closed)
		}
		if got := reasonOf(open.Judge("https://" + host + "/x")); got != tc.open {
			t.Errorf("%s, where loopback is open: %q, want %q", host, got, tc.open)
		}
	}
}

// TestJudge_TellsWhatIsEvident: who names a URL learns why it is refused, and not which
// addresses are those of agents.
func TestJudge_TellsWhatIsEvident(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	g, _ := w.guard(t, Deps{Resolver: names("nothing.test"), Refuses: func(at string) bool { return at == "agent.test:443" }})
	for place, evident := range map[string]bool{
		"https://agent.test/": false, "https://127.1/": true, "http://hooks.test/": true, "https://a:b@hooks.test/": true, "nothing": true,
		"https://hooks.test:99999/": true, "https://hooks.test:65536/": true, "https://hooks.test:0/": true,
	} {
		denied, ok := errors.AsType[*DeniedError](g.Judge(place))
		if !ok || denied.Evident != evident {
			t.Errorf("%s: %+v", place, denied)
		}
	}
	listed, _ := w.guard(t, Deps{Resolver: names("nothing.test"), Config: Config{AllowHosts: []string{"listed.test"}}})
	if denied, ok := errors.AsType[*DeniedError](listed.Judge("https://hooks.test/")); !ok || denied.Evident {
		t.Errorf("a host that is not listed: %+v", denied)
	}
}

// TestAnonymous_ShowsNoCertificate: no certificate is shown although the server asks for one.
func TestAnonymous_ShowsNoCertificate(t *testing.T) {
	t.Parallel()
	for _, anonymous := range []bool{false, true} {
		var shown atomic.Int32
		w := newWorld(t, func(_ http.ResponseWriter, r *http.Request) { shown.Store(int32(len(r.TLS.PeerCertificates))) })
		g, err := New(Deps{TLS: w.source, Anonymous: anonymous, Config: Config{AllowPrivate: []string{"127.0.0.1"}}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(g.CloseIdle)
		if err := call(t, g, w.server.URL, ""); err != nil || (shown.Load() == 0) != anonymous {
			t.Errorf("anonymous %v: %d certificates were shown, %v", anonymous, shown.Load(), err)
		}
	}
}

// TestReached_OnlyNamedHosts: the addresses of hosts that the operator named are remembered
// once they were called, as long as they are named, and no others, within bounds.
func TestReached_OnlyNamedHosts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	g, _ := w.guard(t, Deps{Resolver: names("agent.test", []string{publicIP})})
	_ = call(t, g, "https://agent.test/", "")
	if g.Reached(publicIP + ":443") {
		t.Error("the address of a host that no configuration names is remembered")
	}
	g.Allow("agent.test:443")
	g.CloseIdle()
	_ = call(t, g, "https://agent.test/", "")
	if !g.Reached(publicIP + ":443") {
		t.Error("the address of a named host is not remembered")
	}
	g.Allow("twin.test:443")
	g.reached.add(target{host: "twin.test", port: "443"}, []netip.Addr{netip.MustParseAddr(publicIP)})
	g.Disallow("agent.test:443")
	if !g.Reached(publicIP + ":443") {
		t.Error("the address is forgotten although another named host is there")
	}
	g.Disallow("twin.test:443")
	if g.Reached(publicIP + ":443") {
		t.Error("the address of hosts that are named no longer is refused still")
	}
	for i := range maxReached + 1 {
		g.reached.add(target{host: "many.test", port: "1"}, []netip.Addr{netip.AddrFrom4([4]byte{1, byte(i >> 16), byte(i >> 8), byte(i)})})
	}
	if len(g.reached.at) > maxReached {
		t.Errorf("%d addresses are remembered", len(g.reached.at))
	}
}
