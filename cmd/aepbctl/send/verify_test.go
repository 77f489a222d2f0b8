package send

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/client"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/evidence"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/evidence/evidencetest"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/program"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/reply"
	"github.com/aepb/aepb-gateway/ect/identity"
)

// TestVerify_ComparesEachMemberOfAFile: nothing in a file of aepbctl send can say otherwise than its tokens.
func TestVerify_ComparesEachMemberOfAFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	dev, err := identity.LoadOrCreate(dir, "aepb.dev", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	form, version, err := reply.Protocol("a2a-v1")
	if err != nil {
		t.Fatal(err)
	}
	records, err := client.Verify(t.Context(), dev.Bundle, evidencetest.Tokens(t, dev))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(exchange{from: "a2a-v1", request: []byte(evidencetest.SentBody), reply: []byte(evidencetest.GotBody), form: form, version: version, records: records}.delivery())
	if err != nil {
		t.Fatal(err)
	}
	last := text[bytes.LastIndex(text, []byte(`,{"jti"`)):bytes.LastIndex(text, []byte("]}"))]
	for name, c := range map[string]struct{ before, after, want string }{
		"sound":               {"", "", "complete: 3 records verified"},
		"reply":               {`"reply":{"jsonrpc"`, `"reply":{"jsonrpd"`, "the member reply of FILE is not the message of its member exact"},
		"rounded number":      {`"reply":{"jsonrpc":"2.0","id":"1","result":{"sum":9007199254740995}}`, `"reply":{"jsonrpc":"2.0","id":"1","result":{"sum":9007199254740996}}`, "the member reply of FILE is not the message of its member exact"},
		"bytes of the reply":  {`740995}}",`, `740996}}",`, "the member reply of FILE: NOT the message of any record"},
		"bytes of request":    {`"request":"{\"jsonrpc\"`, `"request":"{\"jsonrpd\"`, "the member request of FILE: NOT the message of any record"},
		"losses emptied":      {`"losses":["L19 carried /from/name"]`, `"losses":[]`, "the losses in FILE are not those of its tokens: 0 are listed, in the tokens are 1"},
		"losses changed":      {`"losses":["L19 carried`, `"losses":["L05 carried`, "the losses in FILE are not those of its tokens"},
		"issuer beside":       {`"iss":"spiffe://aepb.dev/gateway"`, `"iss":"spiffe://aepb.dev/other"`, `is not what the token says: iss is "spiffe://aepb.dev/other", in the token "spiffe://aepb.dev/gateway"`},
		"warnings beside":     {`"aepb.translation_warnings":["L19 carried /from/name"]`, `"aepb.translation_warnings":[]`, "is not what the token says: ext is "},
		"claim beside":        {`"exec_act":"send_task",`, ``, `is not what the token says: exec_act is missing, in the token "send_task"`},
		"workflow":            {`{"workflow":"`, `{"workflow":"0`, "which is the workflow of no token in it"},
		"state":               {`"state":"`, `"state":"not `, "the member state of FILE is "},
		"answer":              {`"answer":[`, `"answer":["yes",`, "the member answer of FILE is "},
		"question added":      {`"answer":`, `"task":"t","answer":`, "the member task of FILE was not looked at"},
		"protocol":            {`"from":"a2a-v1"`, `"from":"mcp-v1"`, `the member from of FILE is "mcp-v1", in its tokens it is `},
		"member added":        {`"losses":`, `"note":"paid","losses":`, "the member note of FILE was not looked at"},
		"member twice":        {`"losses":`, `"losses":[],"losses":`, "duplicate object member name"},
		"token twice":         {string(last), string(last) + string(last), "token 4 of FILE is token 3 again: it counts once"},
		"last token removed":  {string(last), "", "is a request without a reply"},
		"bytes removed":       {`"exact":{`, `"exact":{"third":"x",`, "the member exact.third of FILE was not looked at"},
		"text behind":         {`]}`, `]} {"paid":true}`, "the member paid of FILE was not looked at"},
		"problem beside":      {`"verified":true`, `"verified":false`, "complete: 3 records verified"}, // it is judged anew
		"page of a workflow":  {`"from":"a2a-v1",`, `"from":"a2a-v1","next":"cursor",`, "is one page of a workflow, and there are more"},
		"exact is no message": {`"exact":{`, `"exact":{"request":7,`, "the JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.before != "" && !bytes.Contains(text, []byte(c.before)) {
				t.Fatalf("nothing to change: %s", text)
			}
			changed := string(text)
			if i := strings.LastIndex(changed, c.before); c.before != "" {
				changed = changed[:i] + c.after + changed[i+len(c.before):]
			}
			file := filepath.Join(t.TempDir(), "sent.json")
			if err := os.WriteFile(file, []byte(changed), 0o600); err != nil {
				t.Fatal(err)
			}
			var out, errs bytes.Buffer
			code := program.Run(t.Context(), evidence.Commands, []string{"ect", "verify", "--dir", t.TempDir(), "--ca", filepath.Join(dir, "ca.pem"), file}, nil, &out, &errs)
			output := strings.ReplaceAll(out.String()+errs.String(), file, "FILE")
			holds := strings.HasPrefix(c.want, "complete")
			if !strings.Contains(output, c.want) || holds != (code == program.ExitOK) || holds != strings.Contains(output, "complete: ") {
				t.Errorf("exit code %d, want %q: %s", code, c.want, output)
			}
		})
	}
}
