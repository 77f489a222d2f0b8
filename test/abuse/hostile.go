package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/test/interop/devgateway"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// What the identity does. Its name for the counts, and in the report.
const (
	attackEvidence       = "evidence"
	attackEndless        = "endless"
	attackLineage        = "lineage"
	attackQuestions      = "questions"
	attackSessions       = "sessions"
	attackReaders        = "readers"
	attackBodies         = "bodies"
	attackAnswers        = "answers"
	attackContexts       = "contexts"
	attackTasks          = "tasks"
	attackWebhooks       = "webhooks"
	attackForgedMember   = "forged member"
	attackForgedRead     = "forged read"
	attackForgedHook     = "forged hook"
	attackForgedRollback = "forged rollback"
	attackForgedDecision = "forged decision"
)

const (
	longQuestion  = 640 << 10
	longBody      = 15 << 20
	largestExt    = 3800 // bytes of the ext of one token, of 4,096 that there may be
	heldSessions  = 300
	heldReaders   = 30
	heldBodies    = 40
	lineageTokens = 40 // each with lineageOut parents that are not known
	lineageOut    = 100
)

// hostile are the attacks of the identity.
func (a *attacker) hostile() []attack {
	sessions, readers, bodies := a.holder(heldSessions), a.holder(heldReaders), a.holder(heldBodies)
	forge, decide := &forger{attacker: a, in: a.order.Workflow}, &forger{attacker: a, in: a.order.Decision}
	return []attack{
		{attackEvidence, time.Second / 120, 32, a.evidence},
		{attackEndless, time.Second / 4, 4, a.endless},
		{attackLineage, 50 * time.Millisecond, 8, a.lineages},
		{attackQuestions, 125 * time.Millisecond, 8, a.questions},
		{attackSessions, 50 * time.Millisecond, 16, func(ctx context.Context, n int) string { return a.sessions(ctx, sessions, n) }},
		{attackReaders, 400 * time.Millisecond, 16, func(ctx context.Context, n int) string { return a.readers(ctx, readers, n) }},
		{attackBodies, 400 * time.Millisecond, mostWorkers, func(ctx context.Context, n int) string { return a.bodies(ctx, bodies, n) }},
		{attackAnswers, 250 * time.Millisecond, 4, a.answers},
		{attackContexts, 30 * time.Millisecond, 16, a.contexts},
		{attackTasks, 100 * time.Millisecond, 16, a.tasks},
		{attackWebhooks, 100 * time.Millisecond, 8, a.webhooks},
		{attackForgedMember, time.Second, 1, func(ctx context.Context, n int) string { return []*forger{forge, decide}[n/2%2].member(ctx, n) }},
		{attackForgedRead, time.Second, 1, forge.read},
		{attackForgedHook, time.Second, 1, forge.hook},
		{attackForgedRollback, time.Second, 1, forge.rollback},
		{attackForgedDecision, time.Second, 1, decide.decision},
	}
}

func newWorkflow() string { return uuid.NewString() }

// send makes a request as the identity and reads what comes.
func (a *attacker) send(ctx context.Context, method, path, body string, header http.Header, tokens ...string) string {
	i := a.next()
	req, err := http.NewRequestWithContext(ctx, method, "https://"+a.order.Public[i]+path, strings.NewReader(body))
	if err != nil {
		return classBroken
	}
	req.Header = header
	for _, token := range tokens {
		req.Header.Add(ectHeader, token)
	}
	resp, err := a.modern[i].Do(req)
	if err != nil {
		return classOfError(err)
	}
	return classOfAnswer(resp)
}

// Where messages go that only bring evidence. Neither reaches an agent: the first is
// translated for none, which needs no permission; the second is for the agent that
// may be called, and names a skill that it does not have.
const (
	nowhere = "/aepb/translate?from=a2a-v1&to=mcp-v1"
	refused = "/agents/" + toolAgent + "/a2a"
)

// late is when a token ends that is kept for as long as the gateway keeps any.
func late() *jwt.NumericDate { return jwt.NewNumericDate(time.Now().Add(ect.DefaultMaxLifetime)) }

// forever is the last day on which a token can end.
func forever() *jwt.NumericDate {
	return jwt.NewNumericDate(time.Date(9999, 12, 30, 0, 0, 0, 0, time.UTC))
}

// store brings tokens of these claims along with a message that no agent gets, at one
// place after the other.
func (a *attacker) store(ctx context.Context, n int, source devgateway.Claims, parents ...devgateway.Claims) string {
	path := []string{nowhere, refused}[n%2]
	body := strings.Replace(toolMessage(uuid.NewString(), howQuick, ""), `"skill":"work"`, `"skill":"none"`, 1)
	var tokens []string
	for _, claims := range parents {
		token, err := a.minter.Sign(claims)
		if err != nil {
			return classBroken
		}
		tokens = append(tokens, token)
		source.Parents = append(source.Parents, claims.ID)
	}
	source.OutputHash = devgateway.HashOf(body)
	token, err := a.minter.Sign(source)
	if err != nil {
		return classBroken
	}
	return a.send(ctx, http.MethodPost, path, body, a2aHeader(), append([]string{token}, tokens...)...)
}

// bulky are claims of a token that is large and ends then.
func (a *attacker) bulky(end *jwt.NumericDate) devgateway.Claims {
	return devgateway.Claims{
		RegisteredClaims: jwt.RegisteredClaims{ID: uuid.NewString(), IssuedAt: jwt.NewNumericDate(time.Now()), ExpiresAt: end},
		Workflow:         a.hoard, Ext: map[string]any{"k": strings.Repeat("x", largestExt)},
	}
}

// evidence: finding 2.
func (a *attacker) evidence(ctx context.Context, n int) string {
	end := late()
	return a.store(ctx, n, devgateway.Claims{Workflow: a.hoard}, a.bulky(end), a.bulky(end))
}

// endless: the lasting part of finding 2.
func (a *attacker) endless(ctx context.Context, n int) string {
	return a.store(ctx, n, devgateway.Claims{Workflow: a.hoard}, a.bulky(forever()))
}

// lineages: finding 9. First the tokens are stored, two at a time; then messages
// name all of them.
func (a *attacker) lineages(ctx context.Context, n int) string {
	if n < lineageTokens/2 {
		var parents []devgateway.Claims
		for range 2 {
			claims := devgateway.Claims{RegisteredClaims: jwt.RegisteredClaims{ID: uuid.NewString()}, Workflow: a.family}
			for range lineageOut {
				claims.Parents = append(claims.Parents, uuid.NewString())
			}
			parents = append(parents, claims)
		}
		a.mu.Lock()
		a.lineage = append(a.lineage, parents[0].ID, parents[1].ID)
		a.mu.Unlock()
		return a.store(ctx, n, devgateway.Claims{Workflow: a.family}, parents...)
	}
	a.mu.Lock()
	parents := slices.Clone(a.lineage)
	a.mu.Unlock()
	return a.store(ctx, n, devgateway.Claims{Workflow: a.family, Parents: parents})
}

func (a *attacker) toTools(ctx context.Context, body string, tokens ...string) string {
	return a.send(ctx, http.MethodPost, "/agents/"+toolAgent+"/a2a", body, a2aHeader(), tokens...)
}

// questions: finding 4.
func (a *attacker) questions(ctx context.Context, _ int) string {
	return a.toTools(ctx, textMessage(strings.Repeat("x", longQuestion), ""))
}

// answers: finding 14.
func (a *attacker) answers(ctx context.Context, _ int) string {
	body := toolMessage(uuid.NewString(), howLarge, "")
	token, err := a.minter.Mint(body, newWorkflow(), time.Hour)
	if err != nil {
		return classBroken
	}
	return a.toTools(ctx, body, token)
}

// contexts: finding 13.
func (a *attacker) contexts(ctx context.Context, _ int) string {
	body := toolMessage(uuid.NewString(), howQuick, "")
	return a.toTools(ctx, strings.Replace(body, `"role"`, `"contextId":"`+uuid.NewString()+`","role"`, 1))
}

// tasks: findings 8 and 14.
func (a *attacker) tasks(ctx context.Context, n int) string {
	return a.toTools(ctx, toolMessage(uuid.NewString(), howSlow,
		`,"configuration":{"returnImmediately":true,"taskPushNotificationConfig":{"url":"https://hook`+strconv.Itoa(n)+`.invalid/x"}}`))
}

// webhooks: callbacks in a workflow of its own.
func (a *attacker) webhooks(ctx context.Context, n int) string {
	return a.send(ctx, http.MethodPost, "/hitl/callbacks", `{"wid":"`+a.hoard+`","uri":"https://hook`+strconv.Itoa(n)+`.invalid/x"}`, jsonHeader())
}

// sessions: finding 4, and the streams of finding 6.
func (a *attacker) sessions(ctx context.Context, h *holder, _ int) string {
	i := a.next()
	at := "https://" + a.order.Public[i] + "/agents/" + toolAgent + "/mcp"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, at, strings.NewReader(initialize()))
	if err != nil {
		return classBroken
	}
	req.Header = sessionHeader()
	resp, err := a.modern[i].Do(req)
	if err != nil {
		return classOfError(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	if class := classOf(resp.StatusCode); class != classTaken {
		return class
	}
	listen, stop := context.WithCancel(context.WithoutCancel(ctx))
	req, err = http.NewRequestWithContext(listen, http.MethodGet, at, http.NoBody)
	if err != nil {
		stop()
		return classBroken
	}
	req.Header = http.Header{
		"Accept": {"text/event-stream"}, "Mcp-Session-Id": resp.Header["Mcp-Session-Id"], "Mcp-Protocol-Version": {legacyMCP},
	}
	return keep(h, a.modern[i], req, stop)
}

// keep makes a request whose answer is not read, and holds it.
func keep(h *holder, via *http.Client, req *http.Request, stop context.CancelFunc) string {
	begun := time.AfterFunc(tryTime, stop)
	resp, err := via.Do(req)
	if !begun.Stop() || err != nil {
		stop()
		if err == nil {
			_ = resp.Body.Close()
		}
		return classBroken
	}
	release := func() { stop(); _ = resp.Body.Close() }
	if class := classOf(resp.StatusCode); class != classTaken {
		release()
		return class
	}
	h.hold(release)
	return classHeld
}

// readers: finding 5a.
func (a *attacker) readers(ctx context.Context, h *holder, _ int) string {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx)) // it is held for longer
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+a.order.Public[a.next()]+"/workflows/"+a.hoard, http.NoBody)
	if err != nil {
		stop()
		return classBroken
	}
	return keep(h, a.old, req, stop)
}

// unfinished is a body that stops before its end, until it is closed.
type unfinished struct {
	io.Reader
	sent, closed chan struct{}
	once         sync.Once
	ended        sync.Once
}

// Read gives what there is, and then waits.
func (u *unfinished) Read(b []byte) (int, error) {
	n, err := u.Reader.Read(b)
	if err == nil || n > 0 {
		return n, nil
	}
	u.once.Do(func() { close(u.sent) })
	<-u.closed
	return 0, io.ErrUnexpectedEOF
}

// Close ends the wait.
func (u *unfinished) Close() error {
	u.ended.Do(func() { close(u.closed) })
	return nil
}

// bodies: finding 5b, over HTTP/2 and HTTP/1.1 in turn.
func (a *attacker) bodies(ctx context.Context, h *holder, n int) string {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx)) // it is held for longer
	body := &unfinished{Reader: bytes.NewReader(a.zeros), sent: make(chan struct{}), closed: make(chan struct{})}
	release := func() { stop(); _ = body.Close() }
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+a.order.Public[a.next()]+"/agents/"+toolAgent+"/a2a", body)
	if err != nil {
		release()
		return classBroken
	}
	req.Header, req.ContentLength = a2aHeader(), longBody+1<<10
	via := a.old
	if n%2 == 0 {
		via = a.slow
	}
	answered := make(chan string, 1)
	var answer sync.WaitGroup
	answer.Go(func() {
		resp, err := via.Do(req)
		if err != nil {
			answered <- classOfError(err)
			return
		}
		answered <- classOf(resp.StatusCode)
		_ = resp.Body.Close()
	})
	end := func() { release(); answer.Wait() }
	select {
	case class := <-answered:
		end()
		return class
	case <-body.sent:
		h.hold(end)
		return classHeld
	case <-time.After(tryTime):
		end()
		return classSlow
	}
}

// forger tries what only a member of a workflow of the good caller's may do: finding 1.
type forger struct {
	*attacker
	in   place
	mu   sync.Mutex
	mine string // jti of its own token in that workflow
}

// member stores a token of its own in the workflow, behind one of the gateway's.
func (f *forger) member(ctx context.Context, n int) string {
	claims := devgateway.Claims{RegisteredClaims: jwt.RegisteredClaims{ID: uuid.NewString()}, Workflow: f.in.Workflow, Parents: []string{f.in.Token}}
	class := f.store(ctx, n, claims)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mine = claims.ID
	return class
}

func (f *forger) behind() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mine == "" {
		return []string{f.in.Token}
	}
	return []string{f.mine}
}

func (f *forger) read(ctx context.Context, n int) string {
	path := "/workflows/" + f.in.Workflow
	if n%2 == 0 {
		path = "/ects/" + f.in.Token
	}
	return f.send(ctx, http.MethodGet, path, "", http.Header{})
}

func (f *forger) hook(ctx context.Context, n int) string {
	return f.send(ctx, http.MethodPost, "/hitl/callbacks", `{"wid":"`+f.in.Workflow+`","uri":"https://forged`+strconv.Itoa(n)+`.invalid/x"}`, jsonHeader())
}

func (f *forger) rollback(ctx context.Context, _ int) string {
	token, err := f.minter.Sign(devgateway.Claims{Act: "atd:rollback_request", Workflow: f.in.Workflow, Parents: f.behind()})
	if err != nil {
		return classBroken
	}
	return f.send(ctx, http.MethodPost, rollbackPath, `{"exec_act":"atd:rollback_request"}`, jsonHeader(), token)
}

// decision goes over µACP, which has a form for it.
func (f *forger) decision(ctx context.Context, n int) string {
	token, err := f.minter.Sign(devgateway.Claims{Act: "hitl:approval_granted", Workflow: f.in.Workflow, Parents: f.behind()})
	if err != nil {
		return classBroken
	}
	wire, _, err := uacp.New(translators.Config{}).Encode(&canonical.Message{
		Op: canonical.OpDecision, Phase: canonical.PhaseRequest, Body: &canonical.Signal{Approval: "a-" + strconv.Itoa(n), Token: token},
		Correlation: canonical.Correlation{WireID: json.RawMessage("43")},
	}, translators.Target{Form: uacp.FormEnveloped})
	if err != nil {
		return classBroken
	}
	conn, err := dialUACP(ctx, f.order.UACP[f.next()], &tls.Config{Certificates: f.known.Certificates}, nil)
	if err != nil {
		return classOfError(err)
	}
	defer func() { _ = conn.Close() }()
	if deadline, ok := ctx.Deadline(); ok && conn.SetDeadline(deadline) != nil {
		return classBroken
	}
	reply, err := exchangeFrame(conn, wire.Body)
	switch {
	case err != nil:
		return classOfError(err)
	case reply.Code >= firstFault:
		return classFault
	case reply.Code >= firstRefusal:
		return classRefused
	default:
		return classTaken
	}
}

// The statuses of µACP from which a reply is a refusal, and a fault of the other side.
const (
	firstRefusal = 0x40
	firstFault   = 0x80
)
