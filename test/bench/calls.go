package main

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// tokenLifetime is long enough for a slice and short enough for any verifier.
const tokenLifetime = 10 * time.Minute

// echoed is the text that goes there and must come back: 512 bytes.
const (
	sentence = "The quick brown fox jumps over the lazy dog, and so on it goes. "
	echoed   = sentence + sentence + sentence + sentence + sentence + sentence + sentence + sentence
)

// ectClaims are the claims of the ECTs that the benchmark signs and reads.
type ectClaims struct {
	jwt.RegisteredClaims
	Workflow   string            `json:"wid"`
	Act        string            `json:"exec_act"`
	Parents    []string          `json:"par"`
	InputHash  string            `json:"inp_hash,omitempty"`
	OutputHash string            `json:"out_hash,omitempty"`
	Ext        map[string]string `json:"ext,omitempty"`
}

// minter signs ECTs for one identity.
type minter struct {
	issuer string
	key    *ecdsa.PrivateKey
	kid    string
	chain  [][]byte // DER, leaf first
}

// minted is a signed ECT.
type minted struct {
	claims  ectClaims
	compact string
}

func newMinter(svid tls.Certificate) (*minter, error) {
	key, ok := svid.PrivateKey.(*ecdsa.PrivateKey)
	if !ok || len(svid.Leaf.URIs) != 1 {
		return nil, errors.New("bench: the client's SVID is not one")
	}
	kid, err := devgateway.Thumbprint(&key.PublicKey)
	if err != nil {
		return nil, err
	}
	return &minter{issuer: svid.Leaf.URIs[0].String(), key: key, kid: kid, chain: svid.Certificate}, nil
}

// mint fills iss, iat, exp and jti, and signs.
func (m *minter) mint(c ectClaims) (minted, error) {
	now := time.Now()
	c.Issuer, c.ID = m.issuer, uuid.NewString()
	c.IssuedAt, c.ExpiresAt = jwt.NewNumericDate(now), jwt.NewNumericDate(now.Add(tokenLifetime))
	token := jwt.NewWithClaims(jwt.SigningMethodES256, c)
	x5c := make([]string, len(m.chain))
	for i, der := range m.chain {
		x5c[i] = base64.StdEncoding.EncodeToString(der)
	}
	token.Header["typ"], token.Header["kid"], token.Header["x5c"] = "exec+jwt", m.kid, x5c
	compact, err := token.SignedString(m.key)
	return minted{c, compact}, err
}

// call is one request, ready to go.
type call struct {
	body  string
	token string // empty: without an ECT
}

// callMaker prepares calls of one protocol.
type callMaker struct {
	sender   *minter // nil: without ECTs
	audience string
	body     func(id string) string
	words    *words // in place of body: those of a pair
}

// prepare makes n calls, no two alike.
func (m callMaker) prepare(ctx context.Context, n int) ([]call, error) {
	calls := make([]call, n)
	work, ctx := errgroup.WithContext(ctx)
	workers := runtime.GOMAXPROCS(0)
	for w := range workers {
		work.Go(func() (err error) {
			for i := w; i < n && err == nil; i += workers {
				calls[i], err = m.one()
				err = errors.Join(err, ctx.Err())
			}
			return err
		})
	}
	return calls, work.Wait()
}

func (m callMaker) one() (call, error) {
	if m.words != nil {
		return m.spoken()
	}
	c := call{body: m.body(uuid.NewString())}
	if m.sender == nil {
		return c, nil
	}
	token, err := m.sender.mint(ectClaims{
		RegisteredClaims: jwt.RegisteredClaims{Audience: jwt.ClaimStrings{m.audience}},
		Workflow:         uuid.NewString(), Act: "send_task", Parents: []string{}, OutputHash: hash([]byte(c.body)),
	})
	c.token = token.compact
	return c, err
}

// spoken is a call in the words of a pair.
func (m callMaker) spoken() (call, error) {
	s := said{id: uuid.NewString(), text: echoed, at: time.Now(), bare: true}
	body := m.words.ask(s)
	token, err := m.sender.mint(ectClaims{
		RegisteredClaims: jwt.RegisteredClaims{Audience: jwt.ClaimStrings{m.audience}},
		Workflow:         uuid.NewString(), Act: "send_task", Parents: []string{}, OutputHash: hash(body),
	})
	if !m.words.inside {
		return call{body: string(body), token: token.compact}, err
	}
	s.bare, s.tokens = false, []string{token.compact}
	return call{body: string(m.words.ask(s))}, err
}

// a2aBody is the message as an A2A client sends it.
func a2aBody(id string) string {
	return `{"jsonrpc":"2.0","id":"` + id + `","method":"SendMessage","params":{"message":{"messageId":"` + id +
		`","role":"ROLE_USER","parts":[{"data":{"skill":"echo","input":{"message":"` + echoed +
		`"}},"mediaType":"application/json"}]}}}`
}

// mcpBody is the same as an MCP client sends it.
func mcpBody(id string) string {
	return `{"jsonrpc":"2.0","id":"` + id + `","method":"tools/call","params":{"name":"echo","arguments":{"message":"` +
		echoed + `"},"_meta":{"io.modelcontextprotocol/protocolVersion":"` + modernMCP +
		`","io.modelcontextprotocol/clientCapabilities":{}}}}`
}

// sessionBody is the same in a session of the revision before.
func sessionBody(id string) string {
	return `{"jsonrpc":"2.0","id":"` + id + `","method":"tools/call","params":{"name":"echo","arguments":{"message":"` + echoed + `"}}}`
}

// speak has a case called without ECTs, in A2A or in one session of MCP, which is opened here.
func (s *subject) speak(ctx context.Context, protocol string) (err error) {
	if protocol == "a2a" {
		s.headers, s.calls = setA2A, callMaker{body: a2aBody}
		return nil
	}
	s.calls = callMaker{body: sessionBody}
	s.headers, err = s.openSession(ctx)
	return err
}

// sessionMCP is the newest revision that has sessions.
const sessionMCP = "2025-11-25"

// openSession is the handshake of MCP; what it returns sets the headers of the calls that follow.
func (s *subject) openSession(ctx context.Context) (func(http.Header), error) {
	id := ""
	headers := func(h http.Header) {
		h.Set("Content-Type", "application/json")
		h.Set("Accept", "application/json, text/event-stream")
		h.Set("MCP-Protocol-Version", sessionMCP)
		if id != "" {
			h.Set("Mcp-Session-Id", id)
		}
	}
	for _, body := range []string{
		`{"jsonrpc":"2.0","id":"0","method":"initialize","params":{"protocolVersion":"` + sessionMCP +
			`","capabilities":{},"clientInfo":{"name":"bench","version":"1.0.0"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
	} {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, strings.NewReader(body))
		if err != nil {
			return nil, err
		}
		headers(req.Header)
		resp, err := s.client.Do(req)
		if err != nil {
			return nil, err
		}
		answer, err := io.ReadAll(resp.Body)
		if err = errors.Join(err, resp.Body.Close()); err != nil {
			return nil, err
		}
		id = cmp.Or(id, resp.Header.Get("Mcp-Session-Id"))
		if resp.StatusCode/100 != 2 || id == "" {
			return nil, fmt.Errorf("bench: %s opens no session: %s: %.500s", s.name, resp.Status, answer)
		}
	}
	return headers, nil
}

func setA2A(h http.Header) {
	h.Set("Content-Type", "application/json")
	h.Set("A2A-Version", "1.0")
}

func setMCP(h http.Header) {
	h.Set("Content-Type", "application/json")
	h.Set("Accept", "application/json, text/event-stream")
	h.Set("MCP-Protocol-Version", modernMCP)
	h.Set("Mcp-Method", "tools/call")
	h.Set("Mcp-Name", "echo")
}
