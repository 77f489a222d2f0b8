package interop

import (
	"errors"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// mcpResources lists and reads what came of a worker's task.
func mcpResources(t *testing.T, m *mcpRun) {
	out := remarshal[messageOutput](t, m.call(t, m.want("files")).StructuredContent)
	inTask := "a2a://" + m.at.name + "/tasks/" + out.TaskID + "/artifacts/"
	var mine []*mcp.Resource
	for r, err := range m.session.Resources(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(r.URI, inTask) {
			mine = append(mine, r)
		}
	}
	if len(mine) != 1 || mine[0].Name != "files" {
		t.Fatalf("listed: %s", mustJSON(mine))
	}
	read, err := m.session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: mine[0].URI})
	if err != nil || len(read.Contents) != 5 {
		t.Fatalf("%v %s", err, mustJSON(read))
	}
	text, image, octets, link, data := read.Contents[0], read.Contents[1], read.Contents[2], read.Contents[3], read.Contents[4]
	for name, ok := range map[string]bool{
		"text":   text.Text == "see these" && text.MIMEType == "text/plain",
		"image":  string(image.Blob) == png && image.MIMEType == "image/png",
		"octets": string(octets.Blob) == "\x00\xff" && octets.MIMEType == "application/octet-stream",
		"link":   link.Text == "https://example.com/x.pdf\r\n" && link.MIMEType == "text/uri-list",
		"data":   data.Text == `{"n":1}` && data.MIMEType == "application/json",
	} {
		if !ok {
			t.Errorf("%s: %s", name, mustJSON(read))
		}
	}
	one, err := m.session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: octets.URI})
	if err != nil || len(one.Contents) != 1 || string(one.Contents[0].Blob) != "\x00\xff" {
		t.Errorf("%v %s", err, mustJSON(one))
	}
	patterns, err := m.session.ListResourceTemplates(t.Context(), nil)
	if err != nil || len(patterns.ResourceTemplates) != 2 {
		t.Errorf("%v %s", err, mustJSON(patterns))
	}
	_, err = m.session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: inTask + "none"})
	want := int64(jsonrpc.CodeInvalidParams)
	if m.version != modernMCP {
		want = -32002 // as its specification has it
	}
	if said, ok := errors.AsType[*jsonrpc.Error](err); !ok || said.Code != want {
		t.Errorf("what is not there: %v", err)
	}
}
