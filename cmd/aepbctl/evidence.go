package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/proof"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/ect/audit"
)

func evidenceCommand(t *target) *cobra.Command {
	cmd := &cobra.Command{Use: "evidence", Short: "Keep evidence longer than the gateway does", Args: cobra.NoArgs, RunE: help}
	cmd.AddCommand(evidenceExport(t))
	return cmd
}

// exported is what an export wrote.
type exported struct {
	File      string `json:"file"`
	Workflows int    `json:"workflows"`
	Tokens    int    `json:"tokens"`
	Messages  int    `json:"messages"`
}

func evidenceExport(t *target) *cobra.Command {
	var file string
	var messages []string
	cmd := &cobra.Command{
		Use: "export WID… --to FILE.tar.gz", Short: "Write the tokens of workflows into one archive that ect verify checks", Args: cobra.MinimumNArgs(1),
		Long: "Write the tokens of workflows, the trust anchors of today and messages, if they are given, into one\n" +
			"archive: a tar file, compressed with gzip. Its manifest lists all files with their SHA-256 and is\n" +
			"signed with our key. A gateway keeps tokens for a day after their end; an archive verifies for as\n" +
			"long as the CA's certificate is known.",
		Example: "  aepbctl evidence export 0b39f2a1-6a0c-4a3e-9f0e-3c1a4f6f5d11 --to booking.tar.gz --message reply.json\n" +
			"  aepbctl ect verify --ca ca.pem booking.tar.gz",
		PreRunE: func(*cobra.Command, []string) error {
			if file == "" {
				return errors.New("name the archive with --to, such as --to evidence.tar.gz")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			contents, err := gather(cmd, t, args, messages)
			if err != nil {
				return err
			}
			if err := writeNew(file, contents.WriteArchive); err != nil {
				return err
			}
			done := exported{file, len(args), len(contents.Tokens), len(contents.Messages)}
			return t.show(cmd, done, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "wrote %s: %d %s of %d %s, %d %s\ncheck it with: aepbctl ect verify --ca %s %s\n", terminal.Word(file),
					done.Tokens, terminal.Plural(done.Tokens, "token", "tokens"), done.Workflows, terminal.Plural(done.Workflows, "workflow", "workflows"),
					done.Messages, terminal.Plural(done.Messages, "message", "messages"), terminal.Word(t.file(t.ca, "ca.pem")), terminal.Word(file))
				return err
			})
		},
	}
	cmd.Flags().StringVar(&file, "to", "", "the archive to write; it must not be there yet")
	cmd.Flags().StringArrayVar(&messages, "message", nil, "a file with a message of these workflows, byte for byte (repeatable)")
	return cmd
}

// gather fetches the tokens of workflows, and reads messages. Tokens that do not hold, and messages of which no
// token has the hash, are not worth keeping: it refuses them.
func gather(cmd *cobra.Command, t *target, workflows, messages []string) (proof.Contents, error) {
	stop := terminal.Progress(cmd, "fetching records")
	defer stop()
	var in proof.Input
	for _, wid := range workflows {
		tokens, err := t.graph(cmd.Context(), wid)
		if err != nil {
			return proof.Contents{}, err
		}
		in.Merge(tokens)
	}
	records, err := t.verify(cmd.Context(), in.Tokens)
	if err != nil {
		return proof.Contents{}, err
	}
	for _, r := range records {
		if !r.Verified() {
			return proof.Contents{}, fmt.Errorf("token %s of the gateway does not hold: %s", r.Claims.ID, r.Problem)
		}
	}
	r := reader(cmd)
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
	return contentsOf(t, in.Tokens, bodies)
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
