package httpapi_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/httpapi"
	"github.com/aepb/aepb-gateway/policy/membership"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
)

// The time for reading a request is not the time for answering it.
func TestReadTimeout_DoesNotLimitResponse(t *testing.T) {
	t.Parallel()
	const limit = 200 * time.Millisecond
	registry, err := translators.NewRegistry(a2a.New(translators.Config{}))
	if err != nil {
		t.Fatal(err)
	}
	slow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil {
			t.Error(err)
		}
		select {
		case <-time.After(3 * limit):
		case <-r.Context().Done():
			t.Error("the request was ended")
		}
		w.WriteHeader(http.StatusAccepted)
	})
	store := ecttest.NewStore()
	members, err := membership.New(membership.Deps{Store: store, Self: "spiffe://example.com/gateway"})
	if err != nil {
		t.Fatal(err)
	}
	handler, err := httpapi.Public(httpapi.PublicDeps{
		Handler: &fakeHandler{}, Undo: httpapi.Undo{Rollbacker: &fakeHandler{}}, Registry: registry, Endpoints: httpapi.Endpoints{"/slow": slow}, EvidenceDeps: httpapi.EvidenceDeps{Evidence: store, Members: members},
		BaseURL: func(*http.Request) string { return "" }, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(handler)
	server.Config.ReadTimeout = limit
	server.Start()
	defer server.Close()
	defer server.Client().CloseIdleConnections()
	for _, body := range []io.Reader{strings.NewReader("{}"), http.NoBody, io.MultiReader(strings.NewReader("{}"))} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/agents/a/slow", body)
		if err != nil {
			t.Fatal(err)
		}
		response, err := server.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		if _ = response.Body.Close(); response.StatusCode != http.StatusAccepted {
			t.Errorf("got %d", response.StatusCode)
		}
	}
}
