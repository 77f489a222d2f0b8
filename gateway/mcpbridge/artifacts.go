package mcpbridge

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

const (
	maxURI = 2048 // bytes
	scheme = "a2a://"
)

// Whole is the part of an artifact that is all of them.
const Whole = -1

// ArtifactURI is where an artifact of an agent's task can be read, or one part of it.
func ArtifactURI(agent, task, artifact string, part int) string {
	uri := scheme + url.PathEscape(agent) + "/tasks/" + url.PathEscape(task) + "/artifacts/" + url.PathEscape(artifact)
	if part < 0 {
		return uri
	}
	return uri + "/parts/" + strconv.Itoa(part)
}

// Patterns are how the artifacts of an agent are named.
func Patterns(agent string) []translators.Resource {
	whole := scheme + url.PathEscape(agent) + "/tasks/{task}/artifacts/{artifact}"
	return []translators.Resource{
		{URI: whole, Name: "artifact", Description: "What came of a task: each part is one of the contents."},
		{URI: whole + "/parts/{part}", Name: "part", Description: "One part of that, counted from 0."},
	}
}

// address is what an ArtifactURI says.
type address struct {
	agent, task, artifact string
	part                  int
}

// parse reads what ArtifactURI wrote, and no other spelling of it.
func parse(uri string) (a address, ok bool) {
	rest, ok := strings.CutPrefix(uri, scheme)
	segments := strings.Split(rest, "/")
	if !ok || len(uri) > maxURI || len(segments) != 5 && len(segments) != 7 {
		return a, false
	}
	for i, to := range map[int]*string{0: &a.agent, 2: &a.task, 4: &a.artifact} {
		text, err := url.PathUnescape(segments[i])
		if err != nil {
			return a, false
		}
		*to = text
	}
	a.part = Whole
	if len(segments) == 7 {
		var err error
		if a.part, err = strconv.Atoi(segments[6]); err != nil || a.part < 0 {
			return a, false
		}
	}
	return a, ArtifactURI(a.agent, a.task, a.artifact, a.part) == uri
}

// Artifacts lists and reads what came of a caller's tasks.
type Artifacts struct{ Tasks *store.Store }

// List is what can be read of an agent, the newest of a page first. group is that of the
// caller's tasks there. Its errors are *[canonical.Error] for a cursor that no List returned,
// and *problem.RecordingError.
func (a Artifacts) List(ctx context.Context, group, agent, cursor string) (list []translators.Resource, next string, err error) {
	if strings.Trim(cursor, "0123456789abcdefghijklmnopqrstuvwxyz-.") != "" || len(cursor) > store.MaxTaskID {
		return nil, "", &canonical.Error{Code: canonical.CodeBadParams, Message: "Invalid cursor"}
	}
	entries, next, err := a.Tasks.ListArtifacts(ctx, group, cursor)
	for _, entry := range entries {
		for _, one := range entry.Artifacts {
			list = append(list, translators.Resource{
				URI: ArtifactURI(agent, entry.Task, one.ID, Whole), Name: cmp.Or(one.Name, one.ID), Description: one.Description, Media: one.Media,
			})
		}
	}
	return list, next, err
}

// Read is an artifact, or one part of it.
type Read struct {
	Contents []translators.ResourceContent
	Losses   []canonical.Loss
	Workflow string
	Last     ect.ID // of the ECT of the reply that brought it
}

// Read reads what a URI names. keyOf is the key of a caller's task. What is another's is not
// there (R2): a *[canonical.Error].
func (a Artifacts) Read(ctx context.Context, agent, uri string, keyOf func(task string) store.EntryKey) (Read, error) {
	missing := &canonical.Error{Code: canonical.CodeResourceNotFound, Message: "Resource not found"}
	at, ok := parse(uri)
	if !ok || at.agent != agent {
		return Read{}, missing
	}
	stored := a.Tasks.LoadArtifacts(ctx, keyOf(at.task))
	if stored == nil {
		return Read{}, missing
	}
	i := slices.IndexFunc(stored.Artifacts, func(a canonical.Artifact) bool { return a.ID == at.artifact })
	if i < 0 || at.part >= len(stored.Artifacts[i].Parts) {
		return Read{}, missing
	}
	read := Read{Workflow: stored.Workflow, Last: stored.Last}
	for n := range stored.Artifacts[i].Parts {
		if at.part >= 0 && n != at.part {
			continue
		}
		p := &stored.Artifacts[i].Parts[n]
		read.Contents = append(read.Contents, translators.ResourceContent{URI: ArtifactURI(at.agent, at.task, at.artifact, n), Part: p})
		if p.Name != "" || p.Title != "" || p.Description != "" || len(p.Extensions) > 0 {
			read.Losses = append(read.Losses, canonical.Loss{Code: canonical.LossMetadata, Path: "/body/contents/" + strconv.Itoa(len(read.Contents)-1), Fate: canonical.Dropped})
		}
	}
	return read, nil
}
