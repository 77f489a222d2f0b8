// Package admission decides whether a message is let in (architecture section 5, steps 2 to
// 7). [Limits] takes a request from the share of its source before the body is read;
// [Service.Admit] makes an [Admitted] of the message, or says why not and how far it came.
//
// admit.go is the order of the steps, evidence.go the tokens that came with the message
// (step 4), permit.go what policy says (5), claim.go how tokens are used up and repetitions
// answered (5a), message.go what the message says and whether new work is taken (6, 7).
//
// # Alternatives considered
//
// To record tokens as soon as they verify: a message that policy refuses would then leave
// records in a workflow to which its caller does not belong (R14).
package admission
