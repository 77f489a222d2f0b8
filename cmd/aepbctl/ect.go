package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

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
	cmd := &cobra.Command{
		Use: "verify [TOKEN…]", Short: "Verify signature, issuer and shape, as of when each was issued (no TOKEN: standard input)",
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
			views, err := verify(cmd.Context(), bundle, tokens)
			if err != nil {
				return err
			}
			if err := t.showChain(cmd, views); err != nil {
				return err
			}
			return t.showCompleteness(cmd, views)
		},
	}
	cmd.Flags().StringVar(&bundleFile, "bundle", "", "a SPIFFE bundle (JSON) in place of the CA file; needs --trust-domain")
	cmd.Flags().StringVar(&domain, "trust-domain", "", "the trust domain of the trust anchors (default: the one that their certificates name, else that of --cert)")
	return cmd
}

// showChain prints tokens that were judged. One that is not verified is refused.
func (t *target) showChain(cmd *cobra.Command, views []tokenView) error {
	err := t.show(cmd, views, func(w io.Writer) error { return printChain(w, views) })
	if err == nil && slices.ContainsFunc(views, func(v tokenView) bool { return !v.Verified }) {
		return errRefused
	}
	return err
}

// showCompleteness says whether every parent that tokens name is among them. If one is not, the answer is
// a no: what came before is not proven.
func (t *target) showCompleteness(cmd *cobra.Command, views []tokenView) error {
	var missing []string
	for _, v := range views {
		for _, parent := range v.Parents {
			if !slices.ContainsFunc(views, func(other tokenView) bool { return other.ID == parent }) {
				missing = append(missing, "missing: "+word(parent)+", a parent of "+word(v.ID))
			}
		}
	}
	to := cmd.OutOrStdout()
	if t.output == "json" { // which standard output holds alone
		to = cmd.ErrOrStderr()
	}
	if missing == nil {
		_, err := fmt.Fprintf(to, "complete: %d verified, and every parent that they name is among them\n", len(views))
		return err
	}
	fmt.Fprintln(to, strings.Join(append(missing, "incomplete: give the missing tokens too, aepbctl dag fetches those of a workflow"), "\n"))
	return errRefused
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
	return views, nil
}

func tokens(args []string, stdin io.Reader) ([]string, error) {
	if len(args) > 0 {
		return args, nil
	}
	data, err := io.ReadAll(io.LimitReader(stdin, 1<<20))
	if err != nil {
		return nil, err
	}
	list := strings.Fields(string(data))
	if len(list) == 0 {
		return nil, errors.New("no token on standard input")
	}
	return list, nil
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
	encoder := json.NewEncoder(printable{w})
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	for _, v := range views {
		if err := encoder.Encode(v); err != nil {
			return err
		}
	}
	return nil
}

// printChain prints tokens as a tree: a token stands below its first parent.
func printChain(w io.Writer, views []tokenView) error {
	depth := map[ect.ID]int{}
	for _, v := range views {
		level := 0
		for _, parent := range v.Parents {
			if d, ok := depth[parent]; ok {
				level = max(level, d+1)
			}
		}
		depth[v.ID] = level
		state := "verified"
		if !v.Verified {
			state = "NOT VERIFIED: " + line(v.Problem)
		}
		route := ""
		if from, ok := v.Ext.String(ect.ExtSourceProtocol); ok {
			route = " " + word(from)
			if to, _ := v.Ext.String(ect.ExtDestProtocol); to != "" {
				route += " → " + word(to)
			}
		}
		if _, err := fmt.Fprintf(w, "%s%s %s%s by %s, %s\n", strings.Repeat("  ", level), word(v.ID), word(v.Act), route, word(v.Issuer), state); err != nil {
			return err
		}
	}
	return nil
}
