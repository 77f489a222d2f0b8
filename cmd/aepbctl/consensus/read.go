package consensus

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/policy/consensus"
	"github.com/aepb/aepb-gateway/policy/consensus/signed"
)

const (
	roundFile = "round.json"
	maxEvent  = 4 << 20 // bytes of one event: a proposal and its rules
	pause     = time.Second
)

// messageFile is the name of a page of messages; the first is page 1.
func messageFile(page int) string {
	if page == 1 {
		return "messages.json"
	}
	return fmt.Sprintf("messages-%d.json", page)
}

func groupCommand(d Deps) *cobra.Command {
	return &cobra.Command{
		Use: "group NAME", Short: "Show who is in a group, and how it decides", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			body, err := d.Public(cmd.Context(), http.MethodGet, "/consensus/groups/"+url.PathEscape(args[0]), nil, http.StatusOK)
			if err != nil {
				return err
			}
			var g groupView
			if err := decode(body, &g); err != nil {
				return err
			}
			return d.Show(cmd, json.RawMessage(body), g.print)
		},
	}
}

func listCommand(d Deps) *cobra.Command {
	var operator bool
	cmd := &cobra.Command{
		Use: "list", Short: "List the rounds in which we take part", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := d.list(cmd.Context(), operator)
			if err != nil {
				return err
			}
			views := make([]roundView, len(all))
			for i, raw := range all {
				if err := decode(raw, &views[i]); err != nil {
					return err
				}
			}
			return d.Show(cmd, map[string][]json.RawMessage{"rounds": all}, func(w io.Writer) error { return printRounds(w, views) })
		},
	}
	cmd.Flags().BoolVar(&operator, "operator", false, "all rounds, as an operator of the gateway")
	return cmd
}

// list are the rounds of all pages.
func (d Deps) list(ctx context.Context, operator bool) ([]json.RawMessage, error) {
	all, query := []json.RawMessage{}, ""
	for range maxPages {
		body, err := d.from(ctx, operator, rounds, "/consensus", query)
		if err != nil {
			return nil, err
		}
		var p struct {
			Rounds []json.RawMessage `json:"rounds"`
			Next   string            `json:"next"`
		}
		if err := decode(body, &p); err != nil {
			return nil, err
		}
		if all = append(all, p.Rounds...); p.Next == "" {
			return all, nil
		}
		query = "?" + url.Values{"after": {p.Next}}.Encode()
	}
	return nil, fmt.Errorf("the gateway lists more than %d pages of rounds: tell its operator", maxPages)
}

// from reads from one listener or the other.
func (d Deps) from(ctx context.Context, operator bool, public, operators, query string) ([]byte, error) {
	if operator {
		return d.Operator(ctx, operators+query)
	}
	return d.Public(ctx, http.MethodGet, public+query, nil, http.StatusOK)
}

func printRounds(w io.Writer, all []roundView) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(w, "there is no round")
		return err
	}
	table := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(table, "ROUND\tPHASE\tDEADLINE\tMECHANISM\tPROPOSER\tSUBJECT")
	for _, v := range all {
		mechanism, proposer, subject := "-", "-", "the proposal cannot be read"
		if m, err := signed.Parse[consensus.Proposal](v.Proposal); err == nil {
			mechanism, proposer, subject = string(m.Content.Mechanism), terminal.Word(string(m.Content.Proposer)), terminal.Line(m.Content.Subject)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", terminal.Word(v.Round), terminal.Word(string(v.Phase)), stamp(v.Deadline), mechanism, proposer, subject)
	}
	return table.Flush()
}

func showCommand(d Deps) *cobra.Command {
	var operator bool
	var dir string
	cmd := &cobra.Command{
		Use: "show ROUND", Short: "Show a round, or save it with its messages for verify", Args: cobra.ExactArgs(1),
		PreRunE: func(*cobra.Command, []string) error {
			if operator && dir != "" {
				return errors.New("--save does not go with --operator: messages are for the participants of a round")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			body, err := d.from(cmd.Context(), operator, roundPath(args[0]), "/consensus/"+url.PathEscape(args[0]), "")
			if err != nil {
				return err
			}
			var v roundView
			if err := decode(body, &v); err != nil {
				return err
			}
			if dir != "" {
				if err := d.save(cmd.Context(), v, body, dir); err != nil {
					return err
				}
			}
			return d.Show(cmd, json.RawMessage(body), v.print)
		},
	}
	cmd.Flags().BoolVar(&operator, "operator", false, "as an operator of the gateway")
	cmd.Flags().StringVar(&dir, "save", "", "a new folder for the round and its messages, as they came")
	return cmd
}

// save writes the round and the pages of its messages into a new folder.
func (d Deps) save(ctx context.Context, v roundView, body []byte, dir string) error {
	if !v.decided() {
		return fmt.Errorf("the round is %s and has no outcome: it is saved once it is decided", v.Phase)
	}
	pages, _, err := d.messages(ctx, v.Round)
	if err != nil {
		return err
	}
	if exists(dir) {
		return fmt.Errorf("%s is there: --save names a new folder", dir)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, roundFile), body, 0o600); err != nil {
		return err
	}
	for i, page := range pages {
		if err := os.WriteFile(filepath.Join(dir, messageFile(i+1)), page, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func watchCommand(d Deps) *cobra.Command {
	return &cobra.Command{
		Use: "watch ROUND", Short: "Show each change of a round until it is over", Args: cobra.ExactArgs(1),
		Long: "Show each change of a round until it is over. The exit code is 0 if it ended with a commit, else 1.",
		RunE: func(cmd *cobra.Command, args []string) error {
			var last shown
			for {
				n, err := d.follow(cmd, args[0], &last)
				switch {
				case err != nil:
					return err
				case last.phase == consensus.Committed:
					return nil
				case last.phase == consensus.Aborted:
					return d.Refused
				case n == 0:
					return errors.New("the gateway ended the stream without an event: tell its operator")
				}
				if err := d.Wait(cmd.Context(), d.Now().Add(pause)); err != nil { // the gateway may have been restarted
					return err
				}
			}
		},
	}
}

// shown is the last event that was shown.
type shown struct {
	text  string
	phase consensus.Phase
}

// follow shows the events of one stream, unless one is that which was shown last, and counts them.
func (d Deps) follow(cmd *cobra.Command, id string, last *shown) (n int, err error) {
	stream, err := d.Stream(cmd.Context(), roundPath(id)+"/events")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, stream.Close()) }()
	return n, events(stream, func(data string) error {
		n++
		var v roundView
		if err := decode([]byte(data), &v); err != nil {
			return err
		}
		if v.Round != id {
			return fmt.Errorf("the gateway sent round %s, expected %s: tell its operator", v.Round, id)
		}
		if data == last.text {
			return nil
		}
		*last = shown{data, v.Phase}
		return d.Show(cmd, json.RawMessage(data), func(w io.Writer) error {
			_, err := fmt.Fprintln(w, v.change())
			return err
		})
	})
}

// change is a round as one line.
func (v roundView) change() string {
	text := strings.TrimSpace(stamp(v.Changed) + " " + terminal.Word(string(v.Phase)))
	if v.Why != "" {
		text += ", " + terminal.Word(string(v.Why))
	}
	if v.Approval != "" {
		text += ", approval " + terminal.Word(v.Approval)
	}
	if !v.decided() {
		return text
	}
	m, err := signed.Parse[consensus.Outcome](v.Outcome)
	if err != nil {
		return text + ", and its outcome cannot be read: " + terminal.Line(err.Error())
	}
	return text + ", " + terminal.Word(string(m.Content.Reason)) + ": " + tallyText(m.Content.Tally)
}

// events reads server-sent events named round.
func events(stream io.Reader, each func(data string) error) error {
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, maxEvent)
	name, data := "", []string(nil)
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case lines.Text() == "":
			if name == "round" && len(data) > 0 {
				if err := each(strings.Join(data, "\n")); err != nil {
					return err
				}
			}
			name, data = "", nil
		case field == "event":
			name = value
		case field == "data":
			data = append(data, value)
		}
	}
	return lines.Err()
}
