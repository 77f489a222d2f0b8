// Package welcome is the page that a browser shows at the root of a development gateway: which agents there
// are, at which URLs, and how programs call them.
package welcome
