package welcome

import (
	"bytes"
	"embed"
	"html/template"
	"net/http"
	"strings"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/snippets"
)

//go:embed page.html
var files embed.FS

// Deps is what the page says. All fields are required.
type Deps struct {
	Agents func() []string            // their names in the directory
	Base   func(*http.Request) string // where this browser reaches the gateway, no trailing slash
	CA     string                     // file of the CA that the gateway's certificate is from
}

// Handler shows the page to browsers at /; all else is next's.
func Handler(next http.Handler, deps Deps) (http.Handler, error) {
	page, err := template.ParseFS(files, "page.html")
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reads := r.Method == http.MethodGet || r.Method == http.MethodHead
		if r.URL.Path != "/" || !reads || !strings.Contains(r.Header.Get("Accept"), "text/html") {
			next.ServeHTTP(w, r)
			return
		}
		text, err := deps.render(page, deps.Base(r))
		if err != nil {
			next.ServeHTTP(w, r)
			return
		}
		h := w.Header()
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		_, _ = w.Write(text) // a browser that has gone needs no page
	}), nil
}

// shownAgents bounds how many agents the page has.
const shownAgents = 100

type agent struct {
	Name     string
	Programs []program
}

// program is how one kind of client calls an agent.
type program struct{ Title, Text string }

func (d Deps) render(page *template.Template, base string) ([]byte, error) {
	view := struct {
		Base, CA string
		Agents   []agent
	}{Base: base, CA: d.CA}
	names := d.Agents()
	for _, name := range names[:min(len(names), shownAgents)] {
		one := agent{Name: name}
		for _, kind := range []struct {
			title string
			a2a   bool
		}{{"Call it as an A2A agent: curl, JavaScript, Python, Go", true}, {"Call it as an MCP server: curl, JavaScript, Python, Go", false}} {
			var text strings.Builder
			example := snippets.Example{Skill: snippets.Placeholder, Input: "{}", Why: "its card lists them"}
			if err := snippets.Print(&text, snippets.Agent{Name: name, Base: base, CA: d.CA, Example: example}, kind.a2a); err != nil {
				return nil, err
			}
			one.Programs = append(one.Programs, program{kind.title, text.String()})
		}
		view.Agents = append(view.Agents, one)
	}
	var out bytes.Buffer
	err := page.Execute(&out, view)
	return out.Bytes(), err
}
