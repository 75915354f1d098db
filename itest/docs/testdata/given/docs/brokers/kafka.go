// Package given declares what the page takes for granted.
package given

import (
	"context"

	"github.com/postrider/postrider/broker/kafka"
)
