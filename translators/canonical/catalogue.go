package canonical

import "slices"

// Entry is one row of the loss catalogue.
type Entry struct {
	Code    LossCode
	Weight  Weight // what a Dropped of this code weighs
	Fate    Fate   // the usual fate
	What    string
	Example string // of a message that loses it
}

// The codes of the catalogue. Numbers never change and are never reused: they
// stand in signed evidence and in metrics.
const (
	LossIDs            LossCode = "L01"
	LossHistory        LossCode = "L02"
	LossArtifacts      LossCode = "L03"
	LossChunks         LossCode = "L04"
	LossStatusUpdates  LossCode = "L05"
	LossState          LossCode = "L06"
	LossPush           LossCode = "L07"
	LossModes          LossCode = "L08"
	LossSignature      LossCode = "L09"
	LossSchemas        LossCode = "L10"
	LossAnnotations    LossCode = "L11"
	LossProgress       LossCode = "L12"
	LossPrompts        LossCode = "L13"
	LossSampling       LossCode = "L14"
	LossElicitation    LossCode = "L15"
	LossNumbers        LossCode = "L16"
	LossStructured     LossCode = "L17"
	LossCaching        LossCode = "L18"
	LossPeerInfo       LossCode = "L19"
	LossRequestState   LossCode = "L20"
	LossBytes          LossCode = "L21"
	LossCredentials    LossCode = "L22"
	LossForeignHash    LossCode = "L23"
	LossDeadline       LossCode = "L24"
	LossAbsentArgs     LossCode = "L25"
	LossEmpty          LossCode = "L26"
	LossMediaType      LossCode = "L27"
	LossPartBoundaries LossCode = "L28"
	LossExtension      LossCode = "L29"
	LossMetadata       LossCode = "L30"
	LossErrorDetail    LossCode = "L31"
	LossText           LossCode = "L32"
	LossContent        LossCode = "L33"
	LossTrace          LossCode = "L34"
	LossWait           LossCode = "L35"
	LossOperation      LossCode = "L36"
	LossErrorCode      LossCode = "L37"
	LossCallback       LossCode = "L38"
)

// Catalogue returns every row, in order of code. The slice is the caller's own.
func Catalogue() []Entry { return slices.Clone(catalogue[:]) }

// Lookup finds the row of a code.
func Lookup(code LossCode) (Entry, bool) {
	for _, entry := range catalogue {
		if entry.Code == code {
			return entry, true
		}
	}
	return Entry{}, false
}

var catalogue = [...]Entry{
	{LossIDs, WeightMeta, Carried, "context, task, reference and message ids, tenant", "contextId of an A2A message to an MCP tool"},
	{LossHistory, WeightMeta, Carried, "task history, roles inside it, task metadata", "the history of an A2A task that an MCP client reads as a tool result"},
	{LossArtifacts, WeightMeta, Carried, "artifact boundaries, names, ids", "the artifactId of an A2A artifact in an MCP tool result"},
	{LossChunks, WeightMeta, Dropped, "artifact chunk boundaries; the content stays", "three chunks of an A2A artifact in one MCP content block"},
	{LossStatusUpdates, WeightMeta, Dropped, "status updates for a caller without progress", "an A2A status update while an MCP client without a progressToken waits"},
	{LossState, WeightContent, Carried, "a task state that the destination does not tell apart", "the A2A state rejected as the state of an MCP task"},
	{LossPush, WeightContent, Dropped, "push notification settings", "the webhook of an A2A caller, toward an agent for which none can be kept"},
	{LossModes, WeightMeta, Carried, "accepted output modes, skill tags, modes, examples, security", "acceptedOutputModes of an A2A message to an MCP tool"},
	{LossSignature, WeightMeta, Dropped, "the signature of a card or an envelope that had to be rewritten", "the JWS in signatures of an A2A agent card"},
	{LossSchemas, WeightMeta, Carried, "tool schemas, annotations, icons toward a protocol without them", "the outputSchema of an MCP tool in an A2A skill"},
	{LossAnnotations, WeightMeta, Carried, "content annotations, block metadata, resource title and size", "audience and priority of an MCP content block in an A2A part"},
	{LossProgress, WeightMeta, Dropped, "progress token, progress values, log level and log messages", "the progressToken of an MCP call to an agent without streams"},
	{LossPrompts, WeightContent, Dropped, "prompts, resources, templates, completion, subscriptions", "prompts/get of an MCP client toward an A2A agent"},
	{LossSampling, WeightContent, Dropped, "sampling and roots across protocols", "sampling/createMessage of an MCP server toward an A2A caller"},
	{LossElicitation, WeightContent, Dropped, "a question with its schema, decline versus cancel", "the requestedSchema of an MCP elicitation in an A2A message"},
	{LossNumbers, WeightMeta, Carried, "a number that a double cannot hold: sent exactly, a protobuf peer may round it", "the argument 9007199254740993 in an A2A message"},
	{LossStructured, WeightMeta, Carried, "structured content beside its text copy", "structuredContent of an MCP result beside the text that repeats it"},
	{LossCaching, WeightMeta, Dropped, "ttl, poll interval, caching hints: applied here, not passed on", "pollInterval of an MCP task toward an A2A caller"},
	{LossPeerInfo, WeightMeta, Carried, "client and server information, instructions", "clientInfo of an MCP initialize toward an A2A agent"},
	{LossRequestState, WeightContent, Dropped, "opaque continuation state", "requestState of an MCP result toward a protocol without it"},
	{LossBytes, WeightMeta, Dropped, "exact JSON bytes and member order; values stay", "the order of members in a JSON body that was written anew"},
	{LossCredentials, WeightMeta, Dropped, "credentials: never passed on", "the Authorization header of the caller"},
	{LossForeignHash, WeightMeta, Carried, "a hash over the bytes before translation", "a hash that a message holds over its own bytes"},
	{LossDeadline, WeightMeta, Carried, "a deadline: carried and enforced here", "the deadline of a µACP message toward an MCP tool"},
	{LossAbsentArgs, WeightMeta, Carried, "absent arguments as opposed to an empty object", "an MCP tools/call without arguments"},
	{LossEmpty, WeightMeta, Carried, "an empty or null member that the destination does not keep apart from absence", "an empty contextId of A2A 1.0 toward A2A 0.3"},
	{LossMediaType, WeightMeta, Carried, "media type or file name of a part that has no such member there", "the file name of an A2A part as an MCP image"},
	{LossPartBoundaries, WeightMeta, Carried, "boundaries and order of parts that were joined", "two A2A text parts as one argument of an MCP tool"},
	{LossExtension, WeightMeta, Carried, "members that only the source protocol knows", "a member of an MCP tool result that no revision defines"},
	{LossMetadata, WeightMeta, Carried, "metadata and extension URIs of messages, parts, results", "metadata of an A2A message to an MCP tool"},
	{LossErrorDetail, WeightMeta, Carried, "typed error details and the foreign error code", "data of a JSON-RPC error toward another protocol"},
	{LossText, WeightMeta, Dropped, "control, bidirectional or tag characters removed from untrusted descriptions, or their excess length", "a right-to-left mark in the description of an MCP tool"},
	{LossContent, WeightContent, Dropped, "content that the destination cannot hold at all", "audio of an MCP result toward a protocol of text alone"},
	{LossTrace, WeightMeta, Dropped, "trace context toward a protocol without a place for it", "traceparent toward bare µACP frames"},
	{LossWait, WeightContent, Carried, "the wish not to wait: the gateway waits and says so", "returnImmediately of an A2A message to an MCP tool without tasks"},
	{LossOperation, WeightContent, Dropped, "an operation that the destination does not have", "ListTasks of an A2A caller toward a µACP agent"},
	{LossErrorCode, WeightContent, Carried, "an error code that the destination says more coarsely", "VersionNotSupported of an A2A agent as an MCP error"},
	{LossCallback, WeightMeta, Dropped, "where the decision of a human is told: kept here, and told from here", "the callback of a decision toward a µACP agent"},
}
