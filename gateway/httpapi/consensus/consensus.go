// Package consensus serves rounds in which agents decide together over HTTP: to participants on the public listener, to
// operators below /api (draft-nennemann-agent-consensus-00; R24, R25).
//
// A message has its sender's signature and comes from its sender alone. Who takes no part in a round does not learn that it
// exists. Before the tally, no participant but a leader reads a vote of others, and operators read none.
//
// Alternatives considered: votes as messages to an agent of the gateway. They would be translated, and their
// signatures would cover other bytes.
package consensus

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/aepb/aepb-gateway/ect"
	coordinator "github.com/aepb/aepb-gateway/gateway/consensus"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/consensus"
)

const (
	maxPage   = 100 // rounds or messages
	mediaJSON = "application/json"
)

// Rounds coordinates rounds. It is a [coordinator.Service].
type Rounds interface {
	Propose(ctx context.Context, who ect.Identity, text []byte) (consensus.Round, error)
	Vote(ctx context.Context, who ect.Identity, round string, text []byte) (hash string, err error)
	Acknowledge(ctx context.Context, who ect.Identity, round string, text []byte) (hash string, err error)
	Reader
}

// Reader reads rounds.
type Reader interface {
	Group(ctx context.Context, name string, who ect.Identity) (consensus.Group, []consensus.Member, ect.Identity, error)
	Show(ctx context.Context, id string, who ect.Identity) (consensus.Round, error)
	List(ctx context.Context, who ect.Identity, after string, limit int) ([]consensus.Round, string, error)
	Messages(ctx context.Context, round string, who ect.Identity, after, limit int) ([]coordinator.Message, bool, error)
	// Follow tells how a round changes, until ctx ends or the round is over.
	Follow(ctx context.Context, id string, who ect.Identity, tell func(r consensus.Round, changed bool) error) error
}

// Mount adds the routes of the public listener. Callers have an identity and are within their limit when a route is
// reached. Without rounds nothing is served.
func Mount(routes gin.IRoutes, rounds Rounds) {
	if rounds == nil {
		return
	}
	h := handler{rounds}
	routes.GET("/consensus/groups/:name", h.group)
	routes.POST("/consensus/rounds", h.propose)
	routes.GET("/consensus/rounds", h.list)
	routes.GET("/consensus/rounds/:id", h.show)
	routes.POST("/consensus/rounds/:id/votes", h.take(rounds.Vote, consensus.MaxVote))
	routes.GET("/consensus/rounds/:id/votes", h.messages)
	routes.POST("/consensus/rounds/:id/ack", h.take(rounds.Acknowledge, 4*consensus.MaxVote))
	routes.GET("/consensus/rounds/:id/events", h.events)
}

type handler struct{ rounds Rounds }

// caller is who asks. Callers without an identity take no part in rounds.
func caller(c *gin.Context) (ect.Identity, error) {
	who := transport.CallerFrom(c.Request.Context())
	if who.Anonymous || who.ID == "" {
		return "", &policy.Forbidden{Reason: "consensus rounds are for callers with an identity"}
	}
	return who.ID, nil
}

// GroupView is a group, for who takes part in it.
type GroupView struct {
	Group        string                        `json:"group"`
	Participants []ect.Identity                `json:"participants"`
	Weights      []consensus.Member            `json:"weights"` // in hundredths, as they count now
	WeightsHash  string                        `json:"weights_hash"`
	Mechanisms   []consensus.Mechanism         `json:"mechanisms"`
	Quorum       map[consensus.Mechanism]int64 `json:"quorum"` // the smallest that a proposal may ask for
	Threshold    int                           `json:"threshold"`
	Leader       ect.Identity                  `json:"leader"` // of a round that is opened now, under leader
	Deadlock     consensus.Strategy            `json:"deadlock"`
	Longest      int64                         `json:"longest_s"`
	Proposers    []ect.Identity                `json:"proposers"`
}

func (h handler) group(c *gin.Context) {
	who, err := caller(c)
	if err != nil {
		write(c, 0, nil, err)
		return
	}
	g, table, leader, err := h.rounds.Group(c.Request.Context(), c.Param("name"), who)
	write(c, http.StatusOK, groupView(g, table, leader), err)
}

func groupView(g consensus.Group, table []consensus.Member, leader ect.Identity) GroupView {
	g = g.WithDefaults()
	v := GroupView{
		Group: g.Name, Weights: table, WeightsHash: consensus.WeightsHash(table), Mechanisms: g.Mechanisms, Quorum: map[consensus.Mechanism]int64{},
		Threshold: g.Threshold, Leader: leader, Deadlock: g.Deadlock, Longest: int64(g.Longest / time.Second),
	}
	for _, m := range table {
		v.Participants = append(v.Participants, m.ID)
	}
	for _, m := range g.Mechanisms {
		v.Quorum[m] = g.Floor(m, table)
	}
	v.Proposers = slices.Sorted(maps.Keys(g.Proposers))
	return v
}

func (h handler) propose(c *gin.Context) {
	who, err := caller(c)
	var text []byte
	if err == nil {
		text, err = body(c, consensus.MaxProposal*2)
	}
	var r consensus.Round
	if err == nil {
		r, err = h.rounds.Propose(c.Request.Context(), who, text)
	}
	if err == nil {
		c.Header("Location", "/consensus/rounds/"+url.PathEscape(r.Proposal.Round))
	}
	write(c, http.StatusCreated, View(r), err)
}

// Taken is a message that was taken.
type Taken struct {
	Hash string `json:"hash"` // names it: of its signature
}

type taker = func(ctx context.Context, who ect.Identity, round string, text []byte) (string, error)

func (h handler) take(by taker, limit int64) gin.HandlerFunc {
	return func(c *gin.Context) {
		who, err := caller(c)
		var text []byte
		if err == nil {
			text, err = body(c, limit*2)
		}
		var hash string
		if err == nil {
			hash, err = by(c.Request.Context(), who, c.Param("id"), text)
		}
		write(c, http.StatusAccepted, Taken{hash}, err)
	}
}

func (h handler) show(c *gin.Context) {
	who, err := caller(c)
	var r consensus.Round
	if err == nil {
		r, err = h.rounds.Show(c.Request.Context(), c.Param("id"), who)
	}
	write(c, http.StatusOK, View(r), err)
}

func (h handler) list(c *gin.Context) {
	who, err := caller(c)
	if err != nil {
		write(c, 0, nil, err)
		return
	}
	list(c, h.rounds, who)
}

// Page is a part of rounds.
type Page struct {
	Rounds []RoundView `json:"rounds"`
	Next   string      `json:"next,omitempty"`
}

func list(c *gin.Context, rounds Reader, who ect.Identity) {
	limit, err := limitOf(c)
	var found []consensus.Round
	out := Page{Rounds: []RoundView{}}
	if err == nil {
		found, out.Next, err = rounds.List(c.Request.Context(), who, c.Query("after"), limit)
	}
	for _, r := range found {
		out.Rounds = append(out.Rounds, View(r))
	}
	write(c, http.StatusOK, out, err)
}

// Messages is a part of the signed messages of a round.
type Messages struct {
	Messages []MessageView `json:"messages"`
	Next     string        `json:"next,omitempty"`
}

// MessageView is a signed message.
type MessageView struct {
	Kind     string          `json:"kind"` // vote or ack
	Message  json.RawMessage `json:"message"`
	Received time.Time       `json:"received"`
}

func (h handler) messages(c *gin.Context) {
	who, err := caller(c)
	limit, after := maxPage, 0
	if err == nil {
		limit, err = limitOf(c)
	}
	if text := c.Query("after"); err == nil && text != "" {
		if after, err = strconv.Atoi(text); err != nil || after < 0 {
			err = &problem.QueryError{Reason: "after is the next of the page before"}
		}
	}
	var found []coordinator.Message
	var more bool
	if err == nil {
		found, more, err = h.rounds.Messages(c.Request.Context(), c.Param("id"), who, after, limit)
	}
	out := Messages{Messages: []MessageView{}}
	for _, m := range found {
		text, failed := m.JSON()
		if failed != nil {
			err = failed
			break
		}
		out.Messages = append(out.Messages, MessageView{m.Kind, text, m.Received})
	}
	if more {
		out.Next = strconv.Itoa(after + len(found))
	}
	write(c, http.StatusOK, out, err)
}

func limitOf(c *gin.Context) (int, error) {
	text := c.Query("limit")
	if text == "" {
		return maxPage, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, &problem.QueryError{Reason: "limit is a number from 1 to 100"}
	}
	return min(n, maxPage), nil
}

// body reads a message in JSON.
func body(c *gin.Context, limit int64) ([]byte, error) {
	media, _, _ := strings.Cut(c.Request.Header.Get("Content-Type"), ";")
	if strings.ToLower(strings.TrimSpace(media)) != mediaJSON {
		return nil, &problem.MediaTypeError{Want: []string{mediaJSON}}
	}
	text, err := io.ReadAll(http.MaxBytesReader(c.Writer, c.Request.Body, limit))
	return text, problem.Reading(err)
}

// write answers with a body, or with the problem that err is.
func write(c *gin.Context, status int, body any, err error) {
	if err != nil {
		problem.Write(c.Writer, c.Request, err)
		return
	}
	c.Header("Cache-Control", "private, no-store")
	c.JSON(status, body)
}
