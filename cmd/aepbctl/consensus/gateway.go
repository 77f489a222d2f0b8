package consensus

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	json2 "github.com/go-json-experiment/json"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/client"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/policy/consensus"
	"github.com/aepb/aepb-gateway/policy/consensus/signed"
)

const (
	maxPages = 1000
	rounds   = "/consensus/rounds"
)

func roundPath(id string) string { return rounds + "/" + url.PathEscape(id) }

// decode reads JSON of a gateway: names are exact and none stands twice.
func decode(text []byte, into any) error {
	if err := json2.Unmarshal(text, into); err != nil {
		return fmt.Errorf("the gateway's answer cannot be read: %w", err)
	}
	return nil
}

// read asks the public listener for a value.
func (d Deps) read(ctx context.Context, path string, into any) error {
	body, err := d.Public(ctx, http.MethodGet, path, nil, http.StatusOK)
	if err != nil {
		return err
	}
	return decode(body, into)
}

// round reads a round, which has to be the one that was asked for.
func (d Deps) round(ctx context.Context, id string) (v roundView, body []byte, err error) {
	if body, err = d.Public(ctx, http.MethodGet, roundPath(id), nil, http.StatusOK); err != nil {
		return v, nil, err
	}
	if err = decode(body, &v); err == nil && v.Round != id {
		err = fmt.Errorf("the gateway answered with round %s, expected %s: tell its operator", v.Round, id)
	}
	return v, body, err
}

// messages are the pages of messages of a round as they came, and what is in them.
func (d Deps) messages(ctx context.Context, id string) (bodies [][]byte, all []entry, err error) {
	path := roundPath(id) + "/votes"
	for range maxPages {
		body, err := d.Public(ctx, http.MethodGet, path, nil, http.StatusOK)
		if err != nil {
			return nil, nil, err
		}
		var p messagePage
		if err := decode(body, &p); err != nil {
			return nil, nil, err
		}
		bodies, all = append(bodies, body), append(all, p.Messages...)
		if p.Next == "" {
			return bodies, all, nil
		}
		path = roundPath(id) + "/votes?" + url.Values{"after": {p.Next}}.Encode()
	}
	return nil, nil, fmt.Errorf("the gateway lists more than %d pages of messages: tell its operator", maxPages)
}

// proposal is the proposal of a round, whose signature is verified.
func (d Deps) proposal(ctx context.Context, t client.Trust, v roundView) (signed.Message[consensus.Proposal], error) {
	m, err := signed.Parse[consensus.Proposal](v.Proposal)
	if err != nil {
		return m, err
	}
	if m.Content.Round != v.Round {
		return m, fmt.Errorf("the proposal is that of round %s, expected %s: tell the gateway's operator, and do not vote", m.Content.Round, v.Round)
	}
	verifier, err := d.Verifier(t.Bundle, t.Domain)
	if err != nil {
		return m, err
	}
	if err := m.Verify(ctx, verifier); err != nil {
		return m, fmt.Errorf("the proposal is not verified as one of %s: %w: name its trust anchors with --bundle and --trust-domain, or do not vote", m.Content.Proposer, err)
	}
	return m, nil
}

// sent is the answer to a message that was taken.
type sent struct {
	Round string `json:"round"`
	Kind  string `json:"kind"` // vote, or the kind of acknowledgement
	Hash  string `json:"hash"`
	Note  string `json:"note,omitempty"` // what else there is to do
}

func (s sent) print(w io.Writer) error {
	note := ""
	if s.Note != "" {
		note = ": " + terminal.Line(s.Note)
	}
	_, err := fmt.Fprintf(w, "%s of round %s is with the gateway, hash %s%s\n", terminal.Word(s.Kind), terminal.Word(s.Round), terminal.Word(s.Hash), note)
	return err
}

// deliver sends a signed message, which the gateway has to name by the same hash.
func deliver[M signed.Content](ctx context.Context, d Deps, path string, m signed.Message[M]) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	body, err := d.Public(ctx, http.MethodPost, path, text, http.StatusAccepted)
	if err != nil {
		return err
	}
	var got struct {
		Hash string `json:"hash"`
	}
	if err := decode(body, &got); err != nil {
		return err
	}
	if got.Hash != m.Hash {
		return fmt.Errorf("the gateway took a message with hash %s, expected %s: tell its operator", got.Hash, m.Hash)
	}
	return nil
}
