package directory

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/lifecycle"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Bounds of a capability document (R11).
const (
	MaxDocument   = 64 << 10 // bytes
	maxProtocols  = 64
	maxGateways   = 16
	maxNamespaces = 32
	maxTextField  = 2048    // bytes of a URL or of any other text
	maxVersion    = 128     // bytes
	maxPriority   = 1 << 20 // a larger one is a mistake
)

// Status is where an agent stands in its life (AEPB, Lifecycle States).
type Status = lifecycle.Status

// The four states.
const (
	Active     = lifecycle.Active
	Deprecated = lifecycle.Deprecated
	Draining   = lifecycle.Draining
	Retired    = lifecycle.Retired
)

// Lifecycle is what a capability document says of its agent's future. The zero
// Lifecycle is that of an agent that says nothing: it counts as active.
type Lifecycle struct {
	Status       Status
	Version      string    // semantic version
	DeprecatedAt time.Time // zero: unset
	SunsetAt     time.Time // zero: unset
	Successor    string    // URL of the replacement's capability document; empty: none

	// Workflows is set while it drains: those with work here that is older go on (R16); zero: none does.
	Workflows time.Time
}

// Document is a capability document that is fit to be used: of AEPB (Capability
// Document Format) or of CPAT (Protocol Capability Advertisement).
type Document struct {
	AgentID   ect.Identity
	Protocols []Endpoint // one per binding, as listed; unknown ids are among them
	Gateways  []string   // translate endpoints that the agent can be reached through
	Level     ect.Level  // the least that the agent demands
	Lifecycle Lifecycle
	// Namespaces are those of ECT extensions that the agent reads and writes; nil: it does not say (AEPB, Capability Document Format).
	Namespaces []string
}

// DocumentError says why a capability document cannot be used. It never quotes it.
type DocumentError struct {
	Reason string

	failing bool // its server is in trouble, which says nothing of the document
}

func (e *DocumentError) Error() string { return "the agent's capability document: " + e.Reason }

func invalid(format string, args ...any) error {
	return &DocumentError{Reason: fmt.Sprintf(format, args...)}
}

// wireDocument is the JSON form. Pointers tell what is absent from what is empty.
type wireDocument struct {
	AEPB      string         `json:"aepb_version"`
	CPAT      string         `json:"cpat_version"`
	AgentID   string         `json:"agent_id"`
	Protocols []wireProtocol `json:"protocols"`
	Gateways  []string       `json:"translation_gateways"`
	Level     string         `json:"ect_assurance_level"`
	Lifecycle *wireLifecycle `json:"lifecycle"`

	Namespaces []string `json:"ect_namespaces"`
}

type wireProtocol struct {
	ID       string `json:"id"`
	Version  string `json:"version"`
	Endpoint string `json:"endpoint"`
	Priority *int   `json:"priority"`
}

type wireLifecycle struct {
	Status       string  `json:"status"`
	Version      string  `json:"version"`
	DeprecatedAt *string `json:"deprecated_at"`
	SunsetAt     *string `json:"sunset_at"`
	Successor    *string `json:"successor"`
}

// ParseDocument reads a capability document strictly: duplicate members, wrong
// types and missing members are refused, unknown members are not. A protocol
// without TLS is left out (AEPB, Protocol Downgrade Prevention), plain HTTP to
// loopback excepted where plainLoopback; a document with no other is refused.
// Its error is a *DocumentError.
func ParseDocument(data []byte, plainLoopback bool) (Document, error) {
	if len(data) > MaxDocument {
		return Document{}, invalid("longer than %d bytes", MaxDocument)
	}
	var wire wireDocument
	if err := json.Unmarshal(data, &wire); err != nil {
		return Document{}, invalid("no JSON object of the right form, or a member that stands twice")
	}
	out := Document{AgentID: ect.Identity(wire.AgentID), Gateways: wire.Gateways, Namespaces: wire.Namespaces}
	switch {
	case len(wire.Namespaces) > maxNamespaces || slices.ContainsFunc(wire.Namespaces, func(name string) bool { return len(name) > maxTextField }):
		return Document{}, invalid("more than %d ect_namespaces, or one that is too long", maxNamespaces)
	case wire.AEPB == "" && wire.CPAT == "":
		return Document{}, invalid("neither aepb_version nor cpat_version")
	case (wire.AEPB != "" && wire.AEPB != "1.0") || (wire.CPAT != "" && wire.CPAT != "1.0"):
		return Document{}, invalid("a version other than 1.0")
	case len(wire.AgentID) > maxTextField || !validID(out.AgentID):
		return Document{}, invalid("agent_id is no SPIFFE id of a workload")
	case len(wire.Gateways) > maxGateways:
		return Document{}, invalid("more than %d translation gateways", maxGateways)
	}
	var ok bool
	if out.Level, ok = levels[wire.Level]; !ok {
		return Document{}, invalid("ect_assurance_level is L1, L2 or L3")
	}
	for _, gateway := range wire.Gateways {
		if len(gateway) > maxTextField || checkURL(gateway, plainLoopback) != "" {
			return Document{}, invalid("a translation gateway is no https URL")
		}
	}
	var err error
	if out.Protocols, err = protocolsOf(wire.Protocols, plainLoopback); err != nil {
		return Document{}, err
	}
	out.Lifecycle, err = lifecycleOf(wire, plainLoopback)
	return out, err
}

// levels by their names.
var levels = map[string]ect.Level{"L1": ect.L1, "L2": ect.L2, "L3": ect.L3}

// protocolsOf keeps one entry per id: of several versions the one that its
// agent prefers, the earlier one if it has no preference.
func protocolsOf(list []wireProtocol, plainLoopback bool) ([]Endpoint, error) {
	switch {
	case len(list) == 0:
		return nil, invalid("protocols holds no entry")
	case len(list) > maxProtocols:
		return nil, invalid("more than %d protocols", maxProtocols)
	}
	var out []Endpoint
	at := map[canonical.Binding]int{}
	seen := map[[2]string]bool{}
	for i, p := range list {
		e, err := protocolOf(i, p)
		if err != nil {
			return nil, err
		}
		if seen[[2]string{p.ID, p.Version}] {
			return nil, invalid("protocol %d stands twice", i)
		}
		seen[[2]string{p.ID, p.Version}] = true
		if known(e.Binding) && e.checkURL(plainLoopback) != "" {
			continue
		}
		if j, twice := at[e.Binding]; !twice {
			at[e.Binding], out = len(out), append(out, e)
		} else if e.Rank() < out[j].Rank() {
			out[j] = e
		}
	}
	if len(out) == 0 {
		return nil, invalid("no protocol has an https endpoint")
	}
	return out, nil
}

// known reports whether we know the protocol. CPAT has a registry of protocol ids: the endpoint of
// an unknown protocol may have any form, so only endpoints of known ones are checked.
func known(id canonical.Binding) bool {
	return id == "a2a-v1" || id == "mcp-v1" || id == "ainp-v1" || id == "uacp-v1"
}

func protocolOf(i int, p wireProtocol) (Endpoint, error) {
	switch {
	case p.ID == "" || p.Version == "" || p.Endpoint == "":
		return Endpoint{}, invalid("protocol %d lacks id, version or endpoint", i)
	case len(p.ID) > maxBinding || len(p.Version) > 64 || len(p.Endpoint) > maxTextField:
		return Endpoint{}, invalid("protocol %d has a member that is too long", i)
	case p.Priority != nil && (*p.Priority < 0 || *p.Priority > maxPriority):
		return Endpoint{}, invalid("protocol %d has a priority out of range", i)
	}
	e := Endpoint{Binding: canonical.Binding(p.ID), Version: p.Version, URL: p.Endpoint}
	if p.Priority != nil {
		e.Priority = cmp.Or(*p.Priority, Foremost)
	}
	return e, nil
}

func lifecycleOf(wire wireDocument, plainLoopback bool) (Lifecycle, error) {
	w := wire.Lifecycle
	if w == nil {
		if wire.AEPB != "" {
			return Lifecycle{}, invalid("no lifecycle")
		}
		return Lifecycle{Status: Active}, nil
	}
	l := Lifecycle{Status: Status(w.Status), Version: w.Version}
	var err error
	switch {
	case l.Status != Active && l.Status != Deprecated && l.Status != Draining && l.Status != Retired:
		return l, invalid("lifecycle.status is none of the four states")
	case len(w.Version) > maxVersion || lifecycle.CheckSemver(w.Version) != nil:
		return l, invalid("lifecycle.version is no semantic version")
	}
	if l.DeprecatedAt, err = instant(w.DeprecatedAt); err != nil {
		return l, err
	}
	if l.SunsetAt, err = instant(w.SunsetAt); err != nil {
		return l, err
	}
	if l.Status == Deprecated && l.DeprecatedAt.IsZero() {
		return l, invalid("deprecated without deprecated_at")
	}
	if w.Successor != nil {
		l.Successor = *w.Successor
		if !documentURL(l.Successor, plainLoopback) {
			return l, invalid("lifecycle.successor is no https URL")
		}
	}
	return l, nil
}

// documentURL reports whether a text can be the URL of a capability document.
// It gets into header fields, so it holds nothing that ends one.
func documentURL(text string, plainLoopback bool) bool {
	if len(text) > maxTextField || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`<>"\`, r) }) {
		return false
	}
	return checkURL(text, plainLoopback) == ""
}

func instant(text *string) (time.Time, error) {
	if text == nil {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, *text)
	if err != nil {
		return t, invalid("a lifecycle time is not of RFC 3339")
	}
	return t, nil
}

// host is the host name of a URL, without its port.
func host(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return strings.ToLower(u.Hostname())
}
