// Package given declares what the page takes for granted.
package given

import (
	"context"
	"database/sql"

	"github.com/postrider/postrider/store/mysql"
)
