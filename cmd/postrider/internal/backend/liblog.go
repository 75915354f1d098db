package backend

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"
)

// LogLibraries lets the Redis client, which would write to standard error by itself, write to logger instead, at level
// debug: what it complains about comes back as an error too, and is told there with what it means.
func LogLibraries(logger *slog.Logger) {
	redis.SetLogger(redisLog{logger})
}

type redisLog struct{ *slog.Logger }

func (l redisLog) Printf(ctx context.Context, format string, args ...any) {
	if l.Enabled(ctx, slog.LevelDebug) {
		l.DebugContext(ctx, fmt.Sprintf(format, args...), "client", "go-redis")
	}
}
