package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/spf13/cobra"

	"github.com/aepb/aepb-gateway/ect"
)

// maxAncestors bounds a walk from one token to its roots.
const maxAncestors = 256

func dagCommand(t *target) *cobra.Command {
	return &cobra.Command{
		Use:   "dag WID|JTI",
		Short: "Show and verify the graph of a workflow, or of one token and its ancestors",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			tokens, err := t.graph(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			views, err := t.verifyAll(cmd.Context(), tokens)
			if err != nil {
				return err
			}
			return t.showChain(cmd, ordered(views))
		},
	}
}

// graph asks for a workflow of that id, and failing that for a token.
func (t *target) graph(ctx context.Context, id string) ([]string, error) {
	base, err := t.base(t.gateway, "public")
	if err != nil {
		return nil, err
	}
	var tokens []string
	for after := ""; ; {
		got, err := t.call(ctx, http.MethodGet, base+"/workflows/"+url.PathEscape(id)+"?after="+url.QueryEscape(after), nil, nil)
		if err != nil {
			return nil, err
		}
		if got.status != http.StatusOK {
			if after != "" {
				return nil, got.refusal()
			}
			return t.ancestry(ctx, base, ect.ID(id))
		}
		var page struct {
			ECTs []string `json:"ects"`
			Next string   `json:"next"`
		}
		if err := json.Unmarshal(got.body, &page); err != nil {
			return nil, fmt.Errorf("the gateway's page of the workflow cannot be read: %w", err)
		}
		tokens = append(tokens, page.ECTs...)
		if page.Next == "" || len(page.ECTs) == 0 {
			return tokens, nil
		}
		if after = page.Next; len(tokens) > maxWorkflow {
			return nil, fmt.Errorf("the workflow has more than %d tokens, the most that are shown", maxWorkflow)
		}
	}
}

// maxWorkflow bounds the tokens of a workflow that are fetched.
const maxWorkflow = 10_000

// ancestry fetches a token and, as far as we may see them, its ancestors.
func (t *target) ancestry(ctx context.Context, base string, id ect.ID) ([]string, error) {
	var tokens []string
	seen := map[ect.ID]bool{}
	for queue := []ect.ID{id}; len(queue) > 0 && len(seen) < maxAncestors; queue = queue[1:] {
		if seen[queue[0]] {
			continue
		}
		seen[queue[0]] = true
		got, err := t.call(ctx, http.MethodGet, base+"/ects/"+url.PathEscape(string(queue[0])), nil, nil)
		if err != nil {
			return nil, err
		}
		if got.status != http.StatusOK {
			if len(tokens) == 0 {
				return nil, got.refusal()
			}
			continue // an ancestor that concerns others
		}
		claims, _, err := ect.ParseUnverified(string(got.body))
		if err != nil {
			return nil, fmt.Errorf("the gateway holds a token that cannot be read: %w", err)
		}
		tokens = append(tokens, string(got.body))
		queue = append(queue, claims.Parents...)
	}
	return tokens, nil
}

// ordered puts parents before children, as far as both are there; printChain
// needs it so.
func ordered(views []tokenView) []tokenView {
	here := map[ect.ID]int{}
	for i, v := range views {
		here[v.ID] = i
	}
	var out []tokenView
	done := map[ect.ID]bool{}
	var visit func(v tokenView)
	visit = func(v tokenView) {
		if done[v.ID] {
			return
		}
		done[v.ID] = true
		for _, parent := range v.Parents {
			if i, ok := here[parent]; ok {
				visit(views[i])
			}
		}
		out = append(out, v)
	}
	byTime := slices.Clone(views)
	slices.SortStableFunc(byTime, func(a, b tokenView) int { return a.IssuedAt.Compare(b.IssuedAt) })
	for _, v := range byTime {
		visit(v)
	}
	return out
}
