package ainp

import (
	"context"
	"errors"
	"sync"

	"github.com/coder/websocket"

	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/policy/quota"
)

// introduction bounds the messages of a caller that has proved no identity, bytes.
const introduction = 256 << 10

// place is one connection's share of those that stay open. It is safe for
// concurrent use.
type place struct {
	giveWay func() // ends the connection, so that another one has its share

	mu       sync.Mutex
	grant    *quota.Grant // of those that have proved no identity; nil: it has
	identity *quota.Place // nil: it has proved none
}

// bound makes the pools of connections that stay open.
func (d *Server) bound(c SocketConfig) (err error) {
	d.identified, err = quota.NewPlaces(quota.Config{Resource: "AINP connections", Total: int64(c.Connections), PerHolder: int64(c.PerCaller)})
	if err == nil {
		d.unidentified, err = quota.New(quota.Config{
			Resource: "AINP connections that have not proved an identity", Total: int64(c.Unidentified), PerHolder: int64(c.PerAddress),
		})
	}
	return err
}

// Usage says how many connections stay open: of identified callers, and of others.
func (d *Server) Usage() []quota.Usage {
	return []quota.Usage{d.identified.Usage(), d.unidentified.Usage()}
}

// admitSocket grants a place to the caller of an upgrade. Without an identity there
// is one only where callers are known by their DIDs, among all who have none yet.
// Anonymous callers of a development gateway share by address. giveWay ends the connection.
func (d *Server) admitSocket(ctx context.Context, giveWay func()) (*place, error) {
	holder, _ := limit.KeyOf(transport.CallerFrom(ctx), transport.AddressFrom(ctx))
	if refusal := transport.Refusal(ctx); refusal != nil {
		if !d.deps.ByDID() {
			return nil, refusal
		}
		grant, err := d.unidentified.Take(holder, 1)
		return &place{giveWay: giveWay, grant: grant}, err
	}
	identity, err := d.identified.Take(holder, false, giveWay)
	return &place{giveWay: giveWay, identity: identity}, err
}

// identified reports whether the caller has proved an identity.
func (p *place) identified() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.identity != nil
}

// use counts a message that is under way, until done: meanwhile the connection does not
// give way to others.
func (p *place) use() (done func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.identity.Use()
	return p.identity.Rest
}

// leave gives the place back.
func (p *place) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.identity != nil {
		p.identity.Release()
		return
	}
	p.grant.Release()
}

// prove moves a connection to the share of the caller that a message of it has
// proved. The first one counts. It fails with a *quota.ExceededError.
func (s *socket) prove(ctx context.Context) error {
	s.place.mu.Lock()
	defer s.place.mu.Unlock()
	if s.place.identity != nil {
		return nil
	}
	identity, err := s.d.identified.Take(limit.Identity(string(transport.CallerFrom(ctx).ID)), false, s.place.giveWay)
	if err != nil {
		return err
	}
	s.place.grant.Release()
	s.place.identity = identity
	return nil
}

// bound limits what is read of one message.
func (s *socket) bound() {
	most := int64(s.d.deps.Form.Info().BodyLimit)
	if !s.place.identified() {
		most = min(most, introduction)
	}
	s.conn.SetReadLimit(most)
}

// introduce judges a message of a caller that has proved no identity yet, before
// the next one is read; false: the connection ends, because this caller has as
// many as it may have.
func (s *socket) introduce(ctx context.Context, v *serverCall, body []byte, done func()) bool {
	inner, evidence, err := v.admit(ctx, body)
	if err != nil {
		defer done()
		v.fail(err, nil)
		if _, full := errors.AsType[*quota.ExceededError](err); full {
			_ = s.conn.Close(websocket.StatusTryAgainLater, "this caller has too many connections")
			return false
		}
		return true
	}
	s.bound()
	s.group.Go(func() {
		defer done()
		v.act(inner, evidence)
	})
	return true
}
