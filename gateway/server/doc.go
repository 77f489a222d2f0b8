// Package server puts a gateway together and runs it: identity, state, protocols, pipeline and listeners.
//
// A program that runs one:
//
//	sockets, err := server.Listen(settings.Listen)
//	config, err := server.Production(settings, nil, logger) // or server.Development
//	config.Sockets, config.Program = sockets, server.Program{Version: "1.0.0"}
//	gateway, err := server.Build(config)
//	err = gateway.Run(ctx)
//
// A protocol is a [Protocol], which a [Factory] makes from what a gateway has for it ([Env]). Those of package
// translators/builtin are in the table of carriers, and [Config] takes others beside them.
package server
