// Package slim is the form of what agents say over SLIM. SLIM itself carries
// bytes between names and has no words for work; the words are those of A2A or
// of MCP, which the packages beside this one read and write.
//
// # Profiles
//
// A version of this protocol says whose words are used, and in which version of
// theirs: "a2a-1.0" first, then "mcp-" and each revision of MCP.
//
//   - A2A on SLIMRPC (form "SLIMRPC"): calls of A2A's service in protobuf. Here
//     they are JSON-RPC messages all the same, because the names and members are
//     one; package transport/slim turns one into the other.
//   - JSON-RPC on a plain session (the empty form): messages of A2A or of MCP
//     just as their own bindings have them. A request shows which it is by its
//     method.
//
// # Carried, carried as extension, refused
//
//	what                          a2a-1.0 on SLIMRPC      JSON-RPC
//	messages, tasks, files, data  carried                 as in A2A or MCP
//	streams                       carried                 A2A none, MCP none (L12, L05)
//	push settings                 carried                 as in A2A
//	numbers not as doubles are    other digits (L16)      carried
//	members unknown to A2A        dropped (L29)           carried
//	details of errors             dropped (L31)           carried
//	error codes                   A2A's own, or gRPC's    carried
//	what another protocol says    in metadata, as in A2A  as in A2A or MCP
//	rollback                      a service of its own    the method aepb/rollback
//	callbacks, extensions of A2A  aepb-hitl-callback, a2a-extensions in a request's metadata
//	decisions                     none: told where the callback is
//
// A member of an A2A message that A2A does not define has no place in protobuf: it
// is left out, and declared (L29), as over A2A's own gRPC (AEPB, Gateway
// Requirements item 4). A peer's field that A2A does not define goes on where its
// message does byte by byte; elsewhere it is declared in the same way.
//
// Alternatives considered: a binding for each profile (AEPB has one identifier
// for SLIM), and protobuf in this package (no other codec is tied to a
// generated type, and the audit of what is lost reads JSON).
package slim
