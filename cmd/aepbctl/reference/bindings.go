// Package reference has the commands that print what the program knows by itself: bindings and losses.
package reference

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/client"
)

// binding is what one protocol binding has of what AEPB demands of it
// (Conforming Protocol Binding Requirements).
type binding struct {
	ID           string        `json:"id"`
	registration               // as its registry lists it
	Requirements []requirement `json:"requirements"`
}

// requirement is one of the demands. Where nothing meets it yet, it says so.
type requirement struct {
	Name string `json:"requirement"`
	Met  bool   `json:"met"`
	How  string `json:"how"`
	Test string `json:"test,omitempty"` // FILE:FUNCTION, below the source tree; none: not met
}

// registration is an entry of the AEPB Protocol Binding Registry.
type registration struct {
	Protocol  string `json:"protocol"`
	Reference string `json:"reference"`
	MinLevel  string `json:"minimum_assurance"`
	Callback  string `json:"hitl_callback"`
}

// registered are the initial entries (AEPB, AEPB Protocol Binding Registry). The
// draft leaves the references open; these are the texts that were implemented.
func registered() map[string]registration {
	return map[string]registration{
		"a2a-v1":  {"A2A", "A2A protocol 1.0 and 0.3", "L1", "Webhook"},
		"mcp-v1":  {"Model Context Protocol", "MCP 2026-07-28 back to 2024-11-05", "L1", "Webhook"},
		"slim-v1": {"SLIM", "SLIM 2 and 3, SLIMRPC and A2A over it", "L1", "Webhook"},
		"uacp-v1": {"µACP", "µACP draft, over TLS", "L1", "Webhook"},
		"ainp-v1": {"AINP", "AINP draft", "L1", "Webhook"},
	}
}

// The requirements, in the draft's order; how hashes are taken is ours (R5).
const (
	needCarriage = "ect_carriage"
	needParent   = "parent_reference"
	needRollback = "rollback_signal"
	needHITL     = "hitl_callback"
	needTLS      = "transport_security"
	needHash     = "hash_form"
)

const (
	testField       = "test/pairs/carriage_test.go:TestECTField_A2AAndMCP"
	testHandshake   = "test/negative/negative_caller_test.go:TestHandshake_Refused"
	testInside      = "test/stories/five_test.go:TestEnvelopeECT_ReachesTheAgent"
	testNode        = "test/slim/gateway_test.go:TestGateway_A2AClientToOfficialServer"
	testSignals     = "test/stories/signal_test.go:TestUACPSignals_RollbackAndDecision"
	testAINPSignals = "test/stories/ainp_signal_test.go:TestAINPSignals_CallbackRollbackDecision"
	testRollback    = "test/stories/rollback_test.go:TestRollback_OverHTTP"
	testParents     = "test/stories/parent_test.go:TestParent_InEveryProtocol"
	testWebhooks    = "test/stories/callbacks_test.go:TestCallbacks_HTTPCallersGetTheDecisionOnce"
)

// conformance is the table. A cell that is met names the test that fails when it
// no longer is.
func conformance() []binding {
	overHTTP := func(id string) binding {
		return binding{ID: id, Requirements: []requirement{
			{needCarriage, true, "HTTP field Execution-Context", testField},
			{needParent, true, "par of the ECT in Execution-Context; without one, its jti in Aepb-Parent-Jti", testParents},
			{needRollback, true, "POST /.well-known/atd/rollback with the request ECT, answered with the result ECT; apart from the endpoints", testRollback},
			{needHITL, true, "POST /hitl/callbacks with wid and uri; the decision by webhook", testWebhooks},
			{needTLS, true, "HTTPS with TLS 1.3", testHandshake},
			{needHash, true, "the bytes of the body", testField},
		}}
	}
	return []binding{
		overHTTP("a2a-v1"), overHTTP("mcp-v1"),
		{ID: "slim-v1", Requirements: []requirement{
			{needCarriage, true, "metadata key execution-context", testNode},
			{needParent, true, "par of the ECT in execution-context; without one, its jti in aepb-parent-jti", testParents},
			{needRollback, true, "SLIMRPC service aepb.v1.Rollback, or JSON-RPC method aepb/rollback", "test/stories/slim_signal_test.go:TestRollback_OverSLIM"},
			{needHITL, true, "metadata key aepb-hitl-callback", "test/stories/slim_signal_test.go:TestCallbacks_OverSLIM"},
			{needTLS, true, "TLS 1.3 to the node", "test/slim/tls_test.go:TestNode_TLS"},
			{needHash, true, "the bytes of the payload: a message in protobuf, or JSON-RPC", testNode},
		}},
		{ID: "uacp-v1", Requirements: []requirement{
			{needCarriage, true, "member aepb.ect of an enveloped payload; a bare peer gets none", testInside},
			{needParent, true, "par of the ECT in the envelope; without one, its jti in aepb.parent_jti or option 41", testParents},
			{needRollback, true, "ASK /aepb/rollback: the request ECT, answered with the result ECT", testSignals},
			{needHITL, true, "member aepb.hitl_callback of a request; the decision by webhook, or to /aepb/hitl/ID", testSignals},
			{needTLS, true, "frames over TLS 1.3; datagrams only in dev, on one machine", "test/negative/negative_uacp_test.go:TestUACPListener_Handshake"},
			{needHash, true, "jcs-without-ect: RFC 8785 of the envelope without aepb.ect; of a bare frame, its payload", testInside},
		}},
		{ID: "ainp-v1", Requirements: []requirement{
			{needCarriage, true, "payload.aepb.ect and attestations of the envelope", testInside},
			{needParent, true, "par of the ECT in the envelope; without one, its jti in payload.aepb.parent_jti", testParents},
			{needRollback, true, "INTENT AtdRollbackRequest with semantics.ect; the RESULT's result is the token that answers", testAINPSignals},
			{needHITL, true, "payload.aepb.hitl_callback; an ApprovalRequest where an agent asks, the decision as a RESULT with its token", testAINPSignals},
			{needTLS, true, "HTTPS or WSS with TLS 1.3", testHandshake},
			{needHash, true, "jcs-without-ect: RFC 8785 of the envelope without sig, payload.aepb.ect and its attestation", testInside},
		}},
	}
}

// bindings is the table with the registry's entries.
func bindings() []binding {
	list, entries := conformance(), registered()
	for i := range list {
		list[i].registration = entries[list[i].ID]
	}
	return list
}

func bindingsCommand(c *client.Client) *cobra.Command {
	return &cobra.Command{
		Use: "bindings", Short: "What each protocol binding has of AEPB's requirements, and the test of each", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			table := map[string][]binding{"bindings": bindings()}
			return c.Show(cmd, table, func(w io.Writer) error { return printBindings(w, table["bindings"]) })
		},
	}
}

func printBindings(w io.Writer, list []binding) error {
	table := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(table, "BINDING\tPROTOCOL\tMINIMUM ASSURANCE\tHITL CALLBACK\tREFERENCE")
	for _, b := range list {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", b.ID, b.Protocol, b.MinLevel, b.Callback, b.Reference)
	}
	fmt.Fprintln(table)
	fmt.Fprintln(table, "BINDING\tREQUIREMENT\tMET\tHOW\tTEST")
	for _, b := range list {
		for _, r := range b.Requirements {
			met := "no"
			if r.Met {
				met = "yes"
			}
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", b.ID, r.Name, met, r.How, r.Test)
		}
	}
	return table.Flush()
}
