package audit_test

import (
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/audit"
)

// hashed is a record of a message that came in and one that went out; empty: there is none.
func hashed(r audit.Record, in, out string) audit.Record {
	if in != "" {
		r.Claims.InputHash = ect.Hash([]byte(in))
	}
	if out != "" {
		r.Claims.OutputHash = ect.Hash([]byte(out))
	}
	return r
}

// TestLinked_ChainOfParents: each record but the first names a parent among them, and all are verified.
func TestLinked_ChainOfParents(t *testing.T) {
	t.Parallel()
	forged := request("b", "a")
	forged.Problem = "forged"
	for name, c := range map[string]struct {
		records []audit.Record
		want    string
	}{
		"linked":        {[]audit.Record{sent("a"), request("b", "a"), reply("c", "b")}, ""},
		"alone":         {[]audit.Record{sent("a")}, ""},
		"of a stranger": {[]audit.Record{sent("a"), request("b", "z")}, "record b is not linked"},
		"not verified":  {[]audit.Record{sent("a"), forged}, "forged"},
	} {
		if err := audit.Linked(c.records); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestCovers_ThisExchange: there is a record for what was sent and one for what came back, or nothing is proven.
func TestCovers_ThisExchange(t *testing.T) {
	t.Parallel()
	first, second, third := hashed(sent("a"), "", "sent"), hashed(request("b", "a"), "sent", "x"), hashed(reply("c", "b"), "y", "got")
	forged := second
	forged.Problem = "forged"
	for name, c := range map[string]struct {
		records   []audit.Record
		answers   bool
		note, err string
	}{
		"both":              {[]audit.Record{first, second, third}, false, ", hashes match", ""},
		"not verified":      {[]audit.Record{first, forged, third}, false, "", "forged"},
		"another reply":     {[]audit.Record{first, second, hashed(reply("c", "b"), "y", "else")}, false, "", "no proof that the reply came back"},
		"another request":   {[]audit.Record{first, hashed(request("b", "a"), "else", "x"), third}, false, "", "no proof that the message was translated"},
		"below another":     {[]audit.Record{first, hashed(request("b", "z"), "sent", "x"), third}, false, "", "no proof that the message was translated"},
		"gateway's request": {[]audit.Record{first, hashed(reply("b", "a"), "", "got")}, false, ", hashes match; the gateway asks this itself, so there is no record of a request to the agent", ""},
		"answer to a task":  {[]audit.Record{first, hashed(request("b", "a"), "else", "x"), third}, true, ", hash of the reply matches; that of the answer is in no record: the agent is told in an exchange that goes on", ""},
	} {
		note, err := audit.Covers(c.records, []byte("sent"), []byte("got"), c.answers)
		if note != c.note || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %q, %v; want %q, %q", name, note, err, c.note, c.err)
		}
	}
}
