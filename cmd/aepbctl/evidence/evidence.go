package evidence

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/client"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/proof"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/audit"
)

// exported is what an export wrote.
type exported struct {
	File      string `json:"file"`
	Workflows int    `json:"workflows"`
	Tokens    int    `json:"tokens"`
	Messages  int    `json:"messages"`
}

func evidenceExport(c *client.Client) *cobra.Command {
	var order exportOrder
	var period period
	cmd := &cobra.Command{
		Use: "export [WID…] [--since TIME] --to FILE.tar.gz", Short: "Write the tokens of workflows into one archive that ect verify checks", Args: cobra.ArbitraryArgs,
		Long: "Write the tokens of workflows, the trust anchors of today and messages, if they are given, into one\n" +
			"archive: a tar file, compressed with gzip. Its manifest lists all files with their SHA-256 and is\n" +
			"signed with our key. A gateway keeps tokens for a day after their end; an archive verifies for as\n" +
			"long as the CA's certificate is known.\n\n" +
			"With --since it holds all workflows that have a record since then, of all callers, which needs the\n" +
			"role auditor. A time is an age such as 24h, a day (UTC) such as 2026-11-29, or a time such as\n" +
			"2026-11-29T08:00:00Z.",
		Example: "  aepbctl evidence export 0b39f2a1-6a0c-4a3e-9f0e-3c1a4f6f5d11 --to booking.tar.gz --message reply.json\n" +
			"  aepbctl evidence export --since 24h --to today.tar.gz\n" +
			"  aepbctl ect verify --ca ca.pem booking.tar.gz",
		PreRunE: func(_ *cobra.Command, args []string) (err error) {
			period, err = order.check(args, time.Now())
			return err
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			found, err := gather(cmd, c, args, period)
			if err != nil {
				return err
			}
			contents, err := found.contents(cmd, order.messages)
			if err != nil {
				return err
			}
			if err := writeNew(order.file, contents.WriteArchive); err != nil {
				return err
			}
			done := exported{order.file, found.workflows, len(contents.Tokens), len(contents.Messages)}
			return c.Show(cmd, done, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "wrote %s: %d %s of %d %s, %d %s\ncheck it with: aepbctl ect verify --ca %s %s\n", terminal.Word(done.File),
					done.Tokens, terminal.Plural(done.Tokens, "token", "tokens"), done.Workflows, terminal.Plural(done.Workflows, "workflow", "workflows"),
					done.Messages, terminal.Plural(done.Messages, "message", "messages"), terminal.Word(c.CAFile()), terminal.Word(done.File))
				return err
			})
		},
	}
	cmd.Flags().StringVar(&order.file, "to", "", "the archive to write; it must not be there yet")
	cmd.Flags().StringVar(&order.since, "since", "", "export all workflows with a record since this time")
	cmd.Flags().StringVar(&order.until, "until", "", "with --since: of those, only the workflows with a token that was issued before this time")
	cmd.Flags().StringArrayVar(&order.messages, "message", nil, "a file with a message of these workflows, byte for byte (repeatable)")
	return cmd
}

// exportOrder is what an export was asked for.
type exportOrder struct {
	file, since, until string
	messages           []string
}

// period is a time of which all workflows are wanted. A zero period has none.
type period struct {
	since time.Time
	until time.Time // zero: it has not ended
}

// check refuses an order that says too little, and reads its times.
func (o exportOrder) check(args []string, now time.Time) (p period, err error) {
	switch {
	case o.file == "":
		return p, errors.New("name the archive with --to, such as --to evidence.tar.gz")
	case o.since == "" && o.until != "":
		return p, errors.New("--until ends the time that --since begins: give both")
	case o.since == "" && len(args) == 0:
		return p, errors.New("name workflows, or a time with --since, such as --since 24h")
	case o.since == "":
		return p, nil
	}
	if p.since, err = timeOf("since", o.since, now); err == nil && o.until != "" {
		p.until, err = timeOf("until", o.until, now)
	}
	if err == nil && o.until != "" && !p.until.After(p.since) {
		err = fmt.Errorf("--until %s is not after --since %s", p.until.Format(time.RFC3339), p.since.Format(time.RFC3339))
	}
	return p, err
}

// timeOf reads the time of a flag: an age, a day or a time.
func timeOf(flag, text string, now time.Time) (time.Time, error) {
	if age, err := time.ParseDuration(text); err == nil && age >= 0 {
		return now.Add(-age).UTC(), nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if at, err := time.Parse(layout, text); err == nil {
			return at.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("--%s is %q: expected an age such as 24h, a day (UTC) such as 2026-11-29, or a time such as 2026-11-29T08:00:00Z", flag, text)
}

// includes: a workflow counts whose tokens are these. The gateway has judged since when.
func (p period) includes(wid string, tokens []string) bool {
	return p.until.IsZero() || slices.ContainsFunc(tokens, func(compact string) bool {
		claims, _, err := ect.ParseUnverified(compact)
		return err == nil && claims.Workflow == wid && claims.IssuedAt >= p.since.Unix() && claims.IssuedAt < p.until.Unix()
	})
}

// gathered is what is to be exported.
type gathered struct {
	c         *client.Client
	in        proof.Input
	seen      map[string]bool // workflows
	workflows int
	all       bool // of all callers: also of those whose tokens we cannot verify
}

// gather fetches the tokens of workflows that are named, and of those with a record in a period.
func gather(cmd *cobra.Command, c *client.Client, workflows []string, p period) (*gathered, error) {
	stop := terminal.Progress(cmd, "fetching records")
	defer stop()
	g := &gathered{c: c, seen: map[string]bool{}, all: !p.since.IsZero()}
	for _, wid := range workflows {
		if g.seen[wid] {
			continue
		}
		g.seen[wid] = true
		tokens, err := Tokens(cmd.Context(), c, wid)
		if err == nil {
			err = g.add(tokens)
		}
		if err != nil {
			return nil, err
		}
	}
	if !g.all {
		return g, nil
	}
	if err := g.during(cmd.Context(), p); err != nil {
		return nil, err
	}
	if g.workflows == 0 {
		return nil, fmt.Errorf("no workflow has a record %s: nothing was written", p)
	}
	return g, nil
}

func (p period) String() string {
	if p.until.IsZero() {
		return "since " + p.since.Format(time.RFC3339)
	}
	return "from " + p.since.Format(time.RFC3339) + " until " + p.until.Format(time.RFC3339)
}

// add takes the tokens of a workflow.
func (g *gathered) add(tokens []string) error {
	g.workflows++
	if g.in.Merge(tokens); len(g.in.Tokens) > proof.MaxTokens {
		return fmt.Errorf("these workflows have more than %d tokens, the most of one archive: narrow the time with --since and --until, or name fewer workflows", proof.MaxTokens)
	}
	return nil
}

// maxListPages bounds the pages of a list of workflows.
const maxListPages = 100_000

// during takes the workflows of all callers that have a record in a period.
func (g *gathered) during(ctx context.Context, p period) error {
	query := url.Values{"since": {p.since.Format(time.RFC3339)}}
	for range maxListPages {
		got, err := g.c.Operate(ctx, http.MethodGet, "/workflows?"+query.Encode(), nil, http.StatusOK)
		if err != nil {
			return err
		}
		var page struct {
			Workflows []string `json:"wids"`
			Next      string   `json:"next"`
		}
		if err := json.Unmarshal(got.Body, &page); err != nil {
			return fmt.Errorf("the gateway's list of workflows cannot be read: %w", err)
		}
		for _, wid := range page.Workflows {
			if err := g.listed(ctx, wid, p); err != nil {
				return err
			}
		}
		if page.Next == "" {
			return nil
		}
		query.Set("after", page.Next)
	}
	return fmt.Errorf("the gateway's list of workflows has more than %d pages: narrow the time with --since", maxListPages)
}

// listed takes a workflow of the list, unless its records have left meanwhile, or are not of the period.
func (g *gathered) listed(ctx context.Context, wid string, p period) error {
	if g.seen[wid] {
		return nil
	}
	g.seen[wid] = true
	tokens, err := graph(wid, func(path string) (client.Answer, error) { return g.c.Administer(ctx, http.MethodGet, path, nil) })
	if errors.Is(err, errNoRecords) {
		return nil
	}
	if err != nil || !p.includes(wid, tokens) {
		return err
	}
	return g.add(tokens)
}

// contents is what goes into the archive. Messages of which no token has the hash are not worth keeping, and neither are tokens
// of named workflows that do not hold: it refuses them. Of all callers, some may be of a CA that we do not know, and must not
// keep the others' tokens from being exported.
func (g *gathered) contents(cmd *cobra.Command, messages []string) (proof.Contents, error) {
	stop := terminal.Progress(cmd, "verifying tokens")
	defer stop()
	in := &g.in
	records, err := g.c.Verify(cmd.Context(), in.Tokens)
	if err != nil {
		return proof.Contents{}, err
	}
	doubtful := slices.DeleteFunc(slices.Clone(records), audit.Record.Verified)
	switch {
	case len(doubtful) > 0 && !g.all:
		return proof.Contents{}, fmt.Errorf("token %s of the gateway does not hold: %s", doubtful[0].Claims.ID, doubtful[0].Problem)
	case len(doubtful) > 0:
		stop()
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: %d of the exported tokens do not hold with this CA, such as %s: %s\n", len(doubtful), terminal.Word(doubtful[0].Claims.ID), terminal.Line(doubtful[0].Problem))
	}
	r := Reader(cmd)
	if err := in.Bodies(r, messages); err != nil {
		return proof.Contents{}, err
	}
	compared, _, _ := audit.Compare(records, in.Messages)
	var bodies []proof.Message
	for i, c := range compared {
		if len(c.Places) == 0 || c.Newline {
			return proof.Contents{}, fmt.Errorf("%s is the message of no token of these workflows: give it byte for byte, as aepbctl send --save keeps it", terminal.Word(messages[i]))
		}
		body, err := os.ReadFile(messages[i])
		if err != nil {
			return proof.Contents{}, err
		}
		bodies = append(bodies, proof.Message{Name: filepath.Base(messages[i]), Body: body})
	}
	return Contents(g.c, in.Tokens, bodies)
}

// writeNew writes a file that is not there yet, all of it or nothing.
func writeNew(file string, write func(io.Writer) error) error {
	out, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%s is there already, and nothing is overwritten: give another name", terminal.Word(file))
	}
	if err != nil {
		return err
	}
	if err := errors.Join(write(out), out.Close()); err != nil {
		return errors.Join(err, os.Remove(file))
	}
	return nil
}

// Contents is evidence to be kept, whose list we sign.
func Contents(c *client.Client, tokens []string, messages []proof.Message) (proof.Contents, error) {
	bundle, err := c.Bundle()
	if err != nil {
		return proof.Contents{}, err
	}
	signer, id, err := c.Signer()
	return proof.Contents{
		Tokens: tokens, Anchors: bundle.Anchors(), Messages: messages, By: id, Made: time.Now(),
		Sign: func(text []byte) (string, error) {
			token, err := signer.Sign(ect.Claims{Act: proof.ActExport, Audience: []string{string(id)}, OutputHash: ect.Hash(text)})
			return token.Compact(), err
		},
	}, err
}
