package translators

import "github.com/aepb/aepb-gateway/translators/canonical"

// ResourceProvider is implemented by a translator whose protocol lets callers list and
// read what was made for them (MCP resources). What is asked and answered is
// the protocol's own.
type ResourceProvider interface {
	// Seeks reads what a request looks for; nil: it is about something else. A
	// request that cannot be understood is a *canonical.Error.
	Seeks(*canonical.Native) (*ResourceQuery, error)
	// Shows answers it.
	Shows(ResourceResult) *canonical.Native
	// Embeds reports whether a part of a reply is written with a URI of its own,
	// and has none.
	Embeds(*canonical.Part) bool
}

// Seek is what one can look for.
type Seek string

// What can be looked for.
const (
	SeekList     Seek = "list"     // which holdings are there
	SeekPatterns Seek = "patterns" // how their URIs are made
	SeekOne      Seek = "one"      // what is in one of them
)

// ResourceQuery is a request for what was made.
type ResourceQuery struct {
	What   Seek
	URI    string // with SeekOne
	Cursor string // of the page; empty: the first
}

// ResourceResult is the answer to a ResourceQuery.
type ResourceResult struct {
	What      Seek
	Resources []Resource        // with SeekList and SeekPatterns
	Next      string            // cursor of the next page; empty: this was the last
	Contents  []ResourceContent // with SeekOne
}

// Resource is one thing that can be read.
type Resource struct {
	URI               string // with SeekPatterns a template of RFC 6570
	Name, Description string
	Media             string // empty: not said, or several
}

// ResourceContent is one piece of the content of a resource.
type ResourceContent struct {
	URI  string
	Part *canonical.Part
}
