package profile

// ExtensionURI names the gateway's A2A extension (R10). It is the key under
// which an A2A metadata object carries what A2A has no member for, and stands
// in message.extensions when a message uses profile P2.
const ExtensionURI = "urn:aepb:translation:1"

// MetaPrefix is the prefix of every MCP _meta key of ours (R10).
const MetaPrefix = "aepb.gateway/"

// ExtKey is the one MCP _meta key under which a level carries foreign
// extensions and canonical members without an MCP counterpart.
const ExtKey = MetaPrefix + "ext"

// CanonKey is the member, inside the carried object of either protocol, that
// holds canonical fields; its other members are binding identifiers.
const CanonKey = "canon"

// A2A and MCP are the bindings whose form this package knows.
const (
	A2A = "a2a-v1"
	MCP = "mcp-v1"
)

// The type names of the objects that the gateway adds to A2A error data.
const (
	TypeUpstreamError = ExtensionURI + "#UpstreamError"
	TypeInputSchema   = ExtensionURI + "#InputSchema"
)

// MessageTool is the tool that stands for an agent as a whole when the caller
// named no skill (R8).
const MessageTool = "message"
