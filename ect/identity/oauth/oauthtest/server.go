// Package oauthtest is an authorization server for tests: metadata, keys that rotate, introspection, and tokens of
// every kind, also bad ones. It answers over TLS, or in the process, where its delays are those of testing/synctest.
package oauthtest

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect/internal/jose"
)

// Object is a JSON object of a token. A nil value leaves a member out.
type Object map[string]any

// Key is a key of a server, by its kid.
type Key struct {
	ID      string
	Private *ecdsa.PrivateKey
}

// NewKey makes a key. An error ends the test.
func NewKey(t testing.TB, id string) Key {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return Key{id, private}
}

// JWK is the public key.
func (k Key) JWK(t testing.TB) Object {
	point, err := k.Private.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	encode := base64.RawURLEncoding.EncodeToString
	return Object{"kty": "EC", "crv": "P-256", "use": "sig", "kid": k.ID, "x": encode(point[1:33]), "y": encode(point[33:])}
}

// Server is an authorization server. It is safe for concurrent use.
type Server struct {
	URL string // of the issuer
	Key Key    // that signs Token

	t        testing.TB
	mu       sync.Mutex
	state    State
	requests map[string]int
	opaque   map[string]Object
}

// State is how a server answers.
type State struct {
	Keys         []Key
	Down         bool          // every request fails
	Delay        time.Duration // of every answer
	CacheControl string        // of the keys
	Metadata     func(Object)  // changes the metadata; nil: nothing
	OpenIDAlone  bool          // there are no metadata of RFC 8414
	Introspect   http.HandlerFunc
}

// New makes a server without a network: with the URL of its issuer.
func New(t testing.TB, url string) *Server {
	t.Helper()
	key := NewKey(t, "key-1")
	return &Server{URL: url, Key: key, t: t, state: State{Keys: []Key{key}}, requests: map[string]int{}, opaque: map[string]Object{}}
}

// Start makes a server that listens at 127.0.0.1 until the test ends. It is asked for its certificate at each handshake.
func Start(t testing.TB, certificate func() tls.Certificate) *Server {
	t.Helper()
	s := New(t, "")
	listener := httptest.NewUnstartedServer(s)
	listener.TLS = &tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return &tls.Config{Certificates: []tls.Certificate{certificate()}, MinVersion: tls.VersionTLS13}, nil
	}}
	listener.StartTLS()
	t.Cleanup(listener.Close)
	s.URL = listener.URL
	return s
}

// Change changes how the server answers.
func (s *Server) Change(change func(*State)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.state)
}

// Requests is how many requests there were for a path.
func (s *Server) Requests(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[path]
}

// The paths of a server.
const (
	Metadata   = "/.well-known/oauth-authorization-server"
	OpenID     = "/.well-known/openid-configuration"
	Keys       = "/keys"
	Introspect = "/introspect"
	TokenPath  = "/token"
)

// The name and the secret with which one introspects.
const (
	ClientID = "gateway"
	Secret   = "a secret of the gateway / with : and %"
)

// ServeHTTP is http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	state := s.state
	s.requests[r.URL.Path]++
	s.mu.Unlock()
	if state.Delay > 0 {
		timer := time.NewTimer(state.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
			return
		}
	}
	if state.Down {
		http.Error(w, "down", http.StatusBadGateway)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case Metadata, OpenID:
		if r.URL.Path == Metadata && state.OpenIDAlone {
			http.NotFound(w, r)
			return
		}
		s.metadata(w, state)
	case Keys:
		var list []Object
		for _, key := range state.Keys {
			list = append(list, key.JWK(s.t))
		}
		if state.CacheControl != "" {
			w.Header().Set("Cache-Control", state.CacheControl)
		}
		_ = json.NewEncoder(w).Encode(Object{"keys": list})
	case Introspect:
		if state.Introspect != nil {
			state.Introspect(w, r)
			return
		}
		s.introspect(w, r)
	case TokenPath:
		s.grant(w, r)
	default:
		http.NotFound(w, r)
	}
}

// grant gives a token for the resource that is named. The code of an authorization is the scope that was granted.
func (s *Server) grant(w http.ResponseWriter, r *http.Request) {
	resource, scope := r.PostFormValue("resource"), r.PostFormValue("code")
	if resource == "" || scope == "" || r.PostFormValue("code_verifier") == "" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	_ = json.NewEncoder(w).Encode(Object{"token_type": "Bearer", "expires_in": 300, "access_token": s.Token(resource, func(_, claims Object) { claims["scope"] = scope })})
}

func (s *Server) metadata(w http.ResponseWriter, state State) {
	m := Object{
		"issuer": s.URL, "jwks_uri": s.URL + Keys, "introspection_endpoint": s.URL + Introspect,
		"authorization_endpoint": s.URL + "/authorize", "token_endpoint": s.URL + TokenPath,
		"response_types_supported": []string{"code"}, "code_challenge_methods_supported": []string{"S256"}, "token_endpoint_auth_methods_supported": []string{"client_secret_post"},
	}
	if state.Metadata != nil {
		state.Metadata(m)
	}
	_ = json.NewEncoder(w).Encode(m)
}

func (s *Server) introspect(w http.ResponseWriter, r *http.Request) {
	user, password, _ := r.BasicAuth()
	if user != ClientID || !strings.HasPrefix(password, "a+secret") || r.Method != http.MethodPost {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	s.mu.Lock()
	claims, known := s.opaque[r.PostFormValue("token")]
	s.mu.Unlock()
	if !known {
		_, _ = fmt.Fprint(w, `{"active":false}`)
		return
	}
	claims = maps.Clone(claims)
	claims["active"] = true
	_ = json.NewEncoder(w).Encode(claims)
}

// Exit sends requests to the server without a network.
func (s *Server) Exit(request *http.Request, authorization string) (*http.Response, error) {
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	recorder := httptest.NewRecorder()
	s.ServeHTTP(recorder, request)
	if err := request.Context().Err(); err != nil {
		return nil, context.Cause(request.Context())
	}
	return recorder.Result(), nil
}

// Claims are those of a good token for an audience, that ends in five minutes.
func (s *Server) Claims(audience string) Object {
	now := time.Now().Unix()
	return Object{
		"iss": s.URL, "sub": "alice", "client_id": "desktop", "aud": audience, "exp": now + 300, "iat": now, "nbf": now,
		"jti": rand.Text(), "scope": "read write", "groups": []string{"staff"},
	}
}

// Token is a signed token for an audience. change makes it another one; nil: nothing.
func (s *Server) Token(audience string, change func(header, claims Object)) string {
	header, claims := Object{"typ": "at+jwt", "alg": "ES256", "kid": s.Key.ID}, s.Claims(audience)
	if change != nil {
		change(header, claims)
	}
	return s.Key.Sign(s.t, text(s.t, header), text(s.t, claims))
}

// Sign signs a header and claims as they are written.
func (k Key) Sign(t testing.TB, header, claims string) string {
	t.Helper()
	input := Encode(header) + "." + Encode(claims)
	signature, err := jose.Sign("ES256", crypto.Signer(k.Private), []byte(input))
	if err != nil {
		t.Fatal(err)
	}
	return input + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// Opaque makes an opaque token active, about which the server says these claims.
func (s *Server) Opaque(token string, claims Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opaque[token] = claims
}

// Revoke makes an opaque token inactive.
func (s *Server) Revoke(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.opaque, token)
}

// Encode is base64url without padding.
func Encode(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

func text(t testing.TB, o Object) string {
	t.Helper()
	out := maps.Clone(o)
	maps.DeleteFunc(out, func(_ string, value any) bool { return value == nil })
	data, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
