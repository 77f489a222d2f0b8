// Package shares is the act of command abuse in which identities with valid certificates
// try to get more than their share of a gateway with the default limits, all of them at
// once, over each backend:
//
//	answers         126 calls at once, which the agent answers all at the same moment with
//	                12 MB, of a length that it announces, or in pieces
//	read, unread    128 streams each, of 300 artifacts of 50 KB and then silence, which the
//	                identity reads, or does not
//	holder          calls that the agent fails because their message says so: five, and then
//	                one at each Retry-After
//	pair-*          two identities with 45 such calls a second each
//	slow-*          two identities with two bodies of 8 MiB each, at 16 KiB a second
//	tokens          messages with 8 roots each that reach no agent, 1,000 a second
//	tokens-*        two identities with 47 such messages a second each
//
// The last two attack only if --identities names them.
//
// Meanwhile a caller that does nothing wrong makes its 50 calls a second at the same agents.
// These are violations: fewer than 99 of 100 of its calls get their own answers; more memory
// than check-config computes; in runs of a minute or more, a p99 above three times that of a
// fresh gateway on a machine that is as busy; and an attack that never ran. Over the first
// backend the gateway runs in the container for which its limits are meant, a memory cgroup
// of 1 GiB, if the machine allows one; otherwise it has its soft limit alone. The table says
// which. Attacks have a rate, since CPU has no shares: the test is about the memory, places
// and breakers that remain for the good caller.
//
// There are no webhooks among the attacks: the gateway posts to no address of this machine,
// so the good caller cannot have a webhook here.
//
// How to read it: agent.go has what the agents do for the attackers; attack.go is the
// attacking process, and hostile.go has what each identity does. Command abuse finds the violations.
//
// Alternative considered: these identities beside the other attacks. That gateway is sized
// for a large container, whose limits these answers do not reach.
package shares
