package redisbroker

import (
	"context"
	_ "embed" // for the scripts
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/take.lua
var takeSource string

//go:embed lua/keep.lua
var keepSource string

//go:embed lua/members.lua
var membersSource string

var (
	takeScript    = redis.NewScript(takeSource)
	keepScript    = redis.NewScript(keepSource)
	membersScript = redis.NewScript(membersSource)
)

// invocation is one run of a script on one key.
type invocation struct {
	key  string
	args []any
}

// runScript runs a script on several keys in one round trip and returns an answer per key. It loads the script if the
// server does not have it.
func runScript(ctx context.Context, client redis.UniversalClient, script *redis.Script, calls []invocation) ([]*redis.Cmd, error) {
	cmds, err := tryScript(ctx, client, script, calls)
	if err == nil || !strings.HasPrefix(err.Error(), "NOSCRIPT") {
		return cmds, err
	}
	if err := script.Load(ctx, client).Err(); err != nil {
		return nil, err
	}
	return tryScript(ctx, client, script, calls)
}

// tryScript returns the answers and the first error; a NOSCRIPT error takes precedence over others.
func tryScript(ctx context.Context, client redis.UniversalClient, script *redis.Script, calls []invocation) ([]*redis.Cmd, error) {
	cmds := make([]*redis.Cmd, len(calls))
	_, err := client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i, c := range calls {
			cmds[i] = pipe.EvalSha(ctx, script.Hash(), []string{c.key}, c.args...)
		}
		return nil
	})
	for _, cmd := range cmds {
		if e := cmd.Err(); e != nil && strings.HasPrefix(e.Error(), "NOSCRIPT") {
			return nil, e
		}
	}
	return cmds, err
}

// taken is the answer of take.lua.
type taken struct {
	incarnation string
	made        bool   // the group was created by this call
	happened    string // "taken", "busy" or "claimed"
	rewind      string
	entries     []entry
	gone        []string // pending entries that the stream no longer has
	missing     int64    // entries that were removed before they were delivered, after and before the entries with these IDs
	after       string
	before      string
}

// entry is an entry of a stream.
type entry struct {
	id         string
	deliveries int
	fields     []string
}

var errAnswer = errors.New("answer of a script cannot be read")

func readTaken(cmd *redis.Cmd) (taken, error) {
	parts, err := cmd.Slice()
	if err != nil {
		return taken{}, err
	}
	if len(parts) != 7 {
		return taken{}, fmt.Errorf("%w: %v", errAnswer, parts)
	}
	made, ok1 := parts[1].(int64)
	list, ok2 := parts[4].([]any)
	gone, ok3 := parts[5].([]any)
	missing, ok4 := parts[6].([]any)
	t := taken{incarnation: fmt.Sprint(parts[0]), made: made == 1, happened: fmt.Sprint(parts[2]), rewind: fmt.Sprint(parts[3])}
	if !ok1 || !ok2 || !ok3 || !ok4 {
		return taken{}, fmt.Errorf("%w: %v", errAnswer, parts)
	}
	for _, item := range list {
		e, err := readEntry(item)
		if err != nil {
			return taken{}, err
		}
		t.entries = append(t.entries, e)
	}
	for _, id := range gone {
		t.gone = append(t.gone, fmt.Sprint(id))
	}
	if len(missing) == 3 {
		t.missing, _ = missing[0].(int64)
		t.after, t.before = fmt.Sprint(missing[1]), fmt.Sprint(missing[2])
	}
	return t, nil
}

func readEntry(item any) (entry, error) {
	parts, ok := item.([]any)
	if !ok || len(parts) != 3 {
		return entry{}, fmt.Errorf("%w: entry %v", errAnswer, item)
	}
	deliveries, ok1 := parts[1].(int64)
	fields, ok2 := parts[2].([]any)
	if !ok1 || !ok2 {
		return entry{}, fmt.Errorf("%w: entry %v", errAnswer, item)
	}
	e := entry{id: fmt.Sprint(parts[0]), deliveries: int(deliveries), fields: make([]string, len(fields))}
	for i, f := range fields {
		e.fields[i], _ = f.(string)
	}
	return e, nil
}
