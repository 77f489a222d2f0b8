package a2a

import (
	"strings"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/jsonrpc"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// FormGRPC is the form of A2A 1.0 over gRPC (A2A 10), by the name that cards
// give it. Read and written here is the JSON of its messages; whoever holds the
// connection turns that into the octets that travel (gateway/transport.Framer).
// A request's method is its Path, and an error is that of the HTTP form.
const FormGRPC = "GRPC"

// ServiceGRPC is what every method's path begins with.
const ServiceGRPC = "/lf.a2a.v1.A2AService/"

// unpaired reports whether a form has no ids, since the connection pairs
// request and reply.
func unpaired(form string) bool { return form == FormHTTP || form == FormGRPC }

// readGRPC reads a message as what JSON-RPC would have around it. A request
// that says no method is a message, as in the HTTP form.
func readGRPC(w translators.Wire, cfg translators.Config) (jsonrpc.Message, error) {
	if Spoken(w.Version) != Version && w.Version != "" {
		return jsonrpc.Message{}, unsupportedVersion()
	}
	if len(w.Body) > 0 || w.Re == "" {
		if err := rawjson.Check(w.Body, cfg.BodyLimit, cfg.Depth); err != nil {
			return jsonrpc.Message{}, err
		}
	}
	if w.Re != "" {
		return readHTTP(w)
	}
	method := methodSend
	if w.Path != "" {
		name, ok := strings.CutPrefix(w.Path, ServiceGRPC)
		if !ok || operationOf(name, Version) == nil {
			return jsonrpc.Message{}, &canonical.Error{Code: canonical.CodeNoMethod, Message: "no such operation"}
		}
		method = name
	}
	return jsonrpc.Message{Method: method, Params: w.Body}, objectError(w.Body)
}
