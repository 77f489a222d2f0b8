package a2a

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

func readCard(t *testing.T, name string) *canonical.Message {
	t.Helper()
	for _, v := range vectors(t, "identity") {
		if v.name == name {
			m, err := New(translators.Config{}).Decode(v.wire)
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
	}
	t.Fatalf("no vector %s", name)
	return nil
}

func encodeCard(t *testing.T, m *canonical.Message) (string, []canonical.Loss) {
	t.Helper()
	wire, losses, err := New(translators.Config{}).Encode(m, translators.Target{})
	if err != nil {
		t.Fatal(err)
	}
	return string(wire.Body), losses
}

func TestCard_Decode(t *testing.T) {
	t.Parallel()
	d := readCard(t, "card").Body.(*canonical.Description)
	if d.Title != "T" || d.Instructions != "Ask." || !cmp.Equal(d.Versions, []string{"1.0", "0.3"}) || d.Interfaces[0].Tenant != "t" {
		t.Errorf("card read as %+v", d)
	}
	typed, plain := d.Capabilities[0], d.Capabilities[1]
	if typed.Profile != canonical.ProfileTyped || string(typed.InputSchema) != `{"type":"object"}` || string(typed.OutputSchema) != "true" || typed.Title != "Forecast" {
		t.Errorf("typed skill read as %+v", typed)
	}
	if plain.Profile != canonical.ProfileMessage || plain.InputSchema != nil {
		t.Errorf("plain skill read as %+v", plain)
	}
	if string(d.Extensions["mcp-v1"]) != `{"k":1}` || string(typed.Extensions["mcp-v1"]) != `{"icons":[]}` {
		t.Errorf("foreign extensions read as %s, %s", d.Extensions["mcp-v1"], typed.Extensions["mcp-v1"])
	}
}

// cardOf is a card with n skills, of A2A 1.0 or 0.3.
func cardOf(n int, members string) translators.Wire {
	var skills strings.Builder
	for i := range n {
		if i > 0 {
			skills.WriteByte(',')
		}
		skills.WriteString(`{"id":"s` + strconv.Itoa(i) + `"}`)
	}
	return translators.Wire{Re: canonical.OpDescribe, Body: []byte(`{"name":"a",` + members + `,"skills":[` + skills.String() + `]}`)}
}

// TestAttack_CardOfManySkills is finding M2: an agent describes itself with so many skills
// that reading its card costs seconds. Such a card is refused before its skills are read,
// which is counted in allocations.
func TestAttack_CardOfManySkills(t *testing.T) {
	const many = 36_000
	for version, members := range map[string]string{
		Version:   `"supportedInterfaces":[{"url":"https://a.example","protocolBinding":"JSONRPC","protocolVersion":"1.0"}]`,
		Version03: `"protocolVersion":"0.3.0","url":"https://a.example"`,
	} {
		if m, err := New(translators.Config{}).Decode(cardOf(maxSkills, members)); err != nil || len(m.Body.(*canonical.Description).Capabilities) != maxSkills {
			t.Errorf("%s: %d skills: %v", version, maxSkills, err)
		}
		card := cardOf(many, members)
		_, err := New(translators.Config{}).Decode(card)
		var malformed *translators.MalformedError
		if !errors.As(err, &malformed) || malformed.Path != "/skills" || !strings.Contains(malformed.Reason, "more than 10000") {
			t.Errorf("%s: %d skills: %v", version, many, err)
		}
		if got := testing.AllocsPerRun(1, func() { _, _ = New(translators.Config{}).Decode(card) }); got > many/2 {
			t.Errorf("%s: %v allocations to refuse %d skills", version, got, many)
		}
	}
}

func TestCard_ChangeRemovesSignature(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*canonical.Description){
		"text":       func(d *canonical.Description) { d.Description = "cleaned" },
		"interfaces": func(d *canonical.Description) { d.Interfaces[0].URL = "https://gw.example" },
		"skill":      func(d *canonical.Description) { d.Capabilities[1].Title = "" },
		"schema":     func(d *canonical.Description) { d.Capabilities[0].InputSchema = raw("{}") },
	} {
		m := readCard(t, "card")
		change(m.Body.(*canonical.Description))
		card, losses := encodeCard(t, m)
		if strings.Contains(card, "signatures") || !strings.Contains(lines(losses), "L09 dropped") {
			t.Errorf("%s: %v: %s", name, losses, card)
		}
	}
}

func TestCard_FromMCPTools(t *testing.T) {
	t.Parallel()
	m := from(tools(), func(m *canonical.Message) { m.Op = canonical.OpDescribe })
	card, _ := encodeCard(t, m)
	want := `{"name":"calc","description":"Add.","version":"3",
 "supportedInterfaces":[{"url":"https://gw.example/agents/calc/a2a","protocolBinding":"JSONRPC","protocolVersion":"1.0"},{"url":"https://gw.example/agents/calc/a2a","protocolBinding":"JSONRPC","protocolVersion":"0.3"}],
 "capabilities":{"extensions":[{"uri":"urn:aepb:translation:1","description":"Input and output schemas of skills, for typed invocation.","params":{
  "skills":{"add":{"inputSchema":{"type":"object","properties":{"a":{"type":"number"}}},"outputSchema":{"type":"object"},"annotations":{"readOnlyHint":true,"destructiveHint":false},"mcp-v1":{"icons":[]}}},
  "canon":{"title":"Calculator","instructions":"Add.","versions":["2026-07-28"]},"mcp-v1":{"capabilities":{"tools":{}}}}}]},
 "defaultInputModes":["text/plain","application/json"],"defaultOutputModes":["text/plain","application/json"],
 "skills":[{"id":"add","name":"add","description":"add","tags":["mcp","read-only"]},{"id":"ask","name":"Ask","description":"Asks","tags":["x"]}]}`
	if !rawjson.Equal(raw(card), raw(want)) {
		t.Error(cmp.Diff(indent(raw(want)), indent(raw(card))))
	}
}

// TestServedCard_PointsToTheGateway: a gateway's card sends callers to the gateway and says nothing
// that only holds at the agent.
func TestServedCard_PointsToTheGateway(t *testing.T) {
	t.Parallel()
	m := readCard(t, "card")
	before, _ := encodeCard(t, m)
	served := Served(m.Body.(*canonical.Description), "https://gw.example/agents/w/a2a", true)
	card, losses := encodeCard(t, &canonical.Message{Op: canonical.OpDescribe, Phase: canonical.PhaseResponse, Origin: m.Origin, Body: served})
	for _, gone := range []string{"a.example", "security", "signatures", `"later":{"a":1}`} {
		if strings.Contains(card, gone) {
			t.Errorf("still says %s: %s", gone, card)
		}
	}
	for _, stored := range []string{`"streaming":true`, `"pushNotifications":true`, "https://example.com/e", `"required":true`, `"inputSchema"`, "https://gw.example/agents/w/a2a", "Forecast"} {
		if !strings.Contains(card, stored) {
			t.Errorf("says no more %s: %s", stored, card)
		}
	}
	if len(losses) > 0 {
		t.Errorf("losses %v", losses)
	}
	if after, _ := encodeCard(t, m); after != before {
		t.Error("the description was changed")
	}
}
