package httpapi_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/httpapi/approvals"
)

const levelPath = "https://127.0.0.1:9443/api/levels/w1"

func (d *deciding) level(who *ecttest.Party, body string) *httptest.ResponseRecorder {
	return d.admin.do(http.MethodPost, levelPath, body, who, jsonBody())
}

// TestLevels_Operators: an operator pauses a workflow, sees it in the list, and lifts the pause.
func TestLevels_Operators(t *testing.T) {
	t.Parallel()
	d := newDeciding(t)
	var level approvals.Level
	if w := d.level(d.oncall, `{"step":"pause","reason":"a look first"}`); w.Code != 200 || json.Unmarshal(w.Body.Bytes(), &level) != nil || level.Level != "paused" || level.By != "oncall" || level.Reason != "a look first" || len(level.Roles) == 0 {
		t.Fatalf("paused: %d %s", w.Code, w.Body)
	}
	var list approvals.LevelList
	if w := d.admin.do(http.MethodGet, strings.TrimSuffix(levelPath, "/w1"), "", d.viewer, nil); w.Code != 200 || json.Unmarshal(w.Body.Bytes(), &list) != nil || len(list.Levels) != 1 || list.Levels[0].Workflow != "w1" {
		t.Errorf("listed: %d %s", w.Code, w.Body)
	}
	if w := d.level(d.oncall, `{"step":"lift","reason":"looks well"}`); w.Code != 200 || !strings.Contains(w.Body.String(), `"running"`) {
		t.Errorf("lifted: %d %s", w.Code, w.Body)
	}
	if w := d.level(d.oncall, `{"step":"lift","reason":"once more"}`); w.Code != 409 {
		t.Errorf("lifted once more: %d %s", w.Code, w.Body)
	}
}

// TestAttack_Levels: what is no order of an operator with the role changes nothing.
func TestAttack_Levels(t *testing.T) {
	t.Parallel()
	d := newDeciding(t)
	if w := d.level(d.oncall, `{"step":"stop","reason":"why"}`); w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	const lift = `{"step":"lift","reason":"let me through"}`
	for name, c := range map[string]struct {
		from   *ecttest.Party
		body   string
		status int
	}{
		"a stranger":                    {d.eve, lift, 403},
		"no certificate":                {nil, lift, 403},
		"a viewer":                      {d.viewer, lift, 403},
		"an auditor":                    {d.auditor, lift, 403},
		"an approver without the role":  {d.approver, lift, 403},
		"no reason":                     {d.oncall, `{"step":"lift"}`, 400},
		"an unknown step":               {d.oncall, `{"step":"overdue","reason":"x"}`, 400},
		"duplicate members":             {d.oncall, `{"step":"pause",` + lift[1:], 400},
		"roles of its own":              {d.approver, `{"roles":["operator"],` + lift[1:], 400},
		"a reason of 513 bytes":         {d.oncall, strings.Replace(lift, "let me through", strings.Repeat("x", 513), 1), 403},
		"a reason of 10,000 characters": {d.oncall, strings.Replace(lift, "let me through", strings.Repeat("x", 10_000), 1), 413},
	} {
		if w := d.level(c.from, c.body); w.Code != c.status || len(d.Levels()) != 1 || d.Levels()[0].Mode != "stopped" {
			t.Errorf("%s: %d %s, expected %d", name, w.Code, w.Body, c.status)
		}
	}
}
