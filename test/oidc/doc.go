// Package oidc has the official MCP SDK of Go call through the gateway with tokens of zitadel/oidc, an authorization
// server of another make than that of test/interop: its metadata are those of OpenID Connect alone, its access tokens have the typ
// JWT, and in aud stands the client and not the resource that was asked for. It is a module of its own, for the libraries of that server.
package oidc
