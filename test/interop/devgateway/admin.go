package devgateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// endpoint and agent are the admin API's words.
type endpoint struct {
	Binding string `json:"binding"`
	URL     string `json:"url"`
	GRPC    string `json:"grpc,omitempty"`
}

type agent struct {
	Name      string     `json:"name"`
	ID        string     `json:"id,omitempty"`
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

// AddAgentBehind is AddAgent for one that is reached through another gateway of this SPIFFE id.
func (p *Process) AddAgentBehind(ctx context.Context, gateway, name, binding, url string) error {
	return p.add(ctx, agent{Name: name, ID: gateway, Endpoints: []endpoint{{Binding: binding, URL: url}}})
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

// Workflows are the ids of the workflows with a record since a time.
func (p *Process) Workflows(ctx context.Context, since time.Time) (wids []string, err error) {
	query := url.Values{"limit": {"100"}, "since": {since.UTC().Format(time.RFC3339)}}
	for {
		var page struct {
			Workflows []string `json:"wids"`
			Next      string   `json:"next"`
		}
		if err := p.get(ctx, "/api/workflows?"+query.Encode(), &page); err != nil {
			return nil, err
		}
		wids = append(wids, page.Workflows...)
		if page.Next == "" {
			return wids, nil
		}
		query.Set("after", page.Next)
	}
}

// Workflow are the tokens of a workflow, as an auditor reads them; at most 100.
func (p *Process) Workflow(ctx context.Context, wid string) ([]string, error) {
	var page struct {
		Tokens []string `json:"ects"`
	}
	err := p.get(ctx, "/api/workflows/"+wid+"?limit=100", &page)
	return page.Tokens, err
}

// get reads what the admin API has at a path.
func (p *Process) get(ctx context.Context, path string, into any) error {
	page, err := p.admin(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(page, into); err != nil {
		return fmt.Errorf("devgateway: %s: %w", path, err)
	}
	return nil
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
