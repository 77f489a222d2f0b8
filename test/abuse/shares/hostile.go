package shares

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"

	"github.com/aepb/aepb-gateway/test/harness/wait"
	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

const (
	calls       = 126 // at once, of an identity that may have 128 requests
	streams     = 128
	failsFirst  = 5 // open a breaker that counts for all
	failsPace   = 45
	slowBodies  = 2
	slowBytes   = 8 << 20
	slowPiece   = 16 << 10 // in a second
	rootsOfEach = 8        // tokens that a message may bring
	manyTokens  = 1000     // messages a second
	fewTokens   = 47       // the same below the default rate
	streamTime  = 60 * time.Second
	volleyEvery = 20 * time.Second // after an answer: a volley takes some 10 s of CPU
	again       = time.Second      // after any other
)

// one is one identity and what it does until ctx ends.
type one struct {
	name   string
	attack func(ctx context.Context, a *attacker)
}

func hostile() []one {
	return []one{
		{"answers", func(ctx context.Context, a *attacker) { a.large(ctx) }},
		{"read", func(ctx context.Context, a *attacker) { a.streams(ctx, true) }},
		{"unread", func(ctx context.Context, a *attacker) { a.streams(ctx, false) }},
		{"holder", func(ctx context.Context, a *attacker) { a.holds(ctx) }},
		{"pair-1", func(ctx context.Context, a *attacker) { paced(ctx, failsPace, a.fails) }},
		{"pair-2", func(ctx context.Context, a *attacker) { paced(ctx, failsPace, a.fails) }},
		{"slow-1", func(ctx context.Context, a *attacker) { a.slow(ctx) }},
		{"slow-2", func(ctx context.Context, a *attacker) { a.slow(ctx) }},
		{"tokens", func(ctx context.Context, a *attacker) { paced(ctx, manyTokens, a.roots) }},
		{"tokens-1", func(ctx context.Context, a *attacker) { paced(ctx, fewTokens, a.roots) }},
		{"tokens-2", func(ctx context.Context, a *attacker) { paced(ctx, fewTokens, a.roots) }},
	}
}

// Names are those of the identities that attack.
func Names() (names []string) {
	for _, h := range hostile() {
		names = append(names, h.name)
	}
	return names
}

// message is one of A2A.
func message(method, part string) io.Reader {
	return strings.NewReader(`{"jsonrpc":"2.0","id":"1","method":"` + method + `","params":{"message":{"messageId":"` + uuid.NewString() +
		`","role":"ROLE_USER","parts":[` + part + `]}}}`)
}

// toTool asks the tool to do something.
func (a *attacker) toTool(do string) request {
	return request{path: "/agents/" + a.order.Tool + "/a2a", body: message("SendMessage", `{"data":{"skill":"`+a.order.Skill+
		`","input":{"key":"`+a.name+`","how":"`+do+`"}},"mediaType":"application/json"}`)}
}

// large: finding M1, [agg2].
func (a *attacker) large(ctx context.Context) {
	together(ctx, calls, volleyEvery, func(ctx context.Context, n int) {
		a.send(ctx, n, a.toTool([]string{doAnnounced, doChunked}[n/2%2])) // both at each gateway
	})
}

// streams: finding M1, [agg] and [slowstreams].
func (a *attacker) streams(ctx context.Context, read bool) {
	together(ctx, streams, again, func(ctx context.Context, n int) {
		limited, cancel := context.WithTimeout(ctx, streamTime)
		defer cancel()
		a.send(ctx, n, request{
			path: "/agents/" + a.order.Worker + "/a2a", body: message("SendStreamingMessage", `{"text":"`+doStream+`"}`), old: !read,
			handle: func(body io.Reader) {
				if read {
					stop := context.AfterFunc(limited, func() { _ = body.(io.Closer).Close() })
					_, _ = io.Copy(io.Discard, body)
					stop()
					return
				}
				<-limited.Done()
			},
		})
	})
}

// fails: finding B1, [breaker3].
func (a *attacker) fails(ctx context.Context, n int) { a.send(ctx, n, a.toTool(doFail)) }

// holds: finding B1, [breakerfresh].
func (a *attacker) holds(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		retry := a.send(ctx, 0, a.toTool(doFail))
		if n >= failsFirst {
			wait.Pause(ctx, max(retry, again))
		}
	}
}

// slow: finding B2, [bytes2].
func (a *attacker) slow(ctx context.Context) {
	together(ctx, slowBodies, again, func(ctx context.Context, n int) {
		a.send(ctx, n, request{path: "/agents/" + a.order.Tool + "/a2a", body: &dripping{ctx: ctx}, length: slowBytes, old: true})
	})
}

// dripping is a body that comes slowly until ctx ends.
type dripping struct {
	ctx context.Context //nolint:containedctx // a Reader is given none
}

// Read implements io.Reader.
func (d *dripping) Read(b []byte) (int, error) {
	if !wait.Pause(d.ctx, time.Second) {
		return 0, d.ctx.Err()
	}
	n := min(len(b), slowPiece)
	for i := range b[:n] {
		b[i] = ' ' // before a message of JSON
	}
	return n, nil
}

// roots: finding R1, [replayfill] and [replay2].
func (a *attacker) roots(ctx context.Context, n int) {
	body := `{"jsonrpc":"2.0","id":"1","method":"SendMessage","params":{"message":{"messageId":"` + uuid.NewString() +
		`","role":"ROLE_USER","parts":[{"data":{"skill":"none","input":{}},"mediaType":"application/json"}]}}}`
	source := devgateway.Claims{Workflow: uuid.NewString(), OutputHash: devgateway.HashOf(body)}
	var tokens []string
	for range rootsOfEach - 1 {
		id := uuid.NewString()
		token, err := a.minter.Sign(devgateway.Claims{RegisteredClaims: jwt.RegisteredClaims{ID: id}, Workflow: source.Workflow})
		if err != nil {
			a.count(err.Error())
			return
		}
		tokens, source.Parents = append(tokens, token), append(source.Parents, id)
	}
	token, err := a.minter.Sign(source)
	if err != nil {
		a.count(err.Error())
		return
	}
	a.send(ctx, n, request{path: "/aepb/translate?from=a2a-v1&to=mcp-v1", body: strings.NewReader(body), tokens: append([]string{token}, tokens...)})
}
