package frame

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/aepb/aepb-gateway/gateway/transport/slim/credential"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/dataplane"
)

// signedVersion is the version of what a signature covers.
const signedVersion = 1

// Seal gives a session message its token and, if it steers the session, its
// signature. Sealing again replaces both.
func Seal(ctx context.Context, m *dataplane.Message, provider credential.Provider) error {
	header := m.GetPublish().GetHeader()
	token, err := provider.Token(ctx)
	if err != nil {
		return err
	}
	header.Identity, header.E2EHeaderSig = token, nil
	if m.GetPublish().GetSession().GetSessionMessageType() < DiscoveryRequest {
		return nil
	}
	covered, err := signed(m)
	if err != nil {
		return err
	}
	header.E2EHeaderSig, err = provider.Sign(covered)
	return err
}

// Open judges a message's token and, if it steers the session, its signature.
// Errors: *credential.Error, *Error.
func (f Frame) Open(ctx context.Context, verifier credential.Verifier) (credential.Identity, error) {
	header := f.wire.GetPublish().GetHeader()
	identity, err := verifier.Verify(ctx, header.GetIdentity())
	if err != nil || !f.Control() {
		return identity, err
	}
	covered, err := signed(f.wire)
	if err != nil {
		return credential.Identity{}, err
	}
	return identity, identity.Check(covered, header.GetE2EHeaderSig())
}

// signed is what the signature of a control message covers: its header, but
// neither its command nor its metadata.
func signed(m *dataplane.Message) ([]byte, error) {
	header, session := m.GetPublish().GetHeader(), m.GetPublish().GetSession()
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(&dataplane.HeaderIntegrityAad{
		Version: signedVersion, Source: header.GetSource(), Destination: header.GetDestination(), Identity: header.GetIdentity(),
		SessionType: session.GetSessionType(), SessionMessageType: session.GetSessionMessageType(),
		SessionId: session.GetSessionId(), MessageId: session.GetMessageId(),
		PayloadType: m.GetPublish().GetMsg().GetAppPayload().GetPayloadType(),
	})
	if err != nil {
		return nil, &Error{Reason: "it cannot be encoded", Err: err}
	}
	return data, nil
}

// Copy returns a message to be sealed anew. It copies the parts that Seal changes, and
// shares the rest, which is not changed.
func Copy(m *dataplane.Message) *dataplane.Message {
	p := m.GetPublish()
	h := p.GetHeader()
	return &dataplane.Message{Metadata: m.GetMetadata(), MessageType: &dataplane.Message_Publish{Publish: &dataplane.Publish{
		Header: &dataplane.SLIMHeader{
			Source: h.GetSource(), Destination: h.GetDestination(), Fanout: h.GetFanout(), Version: h.GetVersion(), Ttl: h.GetTtl(), Error: h.Error,
		},
		Session: p.GetSession(), Msg: p.GetMsg(),
	}}}
}

// Redirect is a copy of a data message for one receiver, as a kind of its own.
func Redirect(m *dataplane.Message, to *dataplane.Name, kind Kind) *dataplane.Message {
	out := Copy(m)
	p := out.GetPublish()
	p.Header.Destination, p.Header.Fanout = to, fanoutOne
	p.Session = &dataplane.SessionHeader{
		SessionType: p.Session.GetSessionType(), SessionMessageType: kind,
		SessionId: p.Session.GetSessionId(), MessageId: p.Session.GetMessageId(),
	}
	return out
}
