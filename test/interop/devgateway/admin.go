package devgateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// endpoint and agent are the admin API's words.
type endpoint struct {
	Binding string `json:"binding"`
	URL     string `json:"url"`
	GRPC    string `json:"grpc,omitempty"`
}

type agent struct {
	Name      string     `json:"name"`
	Expose    []string   `json:"expose,omitempty"`
	Endpoints []endpoint `json:"endpoints"`
}

// AddAgent puts an agent with one endpoint into the gateway's directory.
func (p *Process) AddAgent(ctx context.Context, name, binding, url string) error {
	return p.AddAgentAt(ctx, name, binding, url, "")
}

// AddAgentAt is AddAgent for one that is reached over gRPC at host:port.
func (p *Process) AddAgentAt(ctx context.Context, name, binding, url, grpc string) error {
	return p.add(ctx, agent{Name: name, Endpoints: []endpoint{{Binding: binding, URL: url, GRPC: grpc}}})
}

// AddServer is AddAgent for an MCP server of which more than its tools is shown.
func (p *Process) AddServer(ctx context.Context, name, url string, expose ...string) error {
	return p.add(ctx, agent{Name: name, Expose: expose, Endpoints: []endpoint{{Binding: "mcp-v1", URL: url}}})
}

func (p *Process) add(ctx context.Context, a agent) error {
	body, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("devgateway: %w", err)
	}
	_, err = p.admin(ctx, http.MethodPost, "/api/agents", body)
	return err
}

// RemoveAgent takes an agent out of the gateway's directory.
func (p *Process) RemoveAgent(ctx context.Context, name string) error {
	_, err := p.admin(ctx, http.MethodDelete, "/api/agents/"+name, nil)
	return err
}

// Agent is what the admin API says of an agent, as JSON.
func (p *Process) Agent(ctx context.Context, name string) ([]byte, error) {
	return p.admin(ctx, http.MethodGet, "/api/agents/"+name, nil)
}

// Metrics is the gateway's metrics page in the Prometheus text format.
func (p *Process) Metrics(ctx context.Context) (string, error) {
	page, err := p.admin(ctx, http.MethodGet, "/metrics", nil)
	return string(page), err
}

func (p *Process) admin(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, p.Admin+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("devgateway: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+p.token)
	req.Header.Set("Content-Type", "application/json")
	client := p.Client()
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("devgateway: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 4<<20))
	if err != nil {
		return nil, fmt.Errorf("devgateway: %s %s: %w", method, path, err)
	}
	if resp.StatusCode/100 != 2 {
		return nil, fmt.Errorf("devgateway: %s %s: %s: %.500s", method, path, resp.Status, answer)
	}
	return answer, nil
}
