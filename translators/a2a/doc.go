// Package a2a is the form of the Agent2Agent protocol: 1.0 and 0.3, over
// JSON-RPC and over HTTP alone.
//
// There is one reading of the protocol, that of 1.0. A message of 0.3 is raised
// to it before it is read and lowered to 0.3 after it was written (package
// internal/a2a03); the HTTP form is the same message without JSON-RPC around it
// (http.go). Both are read and written here and not at an endpoint, because hashes
// cover the bytes on the wire.
//
// A request is of the version that its header or its carrier says, else of the
// one that has its method's name; who says one and writes the other is refused.
// Over HTTP there is no method's name, and the two versions have places of their
// own: there the carrier says 0.3, and who says nothing means 1.0.
//
// A card that is asked for without a version is written in both at once, although the
// schema of 1.0 admits no other members. 1.0 takes who says nothing for a client of 0.3
// (A2A 1.0, section 3.6.2), but the clients of a2a-go fetch the card without the header
// and without an Accept, those of 1.0 and of 0.3 alike: nothing tells them apart, a card
// of either one stops the clients of the other, and both read what they know of the joint
// one. Who names a version, as the JavaScript client does, gets a card of that alone.
//
// # What becomes of what
//
// Carried natively, both ways:
//
//	request id                        Correlation.WireID
//	message.messageId                 Correlation.MessageID, Turn.ID
//	message.contextId, taskId,
//	  referenceTaskIds; tenant        Conversation
//	configuration                     Preferences (media, history length, no wait)
//	parts text, data, raw, url        Part of kind text, data, file, ref
//	data part {skill, input}          Call, beside the turn (profile P2)
//	result.message, result.task       Result.Turn, Result.Task
//	JSON-RPC error                    Error, by the table in errors.go
//	agent card, skills                Description, Capability
//	a stream's task, message, status
//	  and artifact updates            Event.Task, .Turn, .Status, .Artifact
//	GetTask, CancelTask, SubscribeToTask  TaskQuery
//	ListTasks and its page            TaskFilter, TaskList
//	push notification settings        PushRequest, PushConfig, PushList, Done
//	capabilities.streaming,
//	  pushNotifications               Description.Streams, .Pushes
//	GetExtendedAgentCard              Native
//	A2A-Version, trace headers        Origin.Version, Trace
//	message/send of 0.3, its result   the same
//	google.rpc.Status over HTTP       Error, by its reason
//
// Carried as extension, under metadata["urn:aepb:translation:1"] of the same
// level (of capabilities.extensions[].params on a card, of a typed object in
// error.data): what other protocols know and A2A does not. That is foreign
// Extensions, a part's title, description, size, annotations and form, the
// deadline, progress token, log level, client name, absent as opposed to empty
// arguments, tool schemas, a call's direct output as such. Each is a Loss of
// fate Carried.
//
// Kept in Extensions["a2a-v1"] of the same level: metadata, members of later
// versions, and the exact form of a value that means the same as another form
// (null or "" for absent, an enum as number, URL-safe base64), so that a
// message which stays in A2A is the same JSON value afterwards.
//
// A question with more than words is a data part {"elicitation": {"key", "mode",
// "schema", "url", "prompt"}} in the message of the status that asks; its answer is one
// {"elicitation": {"key", "action", "content"}} in a message. They are read in
// addition to the parts that they are. A progress of another protocol is a
// status of work with its numbers in metadata; a task's direct output is its
// artifact "result", and its failure the words of its status.
//
// Push notification settings that come with a message are read for the gateway,
// and are never written: a webhook's credentials go to no agent. A
// notification is an event in FormHTTP in 1.0 (A2A 1.0, section 4.3.3), and the
// whole task in FormPush in 0.3 (A2A 0.3, section 9.5).
//
// Refused: methods that a version does not have; a request
// without an id, messageId, role or parts; a part with no content or with two;
// members that a careless reader takes for known ones (taskid for taskId),
// because what one reader ignores and the next obeys is a way around policy.
// A name in the proto's snake case is read and leaves in camel case (loss L21).
//
// Lost on the way to 0.3: what it has no member for and nothing to carry it in,
// unknown members under a name that 0.3 reads as its own, and the difference
// between absent and empty where 0.3 demands a value. Lost over HTTP: the id,
// since the connection pairs request and reply.
//
// The caller's principal (From.ID) is not said in the message: it travels in
// the execution context token.
//
// # 0.3 over HTTP
//
// It is the JSON of the proto of 0.3, not that of JSON-RPC, and it is read and
// written as the official peers do it (the 0.3 side of a2a-go 2.4):
//
//   - A message has content and not parts; an artifact has parts. The canceled
//     state has two l. Enumerations go by name, never by number.
//   - A file's bytes are encoded twice: the proto has a field of bytes, and
//     peers put the base64 text into it. Bytes encoded once are refused, unless
//     they happen to be base64 themselves, which the codec cannot detect.
//   - Without a configuration the caller waits. In one, blocking that is not
//     said is false. Written is always what is meant.
//   - A history length of 0 is none said; a wish for no history is lost (L02).
//   - Data that is no object, which peers send and the proto forbids, is read,
//     and leaves wrapped as over JSON-RPC.
//   - An error is that of the HTTP form of 1.0, in application/json.
//
// # How to read it
//
// wire.go has the names and numbers, and how versions are told; operations.go
// what a peer can be asked; members.go how one object is read and written; then
// decode.go and encode.go with parts.go, task.go, event.go, question.go, query.go,
// push.go, output.go, more.go, errors.go and card.go for what they carry, and
// http.go and places.go for the form without JSON-RPC.
//
// # Alternatives considered
//
// The protocol's Go types: they round integers above 2^53, drop unknown
// members and refuse data:null. Generated protobuf code: the same, and larger.
// One leftover object per message instead of one per level: it cannot say
// which part a member belongs to once parts are reordered.
package a2a
