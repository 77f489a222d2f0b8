// Package consent reads what a caller answers to the questions of an agent, and
// holds it against them before it leaves for the agent. An answer is never made up:
// "accept" reaches an agent only if the caller accepted that question, with values
// that fit its form.
//
// # What an answer is
//
// Each question has a key. An answer names it, except the answer to the only question
// there is, which need not. What each answer means is the same in every protocol:
//
//	accept   the user answers; the values fit the form of the question
//	decline  the user refuses to answer; values are not passed on
//	cancel   the user did not answer; it never becomes words of the user
//
// A client's error in place of an answer is none of the three.
//
// # How a message answers
//
// In protocols with answers of their own (MCP's elicitation results, the answers of an
// envelope, the part {"elicitation": {...}} of A2A messages) the action stands there.
// Where a caller sends a plain message to a task that asks one question:
//
//	a data part {"action": A}            the action A; with "content": the values
//	a data part with other members       accept, with these values, where the form requires a value; else no answer
//	text "decline" or "cancel"           that action, in any case of letters, unless it is a choice of the form
//	text "accept"                        accept, where nothing has to be filled in
//	text "done"                          accept, where the question was to visit a URL
//	other text                           accept, if the form wants one text, or one of several choices by value or title
//	nothing                              no answer: the question stays open
//
// Who says several things is refused: a word such as "no" beside an action that it does not
// mean, any other words beside {"action": "accept"} without content, and members of an answer that
// MCP does not define.
//
// Consent is an act: the word, or a value that the form requires. Where a form requires
// none ("Delete all?"), or the question is to visit a URL, values alone are refused, whatever
// they say, because {} and {"confirm": false} would be consent too. Values that a form does
// not name are refused where it names none, and everywhere if they look like another way of
// answering ("decline", "inputResponses" and the like, at any depth). A refusal says what is
// wanted: the choices, the format or the type.
//
// A question in free text takes every text as it is: it is a conversation. There only
// the data part {"action": A} declines or cancels.
package consent
