package mcp

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// The methods and notifications of subscriptions.
const (
	methodSubscriptions = "subscriptions/listen"
	methodSubscribe     = "resources/subscribe"
	methodUnsubscribe   = "resources/unsubscribe"
	methodSetLevel      = "logging/setLevel"

	noticeAgreed    = "notifications/subscriptions/acknowledged"
	noticeTools     = "notifications/tools/list_changed"
	noticePrompts   = "notifications/prompts/list_changed"
	noticeResources = "notifications/resources/list_changed"
	noticeUpdated   = "notifications/resources/updated"
)

// metaSubscription names, in 2026-07-28, the request that subscribed to a notification.
const metaSubscription = "io.modelcontextprotocol/subscriptionId"

// Bounds of what one hearer can want.
const (
	maxURIs = 1024
	maxURI  = 2048 // bytes
)

var _ translators.Notifier = (*Translator)(nil)

// filterVerbs are what each asks for.
var filterVerbs = map[string]translators.FilterVerb{
	methodListen: translators.FilterListen, methodSubscriptions: translators.FilterListen, noticeAgreed: translators.FilterAgreed,
	methodSubscribe: translators.FilterSubscribe, methodUnsubscribe: translators.FilterUnsubscribe, methodSetLevel: translators.FilterLevel,
}

// Wants reads the subscriptions of every revision.
func (t *Translator) Wants(n *canonical.Native) (*translators.NotificationFilter, error) {
	verb, ok := filterVerbs[n.Method]
	if !ok {
		return nil, nil
	}
	bare, subscription := &translators.NotificationFilter{Verb: verb}, &translators.NotificationFilter{Verb: verb}
	if n.Method == methodListen {
		return bare, nil
	}
	if !rawjson.IsObject(n.Params) {
		return bare, refuse(canonical.CodeBadParams, "params is no object")
	}
	o := rawjson.Parse(n.Params, "/params")
	switch subscription.Verb {
	case translators.FilterListen, translators.FilterAgreed:
		takeFilter(o, subscription)
	case translators.FilterLevel:
		if subscription.Level = o.Required("level"); !slices.Contains(levels[:], subscription.Level) {
			o.Fail("level", "not a level of the log")
		}
	default:
		subscription.URIs = []string{o.Required("uri")}
	}
	if o.Err() != nil || len(subscription.URIs) > maxURIs || slices.ContainsFunc(subscription.URIs, func(uri string) bool { return uri == "" || len(uri) > maxURI }) {
		return bare, refuse(canonical.CodeBadParams, "the subscription filter is malformed")
	}
	return subscription, nil
}

// levels are those of the log (RFC 5424), the most talkative first.
var levels = [...]string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

func takeFilter(o *rawjson.Object, subscription *translators.NotificationFilter) {
	raw := o.RawObject("notifications")
	if raw == nil {
		o.Fail("notifications", "required")
		return
	}
	filter := rawjson.Parse(raw, o.Path("notifications"))
	for _, f := range filterFlags(subscription) {
		if filter.Has(f.name) {
			*f.wanted, _ = filter.Bool(f.name)
		}
	}
	if filter.Has("resourceSubscriptions") {
		subscription.URIs, _ = filter.Strings("resourceSubscriptions")
	}
	if filter.Err() != nil {
		o.Fail("notifications", "malformed")
	}
}

type filterFlag struct {
	name, notice string
	wanted       *bool
}

func filterFlags(subscription *translators.NotificationFilter) []filterFlag {
	return []filterFlag{
		{"toolsListChanged", noticeTools, &subscription.Tools},
		{"promptsListChanged", noticePrompts, &subscription.Prompts},
		{"resourcesListChanged", noticeResources, &subscription.Resources},
	}
}

// filter writes a SubscriptionFilter.
func filter(subscription translators.NotificationFilter) json.RawMessage {
	b := rawjson.NewBuilder()
	for _, f := range filterFlags(&subscription) {
		if *f.wanted {
			b.Bool(f.name, true)
		}
	}
	return b.Strings("resourceSubscriptions", subscription.URIs, false).Bytes()
}

// Ask writes such a request. A legacy server takes a subscription for one resource at a
// time, and sends the rest on each open stream. A modern one takes it with the stream.
func (t *Translator) Ask(version string, subscription translators.NotificationFilter) *canonical.Native {
	one := func(method, name, value string) *canonical.Native {
		return &canonical.Native{Method: method, Params: rawjson.NewBuilder().String(name, value).Bytes()}
	}
	switch {
	case version == Modern && (subscription.Verb == translators.FilterListen || subscription.Verb == translators.FilterSubscribe):
		return &canonical.Native{Method: methodSubscriptions, Params: rawjson.NewBuilder().Raw("notifications", filter(subscription)).Bytes()}
	case version == Modern:
		return nil
	case subscription.Verb == translators.FilterListen:
		return &canonical.Native{Method: methodListen}
	case subscription.Verb == translators.FilterLevel:
		return one(methodSetLevel, "level", subscription.Level)
	case subscription.Verb == translators.FilterSubscribe:
		return one(methodSubscribe, "uri", first(subscription.URIs))
	default:
		return one(methodUnsubscribe, "uri", first(subscription.URIs))
	}
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// Offers reads what a server's capabilities say.
func (t *Translator) Offers(d *canonical.Description) translators.NotificationFilter {
	has := func(of, what string) bool {
		capabilities := member(d.Extensions[Binding], "capabilities")
		return string(member(member(capabilities, of), what)) == "true"
	}
	return translators.NotificationFilter{
		Tools: has("tools", "listChanged"), Prompts: has("prompts", "listChanged"), Resources: has("resources", "listChanged"),
		Any: has("resources", "subscribe"), Log: Offers(d, "logging"),
	}
}

// TTL is how long a result may be used, as its server says (2026-07-28, caching);
// false: it does not. What is no duration in milliseconds says nothing.
func TTL(ext canonical.Extensions) (time.Duration, bool) {
	const most = int64(24 * time.Hour / time.Millisecond)
	ms, err := strconv.ParseInt(string(member(ext[Binding], "ttlMs")), 10, 64)
	if err != nil || ms < 0 {
		return 0, false
	}
	return time.Duration(min(ms, most)) * time.Millisecond, true
}

// ToolsChange reports whether a server says that its list of tools may change.
func ToolsChange(d *canonical.Description) bool {
	return (*Translator)(nil).Offers(d).Tools
}

func member(raw json.RawMessage, name string) json.RawMessage {
	if !rawjson.IsObject(raw) {
		return nil
	}
	return rawjson.Parse(raw, "").Peek(name)
}

// Retell says a notification to a hearer of another revision. A modern one is
// told what it has asked for and nothing else; a legacy one hears everything
// that his revision has a word for.
func (t *Translator) Retell(n *canonical.Native, to translators.Subscriber) *canonical.Native {
	if !notifies(to.Version, n.Method) || n.Params != nil && !rawjson.IsObject(n.Params) {
		return nil
	}
	params := rawjson.Parse(rawjson.OrEmpty(n.Params), "")
	meta := takeMeta(params)
	meta.Take(metaSubscription)
	b := rawjson.NewBuilder()
	if to.Version == Modern {
		if !wanted(n.Method, to.Filter) {
			return nil
		}
		b.Raw(metaSubscription, to.ID)
	}
	about := b.Rest(meta).Object()
	return &canonical.Native{Method: n.Method, Params: rawjson.NewBuilder().Raw("_meta", about).Rest(params).Object()}
}

// wanted reports whether a notification was subscribed. The server checks the resource itself.
func wanted(notice string, subscription translators.NotificationFilter) bool {
	for _, f := range filterFlags(&subscription) {
		if f.notice == notice {
			return *f.wanted
		}
	}
	return notice == noticeUpdated && len(subscription.URIs) > 0
}

// Frame returns the first message of a modern stream, with its subscriptions, and its result.
func (t *Translator) Frame(to translators.Subscriber) (first, last *canonical.Native) {
	if to.Version != Modern {
		return nil, nil
	}
	about := rawjson.NewBuilder().Raw(metaSubscription, to.ID).Bytes()
	return &canonical.Native{Method: noticeAgreed, Params: rawjson.NewBuilder().Raw("_meta", about).Raw("notifications", filter(to.Filter)).Bytes()},
		&canonical.Native{Result: rawjson.NewBuilder().String("resultType", resultDone).Raw("_meta", about).Bytes()}
}
