package credentials

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
	"github.com/aepb/aepb-gateway/gateway/transport/stdio"
)

// endpoint plays a token endpoint without a network.
type endpoint struct {
	mu     sync.Mutex
	forms  []url.Values
	at     []time.Time
	answer func(form url.Values) (status int, media, body string)
	delay  time.Duration
}

func (e *endpoint) DoAs(r *http.Request, _ ect.Identity) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	e.forms, e.at = append(e.forms, form), append(e.at, time.Now())
	answer := e.answer
	e.mu.Unlock()
	select {
	case <-time.After(e.delay):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	status, media, text := answer(form)
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {media}}, Body: io.NopCloser(strings.NewReader(text))}, nil
}

func (e *endpoint) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.forms)
}

// says has the endpoint give tokens with a number, which live for so many seconds.
func (e *endpoint) says(seconds int) {
	n := 0
	e.replaces(func(url.Values) (int, string, string) {
		n++
		return http.StatusOK, "application/json", fmt.Sprintf(`{"access_token":"token-%d","token_type":"Bearer","expires_in":%d}`, n, seconds)
	})
}

func (e *endpoint) replaces(answer func(url.Values) (int, string, string)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.answer = answer
}

const (
	agentURL = "https://agent.test/mcp"
	theKey   = "client-secret-of-the-gateway"
)

func serviceOf(t *testing.T, e *endpoint, change func(*Config)) *Service {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(theKey+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := New(Deps{Client: e, NewID: func() string { return "id" }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	c := Config{Origins: []string{"https://agent.test:443"}, OAuth: &OAuth{TokenURL: "https://as.test/token", ClientID: "gw", SecretFile: file}}
	if change != nil {
		change(&c)
	}
	s.Use(map[string]Config{"agent": c})
	return s
}

func requestTo(ctx context.Context, t *testing.T, at string, purpose egress.Purpose) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(egress.WithPurpose(ctx, purpose), http.MethodPost, at, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// shows demands that a request shows a token; empty: that there is none.
func shows(t *testing.T, s *Service, want string) {
	t.Helper()
	got, err := s.For(requestTo(t.Context(), t, agentURL, egress.Purpose{Agent: "agent"}))
	if want != "" {
		want = "Bearer " + want
	}
	if err != nil && want != "" || got.Value != want {
		t.Errorf("got %q %v, want %q", got.Value, err, want)
	}
}

func TestService_RenewsBeforeTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &endpoint{}
		e.says(1000)
		s := serviceOf(t, e, nil)
		for range 3 {
			shows(t, s, "token-1")
		}
		time.Sleep(799 * time.Second)
		shows(t, s, "token-1")
		time.Sleep(2 * time.Second)
		shows(t, s, "token-1") // which has it renewed
		synctest.Wait()
		shows(t, s, "token-2")
		e.replaces(func(url.Values) (int, string, string) { return http.StatusBadGateway, "text/html", "<html>" })
		time.Sleep(900 * time.Second)
		for range 3 { // one attempt
			shows(t, s, "token-2")
			synctest.Wait()
		}
		if n := e.count(); n != 3 {
			t.Errorf("%d requests, want 3", n)
		}
		time.Sleep(101 * time.Second)
		shows(t, s, "")
		synctest.Wait()
		if status, _ := s.Status("agent"); status.Failed == "" || status.Kind != KindOAuth {
			t.Errorf("%+v", status)
		}
	})
}

func TestRenewal_IsBeforeTheEnd(t *testing.T) {
	t.Parallel()
	for life, want := range map[time.Duration]time.Duration{
		time.Hour: 48 * time.Minute, 300 * time.Second: 240 * time.Second, 200 * time.Second: 140 * time.Second,
		100 * time.Second: 50 * time.Second, time.Second: time.Second / 2,
	} {
		if got := renewal(life); got != want {
			t.Errorf("%s: %s, want %s", life, got, want)
		}
	}
}

// TestService_FetchesOnce: many requests wait for one fetch, and after a failure there is one attempt a second.
func TestService_FetchesOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &endpoint{delay: 3 * time.Second}
		e.replaces(func(url.Values) (int, string, string) { return http.StatusServiceUnavailable, "text/html", theKey })
		s := serviceOf(t, e, nil)
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() { shows(t, s, "") })
		}
		all.Wait()
		if n := e.count(); n != 1 {
			t.Errorf("%d requests for 100 waiting ones", n)
		}
		e.delay = 0
		for range 100 {
			shows(t, s, "")
			time.Sleep(100 * time.Millisecond)
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		for i := range e.at[1:] {
			if pause := e.at[i+1].Sub(e.at[i]); pause < time.Second {
				t.Errorf("attempts %s apart", pause)
			}
		}
		if len(e.at) < 9 || len(e.at) > 12 {
			t.Errorf("%d attempts in 10 s", len(e.at))
		}
	})
}

// TestService_HostileAnswers: whatever a token endpoint answers, the error is typed, and quotes nothing.
func TestService_HostileAnswers(t *testing.T) {
	t.Parallel()
	const good = `"access_token":"abc","token_type":"Bearer"`
	for name, answer := range map[string]struct {
		status      int
		media, body string
		want        string // token; empty: an error
	}{
		"no end":            {200, "application/json", `{` + good + `}`, "abc"},
		"the end as text":   {200, "application/json; charset=utf-8", `{` + good + `,"expires_in":"60"}`, "abc"},
		"an end of ages":    {200, "application/json", `{` + good + `,"expires_in":1e300}`, "abc"},
		"negative":          {200, "application/json", `{` + good + `,"expires_in":-1}`, ""},
		"zero":              {200, "application/json", `{` + good + `,"expires_in":0}`, ""},
		"no number":         {200, "application/json", `{` + good + `,"expires_in":"soon"}`, ""},
		"HTML":              {200, "text/html", "<html>" + theKey, ""},
		"HTML as JSON":      {200, "application/json", "<html>" + theKey, ""},
		"huge":              {200, "application/json", `{` + good + `,"x":"` + strings.Repeat("x", maxAnswer) + `"}`, ""},
		"a huge token":      {200, "application/json", `{"token_type":"bearer","access_token":"` + strings.Repeat("x", maxToken+1) + `"}`, ""},
		"a line in a token": {200, "application/json", `{"token_type":"bearer","access_token":"a\r\nX-Evil: 1"}`, ""},
		"no token":          {200, "application/json", `{"token_type":"bearer"}`, ""},
		"another type":      {200, "application/json", `{"token_type":"DPoP","access_token":"abc"}`, ""},
		"a redirect":        {302, "text/html", "", ""},
		"a refusal":         {400, "application/json", `{"error":"invalid_client","error_description":"` + theKey + `"}`, ""},
		"a word of its own": {400, "application/json", `{"error":"` + theKey + `"}`, ""},
		"created":           {201, "application/json", `{` + good + `}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := &endpoint{answer: func(url.Values) (int, string, string) { return answer.status, answer.media, answer.body }}
			s := serviceOf(t, e, nil)
			got, err := s.For(requestTo(t.Context(), t, agentURL, egress.Purpose{Agent: "agent"}))
			if answer.want != "" {
				if err != nil || got.Value != "Bearer "+answer.want {
					t.Fatalf("got %q %v", got.Value, err)
				}
				return
			}
			missing, ok := errors.AsType[*transport.CredentialError](err)
			if !ok || missing.Caller || strings.Contains(err.Error()+fmt.Sprint(missing.Err), theKey) {
				t.Errorf("got %q %v", got.Value, err)
			}
		})
	}
}

func TestService_SlowEndpoint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &endpoint{delay: time.Hour}
		s := serviceOf(t, e, nil)
		begun := time.Now()
		shows(t, s, "")
		if took := time.Since(begun); took != fetchLimit {
			t.Errorf("it took %s", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		time.Sleep(time.Second)
		if _, err := s.For(requestTo(ctx, t, agentURL, egress.Purpose{Agent: "agent"})); err == nil {
			t.Error("a token")
		}
	})
}

// TestService_WhereItIsShown: at the configured origin, and for the agent that it is for.
func TestService_WhereItIsShown(t *testing.T) {
	t.Parallel()
	e := &endpoint{}
	e.says(100)
	s := serviceOf(t, e, nil)
	for at, want := range map[string]bool{
		agentURL: true, "https://AGENT.test./else": true, "https://agent.test:443/": true, "https://agent.test:444/": false,
		"http://agent.test/": false, "https://evil.test/": false, "https://agent.test.evil.test/": false, "https://agent.test@evil.test/": false,
	} {
		got, err := s.For(requestTo(t.Context(), t, at, egress.Purpose{Agent: "agent"}))
		if err != nil || (got.Value != "") != want {
			t.Errorf("%s: %t %v", at, got.Value != "", err)
		}
	}
	if got, err := s.For(requestTo(t.Context(), t, agentURL, egress.Purpose{Agent: "other"})); err != nil || got.Value != "" {
		t.Error("another agent at the same origin gets it", err)
	}
	s.Use(nil)
	if got, err := s.For(requestTo(t.Context(), t, agentURL, egress.Purpose{Agent: "agent"})); err != nil || got.Value != "" {
		t.Error("shown after it was taken back", err)
	}
}

// exchanging answers an exchange with a token that names the subject.
func exchanging(form url.Values) (int, string, string) {
	subject := form.Get("subject_token")
	switch {
	case form.Get("grant_type") == grantClient:
		subject = "gateway"
	case strings.HasPrefix(subject, "bad"):
		return http.StatusBadRequest, "application/json", `{"error":"invalid_grant"}`
	}
	return http.StatusOK, "application/json", `{"access_token":"for-` + subject + `","token_type":"bearer","expires_in":300}`
}

func TestService_Exchange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &endpoint{answer: exchanging}
		s := serviceOf(t, e, func(c *Config) { c.OAuth.Exchange, c.OAuth.Audience = true, []string{"agent"} })
		for caller := range manyCallers {
			id := ect.Identity(fmt.Sprint("spiffe://a/", caller))
			ctx := transport.WithSubjectToken(t.Context(), fmt.Sprint("of-", caller), "")
			got, err := s.For(requestTo(ctx, t, agentURL, egress.Purpose{Agent: "agent", Caller: id}))
			if want := fmt.Sprint("Bearer for-of-", caller); err != nil || got.Value != want {
				t.Fatalf("%q %v", got.Value, err)
			}
		}
		if n := len(s.tokens.table); n != maxTokens || s.tokens.bytes > maxTokensBytes || len(s.tokens.callers) != maxTokens || len(s.flights) != 0 {
			t.Errorf("%d tokens, %d bytes, %d callers", n, s.tokens.bytes, len(s.tokens.callers))
		}
		before := e.count()
		for i := range 10 * maxCallers {
			ctx := transport.WithSubjectToken(t.Context(), fmt.Sprint("many-", i), "")
			if _, err := s.For(requestTo(ctx, t, agentURL, egress.Purpose{Agent: "agent", Caller: "spiffe://a/greedy"})); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(s.tokens.callers["spiffe://a/greedy"]); n != maxCallers || e.count()-before != 10*maxCallers {
			t.Errorf("%d tokens of one caller", n)
		}
		// Without a token of its own a caller is refused, and one whose token is refused stops no other.
		if _, err := s.For(requestTo(t.Context(), t, agentURL, egress.Purpose{Agent: "agent", Caller: "spiffe://a/1"})); !refusedCaller(err) {
			t.Errorf("without a token: %v", err)
		}
		before = e.count()
		for range 5 {
			bad := transport.WithSubjectToken(t.Context(), "bad", "urn:ietf:params:oauth:token-type:jwt")
			if _, err := s.For(requestTo(bad, t, agentURL, egress.Purpose{Agent: "agent", Caller: "spiffe://a/bad"})); !refusedCaller(err) {
				t.Errorf("a bad token: %v", err)
			}
		}
		good := transport.WithSubjectToken(t.Context(), "good", "")
		if _, err := s.For(requestTo(good, t, agentURL, egress.Purpose{Agent: "agent", Caller: "spiffe://a/good"})); err != nil || e.count() != before+2 {
			t.Errorf("after a bad one: %v, %d requests", err, e.count()-before)
		}
		// Another token of the same caller has no use of the first one's.
		got, err := s.For(requestTo(transport.WithSubjectToken(t.Context(), "narrow", ""), t, agentURL, egress.Purpose{Agent: "agent", Caller: "spiffe://a/good"}))
		if err != nil || got.Value != "Bearer for-narrow" {
			t.Errorf("%q %v", got.Value, err)
		}
		own, err := s.For(requestTo(good, t, agentURL, egress.Purpose{Agent: "agent", Own: true}))
		if err != nil || own.Value != "Bearer for-gateway" {
			t.Errorf("%q %v", own.Value, err)
		}
	})
}

// TestAttack_TokenThatBreaksTheEndpoint: a caller with a token at which the token endpoint fails, again and again, stops no exchange of
// another caller. What stops all is a refusal of the gateway itself.
func TestAttack_TokenThatBreaksTheEndpoint(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status      int
		media, body string
		stops       bool
	}{
		"500":          {http.StatusInternalServerError, "text/html", "<html>", false},
		"odd error":    {http.StatusBadRequest, "application/json", `{"error":"odd"}`, false},
		"no JSON":      {http.StatusOK, "application/json", "{", false},
		"no token":     {http.StatusOK, "application/json", `{"access_token":"","token_type":"bearer"}`, false},
		"refused":      {http.StatusBadRequest, "application/json", `{"error":"invalid_grant"}`, false},
		"the gateway":  {http.StatusUnauthorized, "application/json", `{"error":"invalid_client"}`, true},
		"not its kind": {http.StatusBadRequest, "application/json", `{"error":"unauthorized_client"}`, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			e := &endpoint{answer: func(form url.Values) (int, string, string) {
				if form.Get("subject_token") == "evil" {
					return c.status, c.media, c.body
				}
				return exchanging(form)
			}}
			s := serviceOf(t, e, func(c *Config) { c.OAuth.Exchange = true })
			show := func(subject string) error {
				ctx := transport.WithSubjectToken(t.Context(), subject, "")
				_, err := s.For(requestTo(ctx, t, agentURL, egress.Purpose{Agent: "agent", Caller: ect.Identity("spiffe://a/" + subject)}))
				return err
			}
			for n := range 3 {
				if err := show("evil"); err == nil {
					t.Fatalf("%s: the endpoint did not fail", name)
				}
				if err := show(fmt.Sprint("good-", n)); (err != nil) != c.stops {
					t.Errorf("%s: another caller right after: %v", name, err)
				}
			}
			if requests := e.count(); !c.stops && requests != 4 {
				t.Errorf("%s: %d requests, want one for the bad token and three for the good ones", name, requests)
			}
		})
	}
}

// manyCallers is how many callers come.
const manyCallers = 10_000

func refusedCaller(err error) bool {
	missing, ok := errors.AsType[*transport.CredentialError](err)
	return ok && missing.Caller
}

// TestService_Refused: a token that was refused is fetched anew, but not twice within a second.
func TestService_Refused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &endpoint{}
		e.says(1000)
		s := serviceOf(t, e, nil)
		r := requestTo(t.Context(), t, agentURL, egress.Purpose{Agent: "agent"})
		first, err := s.For(r)
		if err != nil || s.Refused(r, first) {
			t.Error("fetched again at once", err)
		}
		time.Sleep(2 * time.Second)
		if !s.Refused(r, first) {
			t.Error("not fetched again")
		}
		shows(t, s, "token-2")
		if !s.Refused(r, first) || e.count() != 2 {
			t.Error("a newer one is not used")
		}
		shows(t, s, "token-2")
	})
}

func TestService_FilesAreReadAgain(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	synctest.Test(t, func(t *testing.T) {
		write := func(text string) {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write("one\n")
		s := serviceOf(t, &endpoint{}, func(c *Config) { c.OAuth, c.Bearer = nil, &Bearer{TokenFile: file} })
		shows(t, s, "one")
		write("two")
		shows(t, s, "one")
		time.Sleep(fileFresh)
		shows(t, s, "two")
		write("three")
		r := requestTo(t.Context(), t, agentURL, egress.Purpose{Agent: "agent"})
		if !s.Refused(r, bearer("two")) || s.Refused(r, bearer("three")) {
			t.Error("after 401 the file counts")
		}
		shows(t, s, "three")
		time.Sleep(fileFresh)
		write("a\nb")
		shows(t, s, "")
		if status, _ := s.Status("agent"); status.Failed == "" || strings.Contains(status.Failed, "a\nb") {
			t.Errorf("%+v", status)
		}
	})
}

func TestService_Command(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ script, want string }{
		"plain":     {"echo abc", "abc"},
		"JSON":      {`echo '{"token":"def","expires_in":60}'`, "def"},
		"variables": {`echo "$WORD-$GATEWAY_SECRET_OF_TEST"`, "listed-"},
		"a failure": {"echo " + theKey + "; exit 3", ""},
		"too much":  {"head -c 100000 /dev/zero", ""},
		"ended":     {`echo '{"token":"def","expires_in":-60}'`, ""},
		"nothing":   {"true", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serviceOf(t, &endpoint{}, func(c *Config) {
				c.OAuth, c.Bearer = nil, &Bearer{Command: stdio.Program{Command: []string{"sh", "-c", tc.script}, Env: map[string]string{"WORD": "listed"}}}
			})
			shows(t, s, tc.want)
			if status, _ := s.Status("agent"); (status.Failed != "") != (tc.want == "") || strings.Contains(status.Failed, theKey) {
				t.Errorf("%+v", status)
			}
		})
	}
}

// TestAttack_FetchOfFormerConfiguration: whoever runs the former place of an agent gets the token of the new one, or the
// new one that of the former, by a fetch that is under way while the configuration changes.
func TestAttack_FetchOfFormerConfiguration(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &endpoint{delay: time.Second, answer: func(form url.Values) (int, string, string) {
			return http.StatusOK, "application/json", `{"access_token":"for-` + form.Get("audience") + `","token_type":"bearer","expires_in":300}`
		}}
		s := serviceOf(t, e, func(c *Config) { c.OAuth.Audience = []string{"former"} })
		former := requestTo(t.Context(), t, agentURL, egress.Purpose{Agent: "agent"})
		var first egress.Credential
		var asks sync.WaitGroup
		asks.Go(func() { first, _ = s.For(former) })
		synctest.Wait()
		next := s.agents["agent"].config
		oauth := *next.OAuth
		oauth.Audience, next.OAuth, next.Origins = []string{"next"}, &oauth, []string{"https://next.test:443"}
		s.Use(map[string]Config{"agent": next})
		for range 2 { // also while only its own is under way
			got, err := s.For(requestTo(t.Context(), t, "https://next.test/", egress.Purpose{Agent: "agent"}))
			if err != nil || got.Value != "Bearer for-next" {
				t.Errorf("the new place is shown %q %v", got.Value, err)
			}
		}
		if asks.Wait(); first.Value != "Bearer for-former" || e.count() != 2 || len(s.flights) != 0 {
			t.Errorf("the former place is shown %q; %d requests, %d under way", first.Value, e.count(), len(s.flights))
		}
	})
}
