package directory_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// web serves documents from memory, under URLs, and counts.
type web struct {
	mu      sync.Mutex
	pages   map[string]func(*http.Request) (int, http.Header, string)
	request map[string]int
	ids     map[string]ect.Identity // that the server had to prove
	slow    time.Duration
	same    int // times that a document was unchanged
}

func (w *web) DoAs(r *http.Request, expected ect.Identity) (*http.Response, error) {
	w.mu.Lock()
	page := w.pages[r.URL.String()]
	w.request[r.URL.String()]++
	w.ids[r.URL.String()] = expected
	w.mu.Unlock()
	select {
	case <-time.After(w.slow):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	if page == nil {
		return nil, errors.New("connection refused")
	}
	status, header, body := page(r)
	if status == 0 {
		return nil, &egress.DeniedError{Host: r.URL.Host, Reason: egress.ReasonPrivate}
	}
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(body))}, nil
}

func (w *web) put(url string, status int, body string, fields ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := http.Header{"Content-Type": {"application/json"}}
	for i := 0; i < len(fields); i += 2 {
		h.Set(fields[i], fields[i+1])
	}
	w.pages[url] = func(r *http.Request) (int, http.Header, string) {
		if tag := h.Get("ETag"); tag != "" && r.Header.Get("If-None-Match") == tag {
			w.mu.Lock()
			w.same++
			w.mu.Unlock()
			return http.StatusNotModified, h, ""
		}
		return status, h, body
	}
}

func (w *web) drop(url string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pages, url)
}

func (w *web) count(url string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.request[url]
}

const home = "https://agent.example.com/.well-known/aepb"

func documentOf(id, level, life, endpoint string) string {
	return `{"aepb_version":"1.0","agent_id":"` + id + `","protocols":[{"id":"toy-v1","version":"1","endpoint":"` + endpoint +
		`"},{"id":"unknown-v1","version":"1","endpoint":"x:y"}],"ect_assurance_level":"` + level + `","lifecycle":{"version":"1.0.0",` + life + `}}`
}

const (
	activeLife   = `"status":"active","deprecated_at":null,"sunset_at":null,"successor":null`
	pricing      = "spiffe://example.com/agent/pricing"
	toyEndpoint  = "https://agent.example.com:8443/toy"
	elsewhere    = "https://elsewhere.example.net/toy"
	heirDocument = "https://heir.example.com/.well-known/aepb"
)

func retiredTo(successor string) string {
	return `"status":"retired","deprecated_at":null,"sunset_at":null,"successor":"` + successor + `"`
}

func newWeb(t *testing.T) (*directory.Directory, *web, *gate) {
	t.Helper()
	w := &web{pages: map[string]func(*http.Request) (int, http.Header, string){}, request: map[string]int{}, ids: map[string]ect.Identity{}}
	g := &gate{}
	says := &agentSays{}
	d, err := directory.New(directory.Deps{
		Describers: map[canonical.Binding]transport.Describer{binding: says}, Egress: g, Client: w,
		Now: time.Now, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return d, w, g
}

func described(name, url string) directory.Agent { return directory.Agent{Name: name, Capability: url} }

func list(t *testing.T, d *directory.Directory, agents ...directory.Agent) {
	t.Helper()
	for _, a := range agents {
		if err := d.Put(a); err != nil {
			t.Fatal(err)
		}
	}
}

func TestResolve_UsesTheDocument(t *testing.T) {
	t.Parallel()
	d, w, g := newWeb(t)
	w.put(home, 200, documentOf(pricing, "L3", activeLife, toyEndpoint))
	a := described("pricing", home)
	list(t, d, a)
	got, err := d.Resolve(t.Context(), a)
	if err != nil || got.ID != pricing || got.AssuranceLevel != ect.L3 || len(got.Endpoints) != 1 ||
		got.Endpoints[0].URL != toyEndpoint || got.Endpoints[0].Version != "" || got.Lifecycle.Status != directory.Active {
		t.Fatalf("got %+v %v", got, err)
	}
	if found, ok := d.Find(pricing); !ok || found.Name != "pricing" {
		t.Error("not found by the id that its document says")
	}
	if g.opened("agent.example.com:443") != 1 || g.opened("agent.example.com:8443") != 1 {
		t.Errorf("egress: %v", g.open)
	}
	if _, _, err := d.Describe(t.Context(), got, got.Endpoints[0], "c"); err != nil {
		t.Error(err)
	}
	d.Remove("pricing")
	if g.opened("agent.example.com:443") != 0 || g.opened("agent.example.com:8443") != 0 {
		t.Errorf("egress stays open: %v", g.open)
	}
}

func TestResolve_OpensNoEgressToOtherHosts(t *testing.T) {
	t.Parallel()
	d, w, g := newWeb(t)
	w.put(home, 200, documentOf(pricing, "L2", activeLife, elsewhere))
	a := described("pricing", home)
	list(t, d, a)
	if _, err := d.Resolve(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if g.opened("elsewhere.example.net:443") != 0 {
		t.Error("a document opened egress to a host that no operator named")
	}
}

func TestResolve_RequiresTheConfiguredID(t *testing.T) {
	t.Parallel()
	d, w, _ := newWeb(t)
	w.put(home, 200, documentOf(pricing, "L2", activeLife, toyEndpoint))
	a := described("pricing", home)
	a.ID = "spiffe://example.com/agent/other"
	list(t, d, a)
	var refused *directory.DocumentError
	if _, err := d.Resolve(t.Context(), a); !errors.As(err, &refused) {
		t.Errorf("got %v", err)
	}
	if w.ids[home] != a.ID {
		t.Errorf("the server had to prove %q", w.ids[home])
	}
}

// TestDocument_HTTPCaching walks through the rules of HTTP caching (AEPB-09).
func TestDocument_HTTPCaching(t *testing.T) {
	t.Parallel()
	good := documentOf(pricing, "L2", activeLife, toyEndpoint)
	for name, tc := range map[string]struct {
		fields []string
		fresh  time.Duration
	}{
		"nothing said":    {nil, time.Hour},
		"max-age":         {[]string{"Cache-Control", "public, max-age=5"}, 5 * time.Second},
		"max-age and age": {[]string{"Cache-Control", "max-age=60", "Age", "20"}, 40 * time.Second},
		"too much":        {[]string{"Cache-Control", "max-age=99999999999999999999"}, 24 * time.Hour},
		"expires":         {[]string{"Date", "Mon, 02 Jan 2006 15:04:05 GMT", "Expires", "Mon, 02 Jan 2006 15:05:05 GMT"}, time.Minute},
		"expired":         {[]string{"Expires", "0"}, 0},
		"max-age wins":    {[]string{"Expires", "0", "Cache-Control", "max-age=7"}, 7 * time.Second},
		"no-store":        {[]string{"Cache-Control", "no-store"}, 0},
		"no-cache":        {[]string{"Cache-Control", "max-age=60, no-cache"}, 0},
		"nonsense":        {[]string{"Cache-Control", "max-age=soon"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d, w, _ := newWeb(t)
				w.put(home, 200, good, tc.fields...)
				a := described("a", home)
				list(t, d, a)
				ask := func(want int) {
					t.Helper()
					if _, err := d.Resolve(t.Context(), a); err != nil || w.count(home) != want {
						t.Errorf("%v: fetched %d times, want %d", err, w.count(home), want)
					}
				}
				ask(1)
				if tc.fresh == 0 {
					ask(2)
					return
				}
				time.Sleep(tc.fresh - time.Millisecond)
				ask(1)
				time.Sleep(2 * time.Millisecond)
				ask(2)
			})
		})
	}
}

func TestDocument_Revalidation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, w, _ := newWeb(t)
		w.put(home, 200, documentOf(pricing, "L2", activeLife, toyEndpoint), "ETag", `"1"`, "Cache-Control", "max-age=10")
		a := described("a", home)
		list(t, d, a)
		for i := 1; i <= 3; i++ { // 200, 304, 304
			got, err := d.Resolve(t.Context(), a)
			if err != nil || got.ID != pricing || w.count(home) != i {
				t.Fatalf("%d: %v %v, fetched %d times", i, got.ID, err, w.count(home))
			}
			time.Sleep(11 * time.Second)
		}
		if w.same != 2 {
			t.Errorf("%d documents were unchanged, want 2", w.same)
		}
		w.put(home, 200, documentOf(pricing+"2", "L2", activeLife, toyEndpoint), "ETag", `"2"`)
		if got, err := d.Resolve(t.Context(), a); err != nil || got.ID != pricing+"2" {
			t.Errorf("after a change: %v %v", got.ID, err)
		}
	})
}

func TestDocument_StaleAndNegativeCaching(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, w, _ := newWeb(t)
		w.put(home, 200, documentOf(pricing, "L2", activeLife, toyEndpoint), "Cache-Control", "max-age=10")
		a := described("a", home)
		list(t, d, a)
		if _, err := d.Resolve(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		w.drop(home)
		time.Sleep(time.Minute)
		for range 5 {
			if got, err := d.Resolve(t.Context(), a); err != nil || got.ID != pricing {
				t.Fatalf("a server that is down ends an agent at once: %v", err)
			}
		}
		if got := w.count(home); got != 2 {
			t.Errorf("asked %d times within two seconds, want 2", got)
		}
		time.Sleep(time.Hour)
		var unreachable *transport.UnreachableError
		for range 5 {
			if _, err := d.Resolve(t.Context(), a); !errors.As(err, &unreachable) {
				t.Fatalf("a stale document is used for ever: %v", err)
			}
		}
		if got := w.count(home); got != 3 {
			t.Errorf("a failure is not remembered: asked %d times", got)
		}
		w.put(home, 200, documentOf(pricing, "L2", activeLife, toyEndpoint))
		time.Sleep(3 * time.Second)
		if _, err := d.Resolve(t.Context(), a); err != nil {
			t.Errorf("after the pause: %v", err)
		}
	})
}

// TestDocument_EgressDenialIsNeverStale: what egress refuses is refused at once.
func TestDocument_EgressDenialIsNeverStale(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, w, _ := newWeb(t)
		w.put(home, 200, documentOf(pricing, "L2", activeLife, toyEndpoint), "Cache-Control", "max-age=1")
		a := described("a", home)
		list(t, d, a)
		if _, err := d.Resolve(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		w.put(home, 0, "")
		time.Sleep(2 * time.Second)
		var denied *egress.DeniedError
		if _, err := d.Resolve(t.Context(), a); !errors.As(err, &denied) {
			t.Errorf("got %v", err)
		}
	})
}

// TestDocument_ServerAnswerReplacesStale: a server that answers takes its old document back,
// whatever it answers, unless it says that it is in trouble.
func TestDocument_ServerAnswerReplacesStale(t *testing.T) {
	t.Parallel()
	good := documentOf(pricing, "L2", activeLife, toyEndpoint)
	for name, tc := range map[string]struct {
		status int
		body   string
		stored bool
	}{
		"not there":      {404, "", false},
		"a redirect":     {302, "", false},
		"no JSON":        {200, "<html>", false},
		"a member twice": {200, strings.Replace(good, "{", `{"agent_id":"spiffe://x/y",`, 1), false},
		"in trouble":     {503, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d, w, _ := newWeb(t)
				w.put(home, 200, good, "Cache-Control", "max-age=1")
				a := described("a", home)
				list(t, d, a)
				if _, err := d.Resolve(t.Context(), a); err != nil {
					t.Fatal(err)
				}
				w.put(home, tc.status, tc.body)
				time.Sleep(2 * time.Second)
				_, err := d.Resolve(t.Context(), a)
				var answer *directory.DocumentError
				if (err == nil) != tc.stored || err != nil && !errors.As(err, &answer) {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

func TestDocument_FetchedOnceForAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, w, _ := newWeb(t)
		w.slow = time.Second
		w.put(home, 200, documentOf(pricing, "L2", activeLife, toyEndpoint))
		a, b := described("a", home), described("b", home)
		list(t, d, a, b)
		impatient, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		var group sync.WaitGroup
		group.Go(func() {
			if _, err := d.Resolve(impatient, a); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("an impatient caller got %v", err)
			}
		})
		for i := range 20 {
			group.Go(func() {
				if _, err := d.Resolve(t.Context(), []directory.Agent{a, b}[i%2]); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		if got := w.count(home); got != 1 {
			t.Errorf("fetched %d times", got)
		}
	})
}

func TestDocument_ResponsesRefused(t *testing.T) {
	t.Parallel()
	good := documentOf(pricing, "L2", activeLife, toyEndpoint)
	for name, tc := range map[string]struct {
		status int
		body   string
		fields []string
	}{
		"redirect":        {302, "", []string{"Location", "https://agent.example.com/other"}},
		"not found":       {404, good, nil},
		"server error":    {500, good, nil},
		"no content":      {204, "", nil},
		"html":            {200, good, []string{"Content-Type", "text/html"}},
		"no type":         {200, good, []string{"Content-Type", ""}},
		"compressed":      {200, good, []string{"Content-Encoding", "gzip"}},
		"too long":        {200, good + strings.Repeat(" ", directory.MaxDocument), nil},
		"unasked for 304": {304, "", nil},
	} {
		d, w, _ := newWeb(t)
		w.put(home, tc.status, tc.body, tc.fields...)
		a := described("a", home)
		list(t, d, a)
		var refused *directory.DocumentError
		if _, err := d.Resolve(t.Context(), a); !errors.As(err, &refused) || (name == "redirect") != strings.Contains(refused.Reason, "not followed") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// TestDocument_FetchedAgainWhenListedAgain: an operator who lists an agent again has it asked again; and
// a retirement is not believed for longer than a minute.
func TestDocument_FetchedAgainWhenListedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, w, _ := newWeb(t)
		w.put(home, http.StatusGone, "")
		a := described("a", home)
		ask := func(want int) {
			t.Helper()
			var over *directory.EndedError
			if _, err := d.Reach(t.Context(), a); !errors.As(err, &over) || w.count(home) != want {
				t.Errorf("%v: asked %d times, want %d", err, w.count(home), want)
			}
		}
		list(t, d, a)
		ask(1)
		ask(1)
		list(t, d, a)
		ask(2)
		time.Sleep(time.Minute)
		ask(3)
	})
}

func TestDocument_SlowFetchTimesOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, w, _ := newWeb(t)
		w.slow = time.Hour
		a := described("a", home)
		list(t, d, a)
		began := time.Now()
		var late *transport.TimeoutError
		if _, err := d.Resolve(t.Context(), a); !errors.As(err, &late) || time.Since(began) > 11*time.Second {
			t.Errorf("got %v after %v", err, time.Since(began))
		}
	})
}

func TestReach_FollowsASuccessor(t *testing.T) {
	t.Parallel()
	const next = "https://heir.example.com/.well-known/aepb"
	for name, tc := range map[string]struct {
		first  string // life of the first
		level  string // of the first
		heir   string // document of the heir; empty: there is none
		listed bool   // the heir is listed
		want   string // name of the agent reached; empty: refused
	}{
		"to a listed one":           {retiredTo(next), "L2", documentOf(pricing+"3", "L2", activeLife, "https://heir.example.com/toy"), true, "heir"},
		"to a higher level":         {retiredTo(next), "L1", documentOf(pricing+"3", "L3", activeLife, "https://heir.example.com/toy"), true, "heir"},
		"not to a lower level":      {retiredTo(next), "L3", documentOf(pricing+"3", "L2", activeLife, "https://heir.example.com/toy"), true, ""},
		"not to an invalid one":     {retiredTo(next), "L2", `{}`, true, ""},
		"not to one that is gone":   {retiredTo(next), "L2", "", true, ""},
		"not where nobody allowed":  {retiredTo(next), "L2", documentOf(pricing+"3", "L2", activeLife, "https://heir.example.com/toy"), false, ""},
		"not in a circle":           {retiredTo(next), "L2", documentOf(pricing+"3", "L2", retiredTo(home), "https://heir.example.com/toy"), true, ""},
		"not to itself":             {retiredTo(home), "L2", "", true, ""},
		"nowhere without successor": {`"status":"draining","deprecated_at":null,"sunset_at":null,"successor":null`, "L2", "", true, ""},
	} {
		d, w, _ := newWeb(t)
		w.put(home, 200, documentOf(pricing, tc.level, tc.first, toyEndpoint))
		if tc.heir != "" {
			w.put(next, 200, tc.heir)
		}
		a := described("a", home)
		list(t, d, a)
		if tc.listed {
			list(t, d, described("heir", next))
		}
		got, err := d.Reach(t.Context(), a)
		var over *directory.EndedError
		switch {
		case tc.want != "" && (err != nil || got.Name != tc.want):
			t.Errorf("%s: got %s %v", name, got.Name, err)
		case tc.want == "" && !errors.As(err, &over):
			t.Errorf("%s: got %s %v", name, got.Name, err)
		}
		if !tc.listed && w.count(next) != 0 {
			t.Errorf("%s: the successor was asked", name)
		}
	}
}

func TestReach_EndsAfterThreeSuccessors(t *testing.T) {
	t.Parallel()
	place := func(i int) string { return "https://a" + strconv.Itoa(i) + ".example.com/doc" }
	for length, reached := range map[int]bool{3: true, 4: false} {
		d, w, _ := newWeb(t)
		for i := range length {
			w.put(place(i), 200, documentOf(pricing, "L2", retiredTo(place(i+1)), toyEndpoint))
			list(t, d, described("a"+strconv.Itoa(i), place(i)))
		}
		w.put(place(length), 200, documentOf(pricing, "L2", activeLife, toyEndpoint))
		list(t, d, described("last", place(length)))
		got, err := d.Reach(t.Context(), described("a0", place(0)))
		if (err == nil) != reached || (reached && got.Name != "last") {
			t.Errorf("after %d successors: %s %v", length, got.Name, err)
		}
	}
}

// TestReach_GoneWithSuccessorLink: the document's own URL answers 410 with the successor in a link,
// and the level that the agent had is the least for its successor.
func TestReach_GoneWithSuccessorLink(t *testing.T) {
	t.Parallel()
	for level, ok := range map[string]bool{"L2": false, "L3": true} {
		synctest.Test(t, func(t *testing.T) {
			d, w, _ := newWeb(t)
			w.put(home, 200, documentOf(pricing, "L3", activeLife, toyEndpoint), "Cache-Control", "max-age=1")
			w.put(heirDocument, 200, documentOf(pricing+"3", level, activeLife, "https://heir.example.com/toy"))
			a := described("a", home)
			list(t, d, a, described("heir", heirDocument))
			if _, err := d.Reach(t.Context(), a); err != nil {
				t.Fatal(err)
			}
			w.put(home, http.StatusGone, "", "Link", `<https://x.example/>; rel="next", <`+heirDocument+`>; rel="successor-version"`)
			time.Sleep(2 * time.Second)
			got, err := d.Reach(t.Context(), a)
			var over *directory.EndedError
			if ok && (err != nil || got.Name != "heir") {
				t.Errorf("got %s %v", got.Name, err)
			}
			if !ok && (!errors.As(err, &over) || over.Status != directory.Retired || over.Successor != heirDocument) {
				t.Errorf("got %s %v", got.Name, err)
			}
		})
	}
}

func TestAllowDocuments_HostPatterns(t *testing.T) {
	t.Parallel()
	d, w, g := newWeb(t)
	list(t, d, described("listed", home))
	if err := d.AllowDocuments(directory.Documents{Hosts: []string{"exact.example:8443", "*.partner.example"}, Rules: policy.Rules{Open: true}}); err != nil {
		t.Fatal(err)
	}
	if g.opened("exact.example:8443") != 1 || g.opened("partner.example") != 0 {
		t.Errorf("egress: %v", g.open)
	}
	for dest, want := range map[string]string{
		home:                                    "listed",
		"https://exact.example:8443/doc":        "https://exact.example:8443/doc",
		"https://EXACT.example:8443/doc":        "https://EXACT.example:8443/doc",
		"https://a.b.partner.example/doc":       "https://a.b.partner.example/doc",
		"https://exact.example/doc":             "",
		"https://partner.example/doc":           "",
		"https://evilpartner.example/doc":       "",
		"https://partner.example.evil/doc":      "",
		"https://x@exact.example:8443/doc":      "",
		"http://exact.example:8443/doc":         "",
		"https://exact.example:8443/a b":        "",
		"https://169.254.169.254/latest":        "",
		"https://exact.example:8443.evil/doc":   "",
		"https://evil/?.partner.example":        "",
		"https://evil.example#.partner.example": "",
	} {
		got, ok, err := d.Visitor(dest)
		var denied *egress.DeniedError
		if ok != (want != "") || got.Name != want || (!ok && !errors.As(err, &denied)) {
			t.Errorf("%s: got %q %v %v", dest, got.Name, ok, err)
		}
	}
	if _, ok, err := d.Visitor("pricing"); ok || err != nil {
		t.Errorf("a name is no document: %v", err)
	}
	// So many documents cannot be named that the gateway forgets its own agents or grows.
	w.put(home, 200, documentOf(pricing, "L2", activeLife, toyEndpoint))
	for i := range 2000 {
		place := fmt.Sprintf("https://a%d.partner.example/doc", i)
		at := fmt.Sprintf("a%d.partner.example:443", i)
		w.put(place, 200, documentOf(pricing, "L2", activeLife, "https://"+at+"/toy"))
		visitor, _, err := d.Visitor(place)
		if err != nil {
			t.Fatal(err)
		}
		resolved, err := d.Resolve(t.Context(), visitor)
		if err != nil || resolved.Listed() {
			t.Fatalf("%v %v", resolved.Name, err)
		}
		if g.opened(at) != 0 {
			t.Fatal("a document that a caller named opened egress")
		}
	}
	if got := d.Visitors(); got > 256 {
		t.Errorf("%d visitors are remembered", got)
	}
	if len(d.List()) != 1 {
		t.Errorf("%d agents are listed", len(d.List()))
	}
	if err := d.AllowDocuments(directory.Documents{}); err != nil || g.opened("exact.example:8443") != 0 {
		t.Errorf("%v, egress %v", err, g.open)
	}
	if _, ok, _ := d.Visitor("https://a.b.partner.example/doc"); ok {
		t.Error("what was allowed once is allowed for ever")
	}
	for _, bad := range []string{"", "https://x.example", "a/b", "*", "u@h", "a b", "*.*.x"} {
		if err := d.AllowDocuments(directory.Documents{Hosts: []string{bad}}); err == nil {
			t.Errorf("host %q is accepted", bad)
		}
	}
}

func TestPut_WithCapabilityURL(t *testing.T) {
	t.Parallel()
	d, _, _ := newWeb(t)
	both := agent("a", "https://a.example")
	both.Capability = home
	for name, bad := range map[string]directory.Agent{
		"both": both, "plain": described("a", "http://a.example/doc"), "no URL": described("a", "doc"), "space": described("a", "https://a.example/a b"),
	} {
		var refused *directory.InvalidAgentError
		if err := d.Put(bad); !errors.As(err, &refused) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if err := newDirectory(t, &agentSays{}, &gate{}, false).Put(described("a", home)); err == nil {
		t.Error("listed although nobody could fetch its document")
	}
}
