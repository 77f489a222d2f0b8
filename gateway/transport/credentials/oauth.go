package credentials

import (
	"cmp"
	"context"
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/ect/identity/credential"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
)

// Bounds of token endpoints.
const (
	maxAnswer  = 64 << 10 // bytes
	maxToken   = 8 << 10  // bytes
	fetchLimit = 10 * time.Second

	unsaidLife = 5 * time.Minute // of a token that does not say when it ends
	maxLife    = 24 * time.Hour
)

// The words of the protocols.
const (
	grantClient   = "client_credentials"                                     // RFC 6749, section 4.4
	grantExchange = "urn:ietf:params:oauth:grant-type:token-exchange"        // RFC 8693, section 2.1
	typeAccess    = "urn:ietf:params:oauth:token-type:access_token"          // RFC 8693, section 3
	assertionJWT  = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer" // RFC 7523, section 2.2
	// draft-ietf-oauth-spiffe-client-auth, section 3.1: a JWT-SVID has no iss, which RFC 7523 demands.
	assertionSVID = "urn:ietf:params:oauth:client-assertion-type:jwt-spiffe"
)

// Assertion is what vouches for the gateway at a token endpoint.
type Assertion struct {
	JWT  string
	SVID bool   // it is a JWT-SVID
	ID   string // whom it names
}

// failure is why there is no token. Its reason is for callers and operators.
type failure struct {
	reason string
	caller bool  // the caller's token was refused
	ours   bool  // the gateway itself was refused: no caller gets a token
	err    error // for logs; nil: the token endpoint answered
}

func (f *failure) Error() string { return "credentials: " + f.reason }

func (f *failure) Unwrap() error { return f.err }

// issued is a token and how long it lives.
type issued struct {
	value string
	life  time.Duration
}

// subjectToken is what is exchanged; zero: nothing is.
type subjectToken struct{ token, kind string }

func (t subjectToken) hash() [sha256.Size]byte {
	return sha256.Sum256([]byte(t.kind + "\x00" + t.token))
}

// request asks a token endpoint.
func (s *Service) request(ctx context.Context, o *OAuth, subject subjectToken) (issued, error) {
	form, basic, err := s.form(ctx, o, subject)
	if err != nil {
		return issued{}, err
	}
	if basic != "" {
		ctx = context.WithValue(ctx, basicKey{}, basic)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, o.TokenURL, strings.NewReader(form.Encode()))
	if err != nil {
		return issued{}, &failure{reason: "the token endpoint has no URL", err: err}
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Accept", "application/json")
	response, err := s.deps.Client.DoAs(request, "")
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return issued{}, &failure{reason: "the token endpoint does not answer in time", err: err}
	case err != nil:
		return issued{}, &failure{reason: "the token endpoint cannot be reached", err: err}
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if closed := response.Body.Close(); err == nil {
		err = closed
	}
	switch {
	case err != nil:
		return issued{}, &failure{reason: "the answer of the token endpoint breaks off", err: err}
	case len(body) > maxAnswer:
		return issued{}, &failure{reason: "the answer of the token endpoint is too long"}
	}
	return answered(response, body, subject != subjectToken{})
}

type basicKey struct{}

// ClientSecrets shows the secret of a client to the token endpoint that a request of this package asks. It is the
// egress.Credentials of the guard that sends them.
type ClientSecrets struct{}

var _ egress.Credentials = ClientSecrets{}

// For implements egress.Credentials.
func (ClientSecrets) For(r *http.Request) (egress.Credential, error) {
	if basic, ok := r.Context().Value(basicKey{}).(string); ok {
		return egress.Credential{Field: fieldAuthorization, Value: basic}, nil
	}
	return egress.Credential{}, nil
}

// Refused implements egress.Credentials: there is nothing newer.
func (ClientSecrets) Refused(*http.Request, egress.Credential) bool { return false }

// form is what a token endpoint gets, and the secret that is shown in a header; empty: none is.
func (s *Service) form(ctx context.Context, o *OAuth, subject subjectToken) (form url.Values, basic string, err error) {
	form = url.Values{"grant_type": {grantClient}}
	if subject != (subjectToken{}) {
		form = url.Values{
			"grant_type": {grantExchange}, "requested_token_type": {typeAccess},
			"subject_token": {subject.token}, "subject_token_type": {cmp.Or(subject.kind, typeAccess)},
		}
	}
	if len(o.Scopes) > 0 {
		form.Set("scope", strings.Join(o.Scopes, " "))
	}
	form["audience"], form["resource"] = o.Audience, o.Resource
	if o.SecretFile == "" {
		return form, "", s.vouch(ctx, o, form)
	}
	secret, err := ReadSecret(o.SecretFile)
	if err != nil {
		return nil, "", &failure{reason: "the secret of the client cannot be read", err: err}
	}
	if !o.InBody {
		return form, basicOf(url.QueryEscape(o.ClientID), url.QueryEscape(string(secret))), nil
	}
	form.Set("client_id", o.ClientID)
	form.Set("client_secret", string(secret))
	return form, "", nil
}

// vouch puts a client assertion into a form.
func (s *Service) vouch(ctx context.Context, o *OAuth, form url.Values) error {
	made := Assertion{ID: o.ClientID}
	var err error
	if o.SVID {
		if made, err = s.deps.Assert(ctx, o.ClientID, o.TokenURL); err != nil {
			return &failure{reason: "the gateway's SVID cannot vouch for it", err: err}
		}
	} else if made.JWT, err = s.signed(o); err != nil {
		return &failure{reason: "the key of the client cannot be used", err: err}
	}
	form.Set("client_assertion", made.JWT)
	form.Set("client_assertion_type", assertionJWT)
	if made.SVID {
		form.Set("client_assertion_type", assertionSVID)
	}
	form.Set("client_id", cmp.Or(o.ClientID, made.ID))
	return nil
}

// signed is an assertion with the key of a file.
func (s *Service) signed(o *OAuth) (string, error) {
	key, err := ReadKey(o.KeyFile)
	if err != nil {
		return "", err
	}
	return credential.Assertion(credential.AssertionDeps{Key: key, Client: o.ClientID, Audience: o.TokenURL, ID: s.deps.NewID(), Now: s.deps.Now()})
}

// basicOf is the value of Authorization (RFC 7617).
func basicOf(user, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

// ReadKey reads a private key (PEM, PKCS #8) that signs assertions. Errors quote nothing.
func ReadKey(path string) (crypto.Signer, error) {
	text, err := ReadSecret(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errNoKey
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	key, ok := parsed.(crypto.Signer)
	if err != nil || !ok {
		return nil, errNoKey
	}
	return key, nil
}

var errNoKey = errors.New("credentials: the file holds no private key: expected PEM, PKCS #8")

// Words of a token endpoint that are passed on (RFC 6749, section 5.2; RFC 8693, section 2.2.2). Others, and
// descriptions, could quote what was sent.
var (
	oursToMend = []string{"invalid_client", "unauthorized_client", "unsupported_grant_type", "invalid_scope"}
	callers    = []string{"invalid_grant", "invalid_request", "invalid_target", "access_denied"}
)

// answered reads the answer of a token endpoint.
func answered(response *http.Response, body []byte, exchange bool) (issued, error) {
	media, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	var answer struct {
		Token     string      `json:"access_token"`
		Type      string      `json:"token_type"`
		ExpiresIn json.Number `json:"expires_in"`
		Error     string      `json:"error"`
	}
	readable := media == "application/json" && json.Unmarshal(body, &answer) == nil
	switch {
	case response.StatusCode >= http.StatusMultipleChoices && response.StatusCode < http.StatusBadRequest:
		return issued{}, &failure{reason: "the token endpoint answers with a redirect, which is not followed"}
	case response.StatusCode >= http.StatusBadRequest && response.StatusCode < http.StatusInternalServerError && readable && slices.Contains(slices.Concat(oursToMend, callers), answer.Error):
		return issued{}, &failure{reason: "the token endpoint refuses: " + answer.Error, caller: exchange && slices.Contains(callers, answer.Error), ours: slices.Contains(oursToMend, answer.Error)}
	case response.StatusCode != http.StatusOK:
		return issued{}, &failure{reason: "the token endpoint answers with HTTP status " + strconv.Itoa(response.StatusCode)}
	case !readable:
		return issued{}, &failure{reason: "the token endpoint answers with no JSON that can be read"}
	case !strings.EqualFold(answer.Type, "bearer"):
		return issued{}, &failure{reason: "the token endpoint gives no bearer token"}
	}
	return judged(answer.Token, answer.ExpiresIn)
}

// judged is a token that can be shown. Without an end it counts as one of five minutes; it counts for a day at most.
func judged(value string, expiresIn json.Number) (issued, error) {
	if !fits(value) || strings.Contains(value, " ") {
		return issued{}, &failure{reason: "there is no token, or one that no header can have"}
	}
	if expiresIn == "" {
		return issued{value, unsaidLife}, nil
	}
	seconds, err := expiresIn.Float64()
	if err != nil || !(seconds >= 1) {
		return issued{}, &failure{reason: "the token has ended already"}
	}
	return issued{value, time.Duration(min(seconds, maxLife.Seconds()) * float64(time.Second))}, nil
}
