package frame

import (
	"maps"

	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/dataplane"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/name"
)

// Protocol values.
const (
	Version     = "2.0.0" // the protocol that we speak; nodes compare the first number
	FanoutGroup = 256     // to every member
	fanoutOne   = 1
	hops        = 8
)

// Kind is what a session message is for.
type Kind = dataplane.SessionMessageType

// The kinds, by shorter names.
const (
	Msg              = dataplane.SessionMessageType_SESSION_MESSAGE_TYPE_MSG
	MsgAck           = dataplane.SessionMessageType_SESSION_MESSAGE_TYPE_MSG_ACK
	RtxRequest       = dataplane.SessionMessageType_SESSION_MESSAGE_TYPE_RTX_REQUEST
	RtxReply         = dataplane.SessionMessageType_SESSION_MESSAGE_TYPE_RTX_REPLY
	DiscoveryRequest = dataplane.SessionMessageType_SESSION_MESSAGE_TYPE_DISCOVERY_REQUEST
	DiscoveryReply   = dataplane.SessionMessageType_SESSION_MESSAGE_TYPE_DISCOVERY_REPLY
	JoinRequest      = dataplane.SessionMessageType_SESSION_MESSAGE_TYPE_JOIN_REQUEST
	JoinReply        = dataplane.SessionMessageType_SESSION_MESSAGE_TYPE_JOIN_REPLY
	LeaveRequest     = dataplane.SessionMessageType_SESSION_MESSAGE_TYPE_LEAVE_REQUEST
	LeaveReply       = dataplane.SessionMessageType_SESSION_MESSAGE_TYPE_LEAVE_REPLY
	GroupUpdate      = dataplane.SessionMessageType_SESSION_MESSAGE_TYPE_GROUP_UPDATE
	GroupWelcome     = dataplane.SessionMessageType_SESSION_MESSAGE_TYPE_GROUP_WELCOME
	GroupClose       = dataplane.SessionMessageType_SESSION_MESSAGE_TYPE_GROUP_CLOSE
	GroupAck         = dataplane.SessionMessageType_SESSION_MESSAGE_TYPE_GROUP_ACK
	GroupNack        = dataplane.SessionMessageType_SESSION_MESSAGE_TYPE_GROUP_NACK
	Heartbeat        = dataplane.SessionMessageType_SESSION_MESSAGE_TYPE_HEARTBEAT
	ParticipantState = dataplane.SessionMessageType_SESSION_MESSAGE_TYPE_UPDATE_PARTICIPANT_STATE
)

// Route is where a message belongs.
type Route struct {
	From, To         name.Name
	Session, Message uint32
	Group            bool
	Everybody        bool // to every member of a group
}

func (r Route) publish(kind Kind, content *dataplane.Content, metadata map[string]string) *dataplane.Message {
	fanout := uint32(fanoutOne)
	if r.Everybody {
		fanout = FanoutGroup
	}
	session := dataplane.SessionType_SESSION_TYPE_POINT_TO_POINT
	if r.Group {
		session = dataplane.SessionType_SESSION_TYPE_MULTICAST
	}
	return &dataplane.Message{
		Metadata: maps.Clone(metadata),
		MessageType: &dataplane.Message_Publish{Publish: &dataplane.Publish{
			Header: &dataplane.SLIMHeader{
				Source: r.From.Encode(), Destination: r.To.Encode(), Fanout: fanout, Version: Version, Ttl: hops,
			},
			Session: &dataplane.SessionHeader{
				SessionType: session, SessionMessageType: kind, SessionId: r.Session, MessageId: r.Message,
			},
			Msg: content,
		}},
	}
}

// Data builds a message with a payload: Msg, MsgAck, RtxRequest or RtxReply.
func Data(r Route, kind Kind, payload Payload, metadata map[string]string) *dataplane.Message {
	return r.publish(kind, &dataplane.Content{ContentType: &dataplane.Content_AppPayload{
		AppPayload: &dataplane.ApplicationPayload{PayloadType: payload.Type, Blob: payload.Blob},
	}}, metadata)
}

// Unreachable builds the answer to a request for a message that is not kept any more.
func Unreachable(r Route) *dataplane.Message {
	m := Data(r, RtxReply, Payload{}, nil)
	yes := true
	m.GetPublish().GetHeader().Error = &yes
	return m
}

// Control builds a control message. The command says its kind.
func Control(r Route, command *dataplane.CommandPayload, metadata map[string]string) *dataplane.Message {
	return r.publish(kindOf(command), &dataplane.Content{ContentType: &dataplane.Content_CommandPayload{CommandPayload: command}}, metadata)
}

// SubscribeTo builds the request that messages to a name come here. With an id
// that is not 0 the node answers.
func SubscribeTo(n name.Name, id uint64, token string) *dataplane.Message {
	return &dataplane.Message{MessageType: &dataplane.Message_Subscribe{Subscribe: &dataplane.Subscribe{
		Header: selfHeader(n, token), SubscriptionId: id,
	}}}
}

// UnsubscribeFrom builds the request that they come no more.
func UnsubscribeFrom(n name.Name, token string) *dataplane.Message {
	return &dataplane.Message{MessageType: &dataplane.Message_Unsubscribe{Unsubscribe: &dataplane.Unsubscribe{
		Header: selfHeader(n, token),
	}}}
}

func selfHeader(n name.Name, token string) *dataplane.SLIMHeader {
	return &dataplane.SLIMHeader{
		Source: n.Encode(), Destination: n.Encode(), Identity: token, Fanout: fanoutOne, Version: Version, Ttl: hops,
	}
}

// Greeting builds the first message on a connection, with our half of its key:
// public keys of X25519 and of ML-KEM-768.
func Greeting(linkID string, public, kem []byte) *dataplane.Message {
	return &dataplane.Message{MessageType: &dataplane.Message_Link{Link: &dataplane.Link{
		LinkType: &dataplane.Link_LinkNegotiation{LinkNegotiation: &dataplane.LinkNegotiationPayload{
			LinkId: linkID, SlimVersion: Version, ConnectionType: dataplane.LinkConnectionType_LINK_CONNECTION_TYPE_EDGE,
			LinkEcdhPublicKey: public, LinkKemPayload: kem,
		}},
	}}}
}
