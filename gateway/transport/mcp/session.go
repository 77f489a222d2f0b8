package mcp

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
	"github.com/aepb/aepb-gateway/gateway/transport/mcp/channel"
	"github.com/aepb/aepb-gateway/gateway/transport/mcp/oldsse"
	"github.com/aepb/aepb-gateway/gateway/transport/stdio"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

const (
	maxSessions = 1024
	idleFor     = 10 * time.Minute
	closeWithin = 2 * time.Second
)

// session is a legacy server's answer to initialize.
type session struct {
	id      string // Mcp-Session-Id; empty: the server keeps none
	version string // as negotiated
}

// mark says in the header which session a request belongs to, and since
// 2025-06-18 in which revision it is.
func (s session) mark(h http.Header) {
	if s.version != "" && s.version != mcp.LegacyMarch {
		h.Set(headerVersion, s.version)
	}
	if s.id != "" {
		h.Set(headerSession, s.id)
	}
}

// sessionKey names a session. It belongs to one caller at one agent (R8), and to one
// revision: the requested one, and also the one that the server agreed to.
type sessionKey struct {
	agent     string // another agent may be where this one was
	url       string
	transport string // Endpoint.Transport
	server    ect.Identity
	caller    ect.Identity
	version   string
	requested string // what the server may ask, as it was told when the session began
	mirrors   string // the caller's own session; empty: none
}

// here reports whether the session uses a channel of this process, which no other replica has.
func (k sessionKey) here() bool { return stdio.IsProgram(k.url) || k.transport == TransportSSE }

func keyOf(ep transport.Endpoint, version string) sessionKey {
	modes := make([]string, len(ep.AnswerModes))
	for i, mode := range ep.AnswerModes {
		modes[i] = string(mode)
	}
	return sessionKey{ep.Agent, ep.URL, ep.Transport, ep.ID, ep.Caller, version, strings.Join(modes, " "), ep.Session}
}

// sessions is the bounded table of what was begun.
type sessions struct {
	now func() time.Time

	mu    sync.Mutex
	table map[sessionKey]*slot
}

// slot is one place in the table. The goroutine that holds its turn may begin the session.
type slot struct {
	turn    chan struct{}
	tries   int   // to begin another in place of one that is gone, which failed
	why     error // the last one did
	begun   bool
	current session
	who     *canonical.Description // the server's description of itself; not to be changed
	used    time.Time
}

// get finds or makes the slot of a key. If the table is full it evicts idle slots, then one
// of the caller that has the most. Servers expire sessions that no client ends.
func (s *sessions) get(key sessionKey) *slot {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if found, ok := s.table[key]; ok && now.Sub(found.used) < idleFor {
		found.used = now
		return found
	}
	if len(s.table) >= maxSessions {
		s.evict(now)
	}
	made := &slot{turn: make(chan struct{}, 1), used: now}
	s.table[key] = made
	return made
}

// evict removes a session: of the caller that has the most, the one that was used longest
// ago.
func (s *sessions) evict(now time.Time) {
	maps.DeleteFunc(s.table, func(_ sessionKey, one *slot) bool { return now.Sub(one.used) >= idleFor })
	if len(s.table) < maxSessions {
		return
	}
	has, most := map[ect.Identity]int{}, 0
	for key := range s.table {
		has[key.caller]++
		most = max(most, has[key.caller])
	}
	var oldest sessionKey
	var since time.Time
	for key, one := range s.table {
		if has[key.caller] == most && (since.IsZero() || one.used.Before(since)) {
			oldest, since = key, one.used
		}
	}
	delete(s.table, oldest)
}

// forget drops a session that is over, unless another has been begun meanwhile.
func (s *sessions) forget(key sessionKey, gone session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok := s.table[key]
	if !ok || !found.begun || found.current != gone {
		return
	}
	maps.DeleteFunc(s.table, func(_ sessionKey, one *slot) bool { return one == found })
}

// begin fills a slot. A request for the revision that the server agreed to finds it too,
// not only one for the revision that was asked for.
func (s *sessions) begin(key sessionKey, one *slot, current session, who *canonical.Description) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one.current, one.who, one.begun = current, who, true
	key.version = current.version
	if _, taken := s.table[key]; !taken && len(s.table) < maxSessions {
		s.table[key] = one
	}
}

// existing is the session of a slot, if that was begun and is another than the one that is gone.
func (s *sessions) existing(one *slot, gone session) (session, *canonical.Description, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return one.current, one.who, one.begun && (one.current != gone || gone == session{})
}

// holds reports whether there is a session in the table.
func (s *sessions) holds(key sessionKey) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok := s.table[key]
	return ok && found.begun
}

// failed counts a failure to begin another session, and gives why with that count.
func (s *sessions) failed(one *slot, err error) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		one.tries, one.why = one.tries+1, err
	}
	return one.tries, one.why
}

// replaced reports whether another session was begun in place of one.
func (s *sessions) replaced(key sessionKey, old session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok := s.table[key]
	return ok && found.begun && found.current != old
}

// drain empties the table. Sessions that are shared with other replicas are not
// ours to end.
func (s *sessions) drain(shared bool) map[sessionKey]session {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[sessionKey]session{}
	for key, one := range s.table {
		if one.begun && one.current.id != "" && (key.mirrors == "" || !shared || key.here()) {
			key.version = one.current.version // a slot may stand there twice
			out[key] = one.current
		}
	}
	s.table = map[sessionKey]*slot{}
	return out
}

// session gives the session of an agent and caller for which this legacy
// revision was asked, begun if need be, and who the server said it was. Several
// that need the same one wait for the first.
func (d *Dialer) session(ctx context.Context, ep transport.Endpoint, version string) (session, *canonical.Description, error) {
	return d.sessionAfter(ctx, ep, version, session{})
}

// sessionAfter gives the session as [Dialer.session] does, but another than the one that is
// gone. That one is kept until another has been begun: its server may refuse it for a while.
// What the server says to the first of several that miss it holds for those who waited.
func (d *Dialer) sessionAfter(ctx context.Context, ep transport.Endpoint, version string, gone session) (session, *canonical.Description, error) {
	key := keyOf(ep, version)
	one := d.sessions.get(key)
	if current, who, ok := d.sessions.existing(one, gone); ok {
		return current, who, nil
	}
	before, _ := d.sessions.failed(one, nil)
	l := &upstreamCall{d: d, ep: ep}
	select {
	case one.turn <- struct{}{}:
		defer func() { <-one.turn }()
	case <-ctx.Done():
		return session{}, nil, l.failed(ctx, ctx.Err())
	}
	if current, who, ok := d.sessions.existing(one, gone); ok {
		return current, who, nil
	}
	if tries, why := d.sessions.failed(one, nil); tries != before {
		return session{}, nil, why
	}
	current, who, err := beginOrFind(ctx, l, version, gone)
	if err != nil {
		if gone != (session{}) && ctx.Err() == nil {
			_, _ = d.sessions.failed(one, err)
		}
		return session{}, nil, err
	}
	d.sessions.begin(key, one, current, who)
	return current, who, nil
}

// beginOrFind begins a session, unless another replica has.
func beginOrFind(ctx context.Context, l *upstreamCall, version string, gone session) (session, *canonical.Description, error) {
	found, revision, err := l.d.sessionFor(ctx, l.ep, version)
	if err != nil || found.version != "" && found != gone {
		return found, nil, err
	}
	found, who, err := l.d.initialize(ctx, l, version)
	if err != nil {
		return session{}, nil, err
	}
	found, err = l.d.keep(ctx, l.ep, version, found, revision)
	return found, who, err
}

// initialize begins a session and reads who the server is. It may offer an
// older revision than the one that is asked for. Which one its answer is of, the
// answer alone says: it is read in the newest words.
func (d *Dialer) initialize(ctx context.Context, l *upstreamCall, version string) (session, *canonical.Description, error) {
	wire, err := d.encodeFor(l.ep.AnswerModes, &canonical.DescribeRequest{Client: cmp.Or(l.ep.Client, d.deps.Self)}, canonical.OpDescribe, version)
	if err != nil {
		return session{}, nil, err
	}
	response, err := l.post(ctx, wire, session{})
	if err != nil {
		return session{}, nil, l.failed(ctx, err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := l.read(ctx, response, wire)
	if err != nil {
		return session{}, nil, err
	}
	description, err := d.description(l, body, mcp.Legacy)
	if err != nil {
		return session{}, nil, err
	}
	if len(description.Versions) != 1 || !mcp.IsLegacy(description.Versions[0]) {
		return session{}, nil, l.bad("it speaks no revision that is spoken here")
	}
	s := session{id: response.Header.Get(headerSession), version: description.Versions[0]}
	return s, description, d.initialized(ctx, l, s)
}

// initialized ends the handshake.
func (d *Dialer) initialized(ctx context.Context, l *upstreamCall, s session) error {
	wire := translators.Wire{Body: []byte(`{"jsonrpc":"2.0","method":"` + mcp.MethodInitialized + `"}`)}
	response, err := l.post(ctx, wire, s)
	if err != nil {
		return l.failed(ctx, err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode >= http.StatusMultipleChoices {
		return l.refused(response, "it does not take the end of the handshake")
	}
	return nil
}

// Close ends the sessions at their servers, as far as that can be done within
// two seconds. The dialer can still be used and then begins new ones.
func (d *Dialer) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	for key, s := range d.sessions.drain(d.deps.Keeper != nil) {
		d.end(ctx, key, s)
	}
	d.channels.Close()
	d.old.Wait()
	d.tails.Wait()
}

// end ends a session at its server, as well as that can be done.
func (d *Dialer) end(ctx context.Context, key sessionKey, s session) {
	request, err := http.NewRequestWithContext(ctx, http.MethodDelete, key.url, http.NoBody)
	if err != nil {
		return
	}
	s.mark(request.Header)
	if response, err := d.do(request, key); err == nil {
		_ = response.Body.Close()
	}
}

// endAlone ends the session of a stream that is over.
func (d *Dialer) endAlone(ep transport.Endpoint, version string, s session) {
	key := keyOf(ep, version)
	d.sessions.forget(key, s)
	if s.id == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	d.end(ctx, key, s)
}

// Keeper keeps small records where every replica finds them, each in the group
// of its owner: a word, a space, the caller, a zero byte, and what is the caller's.
type Keeper interface {
	// Get finds a record; false: there is none (any more).
	Get(ctx context.Context, group, id string) (value []byte, revision uint64, ok bool, err error)
	// Swap writes a record if it is still at revision old (0: there must be
	// none); false: another writer was first.
	Swap(ctx context.Context, group, id string, old uint64, value []byte, until time.Time) (ok bool, err error)
	// Delete removes a record; one that is not there is no error.
	Delete(ctx context.Context, group, id string) error
	// All finds the records of a group by their ids, up to limit.
	All(ctx context.Context, group string, limit int) (map[string][]byte, error)
}

// upstream is the form in which a session with a server is kept.
type upstream struct{ ID, Version string }

// place is where the session with a server is kept that mirrors a caller's own.
func place(ep transport.Endpoint, version string) (group, id string) {
	key := keyOf(ep, version)
	sum := sha256.Sum256([]byte(strings.Join([]string{
		key.url, string(key.server), string(key.caller), key.version, key.requested, key.mirrors,
	}, "\x00")))
	return "upstream " + string(ep.Caller) + "\x00" + ep.Session, hex.EncodeToString(sum[:])
}

// shares reports whether all replicas use the session that mirrors a caller's own. One over a
// channel belongs to this process.
func (d *Dialer) shares(ep transport.Endpoint) bool {
	return d.deps.Keeper != nil && ep.Session != "" && !ep.Alone && !keyOf(ep, "").here()
}

// sessionFor finds a session that another replica has begun, and the revision of its record. A
// session without version: there is none.
func (d *Dialer) sessionFor(ctx context.Context, ep transport.Endpoint, version string) (session, uint64, error) {
	if !d.shares(ep) {
		return session{}, 0, nil
	}
	group, id := place(ep, version)
	value, revision, ok, err := d.deps.Keeper.Get(ctx, group, id)
	if err != nil || !ok {
		return session{}, 0, err
	}
	var u upstream
	readable := json.Unmarshal(value, &u) == nil
	if !readable || !mcp.IsLegacy(u.Version) {
		return session{}, revision, nil // a new one is begun in its place
	}
	return session{id: u.ID, version: u.Version}, revision, nil
}

// keep puts a session where every replica finds it, in place of what was there at that
// revision. If another replica was first, that one's is used by all.
func (d *Dialer) keep(ctx context.Context, ep transport.Endpoint, version string, s session, revision uint64) (session, error) {
	if !d.shares(ep) {
		return s, nil
	}
	group, id := place(ep, version)
	value, err := json.Marshal(upstream{s.id, s.version})
	if err != nil {
		return s, err
	}
	ok, err := d.deps.Keeper.Swap(ctx, group, id, revision, value, d.deps.Now().Add(sessionLife))
	if ok || err != nil {
		return s, err
	}
	if first, _, err := d.sessionFor(ctx, ep, version); first.version != "" || err != nil {
		return first, err
	}
	return s, nil
}

// sessionLife is how long an unused session lives.
const sessionLife = 30 * time.Minute

// Programs starts the programs of agents. *stdio.Host is one.
type Programs interface {
	Start(ctx context.Context, owner stdio.Owner, program stdio.Program, maxLine int) (*stdio.Process, error)
}

var _ Programs = (*stdio.Host)(nil)

// errNoPrograms refuses an agent that is a program: the dialer has no host for programs.
var errNoPrograms = errors.New("mcp: this gateway runs no programs: expected a URL")

// purposed says for which agent requests are where the context does not: at the end of a session no caller waits.
func purposed(ctx context.Context, agent string, caller ect.Identity) context.Context {
	if _, known := egress.PurposeFrom(ctx); known {
		return ctx
	}
	return egress.WithPurpose(ctx, egress.Purpose{Agent: agent, Caller: caller})
}

// do carries a request to the server of the endpoint. The key of a session costs more than
// servers over HTTP need of it.
func (l *upstreamCall) do(request *http.Request) (*http.Response, error) {
	if l.ep.Transport == "" && !stdio.IsProgram(l.ep.URL) {
		return l.d.deps.Client.DoAs(request.WithContext(purposed(request.Context(), l.ep.Agent, l.ep.Caller)), l.ep.ID)
	}
	return l.d.do(request, keyOf(l.ep, ""))
}

// do carries a request to the server of a session: over HTTP, or on a channel to it.
func (d *Dialer) do(request *http.Request, to sessionKey) (*http.Response, error) {
	request = request.WithContext(purposed(request.Context(), to.agent, to.caller))
	if !to.here() {
		return d.deps.Client.DoAs(request, to.server)
	}
	key := channel.Key{Agent: to.agent, URL: to.url, Caller: to.caller}
	if to.transport == TransportSSE {
		return d.channels.Do(request, key, func(ctx context.Context) (channel.Channel, error) {
			stream, err := d.old.Open(ctx, oldsse.Owner{Agent: to.agent, Caller: to.caller, Server: to.server}, to.url)
			if err != nil {
				return nil, err // no typed nil
			}
			return stream, nil
		})
	}
	if d.deps.Programs == nil {
		return nil, errNoPrograms
	}
	program, err := stdio.Parse(to.url)
	if err != nil {
		return nil, err
	}
	if key.Shared = program.Shared; key.Shared {
		key.Caller = ""
	}
	request = request.WithContext(stdio.For(request.Context(), to.caller)) //nolint:contextcheck // the channel outlives the request
	return d.channels.Do(request, key, func(ctx context.Context) (channel.Channel, error) {
		process, err := d.deps.Programs.Start(ctx, stdio.Owner{Agent: key.Agent, Caller: key.Caller}, program, d.deps.Form.Info().BodyLimit)
		if err != nil {
			return nil, err // no typed nil
		}
		return process, nil
	})
}
