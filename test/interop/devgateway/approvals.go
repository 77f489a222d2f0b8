package devgateway

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
)

// Approval is one that the admin API lists.
type Approval struct {
	ID    string `json:"id"`
	Shown string `json:"shown"`
	Task  string `json:"task"`
	Call  struct {
		Agent string `json:"agent"`
	} `json:"call"`
}

// Pending are the approvals that wait for an approver.
func (p *Process) Pending(ctx context.Context) ([]Approval, error) {
	var list struct {
		Approvals []Approval `json:"approvals"`
	}
	err := p.get(ctx, "/api/approvals?state=pending", &list)
	return list.Approvals, err
}

// Decide approves or denies one.
func (p *Process) Decide(ctx context.Context, a Approval, decision, reason string) error {
	body, err := json.Marshal(map[string]string{"decision": decision, "shown": a.Shown, "reason": reason})
	if err != nil {
		return fmt.Errorf("devgateway: %w", err)
	}
	_, err = p.admin(ctx, http.MethodPost, "/api/approvals/"+a.ID+"/decision", body)
	return err
}
