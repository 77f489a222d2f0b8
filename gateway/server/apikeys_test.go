package server_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity/apikey"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/server"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
	"github.com/aepb/aepb-gateway/test/harness/grpctest"
)

// reports is a caller with an API key.
const reports = ect.Identity("spiffe://" + gatewaytest.TrustDomain + "/reports")

// makeKey is a new key that works for a while.
func makeKey(t *testing.T, id string, caller ect.Identity, life time.Duration) (apikey.Key, string) {
	t.Helper()
	now := time.Now()
	key, text, err := apikey.New(id, caller, now.Add(-time.Hour), now.Add(life))
	gatewaytest.Must(t, err)
	return key, text
}

func writeKeys(t *testing.T, file string, keys ...apikey.Key) {
	t.Helper()
	text, err := apikey.Format(keys)
	gatewaytest.Must(t, err)
	gatewaytest.Must(t, os.WriteFile(file, text, 0o600))
}

// TestAPIKeys_FileChanges: a key that is taken out of the file is refused from the next look on, also while the
// configuration has a mistake. A file that is broken changes nothing, and keeps no new SVID out.
func TestAPIKeys_FileChanges(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "keys.yaml")
	first, text := makeKey(t, "first", reports, time.Hour)
	second, other := makeKey(t, "second", reports, time.Hour)
	writeKeys(t, file, first, second)
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true, Config: config.Config{APIKeys: config.APIKeys{File: file}}})
	c := gatewaytest.OnFiles(b)
	settings, conf := c, filepath.Join(dir, "c.json")
	written, err := json.Marshal(map[string]any{"api_keys": map[string]string{"file": file}})
	gatewaytest.Must(t, err)
	gatewaytest.Must(t, os.WriteFile(conf, written, 0o600))
	from, err := server.ReadFile(conf)
	gatewaytest.Must(t, err)
	w := server.WatcherOf(b.Server, from)
	w.SetApply(func(ctx context.Context, _ config.Config) error { return b.Reload(ctx, settings) })

	call := func(key string) int {
		got := b.Send(t, gatewaytest.HTTPRequest{Via: b.Anonymous, At: "/agents/members/a2a", Header: map[string]string{apikey.Field: key}, Body: gatewaytest.AddBody(b.Number())})
		if got.Status == http.StatusUnauthorized && (got.Header.Get("WWW-Authenticate") == "" || key != "" && !strings.Contains(string(got.Body), "API key refused: unknown_key")) {
			t.Errorf("401 with %v %s", got.Header, got.Body)
		}
		return got.Status
	}
	want := func(what, key string, status int) {
		t.Helper()
		if got := call(key); got != status {
			t.Errorf("%s: got %d, want %d", what, got, status)
		}
	}
	want("the first key", text, 200)
	want("no key", "", 401)
	gatewaytest.Must(t, os.WriteFile(file, []byte("- {id: broken}\n"), 0o600))
	if refused := w.Look(t.Context()); !refused {
		t.Error("a broken file is taken")
	}
	want("beside a broken file", text, 200)
	writeKeys(t, file, second)
	if refused := w.Look(t.Context()); refused {
		t.Error("the file without the key is refused")
	}
	want("the key that was revoked", text, 401)
	want("the other key", other, 200)
	withMistake := settings
	w.SetApply(func(ctx context.Context, _ config.Config) error { return b.Reload(ctx, withMistake) })
	withMistake.PublicURL = ""
	writeKeys(t, file)
	if refused := w.Look(t.Context()); !refused {
		t.Error("a mistake in the configuration is taken")
	}
	want("revoked while the configuration has a mistake", other, 401)
	writeKeys(t, file, second)
	gatewaytest.Must(t, b.Reload(t.Context(), settings))
	want("the other key, back", other, 200)
	gatewaytest.Must(t, os.WriteFile(file, []byte("- {id: broken}\n"), 0o600))
	gatewaytest.PutSVID(t, b, b.SVID(t, "/gateway"))
	before := gatewaytest.Shown(t, b)
	if refused := w.Look(t.Context()); !refused || gatewaytest.Shown(t, b) == before {
		t.Errorf("a new SVID beside a broken file of keys: refused %t, and it is not shown", refused)
	}
	want("beside a broken file, again", other, 200)
	writeKeys(t, file, second)
	settings.APIKeys.File = ""
	gatewaytest.Must(t, b.Reload(t.Context(), settings))
	got := b.Send(t, gatewaytest.HTTPRequest{Via: b.Anonymous, At: "/agents/members/a2a", Header: map[string]string{apikey.Field: other}, Body: gatewaytest.AddBody(b.Number())})
	if got.Status != http.StatusUnauthorized {
		t.Errorf("a key without api_keys: %d", got.Status)
	}
	for _, secret := range []string{text, other} {
		if lines := b.Logs.Lines(secret[len("aepb_first_"):]); len(lines) > 0 {
			t.Errorf("the log has a secret: %s", lines)
		}
	}
}

// TestAPIKeys_AtTheListeners: what is refused over HTTP and gRPC, with and without a client certificate, and what is not.
func TestAPIKeys_AtTheListeners(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "keys.yaml")
	good, text := makeKey(t, "good", reports, time.Hour)
	ended, late := makeKey(t, "ended", reports, -time.Minute)
	own, mine := makeKey(t, "own", "spiffe://"+gatewaytest.TrustDomain+"/client", time.Hour)
	_, unknown := makeKey(t, "unknown", reports, time.Hour)
	_, wrong := makeKey(t, "good", reports, time.Hour)
	writeKeys(t, file, good, ended, own)
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true, Config: config.Config{APIKeys: config.APIKeys{File: file}}})
	jwt := b.NewTokenKey(t).Token(t, string(reports), b.Self(), time.Minute)
	for name, c := range map[string]struct {
		header    map[string]string
		query     string
		alone     int // without a certificate
		certified int // beside that of /client
		reason    string
	}{
		"good":              {map[string]string{apikey.Field: text}, "", 200, 400, "different workloads"},
		"as a bearer":       {map[string]string{"Authorization": "Bearer " + text}, "", 200, 400, "different workloads"},
		"of the client":     {map[string]string{apikey.Field: mine}, "", 200, 200, ""},
		"ended":             {map[string]string{apikey.Field: late}, "", 401, 401, "expired"},
		"unknown":           {map[string]string{apikey.Field: unknown}, "", 401, 401, "unknown_key"},
		"wrong secret":      {map[string]string{apikey.Field: wrong}, "", 401, 401, "unknown_key"},
		"not UTF-8":         {map[string]string{apikey.Field: "aepb_\xff"}, "", 401, 401, "malformed_token"},
		"too long":          {map[string]string{apikey.Field: text + strings.Repeat("A", 99)}, "", 401, 401, "token_too_long"},
		"in both":           {map[string]string{apikey.Field: text, "Authorization": "Bearer " + text}, "", 401, 401, "repeated_credential"},
		"two keys":          {map[string]string{apikey.Field: mine, "Authorization": "Bearer " + text}, "", 401, 401, "repeated_credential"},
		"in the URL":        {nil, "?api_key=" + text, 401, 401, "stands in the URL"},
		"in the URL too":    {map[string]string{apikey.Field: mine}, "?k=" + mine, 401, 401, "stands in the URL"},
		"of another server": {map[string]string{apikey.Field: "sk-1"}, "", 401, 200, "no acceptable"},
		"beside a JWT-SVID": {map[string]string{apikey.Field: "sk-1", "Authorization": "Bearer " + jwt}, "", 200, 400, "different workloads"},
	} {
		for via, want := range map[*http.Client]int{b.Anonymous: c.alone, b.Client: c.certified} {
			got := b.Send(t, gatewaytest.HTTPRequest{Via: via, At: "/agents/members/a2a" + c.query, Header: c.header, Body: gatewaytest.AddBody(b.Number())})
			if got.Status != want || want != http.StatusOK && !strings.Contains(string(got.Body), c.reason) {
				t.Errorf("%s, certificate %t: got %d %s, want %d %q", name, via == b.Client, got.Status, got.Body, want, c.reason)
			}
			if strings.Contains(string(got.Body), "aepb_") {
				t.Errorf("%s: the answer quotes the key: %s", name, got.Body)
			}
		}
	}
	remote := b.Remote(t, b.ClientTLS(t, nil))
	message := grpctest.Request(t, "SendMessage", strings.ReplaceAll(gatewaytest.AddTo, "calculator", "members"))
	for _, c := range [][3]string{
		{"x-api-key", text, "OK"},
		{"authorization", "Bearer " + text, "OK"},
		{"x-api-key", late, "UNAUTHENTICATED"},
		{"authorization", "Bearer " + wrong, "UNAUTHENTICATED"},
	} {
		if got := remote.Call(t.Context(), "SendMessage", [][]byte{message}, c[0], c[1]); got.Code != c[2] {
			t.Errorf("over gRPC, %s %.12s: got %s %s, want %s", c[0], c[1], got.Code, got.Details, c[2])
		}
	}
	for _, secret := range []string{text, late, mine, unknown, wrong} {
		if lines := b.Logs.Lines(secret[strings.LastIndex(secret[:14], "_")+1:]); len(lines) > 0 {
			t.Errorf("the log has a secret: %s", lines)
		}
	}
}
