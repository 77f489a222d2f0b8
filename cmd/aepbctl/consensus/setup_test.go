package consensus_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"

	command "github.com/aepb/aepb-gateway/cmd/aepbctl/consensus"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/policy/consensus"
	"github.com/aepb/aepb-gateway/policy/consensus/signed"
)

const domain = "example.org"

var errRefused = errors.New("refused")

type misuse struct{ error }

// setup is a group of three agents, the gateway that coordinates it, and an agent outside.
type setup struct {
	t         *testing.T
	authority *identity.Authority
	bundle    *identity.Bundle
	url       string
	gateway   *ect.Signer
	agents    map[string]*identity.SVID

	mu      sync.Mutex
	now     time.Time
	group   consensus.Group
	rounds  []*stored
	answers map[string]func(http.ResponseWriter) // in place of an answer, by method and path
	posts   []string                             // paths
	page    int
	changed chan struct{} // closed and replaced at each change
	onWait  func()        // called when a command waits
}

// stored is a round at the gateway.
type stored struct {
	round    consensus.Round
	messages []message
	approval string
}

type message struct {
	Kind     string          `json:"kind"`
	Message  json.RawMessage `json:"message"`
	Received time.Time       `json:"received"`

	by   ect.Identity
	hash string
}

func idOf(name string) ect.Identity { return ect.Identity("spiffe://" + domain + "/agents/" + name) }

func newSetup(t *testing.T) *setup {
	t.Helper()
	s := &setup{t: t, now: time.Now().UTC().Truncate(time.Second), agents: map[string]*identity.SVID{}, answers: map[string]func(http.ResponseWriter){}, page: 2, changed: make(chan struct{})}
	var err error
	s.authority, err = identity.NewAuthority(identity.AuthorityDeps{TrustDomain: domain})
	must(t, err)
	s.bundle, err = s.authority.Bundle()
	must(t, err)
	s.group = consensus.Group{
		Name: "ops", Mechanisms: consensus.Mechanisms(), Leader: idOf("a"), Deadlock: consensus.Oldest,
		Proposers: map[ect.Identity]int{idOf("a"): 3, idOf("b"): 1},
	}
	for _, name := range []string{"a", "b", "c", "outsider"} {
		s.agents[name], err = s.authority.Issue("/agents/"+name, identity.SVIDRequest{})
		must(t, err)
		if name != "outsider" {
			s.group.Members = append(s.group.Members, consensus.Member{ID: idOf(name), Weight: 1})
		}
	}
	own, err := s.authority.Issue("/gateway", identity.SVIDRequest{IPs: []net.IP{net.IPv4(127, 0, 0, 1)}})
	must(t, err)
	s.gateway = s.signer(own)
	source, err := identity.NewSource(own, s.bundle)
	must(t, err)
	server := httptest.NewUnstartedServer(s)
	server.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return source.ServerConfig(), nil }}
	server.StartTLS()
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (s *setup) signer(svid *identity.SVID) *ect.Signer {
	s.t.Helper()
	signer, err := ect.NewSigner(ect.SignerDeps{Key: svid.Key, Chain: svid.Chain, Issuer: svid.ID, Now: time.Now})
	must(s.t, err)
	return signer
}

func (s *setup) clock() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// sets the clock.
func (s *setup) at(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = now
}

func (s *setup) verifier() signed.Verifier {
	keys, err := identity.NewKeyRing(identity.KeyRingDeps{Bundle: s.bundle})
	must(s.t, err)
	v, err := ect.NewVerifier(ect.VerifierDeps{Keys: keys, Now: time.Now})
	must(s.t, err)
	return v
}

// run runs a command as an agent and returns what it printed.
func (s *setup) run(name string, args ...string) (out, errs string, err error) {
	var stdout, stderr bytes.Buffer
	cmd := command.Command(s.deps(name))
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(s.t.Context())
	return stdout.String(), stderr.String(), err
}

// does runs a command that has to succeed.
func (s *setup) does(name string, args ...string) string {
	s.t.Helper()
	out, errs, err := s.run(name, args...)
	if err != nil {
		s.t.Fatalf("%v: %v: %s%s", args, err, out, errs)
	}
	return strings.TrimSpace(out)
}

// fails runs a command that has to fail with a reason.
func (s *setup) fails(want, name string, args ...string) {
	s.t.Helper()
	out, errs, err := s.run(name, args...)
	if err == nil || !strings.Contains(err.Error()+out, want) {
		s.t.Errorf("%v: error %v, expected one with %q: %s%s", args, err, want, out, errs)
	}
}

func (s *setup) deps(name string) command.Deps {
	source, err := identity.NewSource(s.agents[name], s.bundle)
	must(s.t, err)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: source.ClientConfig("")}}
	call := func(ctx context.Context, method, path string, body []byte, want int) ([]byte, error) {
		request, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader(body))
		must(s.t, err)
		if body != nil {
			request.Header.Set("Content-Type", "application/json")
		}
		response, err := client.Do(request)
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(response.Body)
		if err = errors.Join(err, response.Body.Close()); err == nil && response.StatusCode != want {
			err = fmt.Errorf("HTTP %d: %s", response.StatusCode, text)
		}
		return text, err
	}
	return command.Deps{
		Public:   call,
		Operator: func(ctx context.Context, path string) ([]byte, error) { return call(ctx, "GET", "/api"+path, nil, 200) },
		Stream: func(ctx context.Context, path string) (io.ReadCloser, error) {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, http.NoBody)
			must(s.t, err)
			response, err := client.Do(request)
			if err != nil {
				return nil, err
			}
			return response.Body, nil
		},
		Signer:   func() (*ect.Signer, ect.Identity, error) { return s.signer(s.agents[name]), idOf(name), nil },
		Verifier: func(string, string) (signed.Verifier, error) { return s.verifier(), nil },
		Show:     func(cmd *cobra.Command, _ any, text func(io.Writer) error) error { return text(cmd.OutOrStdout()) },
		Misuse:   func(err error) error { return misuse{err} }, Refused: errRefused,
		Now: s.clock,
		Wait: func(_ context.Context, until time.Time) error {
			s.at(until)
			if s.onWait != nil {
				s.onWait()
			}
			return nil
		},
	}
}

// ServeHTTP is the gateway.
func (s *setup) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, "/events") && s.answers[r.Method+" "+r.URL.Path] == nil {
		s.events(w, r)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if answer := s.answers[r.Method+" "+r.URL.Path]; answer != nil {
		answer(w)
		return
	}
	peer, ok := identity.PeerOf(r.TLS)
	if !ok {
		s.problem(w, http.StatusUnauthorized, "no certificate")
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil || r.Method == http.MethodPost && r.Header.Get("Content-Type") != "application/json" {
		s.problem(w, http.StatusUnsupportedMediaType, "expected application/json")
		return
	}
	if r.Method == http.MethodPost {
		s.posts = append(s.posts, r.URL.Path)
	}
	path := strings.TrimPrefix(r.URL.Path, "/api")
	id, rest, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(path, "/consensus/rounds/"), "/consensus/"), "/")
	switch r.Method + " " + path {
	case "GET /consensus/groups/ops":
		s.write(w, http.StatusOK, s.groupView())
	case "POST /consensus/rounds":
		s.open(w, peer.ID, body) //nolint:contextcheck // it waits for nothing
	case "GET /consensus/rounds", "GET /consensus":
		s.list(w, r.URL.Query().Get("after"))
	default:
		i := slices.IndexFunc(s.rounds, func(r *stored) bool { return r.round.Proposal.Round == id })
		if i < 0 {
			s.problem(w, http.StatusNotFound, "no such round or group")
			return
		}
		s.about(w, r, s.rounds[i], rest, peer.ID, body)
	}
}

func (s *setup) about(w http.ResponseWriter, r *http.Request, st *stored, rest string, by ect.Identity, body []byte) {
	switch r.Method + " " + rest {
	case "GET ":
		s.write(w, http.StatusOK, s.view(st))
	case "GET votes":
		s.votes(w, st, by, r.URL.Query().Get("after"))
	case "POST votes":
		m, err := signed.Parse[consensus.Vote](body)
		if err == nil {
			err = errors.Join(m.Verify(r.Context(), s.verifier()), st.round.Admits(m.Content, s.now))
		}
		s.take(w, st, message{"vote", body, s.now, m.Content.Voter, m.Hash}, by, err)
	case "POST ack":
		m, err := signed.Parse[consensus.Ack](body)
		if err == nil {
			err = m.Verify(r.Context(), s.verifier())
		}
		s.take(w, st, message{"ack", body, s.now, m.Content.Participant, m.Hash}, by, err)
	default:
		s.problem(w, http.StatusMethodNotAllowed, "no such method")
	}
}

func (s *setup) take(w http.ResponseWriter, st *stored, m message, by ect.Identity, err error) {
	if err != nil || m.by != by {
		s.problem(w, http.StatusForbidden, fmt.Sprint("not taken: ", err))
		return
	}
	st.messages = append(st.messages, m)
	s.write(w, http.StatusAccepted, map[string]string{"hash": m.hash})
}

func (s *setup) open(w http.ResponseWriter, by ect.Identity, body []byte) {
	m, err := signed.Parse[consensus.Proposal](body)
	if err != nil || m.Content.Proposer != by || m.Verify(s.t.Context(), s.verifier()) != nil {
		s.problem(w, http.StatusBadRequest, fmt.Sprint("no proposal of the caller: ", err))
		return
	}
	var related []consensus.Related
	for _, other := range s.rounds {
		if other.round.Proposal.Topic() == m.Content.Topic() {
			related = append(related, other.round.Related())
		}
	}
	round, err := consensus.Open(consensus.Opening{
		Proposal: m.Content, Signed: m.Compact, Group: s.group, Since: func(ect.Identity) time.Time { return s.now.Add(-30 * 24 * time.Hour) },
		Related: related, Workflow: m.Content.Terms.Workflow, Now: s.now,
	})
	if err != nil {
		s.problem(w, http.StatusConflict, err.Error())
		return
	}
	s.rounds = append(s.rounds, &stored{round: round})
	w.Header().Set("Location", "/consensus/rounds/"+m.Content.Round)
	s.write(w, http.StatusCreated, s.view(s.rounds[len(s.rounds)-1]))
}

func (s *setup) list(w http.ResponseWriter, after string) {
	from, _ := strconv.Atoi(after)
	page := map[string]any{}
	views := []any{}
	for i := from; i < len(s.rounds); i++ {
		if i == from+s.page {
			page["next"] = strconv.Itoa(i)
			break
		}
		views = append(views, s.view(s.rounds[i]))
	}
	page["rounds"] = views
	s.write(w, http.StatusOK, page)
}

// votes are a caller's own messages before the tally, and afterwards those that the outcome rests on.
func (s *setup) votes(w http.ResponseWriter, st *stored, by ect.Identity, after string) {
	from, _ := strconv.Atoi(after)
	var all []message
	for _, m := range st.messages {
		if st.round.Phase.Decided() && slices.Contains(st.round.End.Counted, m.hash) || !st.round.Phase.Decided() && m.by == by {
			all = append(all, m)
		}
	}
	page := map[string]any{"messages": all[min(from, len(all)):min(from+s.page, len(all))]}
	if from+s.page < len(all) {
		page["next"] = strconv.Itoa(from + s.page)
	}
	s.write(w, http.StatusOK, page)
}

func (s *setup) events(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	for {
		s.mu.Lock()
		changed, st := s.changed, s.rounds[0]
		text, err := json.Marshal(s.view(st))
		over := st.round.Phase.Over()
		s.mu.Unlock()
		if err != nil {
			return
		}
		fmt.Fprintf(w, ": comment\nevent: other\ndata: {}\n\nevent: round\ndata: %s\n\n", text)
		w.(http.Flusher).Flush() //nolint:forcetypeassert // of the server
		if over {
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

func (s *setup) write(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func (s *setup) problem(w http.ResponseWriter, status int, detail string) {
	s.write(w, status, map[string]string{"code": "refused", "detail": detail})
}

func (s *setup) groupView() map[string]any {
	table := s.group.Weigh(func(ect.Identity) time.Time { return s.now.Add(-30 * 24 * time.Hour) }, s.now)
	var ids []ect.Identity
	quorum := map[consensus.Mechanism]int64{}
	for _, m := range table {
		ids = append(ids, m.ID)
	}
	for _, m := range consensus.Mechanisms() {
		quorum[m] = s.group.Floor(m, table)
	}
	return map[string]any{
		"group": "ops", "participants": ids, "weights": table, "weights_hash": consensus.WeightsHash(table), "mechanisms": s.group.Mechanisms,
		"quorum": quorum, "threshold": 50, "leader": s.group.LeaderAt(s.now), "deadlock": s.group.Deadlock, "longest_s": 86400, "proposers": []ect.Identity{idOf("a"), idOf("b")},
	}
}

func (s *setup) view(st *stored) map[string]any {
	r := st.round
	p, err := signed.Take[consensus.Proposal](r.Signed)
	must(s.t, err)
	v := map[string]any{
		"round": r.Proposal.Round, "phase": r.Phase, "opened": r.Opened, "changed": r.Changed, "deadline": r.Deadline(), "attempt": r.Attempt,
		"proposal": p, "rules": r.Rules, "wid": r.Workflow, "propose": ect.NewID(), "deadlock": r.Deadlock, "anomalies": r.End.Anomalies,
	}
	if st.approval != "" {
		v["approval"] = st.approval
	}
	if r.End.Signature != "" {
		o, err := signed.Take[consensus.Outcome](r.End.Signature)
		must(s.t, err)
		v["outcome"], v["commit"] = o, ect.NewID()
	}
	return v
}
