package gateway

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Names of artifacts that callers can read later.
const (
	maxPlace    = 2048 // bytes of a URI
	placeScheme = "a2a://"
)

// snapshot is what a reply brings that its caller can read later.
type snapshot struct {
	task      string // by which it is known to its caller
	artifacts []canonical.Artifact
}

// place is where an artifact, or one part of it, can be read.
type place struct {
	agent, task, artifact string
	part                  int // negative: all of them
}

func (p place) uri() string {
	whole := placeScheme + url.PathEscape(p.agent) + "/tasks/" + url.PathEscape(p.task) + "/artifacts/" + url.PathEscape(p.artifact)
	if p.part < 0 {
		return whole
	}
	return whole + "/parts/" + strconv.Itoa(p.part)
}

// placeOf reads what uri wrote, and no other spelling of it.
func placeOf(uri string) (p place, ok bool) {
	rest, ok := strings.CutPrefix(uri, placeScheme)
	segments := strings.Split(rest, "/")
	if !ok || len(uri) > maxPlace || len(segments) != 5 && len(segments) != 7 {
		return p, false
	}
	for i, to := range map[int]*string{0: &p.agent, 2: &p.task, 4: &p.artifact} {
		text, err := url.PathUnescape(segments[i])
		if err != nil {
			return p, false
		}
		*to = text
	}
	p.part = -1
	if len(segments) == 7 {
		var err error
		if p.part, err = strconv.Atoi(segments[6]); err != nil || p.part < 0 {
			return p, false
		}
	}
	return p, p.uri() == uri
}

// label gives what came of a task the names under which its caller can read it
// later, and takes note of it.
func (x *exchange) label(m *canonical.Message) {
	librarian, ok := x.source.(translators.Librarian)
	result, answers := m.Body.(*canonical.Result)
	if !ok || !answers || result.Task == nil || len(result.Task.Artifacts) == 0 || x.relay() || x.call.Agent == "" || !x.call.Entrance.Native() {
		return
	}
	named, task := *result, *result.Task
	id := task.ID
	if x.record != nil {
		id = x.record.Task.ID // by which it is known to its caller
	}
	if id == "" || len(id) > store.MaxTaskID {
		return
	}
	task.Artifacts = slices.Clone(task.Artifacts)
	for i := range task.Artifacts {
		a := &task.Artifacts[i]
		a.Parts = slices.Clone(a.Parts)
		for n := range a.Parts {
			if a.ID != "" && librarian.Embeds(&a.Parts[n]) {
				a.Parts[n].URI, a.Parts[n].Form = place{x.to.Agent.Name, id, a.ID, n}.uri(), canonical.FormEmbedded
			}
		}
	}
	named.Task, m.Body = &task, &named
	x.snapshot = &snapshot{id, result.Task.Artifacts}
}

// saveArtifacts keeps what the reply that was signed last brought.
func (g *Gateway) saveArtifacts(ctx context.Context, x *exchange) {
	brought := x.snapshot
	if brought == nil || x.trail.Reply() == "" {
		return
	}
	x.snapshot = nil
	g.tasks.SaveArtifacts(context.WithoutCancel(ctx), x.keyOf(brought.task), store.Snapshot{
		Workflow: x.workflow, Last: x.trail.Reply(), Artifacts: brought.artifacts,
	})
}

// look answers a caller who looks for what was made for it: itself, because only
// here is known what of an agent's work is whose. False: it asks something else.
func (g *Gateway) look(ctx context.Context, x *exchange) (answer transport.Answer, done bool, err error) {
	librarian, ok := x.source.(translators.Librarian)
	native, asks := x.message.Body.(*canonical.Native)
	if !ok || !asks || !x.call.Entrance.Native() {
		return answer, false, nil
	}
	seeking, err := librarian.Seeks(native)
	if err != nil || seeking == nil {
		return answer, false, err
	}
	m := &canonical.Message{
		Op: x.message.Op, Phase: canonical.PhaseResponse, Correlation: canonical.Correlation{WireID: x.wireID},
		Origin: canonical.Origin{Binding: x.source.Info().Binding},
	}
	g.lineage(x)
	var showing translators.Showing
	switch showing.What = seeking.What; seeking.What {
	case translators.SeekPatterns:
		showing.Holdings = patterns(x.to.Agent.Name)
	case translators.SeekOne:
		showing.Contents, m.Losses, err = g.readHolding(ctx, x, seeking.URI)
	default:
		showing.Holdings, showing.Next, err = g.holdings(ctx, x, seeking.Cursor)
	}
	if err != nil {
		return answer, false, err
	}
	m.Body = librarian.Shows(showing)
	out, err := g.translate(ctx, x, g.toCaller(x, m, x.parents))
	return x.answer(out), true, err
}

// patterns are how the places of an agent are named.
func patterns(agent string) []translators.Holding {
	whole := placeScheme + url.PathEscape(agent) + "/tasks/{task}/artifacts/{artifact}"
	return []translators.Holding{
		{URI: whole, Name: "artifact", Description: "What came of a task: each part is one of the contents."},
		{URI: whole + "/parts/{part}", Name: "part", Description: "One part of that, counted from 0."},
	}
}

// holdings lists what can be read, the newest of a page first.
func (g *Gateway) holdings(ctx context.Context, x *exchange, cursor string) (list []translators.Holding, next string, err error) {
	if strings.Trim(cursor, "0123456789abcdefghijklmnopqrstuvwxyz-.") != "" || len(cursor) > store.MaxTaskID {
		return nil, "", &canonical.Error{Code: canonical.CodeBadParams, Message: "Invalid cursor"}
	}
	entries, next, err := g.tasks.ListArtifacts(ctx, x.keyOf("").Group, cursor)
	for _, entry := range entries {
		for _, a := range entry.Artifacts {
			h := translators.Holding{URI: place{x.to.Agent.Name, entry.Task, a.ID, -1}.uri(), Name: cmp.Or(a.Name, a.ID), Description: a.Description, Media: a.Media}
			list = append(list, h)
		}
	}
	return list, next, err
}

// readHolding reads an artifact, or one part of it. What is another's is not there (R2).
func (g *Gateway) readHolding(ctx context.Context, x *exchange, uri string) ([]translators.Held, []canonical.Loss, error) {
	none := &canonical.Error{Code: canonical.CodeResourceNotFound, Message: "Resource not found"}
	at, ok := placeOf(uri)
	if !ok || at.agent != x.to.Agent.Name {
		return nil, nil, none
	}
	y := g.tasks.LoadArtifacts(ctx, x.keyOf(at.task))
	if y == nil {
		return nil, nil, none
	}
	i := slices.IndexFunc(y.Artifacts, func(a canonical.Artifact) bool { return a.ID == at.artifact })
	if i < 0 || at.part >= len(y.Artifacts[i].Parts) {
		return nil, nil, none
	}
	var held []translators.Held
	var losses []canonical.Loss
	for n := range y.Artifacts[i].Parts {
		if at.part >= 0 && n != at.part {
			continue
		}
		p := &y.Artifacts[i].Parts[n]
		held = append(held, translators.Held{URI: place{at.agent, at.task, at.artifact, n}.uri(), Part: p})
		if p.Name != "" || p.Title != "" || p.Description != "" || len(p.Extensions) > 0 {
			losses = append(losses, canonical.Loss{Code: canonical.LossMetadata, Path: "/body/contents/" + strconv.Itoa(n), Fate: canonical.Dropped})
		}
	}
	x.workflow, x.parents = y.Workflow, x.behind(&store.Record{Proof: store.Proof{Last: y.Last}})
	return held, losses, nil
}
