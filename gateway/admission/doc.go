// Package admission decides whether a message is let in (architecture section 5, steps 2 to 6).
// limits.go takes requests from the share of their source.
package admission
