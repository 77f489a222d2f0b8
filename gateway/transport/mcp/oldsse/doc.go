// Package oldsse is the transport of MCP revision 2024-11-05, HTTP with SSE, on both sides.
//
// A client opens a stream of events by GET. Its first event, endpoint, says where messages
// are posted; every message of the server is an event on the stream. The end of the stream
// is the end of the session.
//
// # How to read it
//
//   - client.go: the streams that are open to servers, and their bounds
//   - stream.go: one of them, as a channel for package channel
//   - endpoint.go: the endpoint event
//   - server.go: the sessions of clients, and the two URLs
//   - session.go: one of them: its messages under way, and its stream
//   - sink.go: the answer to one message, as events
//
// # As a client
//
// Stream is a channel of package channel, so that sessions, questions and streams have the
// one implementation that Streamable HTTP has. The POST goes through the same guarded
// client as the GET, expects the same identity, and goes to the same scheme, host and port.
// There is one GET for a session; 256 streams in all and a sixteenth of them for one caller,
// of which one that is not in use gives way. Some servers answer a POST only when they have
// done what it asks: once the server has sent an event, the client does not wait for that.
//
// # As a server
//
// Server has no pipeline of its own: Pipeline is the server of Streamable HTTP, which admits,
// limits and answers every message. A request is admitted before its POST is answered with
// 202, and is answered on the stream; what has no reply is done before its POST is answered,
// which says with its status whether it was taken. A session belongs to the caller and the
// agent of its GET. It lives in this process alone: several replicas need a load balancer
// that sends a client always to the same one.
//
// The 202 bears no Execution-Context, because when it goes out the message is not translated
// yet, and events have no header. The evidence stays under GET /ects and /workflows, and is
// in the body of messages for callers with ect_in_body.
//
// # Alternatives considered
//
// The answer to a POST could wait for the reply, and then bear its evidence. The official
// SDK for Python posts one message after the other: a question in the middle of a call could
// never be answered.
package oldsse
