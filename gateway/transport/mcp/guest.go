package mcp

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// Bounds of the sessions of legacy clients.
const (
	DefaultSessions = 1024 // sessions of one caller at one agent

	maxSession = 64              // bytes of a session's id that is looked up
	maxClient  = 256             // bytes of its client's name, and of the version
	touchAfter = 5 * time.Minute // a session's life is renewed when it was not for so long
)

// clientSession is the stored form of a legacy client's session. It is stored under its caller
// and its agent, so no other caller finds it.
type clientSession struct {
	Version   string
	CanAnswer []canonical.Mode `json:"Asked,omitempty"` // what the client can be asked
	Client    canonical.Party  `json:",omitzero"`       // its clientInfo
	Used      time.Time
}

// group is whose sessions are kept together.
func (v *serverCall) group(ctx context.Context) string {
	q := v.asking(ctx)
	who := string(q.Caller.ID)
	if q.Caller.Anonymous {
		who += "@" + q.Address
	}
	return "guest " + who + "\x00" + q.Agent
}

// beginSession begins the session of a client that initializes. What it can be asked
// is known only then, so everything that a stream may ask needs a session.
func (v *serverCall) beginSession(ctx context.Context) error {
	keeper := v.server.deps.Keeper
	if keeper == nil || v.message.Origin.Version == mcp.Modern {
		return nil
	}
	group := v.group(ctx)
	if err := v.dismiss(ctx, group); err != nil {
		return &problem.RecordingError{Err: err}
	}
	now := v.server.deps.Now()
	client := canonical.Party{Name: cut(v.message.From.Name), Version: cut(v.message.From.Version)}
	value, err := json.Marshal(clientSession{Version: v.message.Origin.Version, CanAnswer: v.message.Preferences.CanAnswer, Client: client, Used: now})
	if err != nil {
		return err
	}
	id := rand.Text()
	if _, err := keeper.Swap(ctx, group, id, 0, value, now.Add(sessionLife)); err != nil {
		return &problem.RecordingError{Err: err}
	}
	v.w.Header().Set(headerSession, id)
	return nil
}

// cut bounds a text that a session keeps.
func cut(text string) string { return strings.ToValidUTF8(text[:min(len(text), maxClient)], "") }

// dismiss ends the sessions of a group that were not used for longest, as many as it
// takes for one more to begin. A use is seen when it is touchAfter later than the
// one before.
func (v *serverCall) dismiss(ctx context.Context, group string) error {
	most, keeper := v.server.deps.Sessions, v.server.deps.Keeper
	all, err := keeper.All(ctx, group, 2*most)
	if err != nil || len(all) < most {
		return err
	}
	used := make(map[string]time.Time, len(all))
	for id, value := range all {
		var g clientSession
		_ = json.Unmarshal(value, &g) // what cannot be read was never used
		used[id] = g.Used
	}
	ids := slices.SortedFunc(maps.Keys(used), func(a, b string) int { return cmp.Or(used[a].Compare(used[b]), cmp.Compare(a, b)) })
	for _, id := range ids[:len(all)-most+1] {
		if err := keeper.Delete(ctx, group, id); err != nil {
			return err
		}
		v.server.standing.end(id)
	}
	return nil
}

// hasSession reports whether the request belongs to a session by its headers. A modern one
// never does.
func (v *serverCall) hasSession() bool {
	return v.server.deps.Keeper != nil && v.r.Header.Get(headerSession) != "" && v.r.Header.Get(headerVersion) != mcp.Modern
}

// loadSession finds the session that a request names. One that is not known any
// more is 404, and the client begins again (legacy, session management).
func (v *serverCall) loadSession(ctx context.Context) error {
	id, keeper := v.r.Header.Get(headerSession), v.server.deps.Keeper
	if !v.hasSession() {
		return nil
	}
	gone := &admissionError{http.StatusNotFound, &canonical.Error{Code: canonical.CodeInvalidRequest, Message: "the session is not known: initialize again"}}
	if len(id) > maxSession {
		return gone
	}
	group := v.group(ctx)
	value, revision, ok, err := keeper.Get(ctx, group, id)
	if err != nil {
		return &problem.RecordingError{Err: err}
	}
	var g clientSession
	if !ok || json.Unmarshal(value, &g) != nil {
		return gone
	}
	v.session, v.guest, v.version = id, g, g.Version
	if now := v.server.deps.Now(); now.Sub(g.Used) > touchAfter {
		g.Used = now
		if value, err := json.Marshal(g); err == nil {
			_, _ = keeper.Swap(ctx, group, id, revision, value, now.Add(sessionLife)) // else the next request does it
		}
	}
	return nil
}

const (
	firstAgain = 100 * time.Millisecond
	lastAgain  = 2 * time.Second
)

// retryWhileAway runs do, and runs it again if the message answers an input request and the state
// is unavailable: the client sends an answer only once, and the call that asked would wait
// for it in vain.
func (v *serverCall) retryWhileAway(ctx context.Context, do func() error) error {
	for wait := firstAgain; ; wait = min(2*wait, lastAgain) {
		err := do()
		if _, away := errors.AsType[*problem.RecordingError](err); !away || time.Now().Add(wait).After(v.insists) {
			return err
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		case <-v.server.closing.Done():
			timer.Stop()
			return err
		}
	}
}

// leave ends a session.
func (v *serverCall) leave(ctx context.Context) {
	if err := v.known(ctx); err != nil {
		v.fail(err)
		return
	}
	if err := v.server.deps.Keeper.Delete(ctx, v.group(ctx), v.session); err != nil {
		v.fail(&problem.RecordingError{Err: err})
		return
	}
	v.server.standing.end(v.session)
	v.w.WriteHeader(http.StatusNoContent)
}

// enter admits a request that has no body.
func (v *serverCall) enter(ctx context.Context) error {
	if err := v.origin(); err != nil {
		return err
	}
	if err := v.limit(ctx); err != nil {
		return err
	}
	return v.handler.Admit(ctx, v.asking(ctx))
}

// known admits the request of a session that has no body.
func (v *serverCall) known(ctx context.Context) error {
	if err := v.enter(ctx); err != nil {
		return err
	}
	if err := v.loadSession(ctx); err != nil {
		return err
	}
	if v.session == "" {
		return &admissionError{http.StatusBadRequest, &canonical.Error{Code: canonical.CodeInvalidRequest, Message: headerSession + " is missing"}}
	}
	return nil
}

// call is a message as the pipeline takes it, with what the server knows of its session.
func (v *serverCall) call(ctx context.Context) transport.Call {
	return transport.Call{
		EntryPoint: transport.Native, Agent: v.r.PathValue("agent"), Evidence: v.evidence, Parent: transport.ParentIn(v.r.Header),
		Caller: transport.CallerFrom(ctx), Address: transport.AddressFrom(ctx), Pass: v.pass,
		Session: v.session, CanAnswer: v.guest.CanAnswer, Program: transport.Program{Client: v.guest.Client}, Detached: v.message.Origin.Version != mcp.Modern,
	}
}
