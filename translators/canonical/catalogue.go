package canonical

import "slices"

// Entry is one row of the loss catalogue.
type Entry struct {
	Code   LossCode
	Weight Weight // what a Dropped of this code weighs
	Fate   Fate   // the usual fate
	What   string
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
	{LossIDs, WeightMeta, Carried, "context, task, reference and message ids, tenant"},
	{LossHistory, WeightMeta, Carried, "task history, roles inside it, task metadata"},
	{LossArtifacts, WeightMeta, Carried, "artifact boundaries, names, ids"},
	{LossChunks, WeightMeta, Dropped, "artifact chunk boundaries; the content stays"},
	{LossStatusUpdates, WeightMeta, Dropped, "status updates for a caller without progress"},
	{LossState, WeightContent, Carried, "a task state that the destination does not tell apart"},
	{LossPush, WeightContent, Dropped, "push notification settings"},
	{LossModes, WeightMeta, Carried, "accepted output modes, skill tags, modes, examples, security"},
	{LossSignature, WeightMeta, Dropped, "the signature of a card or an envelope that had to be rewritten"},
	{LossSchemas, WeightMeta, Carried, "tool schemas, annotations, icons toward a protocol without them"},
	{LossAnnotations, WeightMeta, Carried, "content annotations, block metadata, resource title and size"},
	{LossProgress, WeightMeta, Dropped, "progress token, progress values, log level and log messages"},
	{LossPrompts, WeightContent, Dropped, "prompts, resources, templates, completion, subscriptions"},
	{LossSampling, WeightContent, Dropped, "sampling and roots across protocols"},
	{LossElicitation, WeightContent, Dropped, "a question with its schema, decline versus cancel"},
	{LossNumbers, WeightMeta, Carried, "a number that a double cannot hold: sent exactly, a protobuf peer may round it"},
	{LossStructured, WeightMeta, Carried, "structured content beside its text copy"},
	{LossCaching, WeightMeta, Dropped, "ttl, poll interval, caching hints: applied here, not passed on"},
	{LossPeerInfo, WeightMeta, Carried, "client and server information, instructions"},
	{LossRequestState, WeightContent, Dropped, "opaque continuation state"},
	{LossBytes, WeightMeta, Dropped, "exact JSON bytes and member order; values stay"},
	{LossCredentials, WeightMeta, Dropped, "credentials: never passed on"},
	{LossForeignHash, WeightMeta, Carried, "a hash over the bytes before translation"},
	{LossDeadline, WeightMeta, Carried, "a deadline: carried and enforced here"},
	{LossAbsentArgs, WeightMeta, Carried, "absent arguments as opposed to an empty object"},
	{LossEmpty, WeightMeta, Carried, "an empty or null member that the destination does not keep apart from absence"},
	{LossMediaType, WeightMeta, Carried, "media type or file name of a part that has no such member there"},
	{LossPartBoundaries, WeightMeta, Carried, "boundaries and order of parts that were joined"},
	{LossExtension, WeightMeta, Carried, "members that only the source protocol knows"},
	{LossMetadata, WeightMeta, Carried, "metadata and extension URIs of messages, parts, results"},
	{LossErrorDetail, WeightMeta, Carried, "typed error details and the foreign error code"},
	{LossText, WeightMeta, Dropped, "control, bidirectional or tag characters removed from untrusted descriptions, or their excess length"},
	{LossContent, WeightContent, Dropped, "content that the destination cannot hold at all"},
	{LossTrace, WeightMeta, Dropped, "trace context toward a protocol without a place for it"},
	{LossWait, WeightContent, Carried, "the wish not to wait: the gateway waits and says so"},
	{LossOperation, WeightContent, Dropped, "an operation that the destination does not have"},
	{LossErrorCode, WeightContent, Carried, "an error code that the destination says more coarsely"},
	{LossCallback, WeightMeta, Dropped, "where the decision of a human is told: kept here, and told from here"},
}
