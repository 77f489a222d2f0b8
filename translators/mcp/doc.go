// Package mcp is the form of the Model Context Protocol: revisions 2026-07-28
// (modern, stateless) and 2025-11-25 (legacy, with initialize), unary.
//
//	what                        here
//	tools/call                  Invoke.Call <-> name, arguments; a turn as profile P1, P2 or P3
//	CallToolResult              Result.Output <-> content, structuredContent, isError; turns and tasks flattened
//	tools/list                  Page, CapabilityList
//	server/discover, initialize DescribeRequest, Description
//	ping, notifications/*       OpPing (legacy), OpNotice
//	errors                      Error, by the table in errors.go
//	content blocks              Part: text, image, audio, resource_link, resource
//	everything else             carried in Extensions["mcp-v1"] of its level, or in _meta["aepb.gateway/ext"]
//	input_required, task        refused in replies (bad_upstream): never asked for
//	prompts, resources, completion, sampling, roots, tasks, subscriptions   refused (no_method)
//
// Read mcp.go for the entry, decode.go and encode.go for what becomes of a
// message, level.go for how one JSON object with its _meta is taken apart and
// put together, and then call.go, result.go, block.go, describe.go, tools.go
// and errors.go, one for each kind of thing; each holds both directions.
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
