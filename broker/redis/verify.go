package redisbroker

import (
	"context"
	_ "embed" // for the script
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/logmark"
)

//go:embed lua/verify.lua
var verifySource string

var verifyScript = redis.NewScript(verifySource)

// markOf returns the Mark of an entry: its ID, which is needed to find it again, and the message ID.
func markOf(e entry) string {
	return logmark.Of(e.id, valueOf(e.fields, cloudEvents.Prefix+"id"), []byte(valueOf(e.fields, dataField)))
}

func valueOf(fields []string, name string) string {
	for pair := range slices.Chunk(fields, 2) {
		if pair[0] == name && len(pair) == 2 {
			return pair[1]
		}
	}
	return ""
}

// VerifyPosition implements postrider.Subscriber. A script asks the master. If the entry is missing, and the stream does not
// end before it, VerifyPosition returns PositionRemoved in the cases in which it cannot tell removed from replaced: the
// stream is empty or starts after the position, an entry at or after the position was deleted, or the server is older than
// 7.0.
func (s *Subscriber) VerifyPosition(ctx context.Context, at postrider.Position) (postrider.PositionState, error) {
	state, err := s.lookAt(ctx, at)
	if err != nil {
		return 0, unavailable(fmt.Errorf("look at an entry of partition %s of Redis: %w", at.Partition, outcome(ctx, err)))
	}
	return state, nil
}

func (s *Subscriber) lookAt(ctx context.Context, at postrider.Position) (postrider.PositionState, error) {
	i := strings.LastIndexByte(at.Mark, '-') // before the digest
	if i < 0 {
		return 0, fmt.Errorf("mark %q is none of a stream's", at.Mark)
	}
	id := at.Mark[:i]
	incarnation, _, _ := strings.Cut(at.Incarnation, "+") // see positionOf
	cmds, err := runScript(ctx, s.client, verifyScript, []invocation{{s.cfg.Prefix + "{" + at.Partition + "}", []any{id, incarnation}}})
	if err != nil {
		return 0, err
	}
	answer, err := cmds[0].Slice()
	if err != nil {
		return 0, err
	}
	switch what := fmt.Sprint(answer[0]); {
	case what == "found" && len(answer) == 2:
		return compareEntry(id, answer[1], at.Mark)
	case what == "gone" && len(answer) == 4:
		return absent(id, fmt.Sprint(answer[1]), fmt.Sprint(answer[2]), fmt.Sprint(answer[3])), nil
	case what == "missing":
		return postrider.PositionReplaced, nil
	}
	return 0, fmt.Errorf("%w: %v", errAnswer, answer)
}

func compareEntry(id string, fields any, mark string) (postrider.PositionState, error) {
	e, err := readEntry([]any{id, int64(0), fields})
	if err != nil {
		return 0, err
	}
	if markOf(e) == mark {
		return postrider.PositionKept, nil
	}
	return postrider.PositionReplaced, nil
}

// absent returns why a stream does not have an entry. Trimming removes entries from the beginning; for entries deleted
// individually, the stream only knows the highest ID.
func absent(id, last, deleted, first string) postrider.PositionState {
	switch {
	case compareIDs(last, id) < 0:
		return postrider.PositionReplaced
	case deleted == "", compareIDs(deleted, id) >= 0, first == "", compareIDs(first, id) > 0:
		return postrider.PositionRemoved
	}
	return postrider.PositionReplaced
}

// sessions counts connections: a server that was restarted, or took over, is only reached by a new connection.
type sessions struct{ n atomic.Int64 }

func (s *sessions) watch(client redis.UniversalClient) {
	if cluster, ok := client.(*redis.ClusterClient); ok {
		cluster.OnNewNode(func(node *redis.Client) { node.AddHook(s) })
		return
	}
	client.AddHook(s)
}

// DialHook implements redis.Hook.
func (s *sessions) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		s.n.Add(1)
		return next(ctx, network, addr)
	}
}

// ProcessHook implements redis.Hook.
func (s *sessions) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (s *sessions) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

var _ redis.Hook = (*sessions)(nil)
