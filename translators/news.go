package translators

import (
	"encoding/json"
	"slices"

	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Herald is implemented by a translator between whose versions it differs how
// somebody asks for news: for what an agent says without being asked each time
// (MCP: that lists or resources have changed, and its log).
type Herald interface {
	// Wants reads what a request for news asks, or what an agent agreed to tell;
	// nil: it is about something else. One that cannot be understood is a
	// *canonical.Error beside News that says no more than the verb.
	Wants(*canonical.Native) (*News, error)
	// Ask is that request in the words of a version; nil: no agent of that version
	// is asked such a thing.
	Ask(version string, news News) *canonical.Native
	// Offers is the news that an agent has: all of it, were it asked.
	Offers(*canonical.Description) News
	// Retell says a piece of news in the words of whoever hears it; nil: it is
	// nothing that he wants to hear.
	Retell(*canonical.Native, Hearer) *canonical.Native
	// Frame is the event with which his stream begins, and the result with which
	// it ends; nil: it has no such.
	Frame(Hearer) (first, last *canonical.Native)
}

// NewsVerb is what a request for news is.
type NewsVerb string

// The requests for news.
const (
	NewsListen NewsVerb = "listen" // to be told from now on, as long as the stream is open
	NewsMore   NewsVerb = "more"   // to be told of these resources too, on the stream of the session
	NewsLess   NewsVerb = "less"   // no more of these
	NewsLevel  NewsVerb = "level"  // to be told of the agent's log from this level on
	NewsAgreed NewsVerb = "agreed" // what the agent agreed to: no request
)

// News is what somebody wants to be told of.
type News struct {
	Verb                      NewsVerb
	Tools, Prompts, Resources bool     // that the list of them has changed
	URIs                      []string // that one of these resources has changed
	Level                     string   // of the log, with NewsLevel

	Any bool // of an agent's offer: it tells of any resource that it is asked about
	Log bool // of an agent's offer: it has a log
}

// Hearer is somebody who is told news.
type Hearer struct {
	Version string
	ID      json.RawMessage // of the request that he listens by; nil: it has none
	News    News            // what he is told of
}

// Quiet reports whether nothing is wanted of a listening kind.
func (n News) Quiet() bool { return !n.Tools && !n.Prompts && !n.Resources && len(n.URIs) == 0 }

// Among is what of it an agent offers.
func (n News) Among(offer News) News {
	n.Tools, n.Prompts, n.Resources = n.Tools && offer.Tools, n.Prompts && offer.Prompts, n.Resources && offer.Resources
	if !offer.Any {
		n.URIs = nil
	}
	return n
}

// Same reports whether the same is wanted.
func (n News) Same(other News) bool {
	return n.Tools == other.Tools && n.Prompts == other.Prompts && n.Resources == other.Resources && slices.Equal(n.URIs, other.URIs)
}
