package interop

import (
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// This file is a verifier of its own: it reads ECTs with a stock JWT library and
// the standard library, and takes nothing from the packages it judges.

// auditor knows the trust bundle and who the gateway is.
type auditor struct {
	roots   *x509.CertPool
	gateway string
}

// claims are the claims of an ECT that translations use.
type claims struct {
	jwt.RegisteredClaims
	Workflow   string                     `json:"wid"`
	Act        string                     `json:"exec_act"`
	Parents    []string                   `json:"par"`
	InputHash  string                     `json:"inp_hash"`
	OutputHash string                     `json:"out_hash"`
	Ext        map[string]json.RawMessage `json:"ext"`

	compact string
}

func (c claims) ext(key string) string {
	var text string
	_ = json.Unmarshal(c.Ext[key], &text)
	return text
}

// read verifies one compact ECT of the gateway completely.
func (a auditor) read(compact string) (claims, error) {
	c := claims{compact: compact}
	_, err := jwt.ParseWithClaims(compact, &c, func(token *jwt.Token) (any, error) { return a.key(token, &c) },
		jwt.WithValidMethods([]string{"ES256"}), jwt.WithExpirationRequired(), jwt.WithIssuedAt(),
		jwt.WithIssuer(a.gateway), jwt.WithLeeway(2*time.Second))
	if err != nil {
		return c, err
	}
	for name, id := range map[string]string{"jti": c.ID, "wid": c.Workflow} {
		if _, err := uuid.Parse(id); err != nil {
			return c, fmt.Errorf("%s: %w", name, err)
		}
	}
	if c.Parents == nil || len(c.Audience) == 0 || c.Act == "" {
		return c, errors.New("par, aud or exec_act is missing")
	}
	return c, nil
}

// key is the leaf key of x5c, after its chain, its name and its thumbprint.
func (a auditor) key(token *jwt.Token, c *claims) (any, error) {
	if token.Header["typ"] != "exec+jwt" {
		return nil, fmt.Errorf("typ is %v", token.Header["typ"])
	}
	chain, err := chainOf(token.Header["x5c"])
	if err != nil {
		return nil, err
	}
	issued, err := c.GetIssuedAt()
	if err != nil || issued == nil {
		return nil, errors.New("iat is missing")
	}
	intermediates := x509.NewCertPool()
	for _, cert := range chain[1:] {
		intermediates.AddCert(cert)
	}
	leaf := chain[0]
	if _, err := leaf.Verify(x509.VerifyOptions{
		Roots: a.roots, Intermediates: intermediates, CurrentTime: issued.Time,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	}); err != nil {
		return nil, err
	}
	if len(leaf.URIs) != 1 || leaf.URIs[0].String() != c.Issuer {
		return nil, fmt.Errorf("the certificate of %v signs for %s", leaf.URIs, c.Issuer)
	}
	key, ok := leaf.PublicKey.(*ecdsa.PublicKey)
	if !ok {
		return nil, fmt.Errorf("the leaf key is a %T", leaf.PublicKey)
	}
	if want, err := devgateway.Thumbprint(key); err != nil || token.Header["kid"] != want {
		return nil, fmt.Errorf("kid is %v, the thumbprint %s (%w)", token.Header["kid"], want, err)
	}
	return key, nil
}

func chainOf(x5c any) ([]*x509.Certificate, error) {
	list, ok := x5c.([]any)
	if !ok || len(list) == 0 {
		return nil, errors.New("x5c is missing")
	}
	chain := make([]*x509.Certificate, len(list))
	for i, entry := range list {
		text, _ := entry.(string)
		der, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil, fmt.Errorf("x5c: %w", err)
		}
		if chain[i], err = x509.ParseCertificate(der); err != nil {
			return nil, fmt.Errorf("x5c: %w", err)
		}
	}
	return chain, nil
}

func digest(bytes string) string {
	sum := sha256.Sum256([]byte(bytes))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// list reads and verifies a whole Execution-Context value.
func (a auditor) list(value string) ([]claims, error) {
	var all []claims
	var errs []error
	for compact := range strings.SplitSeq(value, ",") {
		compact = strings.TrimSpace(compact)
		if compact == "" {
			continue
		}
		c, err := a.read(compact)
		if err != nil {
			errs = append(errs, fmt.Errorf("ECT does not verify: %w", err))
			continue
		}
		all = append(all, c)
	}
	return all, errors.Join(errs...)
}

// answered checks the evidence of an exchange that was carried to an agent and
// back: who asked, what reached the agent, what came back, and how the two
// translations hang together.
func (a auditor) answered(e exchange, callerID string, upstream []peers.Received) error {
	all, err := a.list(e.Evidence)
	if err != nil {
		return err
	}
	request, reply := pick(all, "request"), pick(all, "reply")
	if request == nil || reply == nil {
		return fmt.Errorf("the response carries %d ECTs, not one of each leg", len(all))
	}
	var errs []error
	demand := func(holds bool, format string, values ...any) {
		if !holds {
			errs = append(errs, fmt.Errorf(format, values...))
		}
	}
	demand(slices.Contains(request.Audience, a.gateway), "aud of the request leg is %v", request.Audience)
	demand(slices.Contains(reply.Audience, callerID), "aud of the reply leg is %v, want %s", reply.Audience, callerID)
	demand(request.ext("aepb.caller") == callerID, "aepb.caller is %s, want %s", request.ext("aepb.caller"), callerID)
	demand(reply.Workflow == request.Workflow, "wid changes from %s to %s", request.Workflow, reply.Workflow)
	demand(slices.Contains(reply.Parents, request.ID), "par of the reply leg is %v, without %s", reply.Parents, request.ID)
	demand(request.InputHash == digest(e.Request), "inp_hash of the request leg is not the hash of what the client sent")
	demand(!isJSON(e.Type) || reply.OutputHash == digest(e.Response), "out_hash of the reply leg is not the hash of what the client got")
	return errors.Join(append(errs, a.forwarded(*request, upstream))...)
}

// forwarded checks that the agent got exactly what the request leg testifies to,
// with that ECT beside it.
func (a auditor) forwarded(request claims, upstream []peers.Received) error {
	for _, received := range upstream {
		evidence := strings.Join(received.Evidence, ",")
		if !strings.Contains(evidence, request.compact) {
			continue
		}
		_, err := a.list(evidence)
		if request.OutputHash != digest(string(received.Body)) {
			err = errors.Join(err, errors.New("out_hash of the request leg is not the hash of what the agent got"))
		}
		return err
	}
	return fmt.Errorf("none of the %d requests that reached the agent carries the request leg's ECT", len(upstream))
}

// refused checks the evidence of a call that failed inside the gateway.
func (a auditor) refused(e exchange) error {
	all, err := a.list(e.Evidence)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(all, func(c claims) bool { return c.Act == "aepb:translate_error" }) {
		return fmt.Errorf("none of the %d ECTs of the response testifies to the failure", len(all))
	}
	return nil
}

func pick(all []claims, direction string) *claims {
	for i, c := range all {
		if c.Act == "aepb:translate" && c.ext("aepb.leg") == direction {
			return &all[i]
		}
	}
	return nil
}

func isJSON(media string) bool { return strings.HasPrefix(media, "application/json") }
