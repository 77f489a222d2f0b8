package gateway

import (
	"context"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// marked is what an ECT says that opens or closes a stream.
type marked struct {
	state         string // "open" or "close"
	parents       []ect.ID
	input, output string // hashes; empty: nothing has been said yet
	in, out       int    // messages that they cover
	losses        []canonical.Loss
}

// mark signs and records the ECT that opens or closes the caller's stream.
func (g *Gateway) mark(ctx context.Context, x *exchange, m marked) (ect.ID, error) {
	words, dialect := wordsOf(x.call.Entrance), g.Dialects.For(x.call.Caller.ID)
	l := leg{name: legReply, source: x.dest.Info().Binding, dest: x.source.Info().Binding, ext: ect.Ext{}}
	l.ext.SetString(ect.ExtStream, m.state)
	if m.state == "close" {
		l.ext[ect.ExtEvents] = counts(m.in, m.out)
	}
	token, err := g.Signer.SignAs(dialect, ect.Claims{
		ID: ect.ID(g.NewID()), Act: words.act, Audience: []string{string(x.call.Caller.ID)}, Workflow: x.workflow,
		Parents: m.parents, InputHash: m.input, OutputHash: m.output, Ext: g.translationExt(x, words, dialect, l, m.losses),
	})
	if err != nil {
		return "", err
	}
	if _, err := g.Recorder.Record(ctx, token); err != nil {
		return "", &problem.RecordingError{Err: err}
	}
	g.Metrics.Issued(string(words.act), ect.L2)
	x.issued, x.issuedIDs = append(x.issued, token.Compact()), append(x.issuedIDs, token.ID())
	x.losses = append(x.losses, m.losses...)
	return token.ID(), nil
}

// finishRun settles the books of a message whose answer was a stream.
func (g *Gateway) finishRun(ctx context.Context, x *exchange, err error) {
	x.once.Do(func() {
		g.finish(ctx, x, err)
		x.leave()
		if x.forget != nil {
			x.forget()
		}
	})
}
