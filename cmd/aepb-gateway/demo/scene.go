package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/ect"
)

// Scene is what a scene takes beside a stage.
type Scene struct {
	Admin, Token string              // URL of the admin listener, and what makes an operator there
	Ahead        func(time.Duration) // puts the clock of the circuit breakers ahead
	Recorded     <-chan string       // every ECT that the gateway records
	Out          io.Writer           // is told what happens
}

// scene is one while it is played. After the first error nothing more happens.
type scene struct {
	Scene
	stage  *Stage
	client *http.Client
	tokens []string // evidence of what has happened
	err    error
}

func (s *Stage) open(with Scene) *scene {
	client, err := s.newTape()
	return &scene{Scene: with, stage: s, client: &http.Client{Transport: client}, err: err}
}

func (f *scene) say(format string, args ...any) {
	if f.err == nil {
		_, f.err = fmt.Fprintf(f.Out, format+"\n", args...)
	}
}

// send is a request that must be answered with the status.
func (f *scene) send(ctx context.Context, method, url, body string, status int) (answer []byte, header http.Header) {
	return f.sendWith(ctx, method, url, body, status, nil)
}

// sendWith is send with more header fields.
func (f *scene) sendWith(ctx context.Context, method, url, body string, status int, more http.Header) (answer []byte, header http.Header) {
	if f.err != nil {
		return nil, nil
	}
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if f.err = err; err != nil {
		return nil, nil
	}
	maps.Copy(r.Header, more)
	r.Header.Set("Content-Type", "application/json")
	if strings.HasPrefix(url, f.Admin) {
		r.Header.Set("Authorization", "Bearer "+f.Token)
	}
	got, err := f.client.Do(r)
	if f.err = err; err != nil {
		return nil, nil
	}
	answer, err = io.ReadAll(got.Body)
	if f.err = errors.Join(err, got.Body.Close()); f.err == nil && got.StatusCode != status {
		f.err = fmt.Errorf("%s is answered with %s %s, expected %d", url, got.Status, shorten(string(answer)), status)
	}
	return answer, got.Header
}

// evidence waits until the next token of this act is recorded, and shows what it says.
func (f *scene) evidence(ctx context.Context, act ect.Act) {
	for f.err == nil {
		select {
		case token := <-f.Recorded:
			claims, _, err := ect.ParseUnverified(token)
			if err != nil || claims.Act != act {
				continue
			}
			ext, err := json.Marshal(claims.Ext)
			f.err = err
			f.say("   ● %s %s", act, ext)
			f.tokens = append(f.tokens, token)
			return
		case <-ctx.Done():
			f.err = fmt.Errorf("no %s was recorded: %w", act, ctx.Err())
		}
	}
}

// prove verifies the evidence offline, as is possible to all who have the trust bundle.
func (f *scene) prove(ctx context.Context) {
	if f.err != nil {
		return
	}
	verified, err := f.stage.verify(ctx, f.tokens)
	for _, claims := range verified {
		f.say("● %-21s  jti %s  verified", claims.Act, claims.ID)
	}
	f.err = errors.Join(f.err, err)
	f.say("All %d ECTs of the scene verified against the trust bundle.", len(verified))
}
