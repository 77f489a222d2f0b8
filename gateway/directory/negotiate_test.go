package directory_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// side reads "a2a-v1=10 mcp-v1"; a protocol without a number has no priority.
func side(text string) directory.Offer {
	var out directory.Offer
	for word := range strings.FieldsSeq(text) {
		if strings.HasPrefix(word, "@") {
			out.Gateways = append(out.Gateways, word[1:])
			continue
		}
		id, rank, reported := strings.Cut(word, "=")
		e := directory.Endpoint{Binding: canonical.Binding(id), URL: "https://" + id + ".example"}
		if reported {
			for _, digit := range rank {
				e.Priority = e.Priority*10 + int(digit-'0')
			}
			if e.Priority == 0 {
				e.Priority = directory.Foremost
			}
		}
		out.Protocols = append(out.Protocols, e)
	}
	return out
}

func TestNegotiate_LowestSumOrGateway(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ ours, theirs, served, want string }{
		"one in common":          {"a2a-v1=10", "mcp-v1=1 a2a-v1=99", "", "a2a-v1 a2a-v1 "},
		"the lowest sum":         {"a-v1=10 b-v1=20", "a-v1=30 b-v1=10", "", "b-v1 b-v1 "},
		"a tie, by id":           {"b-v1=10 a-v1=20", "b-v1=20 a-v1=10", "", "a-v1 a-v1 "},
		"no priority is 100":     {"a-v1 b-v1=60", "a-v1=1 b-v1=42", "", "a-v1 a-v1 "},
		"zero is the best":       {"a-v1=0 b-v1=1", "a-v1=0 b-v1=0", "", "a-v1 a-v1 "},
		"direct beats a gateway": {"a-v1=1 b-v1=99", "b-v1=99 c-v1=1 @g", "g:a-v1>c-v1", "b-v1 b-v1 "},
		"our gateway":            {"a-v1 @ours", "c-v1 @theirs", "ours:a-v1>c-v1 theirs:a-v1>c-v1", "a-v1 c-v1 ours"},
		"their gateway":          {"a-v1 @ours", "c-v1 @theirs", "theirs:a-v1>c-v1", "a-v1 c-v1 theirs"},
		"the best served pair":   {"a-v1=1 b-v1=2 @g", "c-v1=1 d-v1=2", "g:b-v1>c-v1 g:b-v1>d-v1", "b-v1 c-v1 g"},
		"pairs of one sum":       {"a-v1=1 b-v1=1 @g", "d-v1=1 c-v1=1", "g:b-v1>c-v1 g:a-v1>d-v1", "a-v1 d-v1 g"},
		"not the other way":      {"a-v1 @g", "c-v1", "g:c-v1>a-v1", ""},
		"nobody translates":      {"a-v1 @g", "c-v1", "", ""},
		"no gateway at all":      {"a-v1", "c-v1", "", ""},
		"nothing to speak":       {"a-v1 @g", "", "g:a-v1>c-v1", ""},
	} {
		got, ok := directory.Negotiate(side(tc.ours), side(tc.theirs), func(gateway string, from, to canonical.Binding) bool {
			return strings.Contains(" "+tc.served+" ", " "+gateway+":"+string(from)+">"+string(to)+" ")
		})
		text := ""
		if ok {
			text = string(got.Chosen.From) + " " + string(got.Chosen.To) + " " + got.Chosen.Gateway
			if got.Endpoint.Binding != got.Chosen.To || got.Direct() != (got.Chosen.Gateway == "") {
				t.Errorf("%s: %+v", name, got)
			}
		}
		if text != tc.want {
			t.Errorf("%s: got %q, want %q", name, text, tc.want)
		}
	}
}

// TestNegotiate_QueriesAreBounded: an agent that lists much does not make us ask much.
func TestNegotiate_QueriesAreBounded(t *testing.T) {
	t.Parallel()
	var ours, theirs directory.Offer
	for _, c := range "abcdefghijklmnopqrstuvwxyz" {
		ours.Protocols = append(ours.Protocols, directory.Endpoint{Binding: canonical.Binding("o" + string(c))})
		theirs.Protocols = append(theirs.Protocols, directory.Endpoint{Binding: canonical.Binding("t" + string(c))})
		theirs.Gateways = append(theirs.Gateways, string(c))
	}
	requests := 0
	if _, ok := directory.Negotiate(ours, theirs, func(string, canonical.Binding, canonical.Binding) bool { requests++; return false }); ok || requests > 64 {
		t.Errorf("asked %d times", requests)
	}
}

// TestNegotiate_AgreesWithEndpointChoice: a message that comes in a protocol goes where a
// negotiation of somebody who speaks only that would send it.
func TestNegotiate_AgreesWithEndpointChoice(t *testing.T) {
	t.Parallel()
	for _, theirs := range []string{"a-v1=5 b-v1=5", "b-v1 a-v1=200", "c-v1=9 b-v1=0", "x-v1=99 a-v1=1"} {
		for _, from := range []string{"a-v1", "x-v1", "z-v1"} {
			offer := side(theirs)
			mine := side(from + " @g")
			got, ok := directory.Negotiate(mine, offer, func(string, canonical.Binding, canonical.Binding) bool { return true })
			if want := (directory.Agent{Endpoints: offer.Protocols}).Endpoint(canonical.Binding(from)); !ok || got.Endpoint != want {
				t.Errorf("%s to %s: negotiation %v, road %v", from, theirs, got.Endpoint, want)
			}
		}
	}
	if got := (directory.Agent{}).Endpoint("a-v1"); got.Binding != "" {
		t.Errorf("an agent without endpoints has %v", got)
	}
}

func TestServes_AsksTheOtherGateway(t *testing.T) {
	t.Parallel()
	d, w, _ := newWeb(t)
	const query = "?from=a2a-v1&to=slim-v1"
	w.put("https://g.example/.well-known/aepb/gateway"+query, 200, "{}")
	w.put("https://h.example/.well-known/cpat/gateway"+query, 200, "{}")
	w.put("https://i.example/.well-known/aepb/gateway"+query, 404, "{}")
	for endpoint, want := range map[string]bool{
		"https://g.example/aepb/translate": true, "https://h.example/cpat/translate": true,
		"https://i.example/aepb/translate": false, "https://down.example/aepb/translate": false, "://": false,
	} {
		if got := d.Serves(t.Context(), endpoint, "a2a-v1", "slim-v1"); got != want {
			t.Errorf("%s: %v", endpoint, got)
		}
	}
}

func TestErrors_HaveMessages(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		&directory.EndedError{Agent: "pricing", Status: directory.Retired}, &directory.ChangedError{Capability: "add"},
		&directory.DocumentError{Reason: "no lifecycle"},
	} {
		if err.Error() == "" || errors.Unwrap(err) != nil {
			t.Errorf("%T", err)
		}
	}
}
