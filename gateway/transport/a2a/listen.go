package a2a

import (
	"net/http"

	"github.com/aepb/aepb-gateway/gateway/transport/reply"
	"github.com/aepb/aepb-gateway/translators"
	form "github.com/aepb/aepb-gateway/translators/a2a"
)

// event is a message of an agent's stream, if it belongs to the request.
func (d *Dialer) event(peer reply.Peer, sent translators.Wire, header http.Header, data []byte) (translators.Wire, error) {
	reason := ""
	if sent.Form != form.FormHTTP {
		reason = misfitRPC(sent.Body, fetched{status: http.StatusOK, body: data})
	} else if len(data) == 0 || data[0] != '{' {
		reason = "an event that is no object"
	}
	if reason != "" {
		return translators.Wire{}, peer.Bad(reason)
	}
	return d.heard(sent, header, data, http.StatusOK), nil
}
