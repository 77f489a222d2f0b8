package directory

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
	"github.com/aepb/aepb-gateway/lifecycle"
)

// How long a capability document is kept (AEPB, Capability Document Caching).
const (
	documentAge    = time.Hour      // where its server says nothing
	maxDocumentAge = 24 * time.Hour // whatever its server says
	goneAge        = time.Minute    // of HTTP 410, at most: a successor may be named later
	documentStale  = time.Hour      // beyond that, while its server cannot be reached
	documentLimit  = 10 * time.Second
)

// fetchedDocument is a capability document as it was fetched, and until when it is good.
type fetchedDocument struct {
	document Document
	err      error // instead of a document
	etag     string
	until    time.Time // fresh
	stale    time.Time // usable while the server cannot be reached, or answers 5xx
	gone     bool      // HTTP 410: document.Lifecycle says the rest
}

// fetchDocument asks for a document, or whether the old one still holds. It
// never fails otherwise than in the result's err.
func (d *Directory) fetchDocument(ctx context.Context, by transport.Client, address string, expected ect.Identity, old fetchedDocument) fetchedDocument {
	ctx, cancel := context.WithTimeout(ctx, documentLimit)
	defer cancel()
	now := d.deps.Now()
	got, err := d.request(ctx, by, address, expected, old, now)
	if err == nil {
		return got
	}
	if old.err == nil && !old.gone && old.document.AgentID != "" && now.Before(old.stale) && silent(err) {
		d.deps.Logger.WarnContext(ctx, "capability document could not be renewed, the old one is used", logError(err))
		old.until = now.Add(retryAfter)
		return old
	}
	return fetchedDocument{err: err, until: now.Add(retryAfter)}
}

// silent: the server has not said anything about the document. What it says,
// also by a document that is not good, takes the place of the old one.
func silent(err error) bool {
	if documentError, ok := errors.AsType[*DocumentError](err); ok {
		return documentError.failing
	}
	return !errors.As(err, new(*egress.DeniedError))
}

func (d *Directory) request(ctx context.Context, by transport.Client, address string, expected ect.Identity, old fetchedDocument, now time.Time) (fetchedDocument, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return fetchedDocument{}, invalid("its URL is none")
	}
	request.Header.Set("Accept", "application/json")
	if old.etag != "" && old.err == nil && !old.gone {
		request.Header.Set("If-None-Match", old.etag)
	}
	response, err := by.DoAs(request, expected)
	if err != nil {
		return fetchedDocument{}, unfetched(ctx, err)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, MaxDocument+1))
	if closed := response.Body.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = ctx.Err() // a server that hears of the deadline may end its half answer properly
	}
	if err != nil {
		return fetchedDocument{}, unfetched(ctx, err)
	}
	return d.judge(response, body, old, now)
}

// unfetched sorts out why there is no response.
func unfetched(ctx context.Context, err error) error {
	var denied *egress.DeniedError
	switch {
	case errors.As(err, &denied):
		return denied
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return &transport.TimeoutError{Agent: "capability document", After: documentLimit}
	default:
		return &transport.UnreachableError{Agent: "capability document", Err: err}
	}
}

// judge reads a response. It follows no redirect: a host that answers at the old URL could choose
// the new one.
func (d *Directory) judge(response *http.Response, body []byte, old fetchedDocument, now time.Time) (fetchedDocument, error) {
	age := freshness(response.Header)
	out := fetchedDocument{etag: response.Header.Get("ETag"), until: now.Add(age), stale: now.Add(age + documentStale)}
	if age == 0 {
		out.stale = now
	}
	switch status := response.StatusCode; {
	case status == http.StatusNotModified && old.etag != "" && old.document.AgentID != "":
		out.document = old.document
		if out.etag == "" {
			out.etag = old.etag
		}
		return out, nil
	case status == http.StatusGone:
		out.until = now.Add(min(age, goneAge))
		out.gone, out.document = true, old.document // whose level its successor must have
		out.document.Lifecycle = Lifecycle{Status: Retired, Successor: successorLink(response.Header, d.deps.PlainLoopback)}
		return out, nil
	case status >= 300 && status < 400 && status != http.StatusNotModified:
		return out, invalid("a redirect (HTTP status %d), which is not followed", status)
	case status >= http.StatusInternalServerError:
		return out, &DocumentError{Reason: "HTTP status " + strconv.Itoa(status), failing: true}
	case status != http.StatusOK:
		return out, invalid("HTTP status %d", status)
	case response.Header.Get("Content-Encoding") != "":
		return out, invalid("compressed (Content-Encoding), which the gateway did not ask for")
	case !jsonMedia(response.Header.Get("Content-Type")):
		return out, invalid("not application/json")
	}
	var err error
	out.document, err = ParseDocument(body, d.deps.PlainLoopback)
	return out, err
}

func jsonMedia(field string) bool {
	media, _, err := mime.ParseMediaType(field)
	return err == nil && (media == "application/json" || (strings.HasPrefix(media, "application/") && strings.HasSuffix(media, "+json")))
}

// freshness is how long a response may be used without asking again (RFC 9111,
// sections 4.2 and 5.2.2), as a private cache reckons. Zero: not at all.
func freshness(h http.Header) time.Duration {
	age, present := documentAge, false
	for _, field := range h.Values("Cache-Control") {
		for directive := range strings.SplitSeq(field, ",") {
			name, value, _ := strings.Cut(strings.TrimSpace(directive), "=")
			switch strings.ToLower(name) {
			case "no-store", "no-cache":
				return 0
			case "max-age":
				age, present = min(seconds(strings.Trim(value, `"`)), maxDocumentAge), true
			}
		}
	}
	if expires := h.Get("Expires"); !present && expires != "" {
		end, err := http.ParseTime(expires)
		begin, dated := http.ParseTime(h.Get("Date"))
		if err != nil || dated != nil {
			return 0 // what cannot be read has expired (RFC 9111, section 5.3)
		}
		age = min(end.Sub(begin), maxDocumentAge)
	}
	return max(0, age-seconds(h.Get("Age")))
}

// seconds reads delta-seconds; what is none is 0, what is too much a day.
func seconds(text string) time.Duration {
	n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 32)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return maxDocumentAge
	case err != nil:
		return 0
	}
	return time.Duration(n) * time.Second
}

// successorLink finds the link that a retired agent's server answers with
// (AEPB, Lifecycle States).
func successorLink(h http.Header, plainLoopback bool) string {
	for _, field := range h.Values("Link") {
		for link := range strings.SplitSeq(field, ",") {
			target, params, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(link), "<"), ">")
			rel := strings.ReplaceAll(strings.ReplaceAll(strings.ToLower(params), `"`, ""), " ", "")
			if ok && strings.Contains(rel+";", ";rel=successor-version;") && documentURL(target, plainLoopback) {
				return target
			}
		}
	}
	return ""
}

// successorLimit bounds how long an order waits for the document of a successor.
const successorLimit = 5 * time.Second

// CheckSuccessor judges the capability document of what is to take the place of a listed agent, or with an
// empty name of this gateway (AEPB, Successor Discovery): it must be readable here, describe an agent that
// takes work in a protocol that is spoken here, and demand no lower level. It is fetched through the guard of
// documents, and as an operator names it, its host may have a private address meanwhile, as that of a listed
// agent's document; [Directory.Visitor] decides whom callers reach. Its error is a *[lifecycle.SuccessorError].
func (d *Directory) CheckSuccessor(ctx context.Context, name, address string) error {
	ctx, cancel := context.WithTimeout(ctx, successorLimit)
	defer cancel()
	before, _ := d.Find(name)
	if resolved, err := d.Resolve(ctx, before); err == nil {
		before = resolved // else its level is what the operator demands
	}
	if d.deps.Documents == nil || !documentURL(address, d.deps.PlainLoopback) {
		return &lifecycle.SuccessorError{}
	}
	refuse := func(problem string) error { return &lifecycle.SuccessorError{Problem: problem} }
	if d.deps.Grants != nil {
		d.deps.Grants.Allow(hostport(address))
		defer d.deps.Grants.Disallow(hostport(address))
	}
	fetched := d.document(ctx, address, "", d.deps.Documents)
	if fetched.err != nil {
		return refuse("its capability document cannot be read: " + fetched.err.Error())
	}
	after, err := d.merge(Agent{Name: address, Capability: address}, fetched)
	switch {
	case err != nil:
		return refuse("its capability document cannot be used: " + err.Error())
	case after.Ended():
		return refuse("it takes no work: it is " + string(after.Lifecycle.Status))
	case address == before.Capability || before.ID != "" && after.ID == before.ID && before.Capability != "":
		return refuse("it is the agent itself")
	case after.AssuranceLevel < floor(before):
		return refuse(fmt.Sprintf("it is weaker: it demands L%d, where L%d is the least", after.AssuranceLevel, floor(before)))
	case len(after.Endpoints) == 0 && len(after.Gateways) == 0:
		return refuse("it speaks no protocol that is spoken here")
	}
	return nil
}
