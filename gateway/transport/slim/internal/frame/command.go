package frame

import "github.com/aepb/aepb-gateway/gateway/transport/slim/internal/dataplane"

// kindOf is the kind that goes with a command; unspecified: one that we neither
// send nor answer.
func kindOf(command *dataplane.CommandPayload) Kind {
	switch command.GetCommandPayloadType().(type) {
	case *dataplane.CommandPayload_DiscoveryRequest:
		return DiscoveryRequest
	case *dataplane.CommandPayload_DiscoveryReply:
		return DiscoveryReply
	case *dataplane.CommandPayload_JoinRequest:
		return JoinRequest
	case *dataplane.CommandPayload_JoinReply:
		return JoinReply
	case *dataplane.CommandPayload_LeaveRequest:
		return LeaveRequest
	case *dataplane.CommandPayload_LeaveReply:
		return LeaveReply
	case *dataplane.CommandPayload_GroupUpdate:
		return GroupUpdate
	case *dataplane.CommandPayload_GroupWelcome:
		return GroupWelcome
	case *dataplane.CommandPayload_GroupClose:
		return GroupClose
	case *dataplane.CommandPayload_GroupAck:
		return GroupAck
	case *dataplane.CommandPayload_GroupNack:
		return GroupNack
	case *dataplane.CommandPayload_Heartbeat:
		return Heartbeat
	case *dataplane.CommandPayload_UpdateParticipantState:
		return ParticipantState
	default:
		return dataplane.SessionMessageType_SESSION_MESSAGE_TYPE_UNSPECIFIED
	}
}

// noEpoch is the epoch of a session without encryption.
const noEpoch = ^uint64(0)

// Discover asks who answers to a name.
func Discover() *dataplane.CommandPayload {
	return &dataplane.CommandPayload{CommandPayloadType: &dataplane.CommandPayload_DiscoveryRequest{DiscoveryRequest: &dataplane.DiscoveryRequestPayload{}}}
}

// Found answers Discover.
func Found() *dataplane.CommandPayload {
	return &dataplane.CommandPayload{CommandPayloadType: &dataplane.CommandPayload_DiscoveryReply{DiscoveryReply: &dataplane.DiscoveryReplyPayload{}}}
}

// Join asks for a reliable session, times in milliseconds.
func Join(timeout, retries uint32) *dataplane.CommandPayload {
	return &dataplane.CommandPayload{CommandPayloadType: &dataplane.CommandPayload_JoinRequest{JoinRequest: &dataplane.JoinRequestPayload{
		TimerSettings: &dataplane.TimerSettings{Timeout: timeout, MaxRetries: retries},
	}}}
}

// Joined answers Join.
func Joined(self *dataplane.Name) *dataplane.CommandPayload {
	return &dataplane.CommandPayload{CommandPayloadType: &dataplane.CommandPayload_JoinReply{JoinReply: &dataplane.JoinReplyPayload{
		Participant: Member(self),
	}}}
}

// Welcome tells a new member who is there.
func Welcome(members ...*dataplane.Participant) *dataplane.CommandPayload {
	return &dataplane.CommandPayload{CommandPayloadType: &dataplane.CommandPayload_GroupWelcome{GroupWelcome: &dataplane.GroupWelcomePayload{
		Participants: members,
	}}}
}

// Member returns the participant of a name, which sends and receives.
func Member(n *dataplane.Name) *dataplane.Participant {
	return &dataplane.Participant{Name: n, Settings: &dataplane.ParticipantSettings{SendsData: true, ReceivesData: true}}
}

// Acknowledge accepts a Welcome, an update or a close.
func Acknowledge() *dataplane.CommandPayload {
	return &dataplane.CommandPayload{CommandPayloadType: &dataplane.CommandPayload_GroupAck{GroupAck: &dataplane.GroupAckPayload{}}}
}

// Decline refuses them.
func Decline() *dataplane.CommandPayload {
	return &dataplane.CommandPayload{CommandPayloadType: &dataplane.CommandPayload_GroupNack{GroupNack: &dataplane.GroupNackPayload{}}}
}

// Leave ends a session, or one's part in it.
func Leave() *dataplane.CommandPayload {
	return &dataplane.CommandPayload{CommandPayloadType: &dataplane.CommandPayload_LeaveRequest{LeaveRequest: &dataplane.LeaveRequestPayload{}}}
}

// Left answers Leave.
func Left() *dataplane.CommandPayload {
	return &dataplane.CommandPayload{CommandPayloadType: &dataplane.CommandPayload_LeaveReply{LeaveReply: &dataplane.LeaveReplyPayload{}}}
}

// Beat says that we are still there.
func Beat() *dataplane.CommandPayload {
	return &dataplane.CommandPayload{CommandPayloadType: &dataplane.CommandPayload_Heartbeat{Heartbeat: &dataplane.HeartbeatPayload{Epoch: noEpoch}}}
}
