package approvals

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/test/harness/wait"
)

// approval is what the admin API says of one.
type approval struct {
	ID    string `json:"id"`
	State string `json:"state"`
	WID   string `json:"wid"`
	Task  string `json:"task"`
	Shown string `json:"shown"`
	Text  string `json:"text"`
	Call  struct {
		Digest string `json:"digest"`
	} `json:"call"`
	Opened    time.Time `json:"opened"`
	Decisions []struct {
		Token ect.ID    `json:"token"`
		At    time.Time `json:"at"`
	} `json:"decisions"`
}

const (
	statePending = "pending"
	stateGranted = "granted"
	stateUsed    = "consumed"
)

// errAnswer is an answer that is an error: another replica would say the same.
var errAnswer = errors.New("the admin API refuses")

// admin asks one replica.
func (g *group) admin(ctx context.Context, replica int, method, path string, body []byte, into any) error {
	base := g.Admin(replica)
	if base == "" {
		return errors.New("the replica does not run")
	}
	ctx, cancel := context.WithTimeout(ctx, sendTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, base+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := g.Boss.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	switch {
	case err != nil:
		return err
	case resp.StatusCode == http.StatusOK:
		return json.Unmarshal(text, into)
	case resp.StatusCode < http.StatusInternalServerError:
		return fmt.Errorf("%w: %d %.300s", errAnswer, resp.StatusCode, text)
	}
	return fmt.Errorf("replica %d: %d %.300s", replica, resp.StatusCode, text)
}

// anyAdmin asks one replica after the other until one answers.
func (g *group) anyAdmin(ctx context.Context, first int, method, path string, body []byte, into any) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for n := first; ; n++ {
		err := g.admin(ctx, n%g.Replicas, method, path, body, into)
		if err == nil || errors.Is(err, errAnswer) {
			return err
		}
		if !wait.Pause(ctx, retryEvery) {
			return fmt.Errorf("no replica answers %s %s: %w", method, path, err)
		}
	}
}

func (g *group) show(ctx context.Context, first int, id string) (a approval, err error) {
	return a, g.anyAdmin(ctx, first, http.MethodGet, "/api/approvals/"+id, nil, &a)
}

// decide decides about an approval as the key in its text says, at first at one replica. begun is called when the
// request is on its way.
func (g *group) decide(ctx context.Context, first int, a approval, begun func()) error {
	order := map[string]string{"decision": "approve", "shown": a.Shown}
	switch {
	case strings.Contains(a.Text, wantLeave):
		return nil
	case strings.Contains(a.Text, wantDeny):
		order["decision"] = "deny"
	}
	body, err := json.Marshal(order)
	if err != nil {
		return err
	}
	begun()
	err = g.anyAdmin(ctx, first, http.MethodPost, "/api/approvals/"+a.ID+"/decision", body, &approval{})
	if errors.Is(err, errAnswer) {
		return nil // its time is over, or it was decided already: the judge sees how it ends
	}
	return err
}

// list is all approvals, in a state or in any.
func (g *group) list(ctx context.Context, first int, state string) (all []approval, err error) {
	for after := ""; ; {
		var page struct {
			Approvals []approval `json:"approvals"`
			Next      string     `json:"next"`
		}
		if err := g.anyAdmin(ctx, first, http.MethodGet, "/api/approvals?state="+state+"&after="+after, nil, &page); err != nil {
			return all, err
		}
		all = append(all, page.Approvals...)
		if after = page.Next; after == "" {
			return all, nil
		}
	}
}

// sweep decides about what is pending although its caller does not know it, until ctx ends: the answer to the call
// was lost.
func (g *group) sweep(ctx context.Context) {
	for n := 0; wait.Pause(ctx, sweepEvery); n++ {
		all, err := g.list(ctx, n, statePending)
		for _, a := range all {
			if err != nil || time.Since(a.Opened) < orphanAfter {
				continue
			}
			if a, err = g.show(ctx, n, a.ID); err == nil {
				err = g.decide(ctx, n, a, func() {})
			}
		}
	}
}

const (
	sweepEvery  = 2 * time.Second
	orphanAfter = 6 * time.Second // then no caller decides about it any more
)
