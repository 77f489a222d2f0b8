// Package slim tests our SLIM stack against real SLIM software: a node and applications
// from the bindings that SLIM's makers publish. The binding for JavaScript, in js/, is of
// SLIM 2; "make tools", or the first test that needs it, installs it. The binding for
// Python, in python/, is of SLIM 3; "make interop" installs and runs it.
package slim
