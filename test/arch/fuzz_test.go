package arch_test

import (
	"go/ast"
	"slices"
	"testing"
)

// targets are the readers of what strangers and operators write that must have a
// fuzz target. `make fuzz` finds them, and all others, by itself.
var targets = []struct{ reader, dir, name string }{
	{"ECT", "ect", "FuzzECT_Parse"},
	{"Execution-Context header", "ect", "FuzzHeader_Parse"},
	{"OAuth access token", "ect/identity/oauth", "FuzzToken_Caller"},
	{"JSON-RPC", "translators/internal/jsonrpc", "FuzzParse_Roundtrip"},
	{"A2A message", "translators/a2a", "FuzzDecode_Roundtrip"},
	{"A2A card", "translators/a2a", "FuzzCard_Roundtrip"},
	{"A2A message in protobuf", "gateway/transport/a2a/frame", "FuzzUnpack_AgreesWithLibrary"},
	{"A2A message for protobuf", "gateway/transport/a2a/frame", "FuzzPack_AgreesWithLibrary"},
	{"MCP message", "translators/mcp", "FuzzDecode_Roundtrip"},
	{"MCP description", "translators/mcp", "FuzzDescription_Roundtrip"},
	{"A2A or MCP reply, written in every protocol", "translators/builtin", "FuzzReplies_InEveryProtocol"},
	{"URI of an artifact", "gateway/mcpbridge", "FuzzArtifactURI_Parse"},
	{"answer of another gateway", "gateway/transport/peer", "FuzzAnswer_MessageOrRefusalOrError"},
	{"configuration", "gateway/config", "FuzzConfig_Parse"},
	{"lifecycle record", "lifecycle", "FuzzDecode_Roundtrip"},
	{"rule that says how a call is undone", "lifecycle/compensation", "FuzzRule_Parse"},
	{"values that such a rule reads", "lifecycle/compensation", "FuzzFill_ValidJSONOrError"},
	{"descriptor of a workflow", "lifecycle/descriptor", "FuzzDescriptor_Parse"},
	{"journal of a rollback", "lifecycle/rollback", "FuzzDecode_Roundtrip"},
	{"result of a rollback", "lifecycle/rollback", "FuzzResult_Parse"},
	{"approval rules of a policy document", "policy/hitl", "FuzzDocumentRules_Parse"},
	{"arguments that approval rules read", "policy/hitl", "FuzzArguments_AgreeWithATree"},
	{"call that approvers are shown", "policy/hitl", "FuzzShow_ReadsBack"},
	{"MCP answer by the id of a question", "gateway", "FuzzConsent_MCPReply"},
	{"MCP call made again with answers", "gateway", "FuzzConsent_MCPRetry"},
	{"MCP answer to a task", "gateway", "FuzzConsent_MCPTask"},
	{"A2A elicitation answered", "gateway", "FuzzConsent_A2AElicitation"},
	{"A2A answer in data", "gateway", "FuzzConsent_A2AData"},
	{"A2A answer in words", "gateway", "FuzzConsent_A2AText"},
	{"A2A answer beside words", "gateway", "FuzzConsent_A2ABeside"},
	{"SLIM answer by the id of a question", "gateway", "FuzzConsent_SLIMReply"},
	{"SLIM call made again with answers", "gateway", "FuzzConsent_SLIMRetry"},
	{"SLIM answer in a message", "gateway", "FuzzConsent_SLIMMessage"},
	{"AINP answer by the id of a question", "gateway", "FuzzConsent_AINPReply"},
	{"AINP answer in words", "gateway", "FuzzConsent_AINPText"},
	{"AINP answer in data", "gateway", "FuzzConsent_AINPData"},
	{"AINP answer beside words", "gateway", "FuzzConsent_AINPAnswers"},
	{"AINP answer to a task", "gateway", "FuzzConsent_AINPTask"},
	{"µACP answer in words", "gateway", "FuzzConsent_UACPText"},
	{"µACP answer in data", "gateway", "FuzzConsent_UACPData"},
	{"µACP answer beside words", "gateway", "FuzzConsent_UACPAnswers"},
}

func TestFuzz_EveryReader(t *testing.T) {
	t.Parallel()
	ours := repository(t)
	for _, target := range targets {
		found := slices.ContainsFunc(ours.sources, func(s *source) bool {
			return s.test && s.dir == target.dir && slices.ContainsFunc(s.tree.Decls, func(d ast.Decl) bool {
				fn, ok := d.(*ast.FuncDecl)
				return ok && fn.Recv == nil && fn.Name.Name == target.name
			})
		})
		if !found {
			t.Errorf("%s: no %s in %s", target.reader, target.name, target.dir)
		}
	}
}
