package proof

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"strings"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/audit"
)

// Verdict is what an auditor is told of an input.
type Verdict struct {
	Records  []audit.Record // in the order in which they are numbered
	Findings []audit.Finding
	Compared []audit.Comparison
	Open     []audit.Place // hashes whose messages were not given
	Doubled  int           // tokens that two sources hold; each counts once
	Anchors  []*x509.Certificate
}

// Judge judges an input with a verifier that trusts the anchors. gateways are those that may have signed
// translations; none: every identity that the CA vouches for.
func Judge(ctx context.Context, verifier audit.Verifier, in Input, anchors []*x509.Certificate, gateways []ect.Identity) Verdict {
	const absent = "was not given (aepbctl dag fetches the records of a workflow)"
	v := Verdict{Records: audit.Ordered(audit.Verify(ctx, verifier, in.Tokens)), Anchors: anchors, Doubled: in.Doubled}
	v.Findings = append(audit.Judge(v.Records, absent), in.Findings...)
	v.Findings = append(v.Findings, audit.Foreign(v.Records, gateways)...)
	if in.Whole {
		v.Findings = append(v.Findings, audit.Unanswered(v.Records)...)
	}
	compared, open, findings := audit.Compare(v.Records, in.Messages)
	v.Compared, v.Open, v.Findings = compared, open, append(v.Findings, findings...)
	for _, p := range in.packs {
		v.Findings = append(v.Findings, p.judge(ctx, verifier, anchors)...)
	}
	return v
}

// Holds reports whether nothing speaks against the input.
func (v Verdict) Holds() bool { return len(v.Findings) == 0 }

// labels are the kinds of findings as they are printed.
var labels = map[audit.Kind]string{
	audit.NotVerified: "NOT PROVEN", audit.Incomplete: "INCOMPLETE", audit.Contradicted: "ALTERED", audit.NotCompared: "NOT COMPARED",
}

// Print writes each finding, which hashes were compared and which were not, and the verdict.
func (v Verdict) Print(w io.Writer) error {
	for _, f := range v.Findings {
		if f.Kind == audit.NotVerified && f.Record > 0 {
			continue // the line of the record says so
		}
		fmt.Fprintf(w, "%s: %s\n", terminal.Bad(w, labels[f.Kind]), findingText(f))
	}
	for _, c := range v.Compared {
		if len(c.Places) > 0 {
			fmt.Fprintf(w, "body %s: sha256 %s is %s%s\n", terminal.Word(c.Message), Brief(c.Hash), placesText(c.Places), newline(c))
		}
	}
	if len(v.Open) > 0 {
		fmt.Fprintf(w, "not compared: %s: %s not given (%d %s)\n", placesText(v.Open), terminal.Plural(len(v.Open), "its message was", "their messages were"),
			len(v.Open), terminal.Plural(len(v.Open), "hash", "hashes"))
	}
	if ids := audit.Signers(v.Records); len(ids) > 0 {
		fmt.Fprintf(w, "translations signed by: %s\n", terminal.Words(ids))
	}
	if v.Doubled > 0 {
		fmt.Fprintf(w, "%d %s given by two sources: each counts once\n", v.Doubled, terminal.Plural(v.Doubled, "token is", "tokens are"))
	}
	if wrong := v.notVerified(); wrong > 0 {
		fmt.Fprintf(w, "%s: %d of %d %s not verified\n", terminal.Bad(w, "NOT PROVEN"), wrong, len(v.Records), terminal.Plural(len(v.Records), "record", "records"))
	}
	if !v.Holds() {
		return nil
	}
	_, err := fmt.Fprintf(w, "%s: %d %s verified%s, and every parent that they name is among them\n",
		terminal.Good(w, "complete"), len(v.Records), terminal.Plural(len(v.Records), "record", "records"), against(v.Anchors))
	return err
}

func (v Verdict) notVerified() (n int) {
	for _, r := range v.Records {
		if !r.Verified() {
			n++
		}
	}
	return n
}

func findingText(f audit.Finding) string {
	text := terminal.Line(f.Text)
	if f.Record == 0 {
		return text
	}
	return fmt.Sprintf("record %d (%s) %s", f.Record, terminal.Word(f.ID), text)
}

func newline(c audit.Comparison) string {
	if c.Newline {
		return ", without the newline at its end"
	}
	return ""
}

// placesText names a few places, and says how many more there are.
func placesText(places []audit.Place) string {
	const most = 8
	var texts []string
	for _, p := range places[:min(most, len(places))] {
		texts = append(texts, terminal.Line(p.String()))
	}
	if len(places) > most {
		texts = append(texts, fmt.Sprintf("%d more", len(places)-most))
	}
	if len(texts) < 2 {
		return strings.Join(texts, "")
	}
	return strings.Join(texts[:len(texts)-1], ", ") + " and " + texts[len(texts)-1]
}

// against names the CA, if there is one alone.
func against(anchors []*x509.Certificate) string {
	if len(anchors) != 1 {
		return ""
	}
	name := cmp.Or(anchors[0].Subject.CommonName, anchors[0].Subject.String())
	if name == "" {
		return ""
	}
	return fmt.Sprintf(" with CA %q", terminal.Line(name))
}

// Report is a verdict as JSON.
type Report struct {
	Complete bool               `json:"complete"`
	ECTs     []View             `json:"ects"`
	Findings []audit.Finding    `json:"findings"`
	Compared []audit.Comparison `json:"compared"`
	Open     []audit.Place      `json:"not_compared"`
}

// Report is the verdict as JSON, each list empty rather than null.
func (v Verdict) Report() Report {
	return Report{
		Complete: v.Holds(), ECTs: Views(v.Records), Findings: append([]audit.Finding{}, v.Findings...),
		Compared: append([]audit.Comparison{}, v.Compared...), Open: append([]audit.Place{}, v.Open...),
	}
}
