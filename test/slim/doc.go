// Package slim tests our SLIM stack against real SLIM software: a node and
// applications from the binding that SLIM's makers publish, run by the Node that
// stands among the dependencies in js/. They are installed by "make tools", or
// by the first test that needs them.
package slim
