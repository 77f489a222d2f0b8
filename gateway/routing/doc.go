// Package routing finds where and how an admitted message is sent (architecture section 5, step
// 7a): the endpoint in a version that suits both sides, and the capability that the message
// is for, under the agent's own name of it. sides.go is what both sides have in common,
// routing.go the route, capability.go the look-up of names, choice.go the question which tool is
// meant by a message that names none.
package routing
