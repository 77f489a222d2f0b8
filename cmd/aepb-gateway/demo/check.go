package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
)

// tape is an HTTP transport that keeps the last exchange which carried evidence.
type tape struct {
	next     http.RoundTripper
	request  []byte
	reply    []byte
	evidence []string
}

func (s *Stage) newTape() (*tape, error) {
	source, err := identity.NewSource(s.deps.Development.Client, s.deps.Development.Bundle)
	if err != nil {
		return nil, err
	}
	return &tape{next: &http.Transport{TLSClientConfig: source.ClientConfig(""), DisableKeepAlives: true}}, nil
}

// RoundTrip sends the request as it is and keeps both bodies.
func (t *tape) RoundTrip(r *http.Request) (*http.Response, error) {
	var request []byte
	if r.Body != nil {
		var err error
		if request, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		r = r.Clone(r.Context())
		r.Body = io.NopCloser(bytes.NewReader(request))
	}
	response, err := t.next.RoundTrip(r)
	if err != nil || len(response.Header.Values(ect.HeaderName)) == 0 {
		return response, err
	}
	reply, err := io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return nil, err
	}
	response.Body = io.NopCloser(bytes.NewReader(reply))
	t.request, t.reply, t.evidence = request, reply, response.Header.Values(ect.HeaderName)
	return response, nil
}

// check verifies every ECT of an exchange and compares every hash with the
// bytes that were on the wire.
func (s *Stage) check(ctx context.Context, x Exchange, t *tape) (Exchange, error) {
	x.Request, x.Reply, x.ECTs, x.Losses = t.request, t.reply, t.evidence, []string{}
	if !exact(x.Request) || !exact(x.Translated) || !exact(x.Reply) || len(x.ECTs) != 2 {
		return x, fmt.Errorf("expected three messages without space between tokens and two ECTs, got %d ECTs", len(x.ECTs))
	}
	directions, err := s.verify(ctx, x.ECTs)
	if err != nil {
		return x, err
	}
	for _, direction := range directions {
		warnings, _ := direction.Ext.Strings(ect.ExtWarnings)
		x.Losses = append(x.Losses, warnings...)
	}
	request, reply := directions[0], directions[1]
	switch {
	case request.InputHash != ect.Hash(x.Request):
		return x, errors.New("the first ECT does not cover what the client sent")
	case request.OutputHash != ect.Hash(x.Translated):
		return x, errors.New("the first ECT does not cover what the other side received")
	case reply.OutputHash != ect.Hash(x.Reply):
		return x, errors.New("the second ECT does not cover what the client got")
	case !slices.Equal(reply.Parents, []ect.ID{request.ID}) || reply.Workflow != request.Workflow:
		return x, errors.New("the second ECT does not descend from the first")
	}
	return x, nil
}

// exact reports whether the report keeps the bytes of a JSON message, so that a reader can hash it:
// encoding/json removes white space.
func exact(message []byte) bool {
	var compact bytes.Buffer
	return json.Compact(&compact, message) == nil && bytes.Equal(compact.Bytes(), message)
}

func (s *Stage) verify(ctx context.Context, tokens []string) ([]ect.Claims, error) {
	keys, err := identity.NewKeyRing(identity.KeyRingDeps{Bundle: s.deps.Development.Bundle})
	if err != nil {
		return nil, err
	}
	verifier, err := ect.NewVerifier(ect.VerifierDeps{Keys: keys, Now: time.Now})
	if err != nil {
		return nil, err
	}
	claims := make([]ect.Claims, 0, len(tokens))
	for _, token := range tokens {
		v, err := verifier.Verify(ctx, token, ect.Check{Purpose: ect.Parent})
		if err != nil {
			return nil, err
		}
		claims = append(claims, v.Claims())
	}
	return claims, nil
}

func last(received []peers.Received) peers.Received {
	if len(received) == 0 {
		return peers.Received{}
	}
	return received[len(received)-1]
}

func contains(body []byte, text string) bool { return bytes.Contains(body, []byte(text)) }
