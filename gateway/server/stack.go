package server

import (
	"net/http"
	"runtime"
)

// stackOfCall is about how much stack a call needs, in bytes. With it a goroutine has 32 KiB.
const stackOfCall = 24 << 10

// grown grows the stack of an HTTP/2 request once. net/http gives each its own goroutine, whose
// 2 KiB would be doubled and copied again and again on the way down. The goroutine of an HTTP/1.1
// connection keeps what it has grown to.
func grown(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor > 1 {
			growStack()
		}
		next.ServeHTTP(w, r)
	})
}

//go:noinline
func growStack() {
	var space [stackOfCall]byte
	runtime.KeepAlive(&space)
}
