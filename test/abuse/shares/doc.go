// Package shares is the act of command abuse in which identities with valid certificates
// try to have more than their share of a gateway with the default limits, all of them at
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
// A caller who does nothing wrong meanwhile makes its 50 calls a second at the same agents.
// These are violations: fewer than 99 of 100 of its calls answered with their own answers;
// more memory than check-config says; in runs of a minute or more a p99 of more than three
// times that of a fresh gateway on a machine that is as busy; and an attack that never ran.
// Over the first backend the gateway has the container for which its limits are meant: a
// memory cgroup of 1 GiB where one can be made, else its soft limit alone; the table says
// which. Attacks have a pace: CPU has no shares, and what is proved is what memory, places
// and breakers are to the good caller.
//
// Webhooks are not among them: this gateway posts to no address of this machine, so that the
// good caller can have no webhook here.
//
// How to read it: agent.go is what the agents do for the attackers; attack.go is the
// attacking process, and hostile.go what each identity does. Command abuse decides.
//
// Alternative considered: these identities beside the other attacks. That gateway is one of
// a large container, whose bound no answer comes near.
package shares
