package web

import (
	"encoding"
	"maps"
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
	for _, route := range h.api() { // types of bodies first: answers with the same types name what bodies may have
		if route.in != nil {
			schemas.body(reflect.TypeOf(route.in))
		}
	}
	failure := object{"description": "An error", "content": object{"application/problem+json": object{"schema": schemas.of(reflect.TypeFor[problem]())}}}
	paths := object{}
	for _, route := range h.api() {
		var parameters []object
		for _, name := range pathNames.FindAllStringSubmatch(route.path, -1) {
			parameters = append(parameters, object{"name": name[1], "in": "path", "required": true, "schema": pathParameter(name[1]).schema()})
		}
		for _, p := range route.query {
			parameters = append(parameters, object{"name": p.name, "in": "query", "schema": p.schema()})
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
	case t.Kind() == reflect.Int, t.Kind() == reflect.Int64:
		return object{"type": "integer", "format": "int64"}
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64:
		return object{"type": "integer"}
	case t.Kind() == reflect.Float64:
		return object{"type": "number"}
	case t == reflect.TypeFor[[]byte]():
		return object{"type": "string", "contentEncoding": "base64"}
	case t.Kind() == reflect.Slice:
		return object{"type": "array", "items": s.of(t.Elem())}
	case t.Kind() == reflect.Map:
		return object{"type": "object", "additionalProperties": s.of(t.Elem())}
	}
	name := schemaName(t)
	if name == "" {
		return object{}
	}
	if _, known := s[name]; !known {
		properties := object{}
		s[name] = object{"type": "object", "properties": properties}
		s.fields(t, properties)
	}
	return object{"$ref": "#/components/schemas/" + name}
}

// schemaName is the name of a struct in the description, "" if it has none.
func schemaName(t reflect.Type) string {
	name := strings.TrimSuffix(t.Name(), "Answer")
	if name == "" {
		return ""
	}
	if t.PkgPath() != reflect.TypeFor[apiRoute]().PkgPath() {
		return t.String()
	}
	return strings.ToUpper(name[:1]) + name[1:]
}

// body adds the type of a body, and the structs in it: what they must and may have.
func (s schemas) body(t reflect.Type) {
	s.of(t)
	schema := s[schemaName(t)].(object)
	properties := schema["properties"].(object)
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		property := properties[name].(object)
		if maps.Copy(property, fieldRules[name]); property["type"] == "string" && property["enum"] == nil && property["format"] == nil {
			property["pattern"] = anyText
		}
		if strings.Contains(options, "omit") {
			properties[name] = object{"anyOf": []object{property, {"type": "null"}}}
		}
		if f.Type.Kind() == reflect.Struct && f.Type != reflect.TypeFor[time.Time]() {
			s.body(f.Type)
		}
	}
	names := required(t)
	for _, name := range names {
		if property := properties[name].(object); property["type"] == "string" && property["enum"] == nil {
			property["pattern"] = someText
		}
	}
	if names != nil {
		schema["required"] = names
	}
	schema["additionalProperties"] = false
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
