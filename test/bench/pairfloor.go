package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"

	"github.com/aepb/aepb-gateway/gateway/transport/slim"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/name"
	tuacp "github.com/aepb/aepb-gateway/gateway/transport/uacp"
)

// pairs is the floor of every pair: what the floor of the exchange does, with the
// words, signatures and sockets that the two protocols demand. A pair is the path
// /FROM/TO; from µACP it is the server name TO, and from SLIM the name org/SPACE/TO.
type pairs struct {
	*floor
	voice  voice
	agents string // https://host:port
	frames string // host:port
	tls    *tls.Config
	bare   bool       // it carries the text alone
	slim   *slim.Peer // calls out; nil: it is not on SLIM
	agent  name.Name  // there
}

func newPairs(s script) (http.Handler, framed, error) {
	handler, err := newFloor(s)
	if err != nil {
		return nil, nil, err
	}
	base, _ := handler.(*floor)
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(s.Roots) {
		return nil, nil, errors.New("bench: no roots")
	}
	p := &pairs{floor: base, voice: newVoice(s.Seed), agents: s.Upstream, frames: s.Frames, bare: s.Bare, tls: &tls.Config{
		RootCAs: roots, MinVersion: tls.VersionTLS13, NextProtos: []string{tuacp.Protocol},
	}}
	frames := func(server string, body []byte) ([]byte, error) {
		to, _, _ := strings.Cut(server, ".")
		reply, _, err := p.exchange(context.Background(), p.voice.speak("uacp-v1"), p.voice.speak(to), body, "")
		return reply, err
	}
	return p, frames, nil
}

// ServeHTTP carries one message there and its reply back.
func (p *pairs) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	from, to, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	body, err := io.ReadAll(r.Body)
	var evidence []string
	if err == nil {
		body, evidence, err = p.exchange(r.Context(), p.voice.speak(from), p.voice.speak(to), body, r.Header.Get("Execution-Context"))
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	setJSON(w.Header())
	w.Header()["Execution-Context"] = evidence
	_, _ = w.Write(body)
}

func (p *pairs) exchange(ctx context.Context, from, to words, body []byte, token string) (reply []byte, evidence []string, err error) {
	if from.binding == "" || to.binding == "" {
		return nil, nil, errWords
	}
	asked, err := from.asked(body)
	if err != nil {
		return nil, nil, err
	}
	if p.bare {
		reply, err = p.relay(ctx, from, to, asked)
		return reply, nil, err
	}
	if from.inside && len(asked.tokens) > 0 {
		token = asked.tokens[0]
	}
	in, err := from.hashed(body)
	if err != nil {
		return nil, nil, err
	}
	source, err := p.judge(token, in)
	if err != nil {
		return nil, nil, err
	}
	there := said{id: asked.id, text: asked.text, at: time.Now()}
	if there.id == "" {
		there.id = uuid.NewString()
	}
	call, request, err := p.say(to, to.ask, there, p.claims("request", from, to, source, in))
	if err != nil {
		return nil, nil, err
	}
	answer, err := p.send(ctx, to, call, request.compact)
	if err != nil {
		return nil, nil, err
	}
	heard, err := to.replied(answer)
	if err != nil {
		return nil, nil, err
	}
	if in, err = to.hashed(answer); err != nil {
		return nil, nil, err
	}
	back := said{id: asked.id, own: uuid.NewString(), text: heard.text, at: time.Now(), tokens: []string{request.compact}}
	reply, last, err := p.say(from, from.reply, back, p.claims("reply", from, to, request.claims, in))
	return reply, []string{request.compact, last.compact}, err
}

func (p *pairs) judge(compact, hashed string) (ectClaims, error) {
	var c ectClaims
	_, err := jwt.ParseWithClaims(compact, &c, func(*jwt.Token) (any, error) { return p.sender, nil },
		jwt.WithValidMethods([]string{"ES256"}), jwt.WithAudience(p.signer.issuer), jwt.WithExpirationRequired(), jwt.WithIssuedAt())
	if err == nil && c.OutputHash != hashed {
		err = errors.New("bench: the ECT is not of this message")
	}
	return c, err
}

// claims are those of one leg.
func (p *pairs) claims(name string, from, to words, parent ectClaims, in string) ectClaims {
	return ectClaims{
		RegisteredClaims: jwt.RegisteredClaims{Audience: jwt.ClaimStrings{p.agents, p.signer.issuer}},
		Workflow:         parent.Workflow, Act: "aepb:translate", Parents: []string{parent.ID}, InputHash: in,
		Ext: map[string]string{
			"aepb.source_protocol": from.binding, "aepb.dest_protocol": to.binding, "aepb.gateway_id": p.signer.issuer, "aepb.leg": name,
		},
	}
}

// say writes a message and signs its ECT, which stands in the message if the
// protocol has a place for it.
func (p *pairs) say(w words, write func(said) []byte, s said, c ectClaims) ([]byte, minted, error) {
	tokens := s.tokens
	s.bare, s.tokens = true, nil
	body := write(s)
	c.OutputHash = hash(body)
	token, err := p.signer.mint(c)
	if w.inside {
		s.bare, s.tokens = false, append([]string{token.compact}, tokens...)
		body = write(s)
	}
	return body, token, err
}

// send asks an agent: over HTTP, over SLIM, or over a µACP connection of its own.
func (p *pairs) send(ctx context.Context, to words, call []byte, evidence string) ([]byte, error) {
	if to.binding == slimBinding {
		return p.call(ctx, call, evidence)
	}
	if to.headers == nil {
		return p.frame(ctx, call)
	}
	name, _, _ := strings.Cut(to.binding, "-")
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.agents+"/"+name, bytes.NewReader(call))
	if err != nil {
		return nil, err
	}
	to.headers(req.Header)
	req.Header.Set("Execution-Context", evidence)
	resp, err := p.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("bench: the agent answered %s: %.200s", resp.Status, answer)
	}
	return answer, err
}

func (p *pairs) frame(ctx context.Context, call []byte) ([]byte, error) {
	conn, err := (&tls.Dialer{NetDialer: &net.Dialer{}, Config: p.tls}).DialContext(ctx, "tcp", p.frames)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	if err := writeFrame(conn, call); err != nil {
		return nil, err
	}
	return readFrame(conn)
}
