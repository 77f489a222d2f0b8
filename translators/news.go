package translators

import (
	"encoding/json"
	"slices"

	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Notifier is implemented by a translator whose protocol versions differ in how a
// caller subscribes to notifications (MCP: lists and resources that changed, log lines).
type Notifier interface {
	// Wants reads the filter of a subscription request, or of the agent's
	// acknowledgement; nil: the message is neither. A request that cannot be read is a
	// *canonical.Error beside a filter that has the verb alone.
	Wants(*canonical.Native) (*NotificationFilter, error)
	// Ask is the request for filter in a version; nil: that version has no such request.
	Ask(version string, filter NotificationFilter) *canonical.Native
	// Offers is the filter of everything that the agent can notify of.
	Offers(*canonical.Description) NotificationFilter
	// Retell writes a notification in the subscriber's version; nil: the subscriber's
	// filter does not match it.
	Retell(*canonical.Native, Subscriber) *canonical.Native
	// Frame is the event that begins the subscriber's stream, and the result that ends it;
	// nil: its version has none.
	Frame(Subscriber) (first, last *canonical.Native)
}

// FilterVerb is what a subscription request does.
type FilterVerb string

// The subscription requests.
const (
	FilterListen      FilterVerb = "listen" // notify from now on, as long as the stream is open
	FilterSubscribe   FilterVerb = "more"   // add these resources, on the stream of the session
	FilterUnsubscribe FilterVerb = "less"   // take these resources out
	FilterLevel       FilterVerb = "level"  // notify of the agent's log from this level on
	FilterAgreed      FilterVerb = "agreed" // no request: what the agent agreed to
)

// NotificationFilter says which notifications a subscriber wants.
type NotificationFilter struct {
	Verb                      FilterVerb
	Tools, Prompts, Resources bool     // changes of these lists
	URIs                      []string // changes of these resources
	Level                     string   // of the log, with FilterLevel

	Any bool // in an offer: any resource can be subscribed to
	Log bool // in an offer: there is a log
}

// Subscriber is a caller that gets notifications.
type Subscriber struct {
	Version string
	ID      json.RawMessage    // of its listening request; nil: it has none
	Filter  NotificationFilter // what it wants
}

// Quiet reports whether nothing is wanted of a listening kind.
func (n NotificationFilter) Quiet() bool { return n.Same(NotificationFilter{}) }

// Among is what of it an agent offers.
func (n NotificationFilter) Among(offer NotificationFilter) NotificationFilter {
	n.Tools, n.Prompts, n.Resources = n.Tools && offer.Tools, n.Prompts && offer.Prompts, n.Resources && offer.Resources
	if !offer.Any {
		n.URIs = nil
	}
	return n
}

// Same reports whether the same is wanted.
func (n NotificationFilter) Same(other NotificationFilter) bool {
	return n.Tools == other.Tools && n.Prompts == other.Prompts && n.Resources == other.Resources && slices.Equal(n.URIs, other.URIs)
}
