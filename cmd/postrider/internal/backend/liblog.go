package backend

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"
)

// LogLibraries redirects the log of the Redis client, which would write to standard error, to logger at level debug: its
// complaints are also returned as errors, which are logged with their meaning.
func LogLibraries(logger *slog.Logger) {
	redis.SetLogger(redisLog{logger})
}

type redisLog struct{ *slog.Logger }

func (l redisLog) Printf(ctx context.Context, format string, args ...any) {
	if l.Enabled(ctx, slog.LevelDebug) {
		l.DebugContext(ctx, fmt.Sprintf(format, args...), "client", "go-redis")
	}
}
