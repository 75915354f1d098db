// Package given declares what the page takes for granted.
package given

import (
	"context"

	"github.com/postrider/postrider/doctor"
	"github.com/postrider/postrider/store/postgres"
)

var store *postgres.Store
