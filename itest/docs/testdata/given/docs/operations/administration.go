// Package given declares what the page takes for granted.
package given

import (
	"context"
	"net/http"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/admin/web"
	"github.com/postrider/postrider/store/postgres"
)

var (
	store *postgres.Store
	mine  web.Authorizer
	mux   *http.ServeMux
)
