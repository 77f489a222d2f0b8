// Package mcp is the form of the Model Context Protocol: revision 2026-07-28
// (modern, stateless) and the legacy ones, which begin with initialize:
// 2025-11-25, 2025-06-18, 2025-03-26 and 2024-11-05.
//
//	what                        here
//	tools/call                  Invoke.Call <-> name, arguments; a turn as profile P1, P2 or P3
//	CallToolResult              Result.Output <-> content, structuredContent, isError; turns and tasks flattened;
//	                            what others' agents answer for a tool with the schema of profile P1 is said in that
//	tools/list                  Page, CapabilityList
//	server/discover, initialize DescribeRequest, Description
//	ping, notifications/*       OpPing (legacy), OpNotice
//	errors                      Error, by the table in errors.go
//	content blocks              Part: text, image, audio, resource_link, resource
//	everything else             carried in Extensions["mcp-v1"] of its level, or in _meta["aepb.gateway/ext"]
//	input_required, its answers Result.Pending, Answers and State of Invoke and of Native (modern)
//	requests of a server        Event.Ask, and OpAnswer back (legacy)
//	progress, log messages      Event.Progress, Event.Log; other notifications Event.Native
//	task, tasks/*               Result.Task and the operations on tasks, of 2025-11-25 and of the extension
//	notifications/cancelled     OpAbort
//	client capabilities         Preferences.CanAnswer and TaskOK
//	prompts, resources, completion, subscriptions, anybody's own methods   OpNative, in their own words
//	prompts and resources as skills                                         profiles prompt, resource, resources: Invoke.Call, Result.Output (native.go)
//	resources of agents of other protocols                                  translators.Seeking, Showing (native.go)
//	what servers say without being asked, between revisions                 translators.News (news.go)
//
// What a revision lacks, by the table in revision.go:
//
//	structured content, any value   before 2026-07-28: a text that says it, and the mark of that (L17)
//	audio                           in 2024-11-05: an embedded resource (L11)
//	annotations of a tool           in 2024-11-05: carried (L10)
//	message of progress             in 2024-11-05: carried (L11)
//	structured content at all       to 2025-03-26: likewise
//	resource_link                   to 2025-03-26: a text with title and URI; the rest is carried (L11)
//	title, outputSchema of a tool   to 2025-03-26: carried (L10)
//	_meta of tools, blocks, contents to 2025-03-26: carried in the _meta of the result, by index
//	lastModified of annotations     to 2025-03-26: carried (L11)
//	icons, websiteUrl, description  before 2025-11-25: carried (L10, L11, L19)
//
// What real servers and clients do beside the specification, and is understood (lenient.go): null for
// a member that is left out; a result without content, or of null; blocks of unknown types, or without
// what their type needs; base64 in any spelling, and images without a media type; tools that cannot be
// used beside others that can; an envelope with null for method, params or error.
//
// A peer that says in an older revision what only newer ones have is understood
// all the same, and a message of its own goes home as it came.
//
// Read mcp.go for the entry, decode.go and encode.go for what becomes of a
// message, level.go for how one JSON object with its _meta is taken apart and
// put together, revision.go for how it is cut to a revision, and then call.go,
// result.go, block.go, describe.go, errors.go, question.go, event.go, task.go and
// native.go, one for each kind of thing; each holds both directions. mcp.go says
// which revision has which method, wire.go what a header repeats of a body, and
// lenient.go what is understood although it is not as it should be.
//
// Names. A tool is listed under a name that MCP and the providers of models take,
// 1 to 128 of [A-Za-z0-9_.-] (CapabilityNames): clients show no other to a model.
// MCP only recommends that, and the official SDKs warn of other names and serve
// them. So the tools of an MCP server have such names here too; a call by one of
// them goes on under the server's own name, and one by the server's own name as it
// is. Nothing restricts names of prompts, URIs of resources and their templates:
// they go unchanged between MCP clients and servers, in lists, calls, completions,
// subscriptions and notifications. To callers of other protocols a prompt is the
// skill "prompt." and its name.
//
// Two rules keep a message whole. What a decoder does not know stays, member by
// member, in the extensions of its level and is written again. And what is
// said explicitly although its absence would mean the same (isError: false, an
// empty _meta, resultType) stays in those extensions too, so that it is written
// again exactly when it was there.
//
// Alternatives considered: the official SDK's types (they round numbers in
// structured content and drop unknown members), and one codec per revision
// (four fifths would be twins).
package mcp
