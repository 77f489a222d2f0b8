package httpapi

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/sse"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// translate is a translate endpoint (AEPB and CPAT, Gateway Requirements item 2).
type translate struct {
	deps     PublicDeps
	entrance transport.EntryPoint
}

func (t translate) serve(c *gin.Context) {
	call, err := t.read(c)
	if err != nil {
		problem.Write(c.Writer, c.Request, err)
		return
	}
	answer, err := t.deps.Handler.Exchange(c.Request.Context(), call)
	answer.Notice.Announce(c.Writer.Header())
	transport.AddEvidence(c.Writer.Header(), answer.Evidence)
	if err != nil {
		problem.Write(c.Writer, c.Request, err)
		return
	}
	if answer.Events() != nil {
		tell(c, answer.Events())
		return
	}
	maps.Copy(c.Writer.Header(), answer.Wire().Header)
	c.Header("Content-Length", strconv.Itoa(len(answer.Wire().Body)))
	c.Data(http.StatusOK, answer.Wire().Media, answer.Wire().Body)
}

// tell answers with a stream, in the words of the protocol that was asked for;
// a stream that breaks off ends with the problem.
func tell(c *gin.Context, events transport.Events) {
	defer func() { _ = events.Close() }()
	ctx, leave := identity.Bound(c.Request.Context())
	defer leave()
	w := sse.NewWriter(c.Writer, ect.HeaderName)
	defer w.Stop()
	for {
		event, err := events.Next(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return
		case errors.Is(context.Cause(ctx), identity.ErrSessionEnded):
			_ = w.Send(problem.Document(ctx, &problem.UnauthenticatedError{}))
			return
		case ctx.Err() != nil:
			return
		case err != nil:
			_ = w.Send(problem.Document(ctx, err))
			return
		}
		if len(event.Evidence) > 0 {
			w.Close(event.Evidence)
		}
		if len(event.Wire.Body) > 0 && w.Send(event.Wire.Body) != nil {
			return
		}
	}
}

// refuseUnserved refuses a translation without an agent that is not made here. Another gateway may
// translate into a protocol that is not spoken here, for a caller with an identity.
func (t translate) refuseUnserved(c *gin.Context) error {
	from, to := translators.ParseSide(c.Query("from")), translators.ParseSide(c.Query("to"))
	if c.Query("dest") != "" || t.deps.Registry.Serves(from, to) {
		return nil
	}
	refusal := &problem.NoPathError{From: string(from.Binding), To: string(to.Binding), Suggestion: t.known()}
	spoken := false
	if form, known := t.deps.Registry.Translator(to.Binding); known {
		if spoken = to.Version == "" || slices.Contains(form.Info().Versions, to.Version); to.Version != "" {
			refusal.Detail = "unsupported_version"
		}
	}
	if caller := transport.CallerFrom(c.Request.Context()); spoken || t.deps.Router == nil || caller.ID == "" || caller.Anonymous {
		return refusal
	}
	return nil
}

// known are the protocols that a query may name.
func (t translate) known() string {
	var names []string
	for _, id := range t.deps.Registry.Bindings() {
		names = append(names, string(id))
	}
	return "; from and to name one of " + strings.Join(names, ", ")
}

// named is the parent that a message names, in its header or inside, if its
// protocol has a place for that. What is wrong inside, the pipeline says, to those who
// may know.
func named(source translators.Translator, h http.Header, body []byte) string {
	parent := transport.ParentIn(h)
	if descendant, ok := source.(translators.ParentReader); ok {
		if inside, err := descendant.Parent(body); err == nil && inside != "" && inside != parent {
			return strings.Trim(parent+","+inside, ",")
		}
	}
	return parent
}

func (t translate) read(c *gin.Context) (transport.Call, error) {
	from, fromVersion, _ := strings.Cut(c.Query("from"), "@")
	to, toVersion, _ := strings.Cut(c.Query("to"), "@")
	source, ok := t.deps.Registry.Translator(canonical.Binding(from))
	if !ok || (to == "" && c.Query("dest") == "") {
		return transport.Call{}, &problem.NoPathError{From: from, To: to, Suggestion: t.known()}
	}
	info := source.Info()
	if fromVersion != "" && !slices.Contains(info.Versions, fromVersion) {
		return transport.Call{}, &problem.NoPathError{From: from, To: to, Detail: "unsupported_version"}
	}
	if err := t.refuseUnserved(c); err != nil {
		return transport.Call{}, err
	}
	most := int64(info.BodyLimit)
	if c.Request.ContentLength > most {
		return transport.Call{}, problem.Reading(&http.MaxBytesError{Limit: most})
	}
	if !slices.Contains(info.Media, mediaType(c.Request)) || c.GetHeader("Content-Encoding") != "" {
		return transport.Call{}, &problem.MediaTypeError{Want: info.Media}
	}
	ctx := c.Request.Context()
	pass, err := admit(ctx, t.deps.Handler, info.Binding)
	if err != nil {
		return transport.Call{}, err
	}
	body, err := transport.ReadAll(http.MaxBytesReader(c.Writer, c.Request.Body, most), c.Request.ContentLength)
	if err != nil {
		return transport.Call{}, problem.Reading(err)
	}
	evidence, err := ect.ParseHeader(c.Request.Header.Values(ect.HeaderName), ect.Limits{})
	if err != nil {
		return transport.Call{}, err
	}
	form := ""
	if former, ok := source.(translators.FormDetector); ok {
		form = former.FormOf(body)
	}
	return transport.Call{
		EntryPoint: t.entrance, Agent: c.Query("dest"),
		Target: transport.Target{To: canonical.Binding(to), ToVersion: toVersion},
		Caller: transport.CallerFrom(ctx), Address: transport.AddressFrom(ctx), Evidence: evidence, Parent: named(source, c.Request.Header, body), Pass: pass,
		Wire: translators.Wire{
			Binding: info.Binding, Version: fromVersion, Form: form, Media: mediaType(c.Request), Header: c.Request.Header, Body: body,
		},
	}, nil
}
