package watch

// The JSON of Grafana, as far as it is needed.
type (
	dashboard struct {
		UID           string         `json:"uid"`
		Title         string         `json:"title"`
		Description   string         `json:"description"`
		Tags          []string       `json:"tags"`
		SchemaVersion int            `json:"schemaVersion"`
		Editable      bool           `json:"editable"`
		Refresh       string         `json:"refresh"`
		Time          timeSpan       `json:"time"`
		Links         []link         `json:"links"`
		Templating    templating     `json:"templating"`
		Panels        []grafanaPanel `json:"panels"`
	}
	timeSpan struct {
		From string `json:"from"`
		To   string `json:"to"`
	}
	link struct {
		Title       string   `json:"title"`
		Type        string   `json:"type"`
		Tags        []string `json:"tags"`
		AsDropdown  bool     `json:"asDropdown"`
		IncludeVars bool     `json:"includeVars"`
		KeepTime    bool     `json:"keepTime"`
	}
	templating struct {
		List []variable `json:"list"`
	}
	variable struct {
		Name       string      `json:"name"`
		Label      string      `json:"label"`
		Type       string      `json:"type"`
		Query      string      `json:"query"`
		Datasource *datasource `json:"datasource,omitempty"`
		Refresh    int         `json:"refresh,omitempty"` // 2: when the time changes
		Sort       int         `json:"sort,omitempty"`
		Multi      bool        `json:"multi,omitempty"`
		IncludeAll bool        `json:"includeAll,omitempty"`
		AllValue   string      `json:"allValue,omitempty"`
	}
	datasource struct {
		Type string `json:"type"`
		UID  string `json:"uid"`
	}
	grafanaPanel struct {
		ID          int         `json:"id"`
		Type        string      `json:"type"`
		Title       string      `json:"title"`
		Description string      `json:"description"`
		Datasource  datasource  `json:"datasource"`
		GridPos     gridPos     `json:"gridPos"`
		FieldConfig fieldConfig `json:"fieldConfig"`
		Options     any         `json:"options,omitempty"`
		Targets     []target    `json:"targets"`
	}
	gridPos struct {
		X int `json:"x"`
		Y int `json:"y"`
		W int `json:"w"`
		H int `json:"h"`
	}
	fieldConfig struct {
		Defaults struct {
			Unit string `json:"unit"`
		} `json:"defaults"`
		Overrides []any `json:"overrides"`
	}
	target struct {
		RefID      string     `json:"refId"`
		Datasource datasource `json:"datasource"`
		Expr       string     `json:"expr"`
		Legend     string     `json:"legendFormat"`
	}
)

var prometheusSource = datasource{"prometheus", "${datasource}"}

// dashboardOf makes the JSON of a page.
func dashboardOf(name string, p page) dashboard {
	d := dashboard{
		UID: "aepb-" + name, Title: p.title, Description: p.about, Tags: []string{"aepb"},
		SchemaVersion: 39, Editable: true, Refresh: "30s", Time: timeSpan{"now-1h", "now"},
		Links: []link{{Title: "AEPB", Type: "dashboards", Tags: []string{"aepb"}, AsDropdown: true, IncludeVars: true, KeepTime: true}},
	}
	d.Templating.List = []variable{
		{Name: "datasource", Label: "Data source", Type: "datasource", Query: "prometheus"},
		{
			Name: "job", Label: "Job", Type: "query", Query: "label_values(aepb_build_info, job)", Datasource: &prometheusSource,
			Refresh: 2, Sort: 1, Multi: true, IncludeAll: true, AllValue: ".+",
		},
	}
	if p.perAgent {
		d.Templating.List = append(d.Templating.List, variable{
			Name: "agent", Label: "Agent", Type: "query", Query: `label_values({__name__=~"` + upstream + `_count|aepb_upstream_failures_total", job=~"$job"}, agent)`, Datasource: &prometheusSource,
			Refresh: 2, Sort: 1,
		})
	}
	x, y, height := 0, 0, 0
	for i, from := range p.panels {
		at := gridPos{W: 12, H: 8}
		if from.stat {
			at = gridPos{W: 6, H: 4}
		}
		if x+at.W > 24 || height != 0 && at.H != height {
			x, y = 0, y+height
		}
		at.X, at.Y = x, y
		x, height = x+at.W, at.H
		d.Panels = append(d.Panels, panelOf(i+1, at, from))
	}
	return d
}

func panelOf(id int, at gridPos, p panel) grafanaPanel {
	out := grafanaPanel{
		ID: id, Type: "timeseries", Title: p.title, Description: p.about, Datasource: prometheusSource, GridPos: at,
		Options: map[string]any{"tooltip": map[string]any{"mode": "multi", "sort": "desc"}},
	}
	if p.stat {
		out.Type, out.Options = "stat", nil
	}
	out.FieldConfig.Defaults.Unit, out.FieldConfig.Overrides = p.unit, []any{}
	for i, q := range p.queries {
		out.Targets = append(out.Targets, target{string(rune('A' + i)), prometheusSource, q.expr, q.legend})
	}
	return out
}
