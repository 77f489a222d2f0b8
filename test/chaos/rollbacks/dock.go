package rollbacks

import (
	"net/http"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/test/harness/wait"
	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// serveDock serves an agent that rolls back itself, when it is asked where ATD says.
func serveDock(trust *devgateway.Trust) (*hotel, error) {
	h, err := serveHotel(trust, agentDock)
	if err != nil {
		return nil, err
	}
	h.signer, err = signerOf(h.server.TLS.Certificates[0])
	return h, err
}

// rollsBack answers a request for a rollback. What it is asked is noted under the workflow.
func (h *hotel) rollsBack(w http.ResponseWriter, r *http.Request, body []byte) {
	request, _, err := ect.ParseUnverified(firstToken(r.Header))
	if err != nil || request.Act != ect.ActRollbackRequest || len(request.Parents) == 0 {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	d := deed{tool: toolBack, args: args{ID: request.Workflow}, token: request.ID, hash: ect.Hash(body)}
	h.note(d)
	if !wait.Pause(r.Context(), answersIn) {
		return
	}
	ext := ect.Ext{}
	ext.SetString(ect.ExtStatus, "completed")
	ext.SetString(ect.ExtCheckpointID, string(request.Parents[0]))
	result, err := h.signer.Sign(ect.Claims{
		Act: ect.ActRollbackResult, Audience: []string{string(request.Issuer)}, Workflow: request.Workflow,
		Parents: []ect.ID{request.ID}, OutputHash: ect.Hash([]byte("as it was")), Ext: ext,
	})
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.Header().Set(ect.HeaderName, result.Compact())
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	h.answered(d)
}
