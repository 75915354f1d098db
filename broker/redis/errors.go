package redisbroker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/postrider/postrider"
)

// ErrClosed is the cause of the postrider.Unavailable error that Publish returns after Close.
var ErrClosed = errors.New("Redis publisher is closed")

// advice says what to do about error codes that concern the whole server.
var advice = map[string]string{
	"OOM":         "the server's memory is full (maxmemory): consume and delete messages, trim streams, or raise maxmemory",
	"MISCONF":     "the server cannot write to its disk, and so takes no writes: see its log",
	"READONLY":    "this is a replica: a fail-over is under way, or the address is wrong",
	"LOADING":     "the server is reading its data",
	"CLUSTERDOWN": "the cluster is not whole",
	"MASTERDOWN":  "the replica has lost its master",
	"TRYAGAIN":    "a slot is being moved",
	"MOVED":       "a slot has moved to another node",
	"ASK":         "a slot is being moved",
	"BUSY":        "a script keeps the server busy",
	"NOREPLICAS":  "too few replicas are connected (min-replicas-to-write)",
	"UNBLOCKED":   "the server has become a replica",
	"ERR max":     "the server has no more connections (maxclients)",
	"EXECABORT":   "the server did not take the transaction",
}

// outcome converts an error of the client to an error for the messages concerned:
//   - nil stays nil;
//   - if ctx has ended, the error of ctx;
//   - errors of the connection or the whole server become postrider.Unavailable;
//   - other errors are returned, some of them with advice.
func outcome(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded // the connection noticed it slightly before ctx
	}
	answer, ok := errors.AsType[redis.Error](err)
	if !ok || errors.Is(err, redis.Nil) {
		return postrider.Unavailable(err) // error of the network or the connection pool
	}
	text := answer.Error()
	for code, meaning := range advice {
		if strings.HasPrefix(text, code) {
			return postrider.Unavailable(fmt.Errorf("%w; %s", err, meaning))
		}
	}
	switch {
	case redis.IsAuthError(answer):
		return postrider.Unavailable(fmt.Errorf("%w; the server refuses the credentials: check user and password", err))
	case redis.IsPermissionError(answer):
		return fmt.Errorf("%w; grant it with ACL SETUSER", err)
	case strings.HasPrefix(text, "WRONGTYPE"):
		return fmt.Errorf("%w; something that is no stream has the name: choose another Prefix", err)
	}
	return err
}

// unavailable returns err if it is Unavailable, otherwise postrider.Unavailable(err).
func unavailable(err error) error {
	if postrider.OutcomeOf(err).Kind == postrider.BrokerUnavailable {
		return err
	}
	return postrider.Unavailable(err)
}
