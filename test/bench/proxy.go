package main

import (
	"net/http"
	"net/http/httputil"
	"net/url"
)

// newProxy is the standard library's reverse proxy in front of the MCP server.
func newProxy(s script) (http.Handler, error) {
	upstream, err := url.Parse(s.Upstream)
	if err != nil {
		return nil, err
	}
	client, err := s.client()
	if err != nil {
		return nil, err
	}
	return &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(upstream) },
		Transport: client.Transport,
	}, nil
}
