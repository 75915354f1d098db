// Package given declares what the page takes for granted.
package given

import (
	"context"
	"net/http"
	"net/netip"
	"os"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/broker/webhook"
	"github.com/postrider/postrider/store/postgres"
)

var (
	secret  string
	url     string
	secrets []string
	store   *postgres.Store
)

func ship(context.Context, *postrider.Message) error { return nil }
