package consensus

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/policy/consensus"
	"github.com/aepb/aepb-gateway/policy/consensus/signed"
)

// RoundView is a round as it is told. It has nothing of votes before there is an outcome.
type RoundView struct {
	Round     string                  `json:"round"`
	Phase     consensus.Phase         `json:"phase"`
	Opened    time.Time               `json:"opened"`
	Changed   time.Time               `json:"changed"`
	Deadline  time.Time               `json:"deadline"`
	Attempt   int                     `json:"attempt"` // 1: its proposal was submitted for the first time
	Proposal  json.RawMessage         `json:"proposal"`
	Rules     consensus.Rules         `json:"rules"`
	Workflow  string                  `json:"wid"`
	Proposed  ect.ID                  `json:"propose"`           // jti of the consensus_propose
	Committed ect.ID                  `json:"commit,omitempty"`  // jti of the consensus_commit
	Outcome   json.RawMessage         `json:"outcome,omitempty"` // signed
	Why       consensus.Reason        `json:"why,omitempty"`     // of an escalated round: how it would have ended
	Approval  string                  `json:"approval,omitempty"`
	Deadlock  *consensus.Deadlock     `json:"deadlock,omitempty"`
	Anomalies []consensus.AnomalyKind `json:"anomalies,omitempty"`
}

// View is how a round is told.
func View(r consensus.Round) RoundView {
	v := RoundView{
		Round: r.Proposal.Round, Phase: r.Phase, Opened: r.Opened, Changed: r.Changed, Deadline: r.Deadline(), Attempt: r.Attempt,
		Rules: r.Rules, Workflow: r.Workflow, Proposed: r.Proposed, Why: r.Human.Why, Approval: r.Human.Approval,
	}
	v.Proposal = message[consensus.Proposal](r.Signed)
	if len(r.Deadlock.Candidates) > 0 {
		v.Deadlock = &r.Deadlock
	}
	if r.End.Signature == "" {
		return v
	}
	v.Outcome, v.Anomalies = message[consensus.Outcome](r.End.Signature), r.End.Anomalies
	if claims, err := ect.ParseRecorded(r.Token); err == nil && claims.Act == ect.ActConsensusCommit {
		v.Committed = claims.ID
	}
	return v
}

// message is a signed message as it is sent; null where it cannot be read, which is never of one that was taken.
func message[M signed.Content](compact string) json.RawMessage {
	m, err := signed.Take[M](compact)
	if err != nil {
		return json.RawMessage("null")
	}
	text, err := m.MarshalJSON()
	if err != nil {
		return json.RawMessage("null")
	}
	return text
}

// events tells how a round changes, as server-sent events, until it is over.
func (h handler) events(c *gin.Context) {
	who, err := caller(c)
	if err != nil {
		write(c, 0, nil, err)
		return
	}
	control := http.NewResponseController(c.Writer)
	err = h.rounds.Follow(c.Request.Context(), c.Param("id"), who, func(r consensus.Round, changed bool) error {
		text := ": \n\n"
		if changed {
			data, err := json.Marshal(View(r))
			if err != nil {
				return err
			}
			text = "event: round\ndata: " + string(data) + "\n\n"
		}
		if !c.Writer.Written() {
			c.Header("Content-Type", "text/event-stream")
			c.Header("Cache-Control", "no-store")
		}
		_, err := c.Writer.WriteString(text)
		return errors.Join(err, control.Flush())
	})
	if err != nil && !c.Writer.Written() {
		problem.Write(c.Writer, c.Request, err)
	}
}

// Admin is what the routes of the admin listener are made from.
type Admin struct{ Rounds Reader }

// Mount adds the routes, below /api. Only operators reach them.
func (a Admin) Mount(routes gin.IRoutes) {
	if a.Rounds == nil {
		return
	}
	routes.GET("/consensus", func(c *gin.Context) { list(c, a.Rounds, "") })
	routes.GET("/consensus/:id", func(c *gin.Context) {
		r, err := a.Rounds.Show(c.Request.Context(), c.Param("id"), "")
		write(c, http.StatusOK, View(r), err)
	})
}
