package attacks

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// The index of attacks: what a security review and the trial operation of the gateway
// found, and which tests prove that it is closed. A test carries out the attack; it is
// named TestAttack_ and what the attacker tries.

// attackFinding is one row.
type attackFinding struct {
	// id: 1 to 18 are findings of the security review (5 and 18 by their items), H1 to
	// H8 holes that the audit of requirements tried, F1 to F19 of the trial operation.
	// W1 to W44, and those of O, which are about access tokens, were never open: they were tried when the feature was written. X- stands
	// before those of a later series of attacks on the built program, T before those of a review of rules per tool, tokens and credentials, C before those of a review of
	// cascades, plans and queues.
	id   string
	what string // an attacker could do
	// tests prove that it is closed: FOLDER:NAME, or the NAME alone in this folder.
	tests []string
	// untested says why no test is named: the finding is open, accepted or documented.
	// "": there is a test.
	untested string
}

var attackIndex = []attackFinding{
	{id: "1", what: "become party to another's workflow with a token of one's own: approve, roll back and read what is others'", tests: []string{
		"TestAttack_OwnTokenMakesAMember", "TestAttack_OwnTokenMakesAParty", "TestAttack_OutsiderApproves",
		"policy/membership:TestAttack_OutsiderLearnsAndChangesNothing", "policy/membership:TestAttack_RootInAnotherWorkflow",
		"policy/membership:TestAttack_ChildOfATokenForOthers", "policy/membership:TestAttack_AncestorThatNamesItself",
		"policy/membership:TestAttack_CallerClaimInAnOwnToken", "policy/membership:TestAttack_TwoTokensWithOneID",
		"policy/membership:TestAttack_OwnWorkflowBesideATokenOfOthers", "policy/membership:TestAttack_MemberSignsItselfIntoALineage",
		"policy/membership:TestAttack_ListedGatewayForItsUser", "policy/membership:TestAttack_ApproverApprovesItsOwnWork",
		"policy/membership:TestAttack_ApproverBringsAnothersDecision",
		"policy/membership:TestAttack_TwoRootsInOneMessage", "policy/membership:TestAttack_ReplyEvidenceOfAnOutsiderMakesMembers",
		"policy/membership:TestAttack_OwnTokenThatOthersBrought", "TestAttack_ApproverJoinsByItsDecision",
		"TestAttack_MessageThatWaitsForAWorkflow", "TestAttack_RollbackResultOfAnotherIssuer",
		"TestAttack_ListedGatewayBringsItsUserIn", "policy/membership:TestAttack_OutsiderOverTwoGateways",
	}},
	{id: "2", what: "make the evidence store forget what others need, or fill Redis, with tokens of one's own", tests: []string{
		"TestAttack_OneIssuerFlushesAllEvidence", "TestAttack_OneIssuerFillsRedis", "TestAttack_ATokenThatNeverEnds",
		"TestAttack_TokenOfForeignTask",
		"gateway/state:TestAttack_MembersWithoutRecords",
		"gateway:TestAttack_AgentFillsAnothersShare", "gateway:TestAttack_AgentEvictsWhatItShowedFirst",
		"gateway:TestAttack_GatewayFillsAnothersShare",
	}},
	{id: "3", what: "make the gateway send requests to internal or public hosts by naming a did:web as sender", tests: []string{
		"TestAttack_StrangerMakesUsFetchInternalAddress", "TestAttack_AgentMakesUsFetchInternalAddress",
		"gateway/transport/ainp:TestAttack_StrangerMakesUsFetchPublicAddress", "gateway/transport/ainp:TestAttack_CallerBreaksOffLookups",
	}},
	{id: "4", what: "fill the store of tasks, questions and sessions, so that all others are refused", tests: []string{
		"TestAttack_OneCallerFillsTheTaskStoreWithQuestions",
	}},
	{id: "5a", what: "make the gateway hold gigabytes in answers that are never read", tests: []string{
		"TestAttack_ReadersThatNeverReadHoldMemory", "TestAttack_WorkflowPagesTakeMemory",
		"gateway/transport/a2a:TestAttack_StreamsOverGRPCThatAreNotRead",
		"gateway/transport/a2a:TestAttack_UnaryAnswersOverGRPCThatAreNotRead",
	}},
	{id: "5b", what: "make the gateway hold gigabytes in requests that never end", tests: []string{
		"TestAttack_UnfinishedBodiesTakeMemory", "gateway/transport/a2a:TestAttack_UnfinishedRequestsOverGRPCTakeMemory",
	}},
	{id: "6", what: "take all connections of µACP, all WebSockets, or all calls of SLIM", tests: []string{
		"TestAttack_StrangersTakeAllUACPConnections", "TestAttack_OneCallerTakesAllUACPConnections",
		"TestAttack_StrangersTakeAllWebSockets", "TestAttack_OneCallerTakesAllWebSockets",
		"gateway/transport/uacp:TestAttack_StrangersNeverFinishTheHandshake", "gateway/transport/uacp:TestAttack_CallerStopsInTheMiddleOfAFrame",
		"gateway/transport/ainp:TestAttack_StrangerKeepsAWebSocket", "gateway/transport/ainp:TestAttack_StrangerSendsLongMessages",
		"gateway/transport/ainp:TestAttack_StrangerPostsLongMessages",
		"gateway/transport/slim:TestAttack_OneGroupMemberTakesAllCalls", "gateway/transport/slim:TestAttack_OneModeratorTakesAllGroups",
	}},
	{id: "7", what: "reach an agent without being on its list, by a capability document that names it or its address", tests: []string{
		"TestAttack_DocumentNamesAListedAgent", "TestAttack_DocumentUsesAListedAgentsAddress",
		"gateway/destination:TestAttack_DrainingDocumentOfListedAgent",
		"gateway:TestAttack_SuccessorDescribesListedAgent",
	}},
	{id: "8", what: "have the gateway post to a webhook under its own certificate, also to agents and to itself", tests: []string{
		"TestAttack_WebhookSpeaksAsTheGateway", "TestAttack_WebhookToAListedAgent", "TestAttack_WebhookToOurselves",
	}},
	{id: "9", what: "make one message cost ten thousand lookups of ancestors", tests: []string{"TestAttack_LineageWalkCostsTenThousandLookups"}},
	{id: "10", what: "be trusted after one's trust domain was taken out of the federation", tests: []string{"TestAttack_DefederatedDomainStaysTrusted"}},
	{id: "11", what: "go on with a connection whose certificate or trust anchor is no longer good", tests: []string{
		"TestAttack_ConnectionOutlivesItsCertificate", "TestAttack_WithdrawnAnchorKeepsConnections",
		"TestAttack_StreamOutlivesItsToken",
	}},
	{id: "12", what: "fail to authenticate, or hold idle connections, as often as one likes", tests: []string{
		"TestAttack_FailedAuthenticationsAreFree", "TestAttack_OneAddressHoldsAllConnections", "TestAttack_IdleConnectionsAreHeld",
		"TestAttack_FailuresRefuseGoodTokensAtTheSameAddress",
		"gateway/transport/accept:TestAttack_ConnectionsKeepCallersOut", "gateway/transport/accept:TestAttack_BytesWithoutARequestKeepCallersOut",
	}},
	{id: "13", what: "join another caller's dialogue by its context id", tests: []string{"TestAttack_CallerJoinsAnotherCallersContext"}},
	{id: "14", what: "take all background workers, or push out others' stored answers, so that their requests run twice", tests: []string{
		"TestAttack_OneCallerTakesAllWorkers", "TestAttack_LargeAnswersMakeOthersRunTwice", "TestAttack_LargeMessagesInTheBackground",
	}},
	{id: "15", what: "block rollbacks, decisions or a whole id by tokens that have the id of another's", tests: []string{
		"TestAttack_NamesakeBlocksRollback", "gateway/state:TestAttack_NamesakesBlockAnID", "policy/membership:TestAttack_NamesakeInTheWorkflow",
	}},
	{id: "16", what: "forge lines and hide text in the terminal of a person who inspects a token", tests: []string{
		"cmd/aepbctl/evidence:TestAttack_TokenForgesTerminalLines", "cmd/aepbctl/evidence:TestAttack_PictureOfHostileTokens", "cmd/aepbctl/agents:TestAttack_AnswersForgeTerminalLines",
		"cmd/aepbctl/client:TestAttack_RefusalForgesTerminalLines", "cmd/aepbctl/doctor:TestAttack_FindingForgesTerminalLines", "cmd/aepbctl/proof:TestAttack_RecordsForgeTerminalLines",
		"cmd/aepbctl/reply:TestAttack_ReplyForgesTerminalLines", "cmd/aepbctl/send:TestAttack_ExchangeForgesTerminalLines", "cmd/aepbctl/terminal:TestAttack_ErrorsForgeTerminalLines",
	}},
	{id: "17", what: "have a port of one's own choice signed into the gateway's document, or a proof for another port taken", tests: []string{
		"TestAttack_HostPortGetsIntoSignedDocument", "TestAttack_ProofForAnotherPortIsTaken",
	}},
	{id: "18a", what: "call a development gateway, which asks for no credentials, from another machine", tests: []string{"cmd/aepb-gateway:TestAttack_DevOnAPublicAddress"}},
	{id: "18b", what: "read the keys in a folder of a development gateway that was there before with wide permissions", tests: []string{
		"ect/identity:TestAttack_ReadKeysOfAnOpenFolder",
	}},
	{id: "18c", what: "read webhook credentials in the state file", tests: []string{"TestAttack_StateFileShowsWebhookCredentials"}},
	{id: "18d", what: "become a member of a workflow by writing to Redis", tests: []string{"gateway/state/redis:TestAttack_RedisContentMakesMembers"}},
	{id: "18e", what: "play an AINP envelope that names no recipient to the gateway, in its sender's name", tests: []string{"TestAttack_EnvelopeWithoutRecipientIsReplayed"}},
	{id: "18f", what: "read the bearer tokens of a SLIM channel as one of its members, or as the node", untested: "documented: SLIM is made so"},
	{
		id: "18g", what: "impersonate an outside host with a certificate of the operator's own authorities",
		untested: "accepted: who holds an authority that the operator trusts is no stranger",
	},
	{id: "18h", what: "change what the container is built from behind a tag", tests: []string{"TestAttack_ImageBehindATagIsReplaced"}},
	{id: "18i", what: "have two readers understand one message differently by members that differ in case alone", tests: []string{"TestAttack_MemberInAnotherCase"}},
	{
		id: "18j", what: "fill the memory of tokens that were used, so that new ones are refused", tests: []string{"TestAttack_IssuersFillTheMemoryOfUsedTokens"},
	},
	{id: "18k", what: "share a limit with strangers once 16,384 addresses are known", untested: "accepted: callers with an identity have limits of their own"},
	{id: "18l", what: "read metrics and health without an identity", untested: "documented: the admin listener and listen.metrics are for the operator's network"},
	{id: "H1", what: "become a member of a workflow by a message that policy refuses", tests: []string{"TestAttack_OwnTokenMakesAMember"}},
	{id: "H2", what: "roll back and decide as an outsider with a token of one's own among the parents", tests: []string{"TestAttack_OwnTokenMakesAParty"}},
	{id: "H3", what: "keep a caller from rolling back by a token with the id of the caller's own", tests: []string{"TestAttack_NamesakeBlocksRollback"}},
	{id: "H4", what: "get the stored answer to another caller's message", tests: []string{
		"TestAttack_StoredAnswerGoesToAnotherCaller", "TestAttack_StoredRollbackAfterTheRightIsGone",
		"TestAttack_OwnSourceBesideAnothersToken", "TestAttack_StoredAnswerOfAnotherAgent",
		"TestAttack_StoredAnswerOfAnOperationThatIsNotPermittedNow", "TestAttack_StoredRollbackOfAnOperationThatIsNotPermittedNow",
	}},
	{id: "H5", what: "call an agent that demands a level of assurance without any token", tests: []string{"TestAttack_LevelWithoutAnyToken"}},
	{id: "H6", what: "cut the evidence of a reply off from its request by a token of another workflow", tests: []string{"TestAttack_ReplyEvidenceOfAnotherWorkflow"}},
	{id: "H7", what: "reach a forbidden protocol behind another gateway", tests: []string{
		"TestAttack_ForbiddenProtocolBehindAPeer", "gateway:TestAttack_HopsBehindAListedPrefix",
	}},
	{id: "H8", what: "lose the tasks under way at an agent that is being drained", tests: []string{"TestAttack_DrainingTakesRunningWork"}},
	{id: "F1", what: "be trusted after one's trust domain was taken out of the federation", tests: []string{"TestAttack_DefederatedDomainStaysTrusted"}},
	{id: "F2", what: "have all other requests of a caller refused once its tasks at an agent fill their store", tests: []string{"TestAttack_FullGroupRefusesOtherRequests"}},
	{id: "F3", what: "lock out new callers by filling the store of tasks", tests: []string{"TestAttack_FilledStoreLocksOutNewCallers"}},
	{id: "F6", what: "lock out a whole deployment by sessions that its pods have left", tests: []string{"TestAttack_LeftSessionsLockOutADeployment"}},
	{id: "F18", what: "go on with a connection whose certificate has ended", tests: []string{"TestAttack_ConnectionOutlivesItsCertificate"}},
	{id: "F19", what: "pass for another workload, or pass without a good credential, by a bearer token that is not judged", tests: []string{
		"TestAttack_BearerTokenBesideACertificate",
	}},
	{id: "N1", what: "keep out all new connections with connections that ask something and stay", tests: []string{
		"TestAttack_StrangersThatAskHoldAllConnections", "gateway/transport/accept:TestAttack_ConnectionsKeepCallersOut",
	}},
	{id: "N2", what: "become a member of another's workflow through a listed gateway that does not know it", tests: []string{
		"TestAttack_ListedGatewayBringsItsUserIn", "policy/membership:TestAttack_OutsiderOverTwoGateways",
	}},
	{id: "N4", what: "have state believed that was written to Redis without the key of the replicas", tests: []string{
		"TestAttack_RedisWriterInventsATask", "test/stories:TestAttack_RedisWriterListsAnAgent", "gateway/state/seal:TestAttack_UnsealedStateIsBelieved",
		"gateway/state/seal:TestAttack_PlantedEntryHidesAGroup", "gateway/state/redis:TestAttack_RedisMovesAConversation",
		"gateway/state/redis:TestAttack_RedisWriterHidesAGroup",
	}},
	{id: "N5", what: "end the handshakes of others with connections that are refused", tests: []string{"TestAttack_RefusedConnectionsEndHandshakes"}},
	{id: "N6", what: "hold listen.metrics shut", tests: []string{"TestAttack_MetricsListenerIsHeldShut"}},
	{id: "N7", what: "lock out callers with tokens at the same address by bad tokens", tests: []string{"TestAttack_FailedBearersLockOutTheirAddress"}},
	{id: "N8", what: "end slow handshakes of others over µACP; have a token refused or hidden by using its jti first, under many identities", tests: []string{
		"gateway/transport/uacp:TestAttack_HandshakesPushEachOtherOut",
		"TestAttack_NamesakesRefuseTheOwner", "gateway/state:TestAttack_NamesakesBlockAnID", "policy/membership:TestAttack_NamesakesHideAParent",
	}},
	{id: "W1", what: "have the changes of another caller's task posted to a webhook of one's own", tests: []string{"gateway:TestAttack_WebhookForAnothersTask"}},
	{id: "W2", what: "read the extended card of an agent whose rules do not permit the caller", tests: []string{"test/stories:TestAttack_ExtendedCardOfAnAgentForOthers"}},
	{id: "W3", what: "answer a question that an agent asks another caller", tests: []string{"gateway:TestAttack_AnotherAnswersTheQuestionOfAPrompt"}},
	{id: "W4", what: "have the document of an agent's successor fetched without the right to call the agent", tests: []string{"gateway/destination:TestAttack_FetchOnBehalfOfForbiddenCaller"}},
	{id: "W5", what: "get the kept answer of a rollback after the right to call the agent is gone", tests: []string{"gateway:TestAttack_KeptRollbackOfCallerWhoMayNotCallAnyMore"}},
	{id: "W6", what: "open the circuit breaker of an agent for all its callers", tests: []string{"gateway/breakers:TestAttack_OneCallerOpensABreaker"}},
	{id: "W7", what: "fill the memory with breakers of hosts that one names, or have an open one forgotten", tests: []string{"gateway/breakers:TestAttack_EndlessDestinations", "gateway/breakers:TestAttack_LabelThatACallerMade"}},
	{id: "W8", what: "learn from circuit breakers which agents are down", tests: []string{"test/stories:TestAttack_BreakersShowTheHealthOfAgents", "gateway/admission:TestAttack_LeftAloneShowsTheHealthOfAnAgent"}},
	{id: "W9", what: "retire an agent, or the gateway, without the role of an operator", tests: []string{"test/stories:TestAttack_LifecycleWithoutTheRole"}},
	{id: "W10", what: "keep operators from watching circuit breakers, with streams of one's own", tests: []string{"gateway/breakers:TestAttack_WatchesWithoutEnd"}},
	{id: "W11", what: "call the operators to hosts and documents of one's own that fail, and keep other calls from them", tests: []string{"gateway/breakers:TestAttack_CallsOperatorsAboutOwnHosts"}},
	{id: "W12", what: "learn that an agent that one may not call is deprecated, and what follows it", tests: []string{"test/stories:TestAttack_FutureOfAnAgentForOthers"}},
	{id: "W13", what: "post to the session of another caller over HTTP with SSE, or hold sessions and requests there without end", tests: []string{
		"gateway/transport/mcp:TestAttack_SessionOverSSEOfAnother", "gateway/transport/mcp:TestAttack_SessionsOverSSEWithoutEnd",
		"gateway/transport/mcp:TestAttack_RequestsOverSSEWithoutEnd",
	}},
	{id: "W14", what: "as a server over HTTP with SSE, have messages posted elsewhere, or fill the memory", tests: []string{
		"gateway/transport/mcp:TestAttack_OldServerHasMessagesPostedElsewhere", "gateway/transport/mcp/oldsse:TestAttack_StreamOfAServerWithoutEnd",
		"gateway/transport/mcp/oldsse:TestAttack_ServerThatAnswersNoPost",
	}},
	{id: "W15", what: "as a program, or a caller of a shared one, read what is another's, or fill the memory", tests: []string{
		"gateway/transport/mcp/channel:TestAttack_ServerThatNeverReads", "gateway/transport/mcp/channel:TestAttack_SharedIDs",
		"gateway/transport/mcp/channel:TestAttack_SharedProgressTokens", "gateway/transport/mcp/channel:TestAttack_SharedSubscriptions",
	}},
	{id: "W16", what: "read the command, variables and secret files of a program in the evidence of a call", tests: []string{"gateway:TestAttack_EvidenceNamesNoProgram"}},
	{id: "W17", what: "answer what a shared program asks in another caller's call", tests: []string{"gateway/transport/mcp/channel:TestAttack_AnswerToASharedServer"}},
	{id: "W18", what: "keep others from a program: with an own process that ends, a full share, an old revision, or sessions without end", tests: []string{
		"gateway/breakers:TestAttack_OneCallerEndsItsProgram", "gateway/directory:TestAttack_CallerWhoseShareIsTakenKeepsNobodyOut",
		"gateway/directory:TestAttack_OldVersionAtASharedServer", "gateway/transport/mcp:TestAttack_SessionsAtServersWithoutEnd",
	}},
	{id: "W19", what: "as another gateway, call humans in the name of others, open or hold open a breaker, or flood with events of breakers", tests: []string{
		"test/stories:TestAttack_PeersLieAboutBreakers", "gateway/breakers:TestAttack_PeersOpenABreaker", "gateway/breakers:TestAttack_PeersFillTheMemory",
		"gateway/breakers/peers:TestAttack_StreamOfAPeerIsSilent", "gateway/breakers/peers:TestAttack_PeerFloods",
	}},
	{id: "W20", what: "read or complete the workflow of others, begin one in their name, have large ones read again and again, or spoil the steps of other members", tests: []string{
		"gateway:TestAttack_WorkflowsOfOthers", "gateway/workflow:TestAttack_LargeWorkflowsReadAgain",
		"lifecycle/workflow:TestAttack_MemberSpoilsTheStepsOfOthers",
	}},
	{id: "W21", what: "pass an agent's list of callers under the gateway's own name, which sends errands", tests: []string{
		"gateway:TestAttack_CallerWithTheGatewaysName",
	}},
	{id: "W22", what: "have a call sent that no human approved: another one than was approved, the same once more, or one under another policy", tests: []string{
		"gateway:TestAttack_GateIsAvoided",
		"TestAttack_ApprovalForAnotherCall", "TestAttack_ApprovalUsedTwice", "TestAttack_ApprovalUnderAnotherPolicy",
		"TestAttack_ApprovalOfATaskThatIsAnswered", "policy/hitl:TestAttack_Approval_OtherCallIsSent",
	}},
	{id: "W23", what: "decide about a call without the right to, in place of a second approver, after its end, or with a decision about another", tests: []string{
		"TestAttack_ApprovalByOneInsteadOfTwo", "TestAttack_ApprovalAfterTheEnd", "TestAttack_ApprovalOfAnotherWorkflow", "TestAttack_ApprovalWithoutARole",
		"policy/hitl:TestAttack_Approval_CallerGrantsItsOwn", "policy/hitl:TestAttack_Approval_OneApproverForFourEyes",
		"policy/hitl:TestAttack_Approval_RoleMissing", "policy/hitl:TestAttack_Approval_WithoutIdentity",
		"policy/hitl:TestAttack_Standing_LiftedWithoutItsRoles", "gateway/httpapi:TestAttack_Levels", "gateway/httpapi:TestAttack_Approvals_Decide",
		"gateway/httpapi:TestAttack_Approvals_Order", "gateway/httpapi:TestAttack_Approvals_Own", "gateway/httpapi:TestAttack_Approvals_Replay",
		"gateway/httpapi:TestAttack_Approvals_TokenIsNoCertificate",
	}},
	{id: "W24", what: "fill the approvals of all, or read those of others", tests: []string{
		"TestAttack_ApprovalsOfOneCallerFillAll", "gateway:TestAttack_Approvals_OfOneCaller", "TestAttack_ApprovalOfOthersIsRead", "gateway/httpapi:TestAttack_Approvals_StrangerLearnsNothing",
		"cmd/aepbctl/approvals:TestAttack_Approvals_EndlessList",
	}},
	{id: "W25", what: "have an approver read another text than what is sent", tests: []string{
		"TestAttack_ApprovalOfHostileText", "policy/hitl:TestAttack_Approval_OtherText", "policy/hitl:TestAttack_Show_EscapesAreNotForged",
		"policy/hitl:TestAttack_Show_HiddenCharacters", "policy/hitl:TestAttack_Show_NotWhole",
		"cmd/aepbctl/approvals:TestAttack_Approvals_TextOfAnotherHash", "cmd/aepbctl/approvals:TestAttack_Approvals_Terminal",
	}},
	{id: "W26", what: "have work undone that is not one's own, read a state that another agent deposited, or deposit one in the workflow of others", tests: []string{
		"gateway:TestAttack_OutsiderRollsBack", "gateway:TestAttack_CascadeIntoOthersBranches", "gateway:TestAttack_GroupOverOthers", "gateway:TestAttack_StateOfAnotherAgent",
		"test/stories:TestAttack_Checkpoints_OutsiderDeposits", "test/stories:TestAttack_Checkpoints_StateOfAnother", "test/stories:TestAttack_Checkpoints_IDOfAnother", "test/stories:TestAttack_Rollbacks_WithoutTheRole", "test/stories:TestAttack_Rollbacks_IDOfACheckpoint", "cmd/aepbctl/rollback:TestAttack_Checkpoints_EndlessList",
	}},
	{id: "W27", what: "fill the checkpoints of a workflow, so that the consequential steps of others are refused", tests: []string{
		"gateway:TestAttack_CheckpointsOfOneMember",
	}},
	{id: "W28", what: "report errors of steps that are not one's own, so that they fail or are undone", tests: []string{
		"gateway:TestAttack_FalseErrors",
	}},
	{id: "W29", what: "vote in a round that is not one's own, for another, twice, again in another round, or as many members that join during it", tests: []string{
		"TestAttack_Consensus_OutsiderVotes", "TestAttack_Consensus_VoteOfAnother", "TestAttack_Consensus_TwoVotes", "TestAttack_Consensus_VoteOfAnotherRound",
		"TestAttack_Consensus_MembersJoinDuringARound",
	}},
	{id: "W30", what: "take all consensus rounds, hold one open by silence, or have the gateway work on hostile messages", tests: []string{
		"TestAttack_Consensus_TenThousandRounds", "TestAttack_Consensus_SilentParticipant", "TestAttack_Consensus_HostileMessages",
	}},
	{id: "W31", what: "find consensus rounds of others, or learn how others have voted before the outcome", tests: []string{
		"TestAttack_Consensus_OutsiderEnumerates", "TestAttack_Consensus_VotesBeforeTheTally",
	}},
	{id: "W32", what: "have operators called about an outcome that was never signed, or again and again", tests: []string{"TestAttack_Consensus_FalseDispute"}},
	{id: "W33", what: "write lines of its own into the terminal of who looks at a round", tests: []string{"cmd/aepbctl:TestAttack_ConsensusForgesTerminalLines"}},
	{id: "W34", what: "have a replica with a wrong clock take votes late, or decide a round early", tests: []string{"gateway/consensus:TestAttack_ClockOfAReplica"}},
	{id: "W35", what: "have an agreement of agents make a call that its proposer may not make", tests: []string{"TestAttack_Consensus_BorrowedAuthority"}},
	{id: "W36", what: "choose with the name of a file where it is saved", tests: []string{"cmd/aepbctl/send:TestAttack_FileNamesOfAnswers"}},
	{id: "W37", what: "change evidence that was kept so that it still verifies", tests: []string{"cmd/aepbctl/evidence:TestAttack_AnyByteOfEvidence"}},
	{id: "W38", what: "have the CA of a set-up sign a name of its own, or what it did not issue", tests: []string{
		"cmd/aepb-gateway/trial:TestAttack_NamesOfCertificates", "cmd/aepb-gateway/trial:TestAttack_RenewWhatTheCADidNotSign",
	}},
	{id: "W39", what: "make the verification of evidence cost much, or write to the terminal", tests: []string{
		"ect/audit:TestAttack_Judge_CostOfForgedTokens", "cmd/aepbctl/proof:TestAttack_Reader_Archives", "cmd/aepbctl/proof:TestAttack_Reader_FindingsAreBounded", "cmd/aepbctl/evidence:TestAttack_Verify_JSONOnATerminal",
	}},
	{id: "W40", what: "learn as an agent who approved a call, or what other agents of the workflow were asked", tests: []string{"gateway:TestAttack_TokensOfOthersSentAlong"}},
	{id: "W41", what: "be another caller with an API key of one's own, or by guessing secrets of keys", tests: []string{
		"TestAttack_KeyOfAnother", "TestAttack_SecretsOfKeysAreGuessed",
	}},
	{id: "W42", what: "get as an agent, or as a host that it names, a credential that is not meant for it: another host's, the caller's own, or another caller's", tests: []string{
		"TestAttack_AgentRedirectsForACredential", "TestAttack_CardNamesAHostForACredential", "TestAttack_AgentWantsTheCallersToken",
	}},
	{id: "W43", what: "learn of tools, or call them, that a rule does not offer", tests: []string{"test/stories:TestAttack_ToolsOfOthers"}},
	{id: "W44", what: "fill the queue of an agent, so that the calls of others are refused", tests: []string{"gateway:TestAttack_QueueFilledByOneCaller"}},
	{id: "C1", what: "have a failure of one's own undo what another caller built on the part of an agent, or what is said to be rolled back", tests: []string{
		"lifecycle/rollback:TestAttack_WorkBuiltOnAPart", "lifecycle/rollback:TestAttack_ForgedRollbackResult",
	}},
	{id: "C2", what: "have a failure undo what another caller built after its branch was found, or have a grant count for another question than its own", tests: []string{
		"gateway:TestAttack_WorkBuiltWhileACascadeWaits", "gateway:TestAttack_GrantOfOneOfTwoQuestions",
		"gateway:TestAttack_QuestionUnderAUsedID", "gateway:TestAttack_GrantOfAnotherReason",
	}},
	{id: "C3", what: "fill a workflow so that what follows from failures is looked for again and again, and no human decides, or one's share of the store so that they leave no error", tests: []string{
		"gateway:TestAttack_FailureInAWorkflowTooLarge", "gateway:TestAttack_FailureWithAFullShare",
	}},
	{id: "C5", what: "begin a critical node of a plan with work of one's own, so that no human looks before the real step is undone", tests: []string{
		"lifecycle/rollback:TestAttack_CriticalNodeBegunByOthers",
	}},
	{id: "C4", what: "have a place at an agent without giving it back, more than a share of them, or before calls of a higher class", tests: []string{
		"gateway:TestAttack_QuestionWithoutAnAnswer", "gateway:TestAttack_QueueFilledByLowClasses", "gateway:TestAttack_WorkflowForEachCall",
	}},
	{id: "X-M1", what: "have the gateway read more large answers than it has memory for", tests: []string{
		"TestAttack_LargeAnswersAtOnce", "gateway/transport/inflight:TestAttack_LargeRequestsOfLongStreams",
	}},
	{id: "X-B2", what: "hold the bytes that others need with slow bodies, or have an agent do work whose answer is thrown away", tests: []string{
		"TestAttack_LargeBodiesOfACallerOnNoList", "TestAttack_LargeAnswersAtOnce", "gateway/transport/inflight:TestAttack_TwoCallersHoldTheBytes",
		"gateway/transport/egress:TestAttack_AgentEndsItsStreamAfterALargeEvent",
	}},
	{id: "X-B1", what: "hold the circuit breaker of an agent open for others: by failures at an agent that no other has asked, with probes that fail, or as two callers", tests: []string{
		"gateway/breakers:TestAttack_OneCallerOpensAFreshBreaker", "gateway/breakers:TestAttack_OneCallerHoldsABreakerOpen",
		"gateway/breakers:TestAttack_TwoCallersOpenABreaker",
	}},
	{id: "X-E1", what: "as an agent, answer a request before it is sent, or keep a request waiting by reading nothing", tests: []string{
		"gateway/transport/egress:TestAttack_ServerAnswersTheNextRequest", "gateway/transport/egress:TestAttack_ServerAnswersWithoutReading",
	}},
	{id: "X-E2", what: "close the idle connections of others by naming many servers", tests: []string{"gateway/transport/egress:TestAttack_ManyServersTakeIdleConnections"}},
	{id: "X-R16", what: "have new work taken by an agent that drains, in the name of a workflow of others or of one that had no work there", tests: []string{"test/stories:TestAttack_WorkflowOfOthersDuringADrain"}},
	{id: "X-W1", what: "stop the webhooks and callbacks of others to a host, with posts of one's own that fail there", tests: []string{
		"gateway/breakers:TestAttack_WebhooksOfOneCallerStopAnothers", "gateway/transport/egress:TestAttack_PostsOfOneCallerStopAnothers",
	}},
	{id: "X-P1", what: "as a listed gateway, become a member of others' workflows and make others members, by a lie about its user", tests: []string{
		"policy/membership:TestAttack_GatewayLiesAboutItsUser", "policy/membership:TestAttack_GatewayNamesAThirdParty",
	}},
	{id: "X-M2", what: "keep a processor busy with an agent whose card has very many skills, and names that it does not have", tests: []string{
		"translators/a2a:TestAttack_CardOfManySkills", "gateway/directory:TestAttack_UnknownNamesCostMuch",
	}},
	{id: "X-L2", what: "read a program's secrets in the log", tests: []string{"gateway/transport/stdio:TestAttack_ProgramWritesItsSecretIntoTheLog"}},
	{id: "X-L3", what: "as a program, read the environment and memory of the gateway, and use what its starter left open", tests: []string{"gateway/transport/stdio:TestAttack_ProgramReadsTheGateway"}},
	{id: "X-L5", what: "have a browser send messages to agents from a page of another origin", tests: []string{"gateway/transport/a2a:TestAttack_PageOfAnotherOrigin"}},
	{id: "X-L8", what: "keep the other members of a workflow from registering callbacks", tests: []string{"gateway/webhook:TestAttack_OneMemberTakesAllCallbacks"}},
	{id: "X-R1", what: "fill the memory of used tokens, so that the tokens and proofs of all others are refused", tests: []string{
		"TestAttack_IssuersFillTheMemoryOfUsedTokens", "gateway/attest:TestAttack_CallerFillsTheShareOfAnAgent",
	}},
	{id: "X-K1", what: "use a workload proof that does not say when it was issued again after a restart", tests: []string{
		"ect/identity/credential:TestAttack_ProofWithoutIssueTimeAfterARestart",
	}},
	{id: "X-S2", what: "hold all places of programs with some identities, so that the calls of others are refused", tests: []string{
		"gateway/transport/stdio:TestAttack_ElevenIdentitiesHoldAllPrograms",
	}},
	{id: "X-S1", what: "end a program that callers share, so that the calls of others fail and its breaker opens", tests: []string{
		"gateway/transport/stdio:TestAttack_LargeMessageToABusySharedProgram", "gateway/transport/stdio:TestAttack_ToolThatEndsASharedProgram",
		"gateway/breakers:TestAttack_CallersEndASharedProgram",
	}},
	{id: "O1", what: "be another caller, or any, by an access token that is forged, old, of another issuer, for another endpoint, or shown in another place", tests: []string{
		"TestAttack_AccessTokens", "TestAttack_AccessTokensWhileTheIssuerIsAway", "ect/identity/oauth:TestAttack_AccessTokenForms",
		"ect/identity/oauth:TestAttack_AccessTokenPlaces", "ect/identity/oauth:TestAttack_IssuerMetadata",
	}},
	{id: "O2", what: "have the id of a caller with an access token by a certificate or a JWT-SVID, or that of a certificate by a token", tests: []string{"TestAttack_CertificateAmongTokens", "TestAttack_AccessTokens"}},
	{id: "O3", what: "have issuers asked without end, or keep the tokens of others from being judged, by unknown keys and random tokens", tests: []string{
		"TestAttack_OpaqueTokensLockOutOthers", "ect/identity/oauth:TestAttack_UnknownKidsAskTheIssuer", "ect/identity/oauth:TestAttack_FloodOfOpaqueTokens",
	}},
	{id: "O4", what: "find out which agents exist by the metadata of their endpoints", tests: []string{"TestAttack_MetadataTellNoAgents"}},
	{id: "O5", what: "have no opaque token of others judged, by tokens that the introspection server refuses as odd", tests: []string{"TestAttack_OddOpaqueTokens"}},
	{id: "O6", what: "have the tokens of others wait for a slow issuer, by tokens with unknown keys", tests: []string{"ect/identity/oauth:TestAttack_UnknownKeysOfASlowIssuer"}},
	{id: "T1", what: "get the token that an agent had by a former configuration at its new place, by a fetch that is under way at a reload", tests: []string{
		"gateway/transport/credentials:TestAttack_FetchOfFormerConfiguration",
	}},
	{id: "T9", what: "stop the calls of others to an agent for which tokens are exchanged, with a token at which the token endpoint fails", tests: []string{
		"gateway/transport/credentials:TestAttack_TokenThatBreaksTheEndpoint",
	}},
	{id: "T2", what: "call a tool that is not offered by the name that another is shown under, through a gateway or an agent of the same protocol", tests: []string{
		"gateway/routing:TestAttack_OtherNameReachesItsNamesake",
	}},
	{id: "T3", what: "select a skill that is not offered beside a call of one that is", tests: []string{"gateway/routing:TestAttack_TwoNamesInOneMessage"}},
	{id: "T4", what: "have an agreement of agents say in words, or as data, what its proposer may not call", tests: []string{"TestAttack_Consensus_ToolOfAnother"}},
	{id: "T5", what: "have the id of a caller with an access token, without its scopes, over SLIM or µACP", tests: []string{
		"gateway/transport/slim:TestAttack_CallerAmongTokensOverSLIM", "gateway/transport/uacp:TestAttack_CertificateAmongTokensOverUACP",
	}},
	{id: "T6", what: "read names and schemas of tools that are not offered in the extension of an agent's card", tests: []string{"translators/a2a:TestAttack_CardOfWithheldSkills"}},
	{id: "T7", what: "read of skills that are not offered in the extended card of their agent", tests: []string{"test/stories:TestAttack_ExtendedCardOfWithheldSkills"}},
	{id: "T8", what: "have requests with an opaque token wait in turn for an issuer that is silent", tests: []string{"ect/identity/oauth:TestAttack_RequestsQueueForASilentIssuer"}},
}

// TestAttack_IndexIsComplete: every finding has a row, in order and once; every row
// names tests, or says why there is none; every test that is named exists, says in a
// comment what is attacked, can fail and is never skipped; and every test of an attack
// in the source tree stands in the index.
func TestAttack_IndexIsComplete(t *testing.T) {
	t.Parallel()
	const self = "test/attacks:TestAttack_IndexIsComplete"
	found, indexed := attackTests(t), map[string]bool{self: true}
	var ids []string
	for _, row := range attackIndex {
		ids = append(ids, row.id)
		state, reason, _ := strings.Cut(row.untested, ": ")
		stated := slices.Contains([]string{"open", "accepted", "documented"}, state) && reason != ""
		if row.what == "" || stated != (len(row.tests) == 0) || !stated && row.untested != "" {
			t.Errorf("%s: says %q, names %d tests, and %q", row.id, row.what, len(row.tests), row.untested)
		}
		for _, name := range row.tests {
			if !strings.Contains(name, ":") {
				name = "test/attacks:" + name
			}
			indexed[name] = true
			f, ok := found[name]
			if !ok {
				t.Errorf("%s: there is no %s", row.id, name)
				continue
			}
			if reason := attackTestFault(f); reason != "" {
				t.Errorf("%s: %s %s", row.id, name, reason)
			}
		}
	}
	for name := range found {
		if !indexed[name] {
			t.Errorf("%s stands in no row", name)
		}
	}
	if want := findingIDs(); !slices.Equal(ids, want) {
		t.Errorf("the rows are %s, want %s", ids, want)
	}
}

// findingIDs are the ids of all findings, in order.
func findingIDs() []string {
	var ids []string
	for n := 1; n <= 17; n++ {
		if n == 5 {
			ids = append(ids, "5a", "5b")
			continue
		}
		ids = append(ids, strconv.Itoa(n))
	}
	for item := 'a'; item <= 'l'; item++ {
		ids = append(ids, "18"+string(item))
	}
	for n := 1; n <= 8; n++ {
		ids = append(ids, "H"+strconv.Itoa(n))
	}
	return append(ids, "F1", "F2", "F3", "F6", "F18", "F19", "N1", "N2", "N4", "N5", "N6", "N7", "N8", "W1", "W2", "W3", "W4", "W5", "W6", "W7", "W8", "W9", "W10", "W11", "W12", "W13", "W14", "W15", "W16", "W17", "W18", "W19", "W20", "W21", "W22", "W23", "W24", "W25", "W26", "W27", "W28", "W29", "W30", "W31", "W32", "W33", "W34", "W35", "W36", "W37", "W38", "W39", "W40", "W41", "W42", "W43", "W44", "C1", "C2", "C3", "C5", "C4", "X-M1", "X-B2", "X-B1", "X-E1", "X-E2", "X-R16", "X-W1", "X-P1", "X-M2", "X-L2", "X-L3", "X-L5", "X-L8", "X-R1", "X-K1", "X-S2", "X-S1", "O1", "O2", "O3", "O4", "O5", "O6", "T1", "T9", "T2", "T3", "T4", "T5", "T6", "T7", "T8")
}

// attackTests are the tests of attacks in the source tree, by FOLDER:NAME.
func attackTests(t *testing.T) map[string]*ast.FuncDecl {
	t.Helper()
	found := map[string]*ast.FuncDecl{}
	root := filepath.Join("..", "..")
	gatewaytest.Must(t, filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			if file != root && (name == "node_modules" || name == "testdata" || strings.HasPrefix(name, ".")) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(text, []byte("\nfunc TestAttack")) {
			return err
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, text, parser.ParseComments)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(file))
		if err != nil {
			return err
		}
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "TestAttack") {
				found[path.Clean(filepath.ToSlash(folder))+":"+f.Name.Name] = f
			}
		}
		return nil
	}))
	return found
}

// attackTestFault is why a test does not prove anything; "": it may.
func attackTestFault(f *ast.FuncDecl) string {
	if f.Doc.Text() == "" {
		return "does not say what is attacked"
	}
	if f.Body == nil || len(f.Body.List) == 0 {
		return "does nothing"
	}
	fault := ""
	ast.Inspect(f.Body, func(n ast.Node) bool {
		if call, ok := n.(*ast.SelectorExpr); ok && slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, call.Sel.Name) {
			fault = "may be skipped"
		}
		return true
	})
	return fault
}
