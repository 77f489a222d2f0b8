// Package evidence has the commands that sign, fetch, verify and keep tokens.
package evidence

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/client"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/program"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/proof"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/reply"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/audit"
)

// Commands are the commands of the group.
func Commands(c *client.Client) []*cobra.Command {
	return []*cobra.Command{
		program.Group("ect", "Execution context tokens", ectSign(c), ectShow(c), ectVerify(c)),
		program.Group("evidence", "Keep evidence longer than the gateway does", evidenceExport(c)),
		dagCommand(c),
	}
}

func ectSign(c *client.Client) *cobra.Command {
	var claims ect.Claims
	var act, file string
	var parents []string
	cmd := &cobra.Command{
		Use: "sign --aud ID [--file MESSAGE]", Short: "Sign a token with our key and print it", Args: cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error {
			if len(claims.Audience) == 0 {
				return errors.New("name who shall verify it with --aud")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file != "" {
				body, err := os.ReadFile(file)
				if err != nil {
					return err
				}
				claims.OutputHash = ect.Hash(body)
			}
			claims.Act = ect.Act(act)
			for _, parent := range parents {
				claims.Parents = append(claims.Parents, ect.ID(parent))
			}
			signer, _, err := c.Signer()
			if err != nil {
				return err
			}
			token, err := signer.Sign(claims)
			if err != nil {
				return err
			}
			return c.Show(cmd, proof.ViewOf(token.Claims(), token.Compact()), func(w io.Writer) error {
				_, err := fmt.Fprintln(w, token.Compact())
				return err
			})
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&claims.Audience, "aud", nil, "who shall verify it (repeatable)")
	flags.StringVar(&claims.Workflow, "wid", "", "workflow, a UUID")
	flags.StringVar(&act, "act", "send_task", "exec_act")
	flags.StringSliceVar(&parents, "parent", nil, "jti of a parent (repeatable)")
	flags.StringVar(&file, "file", "", "the message that it goes with; its hash becomes out_hash")
	return cmd
}

func ectShow(c *client.Client) *cobra.Command {
	return &cobra.Command{
		Use: "show [TOKEN…]", Short: "Show what tokens say, without believing them (no TOKEN: standard input)",
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := Reader(cmd).Read(args)
			if err != nil {
				return err
			}
			views := make([]proof.View, 0, len(in.Tokens))
			for _, compact := range in.Tokens {
				claims, _, err := ect.ParseUnverified(compact)
				if err != nil {
					return err
				}
				views = append(views, proof.ViewOf(claims, compact))
			}
			return c.Show(cmd, views, func(w io.Writer) error { return printClaims(w, views) })
		},
	}
}

func ectVerify(c *client.Client) *cobra.Command {
	var trust client.Trust
	var bodies, gateways []string
	var detail bool
	cmd := &cobra.Command{
		Use: "verify [TOKEN…|FILE…|FOLDER…]", Short: "Verify tokens, and the messages and texts beside them, offline (without arguments: standard input)",
		Long: "Verify tokens with nothing but the certificate of a CA, as of when each was issued, and say\n" +
			"whether every parent is among them, and every reply. Tokens are arguments, or text or JSON of this\n" +
			"program in files or on standard input, or a folder of \"send --save\" or an archive of \"evidence export\".\n" +
			"Whatever else stands in such a file is compared with the tokens: texts beside them, and messages with\n" +
			"their hashes. It ends with 1 if anything contradicts a token or is missing, or if a given message is in\n" +
			"no token. Hashes whose messages are not given are listed as not compared, which is no failure: only\n" +
			"the agent has the messages between it and the gateway.",
		Example: "  aepbctl dag WID -o json | aepbctl ect verify --ca ca.pem\n" +
			"  aepbctl ect verify --ca ca.pem evidence.tar.gz\n" +
			"  aepbctl ect verify --ca ca.pem --body request.json --body reply.json exchange.json",
		PreRunE: func(*cobra.Command, []string) error { return trust.Check() },
		RunE: func(cmd *cobra.Command, args []string) error {
			r := Reader(cmd)
			in, err := r.Read(args)
			if err != nil {
				return err
			}
			if err := in.Bodies(r, bodies); err != nil {
				return err
			}
			bundle, err := c.Anchors(trust.Bundle, trust.Domain)
			if err != nil {
				return err
			}
			verifier, err := client.Verifier(bundle)
			if err != nil {
				return err
			}
			stop := terminal.Progress(cmd, fmt.Sprintf("verifying %d tokens", len(in.Tokens)))
			v := proof.Judge(cmd.Context(), verifier, in, bundle.Anchors(), identities(gateways))
			stop()
			return showVerdict(cmd, c, v, detail)
		},
	}
	cmd.Flags().StringArrayVar(&gateways, "signer", nil, "the SPIFFE id of a gateway that may have signed translations (repeatable; default: every identity of the CA)")
	cmd.Flags().StringArrayVar(&bodies, "body", nil, "a file with a message whose hash is looked for in the tokens (repeatable)")
	cmd.Flags().BoolVarP(&detail, "verbose", "v", false, "print the tree of tokens with their ids")
	trust.Add(cmd)
	return cmd
}

func identities(list []string) (ids []ect.Identity) {
	for _, one := range list {
		ids = append(ids, ect.Identity(one))
	}
	return ids
}

// Reader reads what is to be judged.
func Reader(cmd *cobra.Command) proof.Reader {
	return proof.Reader{Stdin: cmd.InOrStdin(), Summary: reply.SummaryOf}
}

// showVerdict prints records and what they prove together. Anything that speaks against them makes the
// answer a no.
func showVerdict(cmd *cobra.Command, c *client.Client, v proof.Verdict, detail bool) error {
	if err := c.Show(cmd, v.Report(), func(w io.Writer) error { return printerOf(detail)(w, v.Records) }); err != nil {
		return err
	}
	to := cmd.OutOrStdout()
	if c.Output == "json" { // which standard output holds alone
		to = cmd.ErrOrStderr()
	}
	if err := v.Print(to); err != nil {
		return err
	}
	if !v.Holds() {
		return program.ErrRefused
	}
	return nil
}

// printerOf prints records as people read them, or in detail.
func printerOf(detail bool) func(io.Writer, []audit.Record) error {
	if detail {
		return proof.PrintTree
	}
	return proof.PrintRecords
}

func printClaims(w io.Writer, views []proof.View) error {
	encoder := json.NewEncoder(terminal.Printable{To: w})
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	for _, v := range views {
		if err := encoder.Encode(v); err != nil {
			return err
		}
	}
	return nil
}
