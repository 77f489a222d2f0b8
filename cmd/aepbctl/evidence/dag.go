package evidence

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/client"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/program"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/proof"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/audit"
	"github.com/aepb/aepb-gateway/ect/dag/picture"
)

func dagCommand(c *client.Client) *cobra.Command {
	var detail bool
	var svg string
	cmd := &cobra.Command{
		Use:   "dag WID|JTI",
		Short: "Show and verify the graph of a workflow, or of one token and its ancestors",
		Example: "  aepbctl dag 0b39f2a1-6a0c-4a3e-9f0e-3c1a4f6f5d11\n" +
			"  aepbctl dag 0b39f2a1-6a0c-4a3e-9f0e-3c1a4f6f5d11 -o json | aepbctl ect verify --ca ca.pem",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			stop := terminal.Progress(cmd, "fetching records of "+args[0])
			defer stop()
			tokens, err := Tokens(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			bundle, err := c.Bundle()
			if err != nil {
				return err
			}
			records, err := client.Verify(cmd.Context(), bundle, tokens)
			if err != nil {
				return err
			}
			stop()
			records = audit.Ordered(records)
			if svg != "" {
				if err := WritePicture(svg, pictureOf(records)); err != nil {
					return err
				}
			}
			return showGraph(cmd, c, records, bundle.Anchors(), detail)
		},
	}
	cmd.Flags().BoolVarP(&detail, "verbose", "v", false, "print the tree of tokens with their ids")
	cmd.Flags().StringVar(&svg, "svg", "", "write a picture of the graph to this file")
	return cmd
}

// showGraph prints the records of a graph. What is missing may be those of others, or may come yet: a
// record that does not hold makes the answer a no.
func showGraph(cmd *cobra.Command, c *client.Client, records []audit.Record, anchors []*x509.Certificate, detail bool) error {
	v := proof.Verdict{Records: records, Findings: audit.Judge(records, "is not kept here any more, or is not yours to see"), Anchors: anchors}
	err := c.Show(cmd, proof.Views(records), func(w io.Writer) error { return errors.Join(printerOf(detail)(w, records), v.Print(w)) })
	if slices.ContainsFunc(v.Findings, func(f audit.Finding) bool { return f.Kind != audit.Incomplete }) {
		return errors.Join(err, program.ErrRefused)
	}
	return err
}

// pictureOf draws tokens that were judged, and which is the parent of which.
func pictureOf(records []audit.Record) picture.Picture {
	name := proof.Names(records)
	boxes, at := make([]picture.Box, len(records)), map[ect.ID]int{}
	for i, v := range records {
		if _, there := at[v.Claims.ID]; !there { // of several with one id the first counts
			at[v.Claims.ID] = i
		}
		boxes[i] = picture.Box{
			Lines: []string{"verified", name(string(v.Claims.Issuer)), proof.Deed(v, name), proof.Stamp(v.Claims)},
			Title: string(v.Claims.ID) + ": " + proof.RecordLine(v, name), Tone: picture.Good,
		}
		if !v.Verified() {
			boxes[i].Lines[0], boxes[i].Tone = "NOT VERIFIED", picture.Bad
			boxes[i].Title += ": " + v.Problem
		}
	}
	var arrows []picture.Arrow
	for i, v := range records {
		for _, parent := range v.Claims.Parents {
			if from, there := at[parent]; there {
				arrows = append(arrows, picture.Arrow{From: from, To: i})
			}
		}
	}
	return picture.Layout(boxes, arrows)
}

// WritePicture writes a picture to a file that others cannot read: it names agents and callers.
func WritePicture(file string, p picture.Picture) error {
	var out bytes.Buffer
	if err := p.SVG(&out); err != nil {
		return err
	}
	return os.WriteFile(file, out.Bytes(), 0o600)
}

// evidenceFor is how long a gateway keeps evidence after its end, if it has space.
const evidenceFor = 24 * time.Hour

// maxAncestors bounds a walk from one token to its roots.
const maxAncestors = 256

// maxWorkflow bounds the tokens of a workflow that are fetched.
const maxWorkflow = 10_000

// errNoRecords: there are none that we may see.
var errNoRecords = errors.New("no records")

// Tokens asks for a workflow of that id, and failing that for a token: as one who took part in
// it, and failing that as an operator, who may see all.
func Tokens(ctx context.Context, c *client.Client, id string) ([]string, error) {
	base, err := c.PublicURL()
	if err != nil {
		return nil, err
	}
	tokens, err := graph(id, func(path string) (client.Answer, error) { return c.Call(ctx, http.MethodGet, base+path, nil, nil) })
	if !errors.Is(err, errNoRecords) {
		return tokens, err
	}
	if c.Gateway == "" || c.Admin != "" { // else the one in --dir may be another gateway's
		tokens, err = graph(id, func(path string) (client.Answer, error) { return c.Administer(ctx, http.MethodGet, path, nil) })
		if err == nil {
			return tokens, nil
		}
	}
	return nil, fmt.Errorf("no records of workflow or token %s that you may see (records are kept until %s after their end, "+
		"or for less when the store is full, and shown to those who took part and to operators with the role auditor)", terminal.Word(id), terminal.Duration(evidenceFor))
}

func graph(id string, get func(path string) (client.Answer, error)) ([]string, error) {
	tokens, err := workflowPages(id, get)
	if errors.Is(err, errNoRecords) {
		return ancestry(nil, []ect.ID{ect.ID(id)}, get)
	}
	if err != nil {
		return nil, err
	}
	return ancestry(tokens, nil, get) // parents of other workflows
}

// workflowPages fetches the tokens of a workflow.
func workflowPages(id string, get func(path string) (client.Answer, error)) (tokens []string, err error) {
	for after := ""; ; {
		got, err := get("/workflows/" + url.PathEscape(id) + "?after=" + url.QueryEscape(after))
		if err != nil {
			return nil, err
		}
		if got.Status == http.StatusNotFound && after == "" {
			return nil, errNoRecords
		}
		if got.Status != http.StatusOK {
			return nil, got.Refusal()
		}
		var page struct {
			ECTs []string `json:"ects"`
			Next string   `json:"next"`
		}
		if err := json.Unmarshal(got.Body, &page); err != nil {
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

// ancestry adds to tokens those with the ids, and as far as we may see them the ancestors of all: at most
// maxAncestors are asked for.
func ancestry(tokens []string, ids []ect.ID, get func(path string) (client.Answer, error)) ([]string, error) {
	seen := map[ect.ID]bool{}
	queue := ids
	for _, compact := range tokens {
		claims, _, err := ect.ParseUnverified(compact)
		if err != nil {
			continue // the verifier says what is wrong with it
		}
		seen[claims.ID] = true
		queue = append(queue, claims.Parents...)
	}
	for n := 0; len(queue) > 0 && n < maxAncestors; queue = queue[1:] {
		if seen[queue[0]] {
			continue
		}
		seen[queue[0]] = true
		n++
		got, err := get("/ects/" + url.PathEscape(string(queue[0])))
		if err != nil {
			return nil, err
		}
		if got.Status != http.StatusOK {
			if len(tokens) == 0 && got.Status == http.StatusNotFound {
				return nil, errNoRecords
			}
			if len(tokens) == 0 {
				return nil, got.Refusal()
			}
			continue // an ancestor that concerns others
		}
		claims, _, err := ect.ParseUnverified(string(got.Body))
		if err != nil {
			return nil, fmt.Errorf("the gateway holds a token that cannot be read: %w", err)
		}
		tokens = append(tokens, string(got.Body))
		queue = append(queue, claims.Parents...)
	}
	return tokens, nil
}
