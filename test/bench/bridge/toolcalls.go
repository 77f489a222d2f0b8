package bridge

import (
	"context"
	"errors"
	"iter"
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

var (
	errCall   = errors.New("bridge: the message has no part that names a skill and its input")
	errFailed = errors.New("bridge: the tool failed")
)

// toolCalls executes A2A messages as calls of tools: the first part is data whose members
// skill and input are the tool and its arguments.
type toolCalls struct{ session *mcp.ClientSession }

// Execute answers one message with the text of the tool's result.
func (t toolCalls) Execute(ctx context.Context, ec *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		text, err := t.call(ctx, ec.Message)
		if err != nil {
			yield(nil, err)
			return
		}
		yield(a2a.NewMessageForTask(a2a.MessageRoleAgent, a2a.TaskInfo{ContextID: ec.ContextID}, a2a.NewTextPart(text)), nil)
	}
}

// Cancel is never called: there are no tasks.
func (toolCalls) Cancel(context.Context, *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) { yield(nil, a2a.ErrTaskNotCancelable) }
}

func (t toolCalls) call(ctx context.Context, m *a2a.Message) (string, error) {
	data, _ := m.Parts[0].Data().(map[string]any)
	skill, ok := data["skill"].(string)
	if !ok {
		return "", errCall
	}
	result, err := t.session.CallTool(ctx, &mcp.CallToolParams{Name: skill, Arguments: data["input"]})
	if err != nil {
		return "", err
	}
	var texts []string
	for _, c := range result.Content {
		if block, ok := c.(*mcp.TextContent); ok {
			texts = append(texts, block.Text)
		}
	}
	if result.IsError {
		return "", errFailed
	}
	return strings.Join(texts, "\n"), nil
}
