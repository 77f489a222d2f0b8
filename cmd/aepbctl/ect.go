package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/proof"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/audit"
	"github.com/aepb/aepb-gateway/ect/identity"
)

func ectCommand(t *target) *cobra.Command {
	cmd := &cobra.Command{Use: "ect", Short: "Execution context tokens", Args: cobra.NoArgs, RunE: help}
	cmd.AddCommand(ectSign(t), ectShow(t), ectVerify(t))
	return cmd
}

func ectSign(t *target) *cobra.Command {
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
			signer, err := t.signer()
			if err != nil {
				return err
			}
			token, err := signer.Sign(claims)
			if err != nil {
				return err
			}
			return t.show(cmd, proof.ViewOf(token.Claims(), token.Compact()), func(w io.Writer) error {
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

func ectShow(t *target) *cobra.Command {
	return &cobra.Command{
		Use: "show [TOKEN…]", Short: "Show what tokens say, without believing them (no TOKEN: standard input)",
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := reader(cmd).Read(args)
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
			return t.show(cmd, views, func(w io.Writer) error { return printClaims(w, views) })
		},
	}
}

func ectVerify(t *target) *cobra.Command {
	var bundleFile, domain string
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
		PreRunE: func(*cobra.Command, []string) error {
			if bundleFile != "" && domain == "" {
				return errors.New("--bundle needs the name of its trust domain: add --trust-domain")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			r := reader(cmd)
			in, err := r.Read(args)
			if err != nil {
				return err
			}
			if err := in.Bodies(r, bodies); err != nil {
				return err
			}
			bundle, err := t.anchors(bundleFile, domain)
			if err != nil {
				return err
			}
			verifier, err := verifierOf(bundle)
			if err != nil {
				return err
			}
			stop := terminal.Progress(cmd, fmt.Sprintf("verifying %d tokens", len(in.Tokens)))
			v := proof.Judge(cmd.Context(), verifier, in, bundle.Anchors(), identities(gateways))
			stop()
			return showVerdict(cmd, t, v, detail)
		},
	}
	cmd.Flags().StringArrayVar(&gateways, "signer", nil, "the SPIFFE id of a gateway that may have signed translations (repeatable; default: every identity of the CA)")
	cmd.Flags().StringArrayVar(&bodies, "body", nil, "a file with a message whose hash is looked for in the tokens (repeatable)")
	cmd.Flags().BoolVarP(&detail, "verbose", "v", false, "print the tree of tokens with their ids")
	cmd.Flags().StringVar(&bundleFile, "bundle", "", "a SPIFFE bundle (JSON) in place of the CA file; needs --trust-domain")
	cmd.Flags().StringVar(&domain, "trust-domain", "", "the trust domain of the trust anchors (default: the one that their certificates name, else that of --cert)")
	return cmd
}

// anchors are what tokens are verified against: a bundle, or the CA file. Our own certificate is needed
// only where neither names the trust domain.
func (t *target) anchors(bundleFile, domain string) (*identity.Bundle, error) {
	ca := t.file(t.ca, "ca.pem")
	switch {
	case bundleFile != "":
		data, err := os.ReadFile(bundleFile)
		if err != nil {
			return nil, err
		}
		return identity.ParseBundle(domain, data)
	case domain != "":
		return identity.LoadBundle(ca, domain)
	}
	bundle, err := identity.LoadAnchors(ca)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: name the CA's certificate with --ca", err)
	}
	if !errors.Is(err, identity.ErrNoTrustDomain) {
		return bundle, err
	}
	if bundle, own := t.bundle(); own == nil {
		return bundle, nil
	}
	return nil, fmt.Errorf("%w: add --trust-domain", err)
}

func identities(list []string) (ids []ect.Identity) {
	for _, one := range list {
		ids = append(ids, ect.Identity(one))
	}
	return ids
}

// reader reads what is to be judged.
func reader(cmd *cobra.Command) proof.Reader {
	return proof.Reader{Stdin: cmd.InOrStdin(), Summary: summaryOf}
}

// showVerdict prints records and what they prove together. Anything that speaks against them makes the
// answer a no.
func showVerdict(cmd *cobra.Command, t *target, v proof.Verdict, detail bool) error {
	err := t.show(cmd, v.Report(), func(w io.Writer) error {
		if detail {
			return proof.PrintTree(w, v.Records)
		}
		return proof.PrintRecords(w, v.Records)
	})
	if err != nil {
		return err
	}
	to := cmd.OutOrStdout()
	if t.output == "json" { // which standard output holds alone
		to = cmd.ErrOrStderr()
	}
	if err := v.Print(to); err != nil {
		return err
	}
	if !v.Holds() {
		return errRefused
	}
	return nil
}

// verify judges tokens with what we trust.
func (t *target) verify(ctx context.Context, tokens []string) ([]audit.Record, error) {
	bundle, err := t.bundle()
	if err != nil {
		return nil, err
	}
	return verify(ctx, bundle, tokens)
}

func verify(ctx context.Context, bundle *identity.Bundle, tokens []string) ([]audit.Record, error) {
	verifier, err := verifierOf(bundle)
	if err != nil {
		return nil, err
	}
	return audit.Verify(ctx, verifier, tokens), nil
}

func verifierOf(bundle *identity.Bundle) (*ect.Verifier, error) {
	keys, err := identity.NewKeyRing(identity.KeyRingDeps{Bundle: bundle})
	if err != nil {
		return nil, err
	}
	return ect.NewVerifier(ect.VerifierDeps{Keys: keys, Now: time.Now})
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
