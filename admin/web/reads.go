package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/postrider/postrider/admin"
)

// Read is an operation of the API that changes nothing, for servers of other protocols: they answer what the API answers.
type Read struct {
	// Path identifies it, e.g. "/relays/{relay}"; Does says what it answers.
	Path, Does string
	// Action is the permission that it needs, "" for none.
	Action admin.Action
	// Names are those of the parameters in Path, which are required, and Query those of others.
	Names, Query []string
}

// Reads are the operations of the API that change nothing.
func (h *Handler) Reads() (out []Read) {
	for _, route := range h.api() {
		if route.method != http.MethodGet {
			continue
		}
		r := Read{Path: route.path, Does: route.does, Action: route.action}
		for _, p := range route.query {
			r.Query = append(r.Query, p.name)
		}
		for _, name := range pathNames.FindAllStringSubmatch(route.path, -1) {
			r.Names = append(r.Names, name[1])
		}
		out = append(out, r)
	}
	return out
}

// Read makes the operation with this path for a principal. Its errors are sentences for whoever asked.
func (h *Handler) Read(ctx context.Context, p admin.Principal, path string, parameters map[string]string) (any, error) {
	for _, route := range h.api() {
		if route.method != http.MethodGet || route.path != path {
			continue
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
		if err != nil {
			return nil, err
		}
		v := url.Values{}
		for name, value := range parameters {
			r.SetPathValue(name, value)
			v.Set(name, value)
		}
		out, err := route.answer(call{r, p, v})
		if err != nil {
			return nil, h.Sentence(err)
		}
		return out, nil
	}
	return nil, fmt.Errorf("%w: there is no operation %s", admin.ErrInput, path)
}

// Sentence is an error of the service as the API says it.
func (h *Handler) Sentence(err error) error {
	_, text := h.explain(&http.Request{URL: &url.URL{}}, err)
	return errors.New(text)
}
