package proof

import (
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/audit"
)

// View is a token as it is printed.
type View struct {
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

// ViewOf is the view of a token that was judged. One whose claims alone are known has no verdict.
func ViewOf(claims ect.Claims, compact string) View {
	return View{
		ID: claims.ID, Issuer: claims.Issuer, Audience: claims.Audience, Workflow: claims.Workflow, Act: claims.Act,
		Parents: claims.Parents, IssuedAt: time.Unix(claims.IssuedAt, 0).UTC(), Expires: time.Unix(claims.Expires, 0).UTC(),
		Input: claims.InputHash, Output: claims.OutputHash, Ext: claims.Ext, Compact: compact,
	}
}

// Views are those of records.
func Views(records []audit.Record) []View {
	views := make([]View, len(records))
	for i, r := range records {
		views[i] = ViewOf(r.Claims, r.Compact)
		views[i].Verified, views[i].Problem = r.Verified(), r.Problem
	}
	return views
}

// Warnings are the losses of all tokens.
func Warnings(records []audit.Record) []string {
	out := []string{}
	for _, r := range records {
		warnings, _ := r.Claims.Ext.Strings(ect.ExtWarnings)
		out = append(out, warnings...)
	}
	return out
}
