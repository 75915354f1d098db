package dashboard

import (
	"bytes"
	"encoding/json"
)

// The part of Grafana's schema of dashboards that is used.
type (
	page struct {
		UID           string     `json:"uid"`
		Title         string     `json:"title"`
		Tags          []string   `json:"tags"`
		SchemaVersion int        `json:"schemaVersion"`
		Editable      bool       `json:"editable"`
		Refresh       string     `json:"refresh"`
		Time          timeRange  `json:"time"`
		Templating    templating `json:"templating"`
		Panels        []panel    `json:"panels"`
	}
	timeRange struct {
		From string `json:"from"`
		To   string `json:"to"`
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
		Multi      bool        `json:"multi"`
		IncludeAll bool        `json:"includeAll"`
		AllValue   string      `json:"allValue,omitempty"`
		Refresh    int         `json:"refresh"`
	}
	datasource struct {
		Type string `json:"type"`
		UID  string `json:"uid"`
	}
	panel struct {
		ID          int         `json:"id"`
		Type        string      `json:"type"`
		Title       string      `json:"title"`
		Description string      `json:"description"`
		Datasource  datasource  `json:"datasource"`
		GridPos     position    `json:"gridPos"`
		FieldConfig fieldConfig `json:"fieldConfig"`
		Targets     []target    `json:"targets"`
	}
	position struct {
		H int `json:"h"`
		W int `json:"w"`
		X int `json:"x"`
		Y int `json:"y"`
	}
	fieldConfig struct {
		Defaults  defaults `json:"defaults"`
		Overrides []string `json:"overrides"`
	}
	defaults struct {
		Unit string `json:"unit"`
		Min  *int   `json:"min,omitempty"`
	}
	target struct {
		RefID        string `json:"refId"`
		Expr         string `json:"expr"`
		LegendFormat string `json:"legendFormat"`
	}
)

var prometheus = datasource{"prometheus", "${datasource}"}

// JSON returns the dashboard as Grafana imports it.
func (d *Dashboard) JSON() ([]byte, error) {
	labels := func(name, query string) variable {
		return variable{Name: name, Label: name, Type: "query", Query: query, Datasource: &prometheus, Multi: true, IncludeAll: true, AllValue: ".*", Refresh: 2}
	}
	p := page{
		UID: d.File, Title: d.Title, Tags: []string{"postrider"}, SchemaVersion: 39, Refresh: "30s", Time: timeRange{"now-6h", "now"},
		Templating: templating{[]variable{
			{Name: "datasource", Label: "Prometheus", Type: "datasource", Query: "prometheus"},
			labels("store", "label_values(postrider_store_up, store)"),
			labels("relay", `label_values(postrider_relay_processes{store=~"$store"}, relay)`),
		}},
	}
	for i, one := range d.Panels {
		out := panel{
			ID: i + 1, Type: "timeseries", Title: one.Title, Description: one.Help, Datasource: prometheus,
			GridPos: position{8, 12, 12 * (i % 2), 8 * (i / 2)}, FieldConfig: fieldConfig{defaults{Unit: one.Unit}, []string{}},
		}
		for n, q := range one.Queries {
			out.Targets = append(out.Targets, target{string(rune('A' + n)), q.Expr, q.Legend})
		}
		p.Panels = append(p.Panels, out)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(p)
	return b.Bytes(), err
}
