package gateway_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

const storeTask = `,"artifacts":[` +
	`{"artifactId":"a/1","name":"report","description":"all of it","parts":[{"text":"one"},{"data":{"n":1.50}},{"raw":"AP8=","filename":"o.bin","mediaType":"application/octet-stream"},` +
	`{"raw":"YSxi","mediaType":"text/csv"},{"raw":"iVA=","mediaType":"image/png"},{"url":"https://example.com/x.pdf","filename":"x.pdf"}]},` +
	`{"artifactId":"a2","parts":[{"text":"# two","mediaType":"text/markdown"}]}]`

// asksFor is a request of an MCP client about what was made for it.
func (s *stage) asksFor(version, method, params string) transport.Call {
	if version != mcp.Modern {
		return s.by(mcp.Binding, version, `{"jsonrpc":"2.0","id":8,"method":"`+method+`","params":{`+strings.TrimSuffix(params, ",")+`}}`)
	}
	return s.by(mcp.Binding, version, `{"jsonrpc":"2.0","id":8,"method":"`+method+`","params":{`+params+
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"C","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`)
}

func (s *stage) resources(t *testing.T, g transport.Handler, call transport.Call) (out struct {
	Resources, ResourceTemplates []struct{ URI, URITemplate, Name, Description, MimeType string }
	Contents                     []struct {
		URI, MimeType string
		Text, Blob    *string
	}
	NextCursor, ResultType, CacheScope string
}, answer transport.Answer,
) {
	t.Helper()
	answer = s.ask(t, g, call)
	var env struct{ Result json.RawMessage }
	if err := json.Unmarshal(answer.Wire().Body, &env); err != nil || json.Unmarshal(env.Result, &out) != nil {
		t.Fatalf("%v: %s", err, answer.Wire().Body)
	}
	return out, answer
}

// What came of an A2A agent's task its caller can list and read, at any replica
// and in any revision, with evidence that leads back to the reply.
func TestArtifacts_ListedAndReadAsResources(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, map[string][]scene{"SendStreamingMessage": {{events: []string{wholeTask("COMPLETED", storeTask)}}}})
		defer func() { _ = s.Close() }()
		other := s.replica(t)
		defer func() { _ = other.Close() }()
		called := s.ask(t, s, s.tool(askingHi))
		synctest.Wait() // another replica knows it a moment later
		const whole = "a2a://writer/tasks/t1/artifacts/a%2F1"
		for _, wants := range []string{whole + "/parts/2", whole + "/parts/3"} {
			if !strings.Contains(string(called.Wire().Body), `"uri":"`+wants+`"`) {
				t.Errorf("the result does not name %s: %s", wants, called.Wire().Body)
			}
		}
		for _, version := range []string{mcp.Modern, mcp.Legacy, mcp.LegacyJune, mcp.LegacyMarch} {
			list, _ := s.resources(t, other, s.asksFor(version, "resources/list", ""))
			if len(list.Resources) != 2 || list.NextCursor != "" || (list.CacheScope == "private") != (version == mcp.Modern) {
				t.Fatalf("%s: %+v", version, list)
			}
			first, second := list.Resources[0], list.Resources[1]
			if first.URI != whole || first.Name != "report" || first.Description != "all of it" || first.MimeType != "" ||
				second.Name != "a2" || second.MimeType != "text/markdown" {
				t.Errorf("%s: %+v", version, list)
			}
			read, answer := s.resources(t, other, s.asksFor(version, "resources/read", `"uri":"`+whole+`",`))
			var got []string
			for _, c := range read.Contents {
				form, inside := "text", c.Text
				if c.Blob != nil {
					form, inside = "blob", c.Blob
				}
				got = append(got, fmt.Sprintf("%s %s %s %q", strings.TrimPrefix(c.URI, whole), c.MimeType, form, *inside))
			}
			want := []string{
				`/parts/0 text/plain text "one"`, `/parts/1 application/json text "{\"n\":1.50}"`, `/parts/2 application/octet-stream blob "AP8="`,
				`/parts/3 text/csv text "a,b"`, `/parts/4 image/png blob "iVA="`, `/parts/5 text/uri-list text "https://example.com/x.pdf\r\n"`,
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: %s", version, diff)
			}
			token, reply := claims(t, answer.Evidence[0]), claims(t, called.Evidence[len(called.Evidence)-1])
			if len(answer.Evidence) != 1 || token.Workflow != reply.Workflow || len(token.Parents) != 1 || token.Parents[0] != reply.ID ||
				token.OutputHash != ect.Hash(answer.Wire().Body) {
				t.Errorf("%s: evidence %+v after %+v", version, token, reply)
			}
			one, _ := s.resources(t, s, s.asksFor(version, "resources/read", `"uri":"`+whole+`/parts/3",`))
			if len(one.Contents) != 1 || *one.Contents[0].Text != "a,b" {
				t.Errorf("%s: %+v", version, one)
			}
			made, _ := s.resources(t, s, s.asksFor(version, "resources/templates/list", ""))
			if len(made.ResourceTemplates) != 2 || made.ResourceTemplates[1].URITemplate != "a2a://writer/tasks/{task}/artifacts/{artifact}/parts/{part}" {
				t.Errorf("%s: %+v", version, made)
			}
		}
	})
}

// A task that comes as a stream, and one that is asked for again, are there once.
func TestArtifacts_OfStreamsListedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, map[string][]scene{"SendStreamingMessage": {
			{events: []string{wholeTask("WORKING", ""), status("WORKING", "half"), artifact("done"), status("COMPLETED", "")}},
			{events: []string{wholeTask("COMPLETED", `,"artifacts":[{"artifactId":"a1","parts":[{"text":"changed"}]}]`)}},
		}})
		defer func() { _ = s.Close() }()
		call := s.tool(askingHi)
		call.Wire.Body = []byte(strings.Replace(string(call.Wire.Body), `"_meta":{`, `"_meta":{"progressToken":1,`, 1))
		notices, _ := read(t, s.ask(t, s, call).Events())
		if !strings.Contains(notices[len(notices)-1], `"done"`) {
			t.Fatalf("%q", notices)
		}
		for _, want := range []string{"done", "changed"} {
			read, _ := s.resources(t, s, s.asksFor(mcp.Modern, "resources/read", `"uri":"a2a://writer/tasks/t1/artifacts/a1",`))
			list, _ := s.resources(t, s, s.asksFor(mcp.Modern, "resources/list", ""))
			if len(list.Resources) != 1 || *read.Contents[0].Text != want {
				t.Errorf("%+v %s", list.Resources, *read.Contents[0].Text)
			}
			s.ask(t, s, s.tool(askingHi))
		}
	})
}

// A reply does not wait until what came of it stands on the list; whoever asks for
// the list does.
func TestArtifacts_ReplyDoesNotWaitForList(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, map[string][]scene{"SendStreamingMessage": {{events: []string{wholeTask("COMPLETED", storeTask)}}}})
		defer func() { _ = s.Close() }()
		s.entries.shelf = make(chan struct{})
		for range 3 {
			s.ask(t, s, s.tool(askingHi))
		}
		close(s.entries.shelf)
		if list, _ := s.resources(t, s, s.asksFor(mcp.Modern, "resources/list", "")); len(list.Resources) == 0 {
			t.Error("the list is empty")
		}
	})
}

// What comes of many replies is put on the list together: each time costs a commit
// to the disk.
func TestArtifacts_ManyRepliesShareAWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const many = 40
		var scenes []scene
		for i := range many {
			task := strings.ReplaceAll(wholeTask("COMPLETED", oneArt), `"t1"`, fmt.Sprintf(`"t%d"`, i))
			scenes = append(scenes, scene{events: []string{task}})
		}
		s := newStage(t, map[string][]scene{"SendStreamingMessage": scenes})
		defer func() { _ = s.Close() }()
		var all sync.WaitGroup
		for range many {
			all.Go(func() {
				if _, err := s.Exchange(t.Context(), s.tool(askingHi)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		time.Sleep(3 * time.Second)
		s.entries.mu.Lock()
		defer s.entries.mu.Unlock()
		written := 0
		for _, n := range s.entries.shelved {
			written += n
		}
		if times := len(s.entries.shelved); written != many || times > 4 {
			t.Errorf("%d entries, written at %d times", written, times)
		}
	})
}

// Nobody reads what is another's, what is not there, or what a URI only looks like.
func TestArtifacts_ForeignAndUnknownURIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, map[string][]scene{"SendStreamingMessage": {{events: []string{wholeTask("COMPLETED", storeTask)}}}})
		defer func() { _ = s.Close() }()
		s.ask(t, s, s.tool(askingHi))
		for _, uri := range []string{
			"a2a://writer/tasks/t2/artifacts/a2", "a2a://writer/tasks/t1/artifacts/a3", "a2a://other/tasks/t1/artifacts/a2", "file:///etc/passwd", "a2a:///o.bin",
			"a2a://writer/tasks/t1/artifacts/a2/parts/1", "a2a://writer/tasks/t1/artifacts/a2/parts/-1", "a2a://writer/tasks/t1/artifacts/a2/parts/00",
			"a2a://writer/tasks/t1/artifacts/a/1", "a2a://writer/tasks/t1/artifacts/%612", "a2a://writer/tasks/t1/artifacts/%", "a2a://writer/tasks/t1/things/a2",
			"a2a://writer/tasks/t1/artifacts/a2/", "a2a://writer/tasks/" + strings.Repeat("x", 4096) + "/artifacts/a2",
		} {
			expectError(t, s, s.asksFor(mcp.Modern, "resources/read", `"uri":"`+uri+`",`), canonical.CodeResourceNotFound)
		}
		stranger := s.asksFor(mcp.Modern, "resources/read", `"uri":"a2a://writer/tasks/t1/artifacts/a2",`)
		s.ask(t, s, stranger)
		stranger.Caller.ID = "spiffe://example.com/another"
		expectError(t, s, stranger, canonical.CodeResourceNotFound)
		for params, method := range map[string]string{
			``: "resources/read", `"uri":7,`: "resources/read", `"uri":"",`: "resources/read", `"cursor":7,`: "resources/list", `"cursor":"a b",`: "resources/templates/list",
		} {
			if method == "resources/templates/list" {
				method = "resources/list"
			}
			expectError(t, s, s.asksFor(mcp.Modern, method, params), canonical.CodeBadParams)
		}
		for _, method := range []string{"prompts/list", "completion/complete"} {
			expectError(t, s, s.asksFor(mcp.Modern, method, ""), canonical.CodeNoMethod)
		}
		theirs := s.asksFor(mcp.Modern, "resources/list", "")
		theirs.Caller.ID = "spiffe://example.com/another"
		if list, _ := s.resources(t, s, theirs); list.Resources == nil || len(list.Resources) != 0 {
			t.Errorf("another is shown %+v", list.Resources)
		}
		time.Sleep(11 * time.Minute)
		expectError(t, s, s.asksFor(mcp.Modern, "resources/read", `"uri":"a2a://writer/tasks/t1/artifacts/a2",`), canonical.CodeResourceNotFound)
		if list, _ := s.resources(t, s, s.asksFor(mcp.Modern, "resources/list", "")); len(list.Resources) != 0 {
			t.Errorf("ten minutes later: %+v", list.Resources)
		}
	})
}

func expectError(t *testing.T, s *stage, call transport.Call, want canonical.Code) {
	t.Helper()
	_, err := s.Exchange(t.Context(), call)
	var answer *canonical.Error
	if !errors.As(err, &answer) || answer.Code != want {
		t.Errorf("%.300s: got %v, want %s", call.Wire.Body, err, want)
	}
}

// However much a caller has made, the list is bounded and comes in pages.
func TestArtifacts_ListBoundedAndPaged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var scenes []scene
		for i := range 70 {
			task := strings.ReplaceAll(wholeTask("COMPLETED", oneArt), `"t1"`, fmt.Sprintf(`"t%d"`, i))
			scenes = append(scenes, scene{events: []string{task}})
		}
		huge := wholeTask("COMPLETED", `,"artifacts":[{"artifactId":"a1","parts":[{"text":"`+strings.Repeat("x", 800<<10)+`"}]}]`)
		scenes = append(scenes, scene{events: []string{huge}})
		s := newStage(t, map[string][]scene{"SendStreamingMessage": scenes})
		defer func() { _ = s.Close() }()
		for range 71 {
			s.ask(t, s, s.tool(askingHi))
			time.Sleep(time.Second)
		}
		seen := map[string]bool{}
		cursor, pages := "", 0
		for ; pages == 0 || cursor != ""; pages++ {
			params := ""
			if cursor != "" {
				params = `"cursor":"` + cursor + `",`
			}
			list, _ := s.resources(t, s, s.asksFor(mcp.Modern, "resources/list", params))
			for _, r := range list.Resources {
				seen[r.URI] = true
			}
			cursor = list.NextCursor
		}
		if len(seen) != 64 || pages != 3 || seen["a2a://writer/tasks/t5/artifacts/a1"] || !seen["a2a://writer/tasks/t69/artifacts/a1"] {
			t.Errorf("%d resources on %d pages", len(seen), pages)
		}
		if read, _ := s.resources(t, s, s.asksFor(mcp.Modern, "resources/read", `"uri":"a2a://writer/tasks/t0/artifacts/a1",`)); len(read.Contents) != 1 {
			t.Error("what is no longer listed can be read as long as it is there")
		}
		expectError(t, s, s.asksFor(mcp.Modern, "resources/read", `"uri":"a2a://writer/tasks/t1x/artifacts/a1",`), canonical.CodeResourceNotFound)
	})
}
