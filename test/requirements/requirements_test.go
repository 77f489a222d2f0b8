// Package requirements says which test proves which requirement of circuit breakers (ATD, Circuit Breaker
// Pattern) and of lifecycles (AEPB, Agent Lifecycle Management).
package requirements_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// requirement is one row. It has tests, or says what is missing.
type requirement struct {
	id, what string
	tests    []string // FOLDER:NAME
	missing  string
}

var requirements = []requirement{
	{"AEPB-47", "a peer gateway that fails has a breaker of its own", []string{"gateway/breakers:TestStage_ApartByDestination", "gateway/breakers:TestReport_Outcomes"}, ""},
	{"AEPB-48", "atd.cascade false: no_translation_path", nil, "the cascade of a failure is part of recovery, which is not there yet"},
	{"AEPB-49", "atd.cascade true: the workflow's subgraph is rolled back", nil, "the cascade of a failure is part of recovery, which is not there yet"},
	{"AEPB-50", "allowed protocols and hops restrict", []string{"policy:TestDocument", "policy:TestDocumentRefuses"}, ""},
	{"AEPB-51", "one of four states", []string{"lifecycle:TestParseStatus_FourOnly"}, ""},
	{"AEPB-52", "deprecated_at is set", []string{"lifecycle:TestApply_Fields"}, ""},
	{"AEPB-53", "Deprecation and Sunset in all responses", []string{"cmd/aepb-gateway:TestLifecycle_OfAnAgent", "cmd/aepb-gateway:TestDocumentsThatAreGood"}, ""},
	{"AEPB-54", "clients move to the successor", []string{"gateway/admission:TestAdmit_DrainingAgent"}, ""},
	{"AEPB-55", "draining: 503 with Retry-After and Location, work under way is finished", []string{"cmd/aepb-gateway:TestLifecycle_OfAnAgent", "cmd/aepb-gateway:TestLifecycle_WorkUnderWay", "test/e2e:TestLifecycle_TwoReplicas", "test/slim:TestDrainOverSLIM"}, ""},
	{"AEPB-56", "retired: 410 with a link to the successor", []string{"cmd/aepb-gateway:TestLifecycle_OfAnAgent", "cmd/aepb-gateway:TestLifecycle_OfTheGateway"}, ""},
	{"AEPB-57", "every transition is an ECT", []string{"cmd/aepb-gateway:TestLifecycle_OfAnAgent", "gateway/lifecycle:TestService_EndsAtEveryStep", "lifecycle:TestClaims_OfTheDraft", "cmd/aepb-gateway:TestLifecycle_OfTheConfiguration"}, ""},
	{"AEPB-58", "only the transitions that are drawn", []string{"lifecycle:TestApply_Table", "gateway/lifecycle:TestService_OneOfManyOrders"}, ""},
	{"AEPB-59", "a breaking change raises the major version", []string{"lifecycle:TestCheckVersion_Breaks", "cmd/aepbctl:TestLifecycle_Check", "cmd/aepb-gateway:TestCheckConfig_Before"}, ""},
	{"AEPB-60", "the version is semantic", []string{"lifecycle:TestCheckSemver_Grammar"}, ""},
	{"AEPB-61", "ECTs carry aepb.agent_version", []string{"gateway/attest:TestTranslate_LevelsAndDialects"}, ""},
	{"AEPB-62", "the graceful end, in order", []string{"lifecycle:TestNext_Order", "lifecycle:TestNext_ResumesAfterCrash", "gateway/lifecycle:TestService_GracefulEnd"}, ""},
	{"AEPB-63", "24 hours between deprecated and draining, or force", []string{"lifecycle:TestApply_Notice", "cmd/aepb-gateway:TestLifecycle_OfAnAgent"}, ""},
	{"AEPB-64", "the successor is the URI of a capability document", []string{"lifecycle:TestApply_OrderIsRefused"}, ""},
	{"ATD-33", "a breaker for each downstream agent", []string{"gateway/breakers:TestStage_ApartByDestination"}, ""},
	{"ATD-34", "sliding window, a threshold that must be exceeded", []string{"lifecycle/breaker:TestReport_Opens", "lifecycle/breaker:TestReport_WindowSlides"}, ""},
	{"ATD-35", "open: rejected at once", []string{"gateway/breakers:TestStage_OpensProbesAndCloses", "cmd/aepb-gateway:TestBreaker_AnswersOfEveryProtocol"}, ""},
	{"ATD-36", "atd:circuit_open", []string{"lifecycle/breaker:TestChange_Claims", "cmd/aepb-gateway:TestBreaker_WatchedByOperators"}, ""},
	{"ATD-37", "one probe of all replicas after 30 s", []string{"gateway/breakers:TestStage_OneProbeOfAllReplicas", "lifecycle/breaker:TestAsk_OneProbe"}, ""},
	{"ATD-38", "a probe that succeeds closes: atd:circuit_close", []string{"gateway/breakers:TestStage_OpensProbesAndCloses", "lifecycle/breaker:TestReport_ProbeSucceeds"}, ""},
	{"ATD-39", "a probe that fails doubles the cool-down, up to 300 s", []string{"gateway/breakers:TestStage_OpensProbesAndCloses", "lifecycle/breaker:TestReport_ProbesFail"}, ""},
	{"ATD-40", "the state is published", []string{"cmd/aepb-gateway:TestBreaker_WatchedByOperators", "gateway/breakers:TestWatch_Changes"}, ""},
	{"ATD-41", "breakers of several gateways open for one agent in a short time: a human, and no parallel probes", []string{"cmd/aepb-gateway:TestBreaker_Coordinated", "gateway/breakers:TestPeerOpened_Escalates", "gateway/breakers:TestPeerOpened_OncePerGateway", "gateway/breakers:TestPeerOpened_ProbesSeldom", "lifecycle/breaker:TestOpenings", "lifecycle/breaker:TestSlow"}, ""},
	{"ATD-42", "threshold and window of the policy document", []string{"policy:TestDocument", "policy:TestDocumentRefuses", "gateway/breakers:TestSet_Configured"}, ""},
	{"ATD-59", "three probes in a row that fail: a human", []string{"gateway/breakers:TestStage_OpensProbesAndCloses", "lifecycle/breaker:TestEscalates", "cmd/aepb-gateway:TestEscalation_IsPosted"}, ""},
}

// TestRequirements_Proven: every row names tests that are there, or says what is missing.
func TestRequirements_Proven(t *testing.T) {
	t.Parallel()
	sources := map[string]string{}
	for _, row := range requirements {
		if row.what == "" || (len(row.tests) == 0) == (row.missing == "") {
			t.Errorf("%s: says %q, names %d tests, and %q is missing", row.id, row.what, len(row.tests), row.missing)
		}
		for _, one := range row.tests {
			folder, name, _ := strings.Cut(one, ":")
			if _, read := sources[folder]; !read {
				sources[folder] = testsIn(t, folder)
			}
			if !strings.Contains(sources[folder], "\nfunc "+name+"(t *testing.T)") {
				t.Errorf("%s: there is no %s", row.id, one)
			}
		}
	}
}

// testsIn is the text of all tests of a folder.
func testsIn(t *testing.T, folder string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(folder), "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no tests: %v", folder, err)
	}
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}
