package httpapi

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
)

// unhurried lifts the deadline for reading a request once it has been read.
// Over HTTP/1.1 it would else end the request itself, however long the agent
// may take (net/http, Server.ReadTimeout).
func unhurried(c *gin.Context) {
	lift := func() {
		_ = http.NewResponseController(c.Writer).SetReadDeadline(time.Time{}) // where there is none, none has to be lifted
	}
	if c.Request.ContentLength == 0 {
		lift()
		return
	}
	c.Request.Body = &watchedBody{c.Request.Body, lift}
}

// watchedBody says when all of it was read.
type watchedBody struct {
	io.ReadCloser
	over func()
}

// Read implements io.Reader.
func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.over()
	}
	return n, err
}
