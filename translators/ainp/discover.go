package ainp

import (
	"encoding/json"
	"slices"
	"strconv"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/envelope"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

func (l wireMessage) discover(m *canonical.Message) {
	left := extended(nil, l.payload)
	if l.op() == opDescribe {
		m.Op, m.Body = canonical.OpDescribe, &canonical.DescribeRequest{Extensions: left}
		return
	}
	m.Op, m.Body = canonical.OpCapabilities, &canonical.Page{Extensions: left}
}

// The members that hold what was found: the draft's and the code's.
const (
	listMatches      = "matches"
	listResults      = "results"
	listCapabilities = "capabilities"
)

func (l wireMessage) found(m *canonical.Message, p *rawjson.Object) error {
	l.answers(m, p)
	name := listMatches
	if !p.Has(name) && p.Has(listResults) {
		name = listResults
	}
	list, err := readOffers(p, name)
	left := p.Rest()
	if name == listResults {
		left = rawjson.NewBuilder().Merge(left).Array(listResults, nil).Bytes()
	}
	m.Body = &canonical.CapabilityList{Capabilities: list, Extensions: extended(nil, left)}
	return err
}

func (l wireMessage) advertised(m *canonical.Message, p *rawjson.Object) error {
	l.answers(m, p)
	has := p.Has(listCapabilities)
	list, err := readOffers(p, listCapabilities)
	left := p.Rest()
	if !has {
		left = rawjson.NewBuilder().Merge(left).Raw(listCapabilities, json.RawMessage("null")).Bytes()
	}
	m.Body = &canonical.Description{Capabilities: list, Extensions: extended(nil, left)}
	return err
}

// readOffers reads agents or capabilities that were offered: whose they are,
// what they do, their tags, and the rest as it is.
func readOffers(p *rawjson.Object, name string) ([]canonical.Capability, error) {
	elements, _ := p.Array(name)
	var list []canonical.Capability
	for _, element := range elements {
		o := rawjson.Parse(element, p.Path(name))
		c := canonical.Capability{ID: o.TakeText("did"), Description: o.TakeText("description")}
		if raw := o.Peek("tags"); len(raw) > 2 {
			c.Tags, _ = o.Strings("tags")
		}
		if err := o.Err(); err != nil {
			return nil, err
		}
		c.Extensions = extended(nil, o.Rest())
		list = append(list, c)
	}
	return list, p.Err()
}

func writeOffer(c *canonical.Capability) json.RawMessage {
	b := rawjson.NewBuilder()
	if len(c.ID) > 4 && c.ID[:4] == "did:" {
		b.String("did", c.ID)
	}
	return b.Optional("description", c.Description).Strings("tags", c.Tags, false).
		Over(c.Extensions[Binding], "did", "description", "tags").Bytes()
}

func (e *encoder) found(body *canonical.CapabilityList) json.RawMessage {
	left := rawjson.ObjectOr(body.Extensions[Binding])
	name := listMatches
	if rawjson.Parse(left, "").Has(listResults) {
		name = listResults
	}
	return e.answers(rawjson.NewBuilder()).Array(name, rawjson.List(body.Capabilities, writeOffer)).Merge(rawjson.Without(left, name, "intent_id", envelope.Key)).Bytes()
}

func (e *encoder) advertised(body *canonical.Description) json.RawMessage {
	left := rawjson.ObjectOr(body.Extensions[Binding])
	b := e.answers(rawjson.NewBuilder())
	if len(body.Capabilities) > 0 || !rawjson.Parse(left, "").Has(listCapabilities) {
		b.Array(listCapabilities, rawjson.List(body.Capabilities, writeOffer))
	}
	return b.Merge(rawjson.Without(left, listCapabilities, "intent_id", envelope.Key)).Bytes()
}

// Negotiation is what a NEGOTIATE payload says that every receiver must judge.
type Negotiation struct {
	ID    string
	Round int
	Phase string // OFFER, COUNTER, ACCEPT, REJECT, ABORT or TIMEOUT
}

// MaxRounds is how many rounds a negotiation may have (draft-ainp-protocol-00).
const MaxRounds = 10

// ParseNegotiation reads and judges the payload of a NEGOTIATE. Its error is a
// *translators.MalformedError.
func ParseNegotiation(payload json.RawMessage) (Negotiation, error) {
	if payload == nil {
		return Negotiation{}, &translators.MalformedError{Path: "/payload", Reason: "required"}
	}
	p := rawjson.Parse(payload, "/payload")
	n := Negotiation{ID: p.Required("negotiation_id"), Phase: p.Required("phase")}
	round, err := strconv.Atoi(string(p.Take("round")))
	n.Round = round
	switch {
	case p.Err() != nil:
	case n.ID == "":
		p.Fail("negotiation_id", "empty")
	case err != nil || round < 1 || round > MaxRounds:
		p.Fail("round", "not an integer from 1 to 10")
	case !slices.Contains([]string{"OFFER", "COUNTER", "ACCEPT", "REJECT", "ABORT", "TIMEOUT"}, n.Phase):
		p.Fail("phase", "no such phase")
	}
	p.RawObject("proposal")
	if c := p.Object("constraints"); c != nil {
		if most := c.Take("max_rounds"); most != nil {
			if limit, err := strconv.Atoi(string(most)); err != nil || limit < 1 || limit > MaxRounds {
				p.Fail("constraints/max_rounds", "not an integer from 1 to 10")
			}
		}
	}
	return n, p.Err()
}
