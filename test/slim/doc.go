// Package slim tests our SLIM stack against real SLIM software: a node and
// applications from the binding that SLIM's makers publish, run by the Node that
// stands among the dependencies in js/. They are installed by "make tools", or
// by the first test that needs them. That binding is of SLIM 2; the one for Python,
// in python/, is of SLIM 3, and "make interop" installs and runs it.
package slim
