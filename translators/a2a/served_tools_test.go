package a2a_test

import (
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// TestAttack_CardOfWithheldSkills: a caller to whom some skills of an agent are not offered reads the card that is served
// for it. The extension of the agent's own card, which is that of a gateway, has schemas of all skills by their ids.
func TestAttack_CardOfWithheldSkills(t *testing.T) {
	t.Parallel()
	const card = `{"name":"n","description":"d","version":"1","supportedInterfaces":[{"url":"https://a.example","protocolBinding":"JSONRPC","protocolVersion":"1.0"}],
		"capabilities":{"extensions":[{"uri":"https://other.example/x"},{"uri":"URI","params":{"skills":{
			"read":{"inputSchema":{"type":"object","title":"of read"}},"drop":{"inputSchema":{"type":"object","title":"of drop"}},"write":{"inputSchema":{"type":"object","title":"of write"}}}}}]},
		"defaultInputModes":[],"defaultOutputModes":[],
		"skills":[{"id":"read","name":"r","description":"","tags":[]},{"id":"drop","name":"d","description":"","tags":[]},{"id":"write","name":"w","description":"","tags":[]}]}`
	codec := a2a.New(translators.Config{})
	for _, version := range []string{a2a.Version, a2a.Version03} {
		m, err := codec.Decode(translators.Wire{Binding: a2a.Binding, Version: version, Re: canonical.OpDescribe, Body: []byte(strings.ReplaceAll(card, "URI", "urn:aepb:translation:1"))})
		if err != nil {
			t.Fatal(err)
		}
		d := *m.Body.(*canonical.Description)
		rest := d.Capabilities[:1:1] // drop is withheld
		renamed := d.Capabilities[2]
		renamed.ID = "save"
		d.Capabilities = append(rest, renamed)
		for _, union := range []bool{true, false} {
			served := *m
			served.Body = a2a.Served(&d, "https://gw.example/agents/a/a2a", union)
			wire, _, err := codec.Encode(&served, translators.Target{Version: version})
			if err != nil {
				t.Fatal(err)
			}
			if text := string(wire.Body); strings.Contains(text, `drop`) || strings.Contains(text, `"write"`) || !strings.Contains(text, "of read") || !strings.Contains(text, "of write") || !strings.Contains(text, "other.example") {
				t.Errorf("%s: %s", version, text)
			}
		}
	}
}
