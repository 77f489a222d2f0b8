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

	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
)

// tokenView is a token as it is printed.
type tokenView struct {
	ID       ect.ID       `json:"jti"`
	Issuer   ect.Identity `json:"iss"`
	Audience []string     `json:"aud"`
	Workflow string       `json:"wid,omitempty"`
	Act      ect.Act      `json:"exec_act"`
	Parents  []ect.ID     `json:"par"`
	IssuedAt time.Time    `json:"iat"`
	Expires  time.Time    `json:"exp"`
	Input    string       `json:"inp_hash,omitempty"`
	Output   string       `json:"out_hash,omitempty"`
	Ext      ect.Ext      `json:"ext,omitempty"`
	Verified bool         `json:"verified"`
	Problem  string       `json:"problem,omitempty"`
	Compact  string       `json:"compact"`
}

func view(claims ect.Claims, compact string) tokenView {
	return tokenView{
		ID: claims.ID, Issuer: claims.Issuer, Audience: claims.Audience, Workflow: claims.Workflow, Act: claims.Act,
		Parents: claims.Parents, IssuedAt: time.Unix(claims.IssuedAt, 0).UTC(), Expires: time.Unix(claims.Expires, 0).UTC(),
		Input: claims.InputHash, Output: claims.OutputHash, Ext: claims.Ext, Compact: compact,
	}
}

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
			return t.show(cmd, view(token.Claims(), token.Compact()), func(w io.Writer) error {
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
			tokens, err := tokens(args, cmd.InOrStdin())
			if err != nil {
				return err
			}
			views := make([]tokenView, 0, len(tokens))
			for _, compact := range tokens {
				claims, _, err := ect.ParseUnverified(compact)
				if err != nil {
					return err
				}
				views = append(views, view(claims, compact))
			}
			return t.show(cmd, views, func(w io.Writer) error { return printClaims(w, views) })
		},
	}
}

func ectVerify(t *target) *cobra.Command {
	var bundleFile, domain string
	var bodies []string
	var detail bool
	cmd := &cobra.Command{
		Use: "verify [TOKEN…|FILE…]", Short: "Verify signature, issuer and shape, as of when each was issued (no TOKEN: standard input)",
		Long: "Verify tokens with nothing but the certificate of a CA, as of when each was issued, and say\n" +
			"whether every parent is among them. Tokens are arguments, or text or JSON of this program\n" +
			"in files or on standard input.",
		Example: "  aepbctl dag WID -o json | aepbctl ect verify --ca ca.pem\n" +
			"  aepbctl ect verify --ca ca.pem --body request.json --body reply.json exchange.json",
		PreRunE: func(*cobra.Command, []string) error {
			if bundleFile != "" && domain == "" {
				return errors.New("--bundle needs the name of its trust domain: add --trust-domain")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			tokens, err := tokens(args, cmd.InOrStdin())
			if err != nil {
				return err
			}
			bundle, err := t.anchors(bundleFile, domain)
			if err != nil {
				return err
			}
			stop := terminal.Progress(cmd, fmt.Sprintf("verifying %d tokens", len(tokens)))
			defer stop()
			views, err := verify(cmd.Context(), bundle, tokens)
			stop()
			if err != nil {
				return err
			}
			hashes, err := readBodies(bodies)
			if err != nil {
				return err
			}
			return t.showChain(cmd, chain{views: views, detail: detail, bodies: hashes, anchors: bundle.Anchors()})
		},
	}
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

func (t *target) verifyAll(ctx context.Context, tokens []string) ([]tokenView, error) {
	bundle, err := t.bundle()
	if err != nil {
		return nil, err
	}
	return verify(ctx, bundle, tokens)
}

// verify judges tokens as an auditor does: age, audience and repetition are
// nothing against them.
func verify(ctx context.Context, bundle *identity.Bundle, tokens []string) ([]tokenView, error) {
	keys, err := identity.NewKeyRing(identity.KeyRingDeps{Bundle: bundle})
	if err != nil {
		return nil, err
	}
	verifier, err := ect.NewVerifier(ect.VerifierDeps{Keys: keys, Now: time.Now})
	if err != nil {
		return nil, err
	}
	views := make([]tokenView, 0, len(tokens))
	for _, compact := range tokens {
		v, err := verifier.Verify(ctx, compact, ect.Check{Purpose: ect.Parent})
		if err != nil {
			claims, _, _ := ect.ParseUnverified(compact)
			bad := view(claims, compact)
			bad.Problem = err.Error()
			views = append(views, bad)
			continue
		}
		good := view(v.Claims(), compact)
		good.Verified = true
		views = append(views, good)
	}
	distrust(views)
	return views, nil
}

// losses are the translation warnings of all tokens.
func losses(views []tokenView) []string {
	out := []string{}
	for _, v := range views {
		warnings, _ := v.Ext.Strings(ect.ExtWarnings)
		out = append(out, warnings...)
	}
	return out
}

func printClaims(w io.Writer, views []tokenView) error {
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
