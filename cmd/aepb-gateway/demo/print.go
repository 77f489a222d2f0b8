package demo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/aepb/aepb-gateway/ect"
)

// Print tells a person what happened.
func (r Report) Print(w io.Writer) error {
	var b bytes.Buffer
	for i, x := range r.Exchanges {
		fmt.Fprintf(&b, "%d. %s: %s\n", i+1, x.From+" → "+x.To, x.summary)
		fmt.Fprintf(&b, "   sent        %s\n", shorten(x.Request))
		fmt.Fprintf(&b, "   translated  %s\n", shorten(x.Translated))
		fmt.Fprintf(&b, "   came back   %s\n", shorten(x.Reply))
		if len(x.Losses) == 0 {
			fmt.Fprintf(&b, "   nothing was lost\n")
		}
		for _, loss := range x.Losses {
			fmt.Fprintf(&b, "   loss        %s\n", loss)
		}
		printTokens(&b, x.ECTs)
	}
	if r.OK {
		b.WriteString("Every ECT verified against the trust bundle, and every hash against the bytes on the wire.\n")
	} else {
		b.WriteString("NOT everything verified.\n")
	}
	_, err := w.Write(b.Bytes())
	return err
}

// printTokens draws the graph: the reply's ECT below the request's.
func printTokens(w io.Writer, tokens []string) {
	for i, compact := range tokens {
		claims, _, err := ect.ParseUnverified(compact)
		if err != nil {
			continue
		}
		from, _ := claims.Ext.String(ect.ExtSourceProtocol)
		to, _ := claims.Ext.String(ect.ExtDestProtocol)
		branch := "●"
		if i > 0 {
			branch = "└─●"
		}
		fmt.Fprintf(w, "   %s %s %s → %s  jti %s  wid %s\n", branch, claims.Act, from, to, claims.ID, claims.Workflow)
	}
}

// shorten keeps a message to one readable line.
func shorten(message json.RawMessage) string {
	const most = 200
	runes := []rune(string(message))
	if len(runes) <= most {
		return string(runes)
	}
	return string(runes[:most]) + "…"
}
