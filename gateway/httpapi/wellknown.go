package httpapi

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/aepb/aepb-gateway/gateway/directory/admindoc"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
)

// cacheFor is the default freshness of capability documents and of answers to
// pair queries (AEPB, Capability Document Caching and Protocol Negotiation).
const cacheFor = "max-age=3600"

// names is one draft's vocabulary: both describe the same gateway.
type names struct{ wellKnown, translate string }

func aepbNames() names { return names{"/.well-known/aepb", "/aepb/translate"} }
func cpatNames() names { return names{"/.well-known/cpat", "/cpat/translate"} }

// versions is the member that says whose document it is.
type versions struct {
	AEPB string `json:"aepb_version,omitempty"`
	CPAT string `json:"cpat_version,omitempty"`
}

func (n names) versions() versions {
	if n == cpatNames() {
		return versions{CPAT: "1.0"}
	}
	return versions{AEPB: "1.0"}
}

// capabilityDocument is AEPB, Capability Document Format, and CPAT, Protocol
// Capability Advertisement, which has neither namespaces nor a life cycle.
type capabilityDocument struct {
	versions
	AgentID             string              `json:"agent_id"`
	Protocols           []protocolEntry     `json:"protocols"`
	TranslationGateways []string            `json:"translation_gateways"`
	AssuranceLevel      string              `json:"ect_assurance_level"`
	Namespaces          []string            `json:"ect_namespaces,omitempty"`
	Lifecycle           *admindoc.Lifecycle `json:"lifecycle,omitempty"`
}

type protocolEntry struct {
	ID       string `json:"id"`
	Version  string `json:"version"`
	Endpoint string `json:"endpoint"`
	Priority int    `json:"priority"`
}

type gatewayDocument struct {
	versions
	GatewayID         string     `json:"gateway_id"`
	TranslateEndpoint string     `json:"translate_endpoint"`
	Pairs             []pairName `json:"pairs"`
}

type pairName struct {
	From string `json:"from"`
	To   string `json:"to"`
}

const (
	mediaJSON = "application/json"
	mediaJWT  = "application/jwt"
)

// wellKnown serves one draft's documents.
type wellKnown struct {
	deps   PublicDeps
	names  names
	signed *statements
}

// signedDocument is a capability document as the claims of a JWT (AEPB,
// Capability Document Integrity).
type signedDocument struct {
	Issuer   string `json:"iss"`
	Subject  string `json:"sub"`
	IssuedAt int64  `json:"iat"`
	Expires  int64  `json:"exp"`
	capabilityDocument
}

// statements keeps signed documents, so that a client's copy stays valid and
// asking often is cheap. It holds as many as there are names to reach us by.
type statements struct {
	mu     sync.Mutex
	signed map[string]statement // by the unsigned document
}

type statement struct {
	token string
	until time.Time
}

// How long a signed document holds, and how long it is handed out.
const (
	signedFor     = 24 * time.Hour
	handedOut     = signedFor - 2*time.Hour
	maxStatements = 256 // more than there are names and ports of ours
)

func (s *statements) of(now time.Time, plain string, sign func() (string, error)) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old, ok := s.signed[plain]; ok && now.Before(old.until) {
		return old.token, nil
	}
	token, err := sign()
	if err != nil {
		return "", err
	}
	if len(s.signed) >= maxStatements {
		clear(s.signed)
	}
	s.signed[plain] = statement{token, now.Add(handedOut)}
	return token, nil
}

// document serves the gateway's own capability document: one protocol entry
// per served source, at the translate endpoint (R10).
func (w wellKnown) document(c *gin.Context) {
	own := w.deps.Lifecycle()
	if !own.Admits().Serves {
		problem.Write(c.Writer, c.Request, &problem.RetiredError{Successor: own.Successor})
		return
	}
	endpoint := w.deps.BaseURL(c.Request) + w.names.translate
	doc := capabilityDocument{
		versions: w.names.versions(), AgentID: string(w.deps.Self),
		TranslationGateways: []string{endpoint}, AssuranceLevel: "L2",
	}
	if w.names == aepbNames() {
		doc.Namespaces = []string{"aepb", "atd", "consensus", "cpat", "hitl"}
		doc.Lifecycle = lifecycleMembers(own, w.deps.Version)
	}
	for i, id := range w.deps.Registry.Bindings() {
		t, _ := w.deps.Registry.Translator(id)
		doc.Protocols = append(doc.Protocols, protocolEntry{
			ID: string(id), Version: t.Info().Versions[0], Endpoint: endpoint + "?from=" + string(id), Priority: 10 * (i + 1),
		})
	}
	c.Header("Vary", "Accept")
	switch preferred(c.Request.Header.Values("Accept"), w.forms()...) {
	case mediaJSON:
		w.serve(c, doc)
	case mediaJWT:
		w.serveSigned(c, doc)
	default:
		problem.Write(c.Writer, c.Request, &problem.NotAcceptableError{Have: strings.Join(w.forms(), ", ")})
	}
}

func (w wellKnown) forms() []string {
	if w.deps.Signer == nil {
		return []string{mediaJSON}
	}
	return []string{mediaJSON, mediaJWT}
}

func (w wellKnown) serveSigned(c *gin.Context, doc capabilityDocument) {
	plain, err := json.Marshal(doc)
	if err != nil {
		problem.Write(c.Writer, c.Request, err)
		return
	}
	now := w.deps.Now()
	token, err := w.signed.of(now, string(plain), func() (string, error) {
		claims, err := json.Marshal(signedDocument{
			Issuer: doc.AgentID, Subject: doc.AgentID, IssuedAt: now.Unix(), Expires: now.Add(signedFor).Unix(), capabilityDocument: doc,
		})
		if err != nil {
			return "", err
		}
		return w.deps.Signer.Statement(claims)
	})
	if err != nil {
		problem.Write(c.Writer, c.Request, err)
		return
	}
	w.write(c, mediaJWT, []byte(token), cacheFor)
}

// gateway serves the pair list, or answers a pair query with 200 or 404
// (AEPB, Protocol Negotiation step 3).
func (w wellKnown) gateway(c *gin.Context) {
	from, to := c.Query("from"), c.Query("to")
	doc := gatewayDocument{
		versions: w.names.versions(), GatewayID: string(w.deps.Self),
		TranslateEndpoint: w.deps.BaseURL(c.Request) + w.names.translate,
	}
	if (from == "") != (to == "") {
		problem.Write(c.Writer, c.Request, &problem.QueryError{Reason: "from and to go together"})
		return
	}
	if from == "" {
		doc.Pairs = w.pairs()
		w.serve(c, doc)
		return
	}
	served, fresh, err := w.served(c, translators.ParseSide(from), translators.ParseSide(to))
	switch {
	case err != nil:
		problem.Write(c.Writer, c.Request, err)
	case !served:
		c.Header("Cache-Control", fresh)
		problem.Write(c.Writer, c.Request, &problem.NoPathError{From: from, To: to})
	default:
		doc.Pairs = []pairName{{translators.ParseSide(from).String(), translators.ParseSide(to).String()}}
		w.serveFor(c, doc, fresh)
	}
}

// Bounds of a pair query.
const (
	maxSide     = 64   // bytes of from and of to
	maxName     = 2048 // bytes of dest
	maxForwards = 2    // gateways that one asks in turn, and the default: a message could pass through no more
)

// served answers a pair query: by our own pairs, and for a caller who says who it
// is by what we reach through other gateways, or for an agent that it may call
// (dest). A gateway that asks for itself says with Max-Forwards how many more may
// be asked. fresh is how long the answer may be kept.
func (w wellKnown) served(c *gin.Context, from, to translators.Side) (served bool, fresh string, err error) {
	q := transport.PairQuery{From: from, To: to, Dest: c.Query("dest"), Forwards: maxForwards}
	if q.Dest == "" && (w.deps.Registry.Serves(from, to) || w.deps.Router == nil) {
		return w.deps.Registry.Serves(from, to), cacheFor, nil
	}
	if len(from.String()) > maxSide || len(to.String()) > maxSide || len(q.Dest) > maxName {
		return false, "", &problem.QueryError{Reason: "from, to or dest is too long"}
	}
	if text := c.GetHeader("Max-Forwards"); text != "" {
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return false, "", &problem.QueryError{Reason: "Max-Forwards is a number"}
		}
		q.Forwards = int(min(n, maxForwards))
	}
	ctx := c.Request.Context()
	if q.Caller = transport.CallerFrom(ctx); q.Caller.ID == "" || q.Caller.Anonymous || w.deps.Router == nil {
		return w.deps.Registry.Serves(from, to), cacheFor, nil
	}
	if _, err := admit(ctx, w.deps.Handler, ""); err != nil {
		return false, "", err
	}
	served, age := w.deps.Router.Serves(ctx, q)
	return served, "private, max-age=" + strconv.Itoa(int(age.Seconds())), nil
}

// pairs is everything that is translated: between protocols, and between the
// versions of one, which are named then (R8).
func (w wellKnown) pairs() []pairName {
	var out []pairName
	for _, p := range w.deps.Registry.Pairs() {
		out = append(out, pairName{string(p.From), string(p.To)})
	}
	for _, p := range w.deps.Registry.VersionPairs() {
		out = append(out, pairName{p[0].String(), p[1].String()})
	}
	return out
}

func (w wellKnown) serve(c *gin.Context, document any) { w.serveFor(c, document, cacheFor) }

// serveFor serves a document that may be kept for as long as fresh says.
func (w wellKnown) serveFor(c *gin.Context, document any, fresh string) {
	body, err := json.Marshal(document)
	if err != nil {
		problem.Write(c.Writer, c.Request, err)
		return
	}
	w.write(c, mediaJSON, body, fresh)
}

func (w wellKnown) write(c *gin.Context, media string, body []byte, fresh string) {
	sum := sha256.Sum256(body)
	etag := `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`
	c.Header("Cache-Control", fresh)
	c.Header("ETag", etag)
	if transport.Unchanged(c.Request.Header, etag) {
		c.Status(http.StatusNotModified)
		return
	}
	c.Data(http.StatusOK, media, body)
}

// preferred is the offer that a client likes best (RFC 9110, section 12.5.1): by
// the quality of the most specific range that holds it, ties in our order.
// Empty: it takes none. Without the field everything is acceptable.
func preferred(fields []string, offers ...string) string {
	ranges := acceptable(fields)
	if len(ranges) == 0 {
		return offers[0]
	}
	best, quality := "", 0
	for _, offer := range offers {
		if q := qualityOf(ranges, offer); q > quality {
			best, quality = offer, q
		}
	}
	return best
}

// acceptRange is one member of Accept; quality is in thousandths.
type acceptRange struct {
	media   string
	quality int
}

func acceptable(fields []string) []acceptRange {
	const most = 64 // items: a longer header states no real preference
	var out []acceptRange
	for _, field := range fields {
		for member := range strings.SplitSeq(field, ",") {
			media, params, _ := strings.Cut(member, ";")
			media = strings.ToLower(strings.TrimSpace(media))
			if media == "" || len(out) == most {
				continue
			}
			out = append(out, acceptRange{media, quality(params)})
		}
	}
	return out
}

// quality of a range; one that is not readable makes it the least wanted.
func quality(params string) int {
	for param := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(param), "=")
		if !strings.EqualFold(strings.TrimSpace(name), "q") {
			continue
		}
		whole, fraction, _ := strings.Cut(strings.TrimSpace(value), ".")
		n, err := strconv.ParseUint(whole+(fraction + "000")[:3], 10, 16)
		if err != nil || n > 1000 || len(fraction) > 3 {
			return 0
		}
		return int(n)
	}
	return 1000
}

func qualityOf(ranges []acceptRange, media string) int {
	kind, _, _ := strings.Cut(media, "/")
	found, specific := 0, 0
	for _, r := range ranges {
		s := 0
		switch r.media {
		case media:
			s = 3
		case kind + "/*":
			s = 2
		case "*/*":
			s = 1
		}
		if s > specific {
			found, specific = r.quality, s
		}
	}
	return found
}
