package web_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/admin/web"
	"github.com/postrider/postrider/admin/web/webtest"
)

func TestAPI(t *testing.T) {
	t.Parallel()
	s := serve(t, false, web.Config{})
	boss := admin.Principal{Subject: "ada", Role: admin.Admin}
	token, _, err := s.service.CreateToken(t.Context(), boss, "ci", admin.Operator, nil, admin.UsePeople, time.Hour)
	must(t, err)
	headers := map[string]string{"Authorization": "Bearer " + token, "Content-Type": "application/json"}
	call := func(method, path, body string, want int) map[string]any {
		t.Helper()
		r := s.request(method, "/api/v1"+path, body, headers)
		var out any
		_ = json.NewDecoder(r.Body).Decode(&out)
		if r.StatusCode != want {
			t.Errorf("%s %s: %d, want %d: %v", method, path, r.StatusCode, want, out)
		}
		object, _ := out.(map[string]any)
		return object
	}
	call("GET", "/me", "", 200)
	review := call("POST", "/reviews", `{"action": "redrive", "filter": {"relay": "to-hook"}}`, 200)
	done := call("POST", fmt.Sprintf("/reviews/%s/execute", review["id"]), fmt.Sprintf(`{"digest": %q, "reason": "fixed", "rate": 50}`, review["digest"]), 200)
	call("GET", fmt.Sprintf("/redrives/%v", done["redrive"]), "", 200)
	call("POST", fmt.Sprintf("/redrives/%v/cancel", done["redrive"]), `{}`, 204)
	call("POST", "/dead/3/discard", `{"reason": "duplicate"}`, 204)
	call("POST", "/relays/payments/pause", `{"reason": "maintenance", "for_seconds": 1e300}`, 400)
	if p := call("POST", "/relays/payments/pause", `{"reason": "maintenance", "for_seconds": 600}`, 200); p["by"] != "ci" || p["until"] == nil {
		t.Errorf("pause: %v", p)
	}
	if r := call("GET", "/relays/payments", "", 200); r["status"] != "Paused" || r["paused"] == nil {
		t.Errorf("paused relay: %v", r)
	}
	call("POST", "/relays/payments/resume", `{}`, 200)
	call("POST", "/relays/payments/resume", `{}`, 409)
	call("POST", "/dead/3/discard", `{"reason": "duplicate"}`, 409)
	call("POST", "/dead/3/discard", `{}`, 400)
	call("POST", "/dead/3/discard", `{"reason": "x", "other": 1}`, 400)
	call("POST", "/reviews", `{"action": "discard"}`, 400) // without a filter, it would concern all dead letters
	call("POST", "/reviews", `{"action": "discard", "filter": null}`, 400)
	call("GET", "/dead?limit=0", "", 400)
	call("GET", "/dead?limit=1&limit=2", "", 400)
	call("GET", "/dead?state=lost", "", 400)
	call("GET", "/doctor?check=nothing", "", 404)
	call("GET", "/dead?key=%00", "", 400) // PostgreSQL answers with an error
	call("GET", "/messages/%00", "", 400)
	call("GET", "/messages/%ff", "", 400)
	call("POST", "/dead/3/discard", `{"reason": "x\u0000"}`, 400)
	call("POST", "/dead/3/discard", `{"reason": "x", "\u0000": 1}`, 400)
	call("POST", "/dead/3/discard", `{"reason": "payload had \\u0000"}`, 409) // a backslash and u0000, which is text
	call("DELETE", "/dead/3", "", 405)
	call("GET", "/nowhere", "", 404)
	call("POST", "/dead/x/discard", `{"reason": "x"}`, 400)
	call("GET", "/dead/99999", "", 404)
	headers["Authorization"] = "Bearer pr_wrong_token"
	if out := call("GET", "/status", "", 401); out["status"] != 401.0 || out["title"] != "Unauthorized" {
		t.Errorf("problem: %v", out)
	}
}

// TestDescription: the description names every operation, and an answer has no field that it does not.
func TestDescription(t *testing.T) {
	t.Parallel()
	s := serve(t, false, web.Config{}, rules).signIn(admin.Admin)
	var doc struct {
		Paths      map[string]map[string]map[string]any `json:"paths"`
		Components struct {
			Schemas map[string]any `json:"schemas"`
		} `json:"components"`
	}
	r := s.request("GET", "/api/v1/openapi.json", "", nil)
	must(t, json.NewDecoder(r.Body).Decode(&doc))
	if len(doc.Paths) < 15 {
		t.Errorf("%d paths", len(doc.Paths))
	}
	fill := strings.NewReplacer("{relay}", "to-hook", "{key}", "order%2F42", "{number}", "2", "{id}", "")
	for path, operations := range doc.Paths {
		get, ok := operations["get"]
		if !ok {
			continue
		}
		concrete := fill.Replace(path)
		switch path {
		case "/messages/{id}":
			concrete += s.shop.Dead
		case "/messages/{id}/causation":
			concrete = "/messages/" + s.shop.Dead + "/causation"
		case "/sagas/{id}":
			concrete += "fulfilment-4711"
		case "/redrives/{number}", "/reviews/{id}":
			continue
		}
		r := s.request("GET", "/api/v1"+concrete, "", nil)
		var answer any
		must(t, json.NewDecoder(r.Body).Decode(&answer))
		if r.StatusCode != http.StatusOK {
			t.Errorf("%s: %d %v", concrete, r.StatusCode, answer)
			continue
		}
		schema := get["responses"].(map[string]any)["200"].(map[string]any)["content"].(map[string]any)["application/json"].(map[string]any)["schema"]
		for _, wrong := range mismatches(doc.Components.Schemas, schema, answer, concrete) {
			t.Error(wrong)
		}
		text, _ := json.Marshal(answer)
		if strings.Contains(string(text), webtest.Secret) {
			t.Errorf("%s has the secret", concrete)
		}
	}
}

// mismatches lists where a value differs from its schema.
func mismatches(schemas map[string]any, schema, value any, at string) (out []string) {
	is, _ := schema.(map[string]any)
	if ref, ok := is["$ref"].(string); ok {
		is, ok = schemas[strings.TrimPrefix(ref, "#/components/schemas/")].(map[string]any)
		if !ok {
			return []string{at + ": " + ref + " is not described"}
		}
	}
	if choices, ok := is["anyOf"].([]any); ok {
		if value == nil {
			return nil
		}
		return mismatches(schemas, choices[0], value, at)
	}
	switch v := value.(type) {
	case map[string]any:
		properties, object := is["properties"].(map[string]any)
		for name, inner := range v {
			switch {
			case is["additionalProperties"] != nil:
				out = append(out, mismatches(schemas, is["additionalProperties"], inner, at+"/"+name)...)
			case !object || properties[name] == nil:
				out = append(out, at+"/"+name+" is not described")
			default:
				out = append(out, mismatches(schemas, properties[name], inner, at+"/"+name)...)
			}
		}
	case []any:
		for _, inner := range v {
			out = append(out, mismatches(schemas, is["items"], inner, at+"/*")...)
		}
	case string:
		if is["type"] != "string" {
			out = append(out, fmt.Sprintf("%s: %q is no %v", at, v, is["type"]))
		}
	case float64:
		if is["type"] != "number" && is["type"] != "integer" {
			out = append(out, fmt.Sprintf("%s: %v is no %v", at, v, is["type"]))
		}
	}
	return out
}
