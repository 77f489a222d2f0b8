package audit_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/audit"
)

const (
	gateway = ect.Identity("spiffe://x/gateway")
	caller  = ect.Identity("spiffe://x/caller")
	agent   = ect.Identity("spiffe://x/agent")
)

func record(by ect.Identity, act ect.Act, id ect.ID, parents ...ect.ID) audit.Record {
	return audit.Record{Compact: string(id) + "@" + string(by), Claims: ect.Claims{ID: id, Issuer: by, Act: act, Parents: parents, IssuedAt: 1000}}
}

func sent(id ect.ID, parents ...ect.ID) audit.Record {
	return record(caller, "send_task", id, parents...)
}

func directed(direction string, id ect.ID, parents ...ect.ID) audit.Record {
	r := record(gateway, ect.ActTranslate, id, parents...)
	r.Claims.Ext = ect.Ext{ect.ExtLeg: []byte(`"` + direction + `"`)}
	if direction == "request" {
		r.Claims.InputHash = "h-" + string(id)
	}
	return r
}

func request(id ect.ID, parents ...ect.ID) audit.Record { return directed("request", id, parents...) }
func reply(id ect.ID, parents ...ect.ID) audit.Record   { return directed("reply", id, parents...) }

func with(r audit.Record, name, value string) audit.Record {
	r.Claims.Ext[name] = []byte(value)
	return r
}

func within(workflow string, r audit.Record) audit.Record {
	r.Claims.Workflow = workflow
	return r
}

// TestJudge_Findings: what is missing or contradicts itself is found, and what is sound is not.
func TestJudge_Findings(t *testing.T) {
	t.Parallel()
	late := reply("c", "b")
	late.Claims.IssuedAt = 900
	asking := request("p", "b")
	asking.Claims.InputHash = ""
	namesake := sent("a")
	namesake.Compact = "another"
	bad := reply("c", "b")
	bad.Problem = "forged"
	for name, c := range map[string]struct {
		records []audit.Record
		want    string // kinds and numbers of the records
	}{
		"an exchange":                           {[]audit.Record{sent("a"), request("b", "a"), reply("c", "b")}, ""},
		"a refusal":                             {[]audit.Record{sent("a"), record(gateway, ect.ActTranslateError, "e", "a")}, ""},
		"a failure names what the request had":  {[]audit.Record{sent("a"), request("b", "a"), record(gateway, ect.ActTranslateError, "e", "a")}, ""},
		"through an agent that signs":           {[]audit.Record{sent("a"), request("b", "a"), record(agent, "work", "w", "b"), reply("c", "w", "b")}, ""},
		"an agent that signs, reply removed":    {[]audit.Record{sent("a"), request("b", "a"), record(agent, "work", "w", "b")}, "incomplete 2"},
		"an agent's own call is no reply":       {[]audit.Record{sent("a"), request("b", "a"), record(agent, "work", "w", "b"), request("d", "w"), reply("e", "d")}, "incomplete 2"},
		"a question of the gateway's own":       {[]audit.Record{sent("a"), reply("q", "a")}, ""},
		"reply removed":                         {[]audit.Record{sent("a"), request("b", "a")}, "incomplete 2"},
		"one way":                               {[]audit.Record{sent("a"), with(request("b", "a"), ect.ExtOneWay, "true")}, ""},
		"polls of the gateway's own":            {[]audit.Record{sent("a"), request("b", "a"), asking, reply("c", "b")}, ""},
		"polls, reply removed":                  {[]audit.Record{sent("a"), request("b", "a"), asking}, "incomplete 2"},
		"reply that names the caller's token":   {[]audit.Record{sent("a"), request("b", "a"), reply("c", "a")}, ""},
		"reply of another gateway":              {[]audit.Record{sent("a"), request("b", "a"), func() audit.Record { r := reply("c", "b"); r.Claims.Issuer = agent; return r }()}, "incomplete 2"},
		"stream":                                {[]audit.Record{sent("a"), request("b", "a"), with(reply("o", "b"), ect.ExtStream, `"open"`), with(reply("c", "o"), ect.ExtStream, `"close"`)}, ""},
		"stream without an end":                 {[]audit.Record{sent("a"), request("b", "a"), with(reply("o", "b"), ect.ExtStream, `"open"`)}, "incomplete 3"},
		"stream that failed":                    {[]audit.Record{sent("a"), request("b", "a"), with(reply("o", "b"), ect.ExtStream, `"open"`), record(gateway, ect.ActTranslateError, "e", "a")}, ""},
		"parent removed":                        {[]audit.Record{request("b", "a"), reply("c", "b")}, "incomplete 1"},
		"parent is younger":                     {[]audit.Record{sent("a"), request("b", "a"), late}, "contradicted 3"},
		"an id twice":                           {[]audit.Record{sent("a"), namesake, request("b", "a"), reply("c", "b")}, "contradicted 2"},
		"a circle":                              {[]audit.Record{sent("a", "c"), request("b", "a"), reply("c", "b")}, "contradicted 1"},
		"a circle in a workflow":                {[]audit.Record{within("w", sent("a", "c")), within("w", request("b", "a")), within("w", reply("c", "b"))}, "contradicted 1"},
		"a record that does not hold":           {[]audit.Record{sent("a"), request("b", "a"), bad}, "not_verified 3"},
		"an id of two issuers is no repetition": {[]audit.Record{sent("a"), record(agent, "work", "a"), request("b", "a"), reply("c", "b")}, ""},
	} {
		var got []string
		for _, f := range audit.Judge(c.records, "is not there") {
			got = append(got, fmt.Sprint(f.Kind, " ", f.Record))
			if f.Text == "" || f.ID != c.records[f.Record-1].Claims.ID {
				t.Errorf("%s: %+v says not what it is about", name, f)
			}
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%s: %s, want %s", name, strings.Join(got, ", "), c.want)
		}
	}
}

// TestAttack_Judge_CostOfForgedTokens: a caller that signs as many tokens as are judged at once, all of one id or each below all
// others, costs seconds and no memory to speak of.
func TestAttack_Judge_CostOfForgedTokens(t *testing.T) {
	t.Parallel()
	const n, most = 20_000, 1001
	parents := make([]ect.ID, 100)
	for i := range parents {
		parents[i] = ect.ID(fmt.Sprint("p", i))
	}
	makers := map[string]func(i int) audit.Record{
		"one id": func(i int) audit.Record {
			r := with(reply("a", "a"), ect.ExtStream, `"open"`)
			r.Compact = fmt.Sprint(i)
			return r
		},
		"parents that are not there": func(i int) audit.Record { return sent(ect.ID(fmt.Sprint("x", i)), parents...) },
		"streams without an end": func(i int) audit.Record {
			return with(reply(ect.ID(fmt.Sprint("p", i)), parents...), ect.ExtStream, `"open"`)
		},
		"requests without a reply": func(i int) audit.Record { return request(ect.ID(fmt.Sprint("p", i)), parents...) },
	}
	for name, maker := range makers {
		records := make([]audit.Record, n)
		for i := range records {
			records[i] = maker(i)
			records[i].Claims.InputHash, records[i].Claims.OutputHash = "h", "h"
		}
		began := time.Now()
		findings := audit.Judge(records, "is not there")
		messages := make([]audit.Message, 10_000)
		for i := range messages {
			messages[i] = audit.Message{Name: "reply", Role: []audit.Role{audit.RequestRole, audit.ReplyRole}[i%2], Of: fmt.Sprint(i / 2), Hashes: []string{"h", "h"}}
		}
		compared, _, _ := audit.Compare(records, messages)
		if took := time.Since(began); took > time.Minute || len(findings) != most || len(compared[0].Places) > 64 {
			t.Errorf("%s: %d findings and %d places in %v", name, len(findings), len(compared[0].Places), took)
		}
	}
}

// TestUnanswered_MessagesWithoutRecords: in evidence that is said to be whole, each message has a record of what became of it.
func TestUnanswered_MessagesWithoutRecords(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		records []audit.Record
		want    int
	}{
		"an exchange":                  {[]audit.Record{sent("a"), request("b", "a"), reply("c", "b")}, 0},
		"alone":                        {[]audit.Record{sent("a")}, 1},
		"the answer to a question":     {[]audit.Record{sent("a"), reply("q", "a"), sent("d", "q")}, 1},
		"what an agent did last":       {[]audit.Record{sent("a"), request("b", "a"), record(agent, "work", "w", "b"), reply("c", "b")}, 0},
		"statements of gateways alone": {[]audit.Record{record(gateway, ect.ActNegotiate, "n")}, 0},
	} {
		if got := audit.Unanswered(c.records); len(got) != c.want {
			t.Errorf("%s: %v, want %d", name, got, c.want)
		}
	}
}

// TestCompare_Messages: each message is found in the records, in the place of its role, or it is a finding; hashes without a message are told.
func TestCompare_Messages(t *testing.T) {
	t.Parallel()
	first, second, third := sent("a"), request("b", "a"), reply("c", "b")
	first.Claims.OutputHash, second.Claims.InputHash, second.Claims.OutputHash = "in", "in", "inner"
	third.Claims.InputHash, third.Claims.OutputHash = "answer", "out"
	refusal := record(gateway, ect.ActTranslateError, "e", "a")
	ofAgent := record(agent, "work", "w", "b")
	ofAgent.Claims.InputHash, ofAgent.Claims.OutputHash = "inner", "answer"
	exchange := []audit.Record{first, second, third}
	for name, c := range map[string]struct {
		records  []audit.Record
		message  audit.Message
		places   string
		open     int
		findings string
	}{
		"request":                 {exchange, audit.Message{Role: audit.RequestRole, Hashes: []string{"in"}}, "[out_hash of record 1 inp_hash of record 2]", 3, ""},
		"reply":                   {exchange, audit.Message{Role: audit.ReplyRole, Hashes: []string{"x", "out"}}, "[out_hash of record 3]", 4, ""},
		"without a role":          {exchange, audit.Message{Hashes: []string{"inner"}}, "[out_hash of record 2]", 4, ""},
		"newline":                 {exchange, audit.Message{Hashes: []string{"x"}, Without: "out"}, "[out_hash of record 3]", 4, ""},
		"newline, not tried":      {exchange, audit.Message{Hashes: []string{"x"}}, "[]", 5, "not_compared"},
		"request as reply":        {exchange, audit.Message{Role: audit.ReplyRole, Hashes: []string{"in"}}, "[out_hash of record 1 inp_hash of record 2]", 3, "contradicted"},
		"the agent's as request":  {exchange, audit.Message{Role: audit.RequestRole, Hashes: []string{"inner"}}, "[out_hash of record 2]", 4, "contradicted"},
		"exchanged":               {exchange, audit.Message{Role: audit.ReplyRole, Hashes: []string{"x"}}, "[]", 5, "contradicted"},
		"a refusal has no record": {[]audit.Record{first, refusal}, audit.Message{Role: audit.ReplyRole, Hashes: []string{"x"}}, "[]", 1, "not_compared"},
		"an agent's own message":  {append(exchange[:2:2], ofAgent, third), audit.Message{Role: audit.RequestRole, Hashes: []string{"answer"}}, "[out_hash of record 3 inp_hash of record 4]", 5, "contradicted"},
		"translation":             {exchange, audit.Message{Role: audit.TranslationRole, Hashes: []string{"inner"}}, "[out_hash of record 2]", 4, ""},
	} {
		compared, open, findings := audit.Compare(c.records, []audit.Message{c.message})
		var kinds []string
		for _, f := range findings {
			kinds = append(kinds, string(f.Kind))
		}
		if fmt.Sprint(compared[0].Places) != c.places || len(open) != c.open || strings.Join(kinds, ", ") != c.findings || compared[0].Newline != (c.message.Without != "") {
			t.Errorf("%s: %v, %d open, %v", name, compared[0], len(open), findings)
		}
	}
}

// TestCompare_RequestAndReplyOfOneExchange: a request and a reply that are said to be of one exchange are; each hash may be in some record.
func TestCompare_RequestAndReplyOfOneExchange(t *testing.T) {
	t.Parallel()
	hashed := func(r audit.Record, in, out string) audit.Record {
		r.Claims.InputHash, r.Claims.OutputHash = in, out
		return r
	}
	ask := func(n string, parents ...ect.ID) []audit.Record {
		return []audit.Record{
			hashed(sent(ect.ID("a"+n), parents...), "", "in"+n), hashed(request(ect.ID("b"+n), ect.ID("a"+n)), "in"+n, "inner"),
		}
	}
	say := func(id, out string, parents ...ect.ID) audit.Record {
		return hashed(reply(ect.ID(id), parents...), "x", out)
	}
	join := func(lists ...[]audit.Record) []audit.Record { return slices.Concat(lists...) }
	one := func(r audit.Record) []audit.Record { return []audit.Record{r} }
	two := join(ask("1"), one(say("c1", "out1", "b1")), ask("2", "c1"), one(say("c2", "out2", "b2")))
	nested := join(ask("1"), one(hashed(record(agent, "work", "w", "b1"), "inner", "in2")), one(hashed(request("b2", "w"), "in2", "inner")), one(say("c2", "out2", "b2")), one(say("c1", "out1", "c2", "w", "b1")))
	for name, c := range map[string]struct {
		records        []audit.Record
		request, reply string
		findings       int
	}{
		"of one":                    {two, "in2", "out2", 0},
		"of the first and second":   {two, "in1", "out2", 1},
		"of the second and first":   {two, "in2", "out1", 1},
		"stream":                    {join(ask("1"), one(say("o", "open", "b1")), one(say("c1", "out1", "o"))), "in1", "out1", 0},
		"the gateway asked further": {join(ask("1"), one(hashed(request("p", "b1"), "", "how far")), one(say("c1", "out1", "p"))), "in1", "out1", 0},
		"named by the caller's":     {join(ask("1"), one(say("c1", "out1", "a1"))), "in1", "out1", 0},
		"an agent's own call":       {nested, "in2", "out2", 0},
		"around an agent's call":    {nested, "in1", "out1", 0},
		"reply to an agent's call":  {nested, "in1", "out2", 1},
		"a request without a token": {join(one(hashed(request("b1"), "in1", "inner")), one(say("c1", "out1", "b1"))), "in1", "out1", 0},
	} {
		messages := []audit.Message{{Role: audit.ReplyRole, Of: "x", Hashes: []string{c.reply}}, {Role: audit.RequestRole, Of: "x", Hashes: []string{c.request}}}
		if _, _, findings := audit.Compare(c.records, messages); len(findings) != c.findings {
			t.Errorf("%s: %v, want %d", name, findings, c.findings)
		}
		messages[0].Of = "y"
		if _, _, findings := audit.Compare(c.records, messages); len(findings) != 0 {
			t.Errorf("%s, not said to be of one: %v", name, findings)
		}
	}
}
