package web

import (
	"encoding"
	"net/http"
	"reflect"
	"regexp"
	"strings"
	"time"
)

// object is a JSON object.
type object = map[string]any

var pathNames = regexp.MustCompile(`\{([a-z]+)\}`)

// openAPI serves the description of the API, which is made from the table of routes and the types of bodies and answers.
func (h *Handler) openAPI(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, "application/json", h.describe())
}

func (h *Handler) describe() object {
	schemas := schemas{}
	failure := object{"description": "An error", "content": object{"application/problem+json": object{"schema": schemas.of(reflect.TypeFor[problem]())}}}
	paths := object{}
	for _, route := range h.api() {
		var parameters []object
		for _, name := range pathNames.FindAllStringSubmatch(route.path, -1) {
			parameters = append(parameters, object{"name": name[1], "in": "path", "required": true, "schema": object{"type": "string"}})
		}
		for _, name := range route.query {
			kind := map[string]string{"limit": "integer", "after": "string"}[name]
			if kind == "" {
				kind = "string"
			}
			parameters = append(parameters, object{"name": name, "in": "query", "schema": object{"type": kind}})
		}
		operation := object{"summary": route.does, "operationId": operationID(route), "responses": object{"default": failure}}
		if role := route.action.Needs(); role != "" {
			operation["description"] = "Needs the " + string(role) + " role."
		}
		if parameters != nil {
			operation["parameters"] = parameters
		}
		if route.in != nil {
			operation["requestBody"] = object{"required": true, "content": object{"application/json": object{"schema": schemas.of(reflect.TypeOf(route.in))}}}
		}
		responses := operation["responses"].(object)
		if route.out == nil {
			responses["204"] = object{"description": "Done"}
		} else {
			responses["200"] = object{"description": "Done", "content": object{"application/json": object{"schema": schemas.of(reflect.TypeOf(route.out))}}}
		}
		path, _ := paths[route.path].(object)
		if path == nil {
			path = object{}
			paths[route.path] = path
		}
		path[strings.ToLower(route.method)] = operation
	}
	return object{
		"openapi": "3.1.0", "info": object{"title": "Postrider", "version": "1"}, "servers": []object{{"url": h.cfg.Prefix + "/api/v1"}},
		"security": []object{{"token": []string{}}}, "paths": paths,
		"components": object{"securitySchemes": object{"token": object{"type": "http", "scheme": "bearer"}}, "schemas": schemas},
	}
}

func operationID(r apiRoute) string {
	return strings.ToLower(r.method) + strings.NewReplacer("/", "_", "{", "", "}", "").Replace(r.path)
}

// schemas are the types that the description names.
type schemas map[string]any

// of returns the schema of a type; structs with a name are described once.
func (s schemas) of(t reflect.Type) object {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case t == reflect.TypeFor[time.Duration]():
		return object{"type": "string"} // answers have seconds, in numbers: a test finds others
	case t.Kind() == reflect.Pointer:
		return s.of(t.Elem())
	case t.Kind() == reflect.String, t.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		return object{"type": "string"}
	case t.Kind() == reflect.Bool:
		return object{"type": "boolean"}
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64:
		return object{"type": "integer"}
	case t.Kind() == reflect.Float64:
		return object{"type": "number"}
	case t == reflect.TypeFor[[]byte]():
		return object{"type": "string", "contentEncoding": "base64"}
	case t.Kind() == reflect.Slice:
		return object{"type": []string{"array", "null"}, "items": s.of(t.Elem())}
	case t.Kind() == reflect.Map:
		return object{"type": []string{"object", "null"}, "additionalProperties": s.of(t.Elem())}
	}
	name := strings.TrimSuffix(strings.TrimSuffix(t.Name(), "Body"), "Answer")
	if name == "" {
		return object{}
	}
	name = strings.ToUpper(name[:1]) + name[1:]
	if t.PkgPath() != reflect.TypeFor[apiRoute]().PkgPath() {
		name = t.String()
	}
	if _, known := s[name]; !known {
		properties := object{}
		s[name] = object{"type": "object", "properties": properties}
		s.fields(t, properties)
	}
	return object{"$ref": "#/components/schemas/" + name}
}

// fields adds the fields of a struct, with those of the structs in it that have no name.
func (s schemas) fields(t reflect.Type, into object) {
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported() && !f.Anonymous:
		case f.Anonymous && name == "":
			s.fields(f.Type, into)
		default:
			if name == "" {
				name = f.Name
			}
			schema := s.of(f.Type)
			if strings.Contains(options, "string") {
				schema = object{"type": "string"}
			}
			if f.Type.Kind() == reflect.Pointer {
				schema = object{"anyOf": []object{schema, {"type": "null"}}}
			}
			into[name] = schema
		}
	}
}
