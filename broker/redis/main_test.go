package redisbroker_test

import (
	"context"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestMain(m *testing.M) {
	redis.SetLogger(silent{})
	os.Exit(m.Run())
}

// silent keeps the client from logging every connection that a test breaks.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}
